//! Key-encryption keys in a file: text, one key a line, the newest last.
//!
//! ```text
//! weir-encryption-keys 1
//! 6f1c93a0d55b8e27 <64 hexadecimal digits>
//! end 1
//! ```
//!
//! An id is made of its key, so that a mistyped key is noticed, and the last line counts the keys, so that a file
//! that was cut is noticed. Invariant: the file is read and never written here. It is read again before anything is
//! wrapped, and when a key is asked for that it did not have: a program that runs sees a rotation.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use parking_lot::RwLock;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use ring::digest::{SHA256, digest};
use zeroize::Zeroizing;

use crate::error::EncryptionError;
use crate::hex;
use crate::provider::{KeyProvider, Wrapping};

const FIRST_LINE: &str = "weir-encryption-keys 1";
const ID_BYTES: usize = 8;
const NONCE_BYTES: usize = 12;
/// No key file is longer; one that is will not be read into memory.
const MOST_BYTES: u64 = 1 << 20;

struct Key {
    id: String,
    secret: Zeroizing<[u8; 32]>,
}

/// The keys of a key file, the newest last; there is at least one.
pub struct KeyRing(Vec<Key>);

impl std::fmt::Debug for KeyRing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("KeyRing").field(&self.ids()).finish()
    }
}

/// The id of a key: 16 digits that say nothing of the key itself.
fn id_of(secret: &[u8; 32]) -> String {
    let named = [b"weir key-encryption key ", &secret[..]].concat();
    hex::encode(&digest(&SHA256, &Zeroizing::new(named)).as_ref()[..ID_BYTES])
}

impl KeyRing {
    /// Reads the text of a key file. The error says which line is wrong, and nothing of what the line holds.
    pub fn parse(text: &str) -> Result<KeyRing, String> {
        let mut lines = text.split_inclusive('\n').zip(1..);
        if lines.next().map(|(line, _)| line) != Some(concat_line(FIRST_LINE).as_str()) {
            return Err(format!("does not begin with the line {FIRST_LINE:?}"));
        }
        let mut keys: Vec<Key> = Vec::new();
        while let Some((line, number)) = lines.next() {
            let wrong = |what: &str| Err(format!("has {what} in line {number}"));
            let Some(line) = line.strip_suffix('\n') else {
                return wrong("no end of the line: it was cut");
            };
            if let Some(count) = line.strip_prefix("end ") {
                let is_whole = count == keys.len().to_string() && !keys.is_empty();
                return match (is_whole, lines.next()) {
                    (true, None) => Ok(KeyRing(keys)),
                    (true, Some(_)) => wrong("something behind the end that is"),
                    (false, _) => wrong("another number of keys than those before it"),
                };
            }
            let Some((id, secret)) = line.split_once(' ') else {
                return wrong("neither a key nor the end");
            };
            let Some(secret) = hex::decode_array::<32>(secret).map(Zeroizing::new) else {
                return wrong("a key that is not 64 digits of 0-9 and a-f");
            };
            if id_of(&secret) != id {
                return wrong("an id that is not that of the key");
            }
            if keys.iter().any(|key| key.id == id) {
                return wrong("a key that was there before");
            }
            let id = id.to_owned();
            keys.push(Key { id, secret });
        }
        Err("has no last line \"end ...\": it was cut".to_owned())
    }

    /// Ids of the keys, the newest last.
    pub fn ids(&self) -> Vec<&str> {
        self.0.iter().map(|key| key.id.as_str()).collect()
    }

    fn newest(&self) -> &Key {
        &self.0[self.0.len() - 1]
    }

    fn find(&self, id: &str) -> Option<LessSafeKey> {
        let key = self.0.iter().find(|key| key.id == id)?;
        UnboundKey::new(&AES_256_GCM, &key.secret[..])
            .ok()
            .map(LessSafeKey::new)
    }
}

fn concat_line(line: &str) -> String {
    format!("{line}\n")
}

