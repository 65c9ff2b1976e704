//! Encryption of what storage keeps: envelope encryption with AES-256-GCM.
//!
//! Three kinds of keys, each encrypting the next:
//!
//! ```text
//! key-encryption keys   of the installation, in a key file or a KMS ([`KeyProvider`])
//!   data key            one of each tenant, random; kept wrapped beside the tenant's data ([`TenantKey`])
//!     file key          one of each encrypted file, derived from the data key and never kept ([`FileKey`])
//! ```
//!
//! Invariants:
//!
//! 1. No nonce is used twice with a key. A file key is derived (HKDF-SHA256) from the data key, a random salt of
//!    256 bits and all that the header says; it encrypts the blocks of one content, block `n` with nonce `n`, and
//!    [`encrypt`] alone makes one for encrypting. Two contents have the same file key only if their salts are equal:
//!    2^64 files of a tenant meet with probability 2^-129. A key-encryption key wraps a data key with a random nonce
//!    of 96 bits, once for each tenant and rotation: 2^32 wrappings meet with probability 2^-33.
//! 2. A file is bound to its place. Tenant, timeline, kind and name of the object go into the file key, as does the
//!    length. A file in another's place, or cut, or made longer is refused when it is opened ([`FileKey::open`]), and
//!    a block in another's place, or changed, when it is read.
//! 3. A wrapped data key is bound to its tenant, to its own id and to whether plain files are accepted beside it.
//! 4. A file says itself that it is encrypted, by its first bytes ([`is_encrypted`]), and with which data key.
//!
//! What this does not do: it does not notice that a whole state was put back in place of a newer one, because a
//! name's older content was good once. It hides contents, not lengths and names.
//!
//! The crate does no I/O but for reading the key file, and asks the system for random bytes.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod error;
mod file;
mod header;
mod hex;
mod key_file;
mod provider;
mod tenant;

pub use error::EncryptionError;
pub use file::{FileKey, decrypt, encrypt};
pub use header::{
    BLOCK_BYTES, CONTENT_BYTES, HEADER_BYTES, Kind, ObjectName, is_encrypted, stored_length,
};
pub use key_file::{KeyFile, KeyRing};
pub use provider::{KeyProvider, Wrapping};
pub use tenant::{KEY_FORMAT_VERSION, Plain, TenantKey, Wrapped};

use ring::rand::{SecureRandom, SystemRandom};

/// Bytes that nobody can guess, from the system.
pub fn random<const N: usize>() -> Result<[u8; N], EncryptionError> {
    let mut bytes = [0; N];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| EncryptionError::Random)?;
    Ok(bytes)
}
