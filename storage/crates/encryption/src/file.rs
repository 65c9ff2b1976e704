//! Encrypted files: a header, and the content in blocks that are encrypted one by one, so that any part can be read
//! without the others.
//!
//! Invariant: a [`FileKey`] is made for encrypting within [`encrypt`] alone, from a salt that is drawn there, and
//! encrypts each block once.

use std::io::{self, Write};
use std::ops::Range;

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, KeyType, Salt};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use crate::error::EncryptionError;
use crate::header::{
    BLOCK_BYTES, CONTENT_BYTES, HEADER_BYTES, Header, ObjectName, TAG_BYTES, stored_length,
};
use crate::tenant::TenantKey;

/// What file keys are derived for, and nothing else is.
const PURPOSE: &[u8] = b"weir encrypted file 1";

/// The key of one encrypted file, with which its parts can be read.
pub struct FileKey {
    key: LessSafeKey,
    length: u64,
}

impl std::fmt::Debug for FileKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FileKey")
            .field("length", &self.length)
            .finish_non_exhaustive()
    }
}

/// 64 bytes of HKDF's output: the file key, and the check of the header.
struct Derived;

impl KeyType for Derived {
    fn len(&self) -> usize {
        64
    }
}

/// The key that encrypts this content in this place, and what shows a reader that it has the same.
fn derive(
    tenant: &TenantKey,
    object: &ObjectName<'_>,
    header: &Header,
) -> Result<(LessSafeKey, [u8; 32]), EncryptionError> {
    let place = object.bytes(tenant.tenant());
    let bound = header.bound();
    let mut derived = Zeroizing::new([0; 64]);
    let pseudorandom = Salt::new(HKDF_SHA256, &header.salt).extract(tenant.secret());
    let filled = pseudorandom
        .expand(&[PURPOSE, &bound, &place], Derived)
        .and_then(|output| output.fill(&mut derived[..]));
    let (key, check) = derived.split_at(32);
    let key = filled.and_then(|()| UnboundKey::new(&AES_256_GCM, key));
    let key = key.map_err(|_| EncryptionError::Header("no key can be derived for it"))?;
    let check = check.try_into().unwrap_or_default();
    Ok((LessSafeKey::new(key), check))
}

fn nonce(block: u64) -> Nonce {
    let mut bytes = [0; 12];
    bytes[4..].copy_from_slice(&block.to_be_bytes());
    Nonce::assume_unique_for_key(bytes)
}

impl FileKey {
    /// The key of the file that begins with `begin`, of at least [`HEADER_BYTES`], and has `stored` bytes. Refuses a
    /// file that was changed there, cut or made longer, and one that was encrypted as another object or tenant's.
    pub fn open(
        tenant: &TenantKey,
        object: &ObjectName<'_>,
        begin: &[u8],
        stored: u64,
    ) -> Result<FileKey, EncryptionError> {
        let (header, check) = Header::decode(begin)?;
        if header.key_id != tenant.id_bytes() {
            return Err(EncryptionError::OtherKey {
                found: crate::hex::encode(&header.key_id),
                expected: tenant.id(),
            });
        }
        let (key, expected) = derive(tenant, object, &header)?;
        if !bool::from(check.ct_eq(&expected)) {
            return Err(EncryptionError::NotThisObject);
        }
        let length = header.length;
        match stored_length(length) {
            Some(expected) if expected == stored => Ok(FileKey { key, length }),
            expected => Err(EncryptionError::Length {
                stored,
                content: length,
                expected: expected.unwrap_or(u64::MAX),
            }),
        }
    }

    /// Bytes of the content.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Where in the file the blocks lie that hold a part of the content; `None` if the content ends before the part
    /// does.
    pub fn stored_range(&self, offset: u64, len: usize) -> Option<Range<u64>> {
        let end = offset.checked_add(len as u64)?;
        if end > self.length {
            return None;
        }
        if len == 0 {
            return Some(HEADER_BYTES as u64..HEADER_BYTES as u64);
        }
        let (content, block) = (CONTENT_BYTES as u64, BLOCK_BYTES as u64);
        let header = HEADER_BYTES as u64;
        let begin = header + offset / content * block;
        let behind = header + end.div_ceil(content) * block;
        Some(begin..behind.min(stored_length(self.length)?))
    }