/// Key-encryption keys out of a key file.
#[derive(Debug)]
pub struct KeyFile {
    path: PathBuf,
    known: RwLock<KeyRing>,
}

impl KeyFile {
    /// Reads the file. Fails with [`EncryptionError::KeyFile`] if it is missing, torn, or open to other users.
    pub fn open(path: &Path) -> Result<KeyFile, EncryptionError> {
        let known = RwLock::new(read(path)?);
        let path = path.to_owned();
        Ok(KeyFile { path, known })
    }

    fn read_again(&self) -> Result<(), EncryptionError> {
        let ring = read(&self.path)?;
        *self.known.write() = ring;
        Ok(())
    }
}

fn read(path: &Path) -> Result<KeyRing, EncryptionError> {
    let wrong = |reason: String| EncryptionError::KeyFile {
        path: path.to_owned(),
        reason,
    };
    let unread = |error: std::io::Error| wrong(format!("cannot be read: {error}"));
    let metadata = std::fs::metadata(path).map_err(unread)?;
    // A file of root's may be read by a group: that of the programs of storage, which have users of their own then.
    let closed = if metadata.uid() == 0 { 0o037 } else { 0o077 };
    if metadata.mode() & closed != 0 {
        let mode = metadata.mode() & 0o777;
        return Err(wrong(format!(
            "is open to other users (mode {mode:03o}; chmod 600 closes it)"
        )));
    }
    if metadata.len() > MOST_BYTES {
        return Err(wrong("is longer than any key file".to_owned()));
    }
    let text = std::fs::read_to_string(path)
        .map(Zeroizing::new)
        .map_err(unread)?;
    KeyRing::parse(&text).map_err(wrong)
}

impl KeyProvider for KeyFile {
    fn newest(&self) -> Result<String, EncryptionError> {
        self.read_again()?;
        Ok(self.known.read().newest().id.clone())
    }

    fn wrap(
        &self,
        tenant: &str,
        context: &[u8],
        secret: &[u8; 32],
    ) -> Result<Wrapping, EncryptionError> {
        let id = self.newest()?;
        let key = self.known.read().find(&id);
        let failed = || EncryptionError::Unwrap {
            tenant: tenant.to_owned(),
        };
        let key = key.ok_or_else(failed)?;
        let nonce: [u8; NONCE_BYTES] = crate::random()?;
        let mut wrapped = Zeroizing::new(secret.to_vec());
        let tag = key.seal_in_place_separate_tag(
            Nonce::assume_unique_for_key(nonce),
            Aad::from(context),
            &mut wrapped,
        );
        let tag = tag.map_err(|_| failed())?;
        let bytes = [&nonce[..], &wrapped, tag.as_ref()].concat();
        Ok(Wrapping { key: id, bytes })
    }

    fn unwrap(
        &self,
        tenant: &str,
        context: &[u8],
        wrapping: &Wrapping,
    ) -> Result<Zeroizing<[u8; 32]>, EncryptionError> {
        let mut key = self.known.read().find(&wrapping.key);
        if key.is_none() {
            self.read_again()?;
            key = self.known.read().find(&wrapping.key);
        }
        let key = key.ok_or_else(|| EncryptionError::UnknownKey {
            tenant: tenant.to_owned(),
            wrapped_by: wrapping.key.clone(),
            at_hand: self.known.read().ids().join(", "),
        })?;
        let open = || {
            let (nonce, wrapped) = wrapping.bytes.split_first_chunk::<NONCE_BYTES>()?;
            let mut wrapped = Zeroizing::new(wrapped.to_vec());
            let nonce = Nonce::assume_unique_for_key(*nonce);
            let secret = key
                .open_in_place(nonce, Aad::from(context), &mut wrapped)
                .ok()?;
            <[u8; 32]>::try_from(&*secret).ok().map(Zeroizing::new)
        };
        open().ok_or_else(|| EncryptionError::Unwrap {
            tenant: tenant.to_owned(),
        })
    }
}
