//! The first bytes of an encrypted file, and where the parts of its content lie. `docs/formats.md` has the format.

use pg_types::{TenantId, TimelineId};

use crate::error::EncryptionError;

/// Version of the format written; newer ones are refused.
const VERSION: u16 = 1;
const MAGIC: [u8; 8] = *b"WEIRCRYP";
/// AES-256-GCM, with file keys by HKDF-SHA256.
const ALGORITHM: u8 = 1;
const BLOCK_BITS: u8 = 13;

/// Bytes of the header. A page of a disk, so that blocks lie at borders of pages.
pub const HEADER_BYTES: usize = 4096;
/// Bytes that a full block takes in the file.
pub const BLOCK_BYTES: usize = 1 << BLOCK_BITS;
pub(crate) const TAG_BYTES: usize = 16;
/// Bytes of content in a full block: the rest is its tag.
pub const CONTENT_BYTES: usize = BLOCK_BYTES - TAG_BYTES;

/// What the file key is made for; the check follows.
pub(crate) const BOUND_BYTES: usize = 72;
const CHECK_BYTES: usize = 32;

/// What an object is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A layer of a timeline.
    Layer,
    /// A piece of a timeline's finished WAL.
    Wal,
}

/// The place of an object, to which its content is bound.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ObjectName<'a> {
    /// The timeline it belongs to; the tenant is that of the data key.
    pub timeline: TimelineId,
    /// What it is.
    pub kind: Kind,
    /// The object's name in the timeline's folder of such objects.
    pub name: &'a str,
}

impl ObjectName<'_> {
    /// No two places have the same bytes: all before the name has one length.
    pub(crate) fn bytes(&self, tenant: TenantId) -> Vec<u8> {
        let kind = match self.kind {
            Kind::Layer => 1,
            Kind::Wal => 2,
        };
        let mut bytes = vec![kind];
        bytes.extend_from_slice(&tenant.0);
        bytes.extend_from_slice(&self.timeline.0);
        bytes.extend_from_slice(self.name.as_bytes());
        bytes
    }
}

/// Whether a file that begins so is encrypted. Eight bytes are enough to tell.
pub fn is_encrypted(begin: &[u8]) -> bool {
    begin.starts_with(&MAGIC)
}

/// Bytes of the file whose content has `content` bytes; `None` beyond what a length can say.
pub fn stored_length(content: u64) -> Option<u64> {
    let tags = content
        .div_ceil(CONTENT_BYTES as u64)
        .checked_mul(TAG_BYTES as u64)?;
    content.checked_add(tags)?.checked_add(HEADER_BYTES as u64)
}

/// What a header says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Header {
    pub key_id: [u8; 16],
    pub salt: [u8; 32],
    /// Bytes of the content.
    pub length: u64,
}

impl Header {
    /// The part that the file key is made for.
    pub fn bound(&self) -> [u8; BOUND_BYTES] {
        let mut bytes = [0; BOUND_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..10].copy_from_slice(&VERSION.to_le_bytes());
        bytes[10] = ALGORITHM;
        bytes[11] = BLOCK_BITS;
        bytes[16..32].copy_from_slice(&self.key_id);
        bytes[32..64].copy_from_slice(&self.salt);
        bytes[64..72].copy_from_slice(&self.length.to_le_bytes());
        bytes
    }

    pub fn encode(&self, check: &[u8; CHECK_BYTES]) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..BOUND_BYTES].copy_from_slice(&self.bound());
        bytes[BOUND_BYTES..BOUND_BYTES + CHECK_BYTES].copy_from_slice(check);
        bytes
    }

    /// The header that a file begins with, and its check, which is not looked at here.
    pub fn decode(file: &[u8]) -> Result<(Header, [u8; CHECK_BYTES]), EncryptionError> {
        let damaged = EncryptionError::Header;
        let bytes = file
            .first_chunk::<HEADER_BYTES>()
            .ok_or(damaged("it is cut short"))?;
        let (bound, rest) = bytes.split_at(BOUND_BYTES);
        let (check, padding) = rest.split_at(CHECK_BYTES);
        if !is_encrypted(bound) {
            return Err(damaged("it does not begin as an encrypted file does"));
        }
        let version = u16::from_le_bytes([bound[8], bound[9]]);
        if version > VERSION {
            return Err(EncryptionError::TooNew {
                what: "the encrypted file",
                found: version.into(),
                known: VERSION.into(),
            });
        }
        let mut header = Header {
            key_id: [0; 16],
            salt: [0; 32],
            length: 0,
        };
        header.key_id.copy_from_slice(&bound[16..32]);
        header.salt.copy_from_slice(&bound[32..64]);
        let length: [u8; 8] = bound[64..72].try_into().unwrap_or_default();
        header.length = u64::from_le_bytes(length);
        if header.bound() != bound || padding.iter().any(|byte| *byte != 0) {
            return Err(damaged("it holds what no writer puts there"));
        }
        stored_length(header.length).ok_or(damaged("no file has that length"))?;
        let check = check
            .try_into()
            .map_err(|_| damaged("its check is cut short"))?;
        Ok((header, check))
    }
}