    /// A part of the content, out of the bytes of its [`FileKey::stored_range`], which are decrypted where they lie.
    pub fn decrypt_part(
        &self,
        offset: u64,
        len: usize,
        stored: &mut [u8],
    ) -> Result<Vec<u8>, EncryptionError> {
        let first = offset / CONTENT_BYTES as u64;
        // The range is inside the content, or there would be no stored bytes of it.
        let mut skip = (offset % CONTENT_BYTES as u64) as usize;
        let mut part = Vec::with_capacity(len);
        for (number, block) in (first..).zip(stored.chunks_mut(BLOCK_BYTES)) {
            let content = self.decrypt_block(number, block)?;
            let from = skip.min(content.len());
            let wanted = (len - part.len()).min(content.len() - from);
            part.extend_from_slice(&content[from..from + wanted]);
            skip = 0;
        }
        match part.len() == len {
            true => Ok(part),
            false => Err(EncryptionError::Header("the content ends too early")),
        }
    }

    /// The content of the whole blocks among the first bytes of the file, header included: all of it, given the file.
    pub fn decrypt_head(&self, head: &[u8]) -> Result<Vec<u8>, EncryptionError> {
        let last = self.length.div_ceil(CONTENT_BYTES as u64);
        let is_whole = stored_length(self.length) == Some(head.len() as u64);
        let blocks = head.get(HEADER_BYTES..).unwrap_or_default();
        let mut content = Vec::with_capacity(blocks.len());
        let mut stored = Vec::with_capacity(BLOCK_BYTES);
        for (number, block) in (0..last).zip(blocks.chunks(BLOCK_BYTES)) {
            if block.len() < BLOCK_BYTES && !is_whole {
                break;
            }
            stored.clear();
            stored.extend_from_slice(block);
            content.extend_from_slice(self.decrypt_block(number, &mut stored)?);
        }
        Ok(content)
    }

    fn decrypt_block<'a>(
        &self,
        number: u64,
        block: &'a mut [u8],
    ) -> Result<&'a [u8], EncryptionError> {
        let opened = self.key.open_in_place(nonce(number), Aad::empty(), block);
        opened
            .map(|content| &*content)
            .map_err(|_| EncryptionError::Block(number))
    }
}

/// Writes a content, given in pieces, as an encrypted file of an object, under a file key that no other call has.
/// Fails as the writer does.
pub fn encrypt<'a>(
    tenant: &TenantKey,
    object: &ObjectName<'_>,
    pieces: impl Iterator<Item = &'a [u8]> + Clone,
    out: &mut impl Write,
) -> io::Result<()> {
    let header = Header {
        key_id: tenant.id_bytes(),
        // Not passed in: a caller that passed one twice would break the encryption of both files.
        salt: crate::random().map_err(io::Error::other)?,
        length: pieces.clone().map(|piece| piece.len() as u64).sum(),
    };
    let (key, check) = derive(tenant, object, &header).map_err(io::Error::other)?;
    out.write_all(&header.encode(&check))?;
    let mut number = 0;
    let mut block = Vec::with_capacity(BLOCK_BYTES);
    let mut finish = |block: &mut Vec<u8>| {
        let tag = key.seal_in_place_separate_tag(nonce(number), Aad::empty(), block);
        let tag = tag.map_err(|_| io::Error::other("a block cannot be encrypted"))?;
        number += 1;
        block.extend_from_slice(tag.as_ref());
        debug_assert!(block.len() > TAG_BYTES && block.len() <= BLOCK_BYTES);
        out.write_all(block)?;
        block.clear();
        Ok::<(), io::Error>(())
    };
    for mut piece in pieces {
        while !piece.is_empty() {
            let fit = piece.len().min(CONTENT_BYTES - block.len());
            let (now, later) = piece.split_at(fit);
            block.extend_from_slice(now);
            piece = later;
            if block.len() == CONTENT_BYTES {
                finish(&mut block)?;
            }
        }
    }
    if !block.is_empty() {
        finish(&mut block)?;
    }
    Ok(())
}

/// The whole content of an encrypted file.
pub fn decrypt(
    tenant: &TenantKey,
    object: &ObjectName<'_>,
    file: &[u8],
) -> Result<Vec<u8>, EncryptionError> {
    FileKey::open(tenant, object, file, file.len() as u64)?.decrypt_head(file)
}
