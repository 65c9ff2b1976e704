//! Errors of encryption. None of them shows a key or a part of one.

use std::path::PathBuf;

/// Why something cannot be encrypted or decrypted. [`EncryptionError::may_be_mended`] says whether another key file
/// would help.
#[derive(Debug, thiserror::Error)]
pub enum EncryptionError {
    /// The key file is not there, open to others, or not whole. Put the right one back: nothing makes a new one.
    #[error(
        "the key file {} {reason}; put the right one back: what is encrypted cannot be read without it",
        path.display()
    )]
    KeyFile {
        /// Where it should be.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// Another key-encryption key has wrapped the data key than those at hand.
    #[error(
        "the data key of tenant {tenant} is wrapped by key {wrapped_by}, and the keys at hand are {at_hand}: this is \
         the wrong key file, or the key was taken out of it too early"
    )]
    UnknownKey {
        /// The tenant of the data key.
        tenant: String,
        /// Id of the key that has wrapped it.
        wrapped_by: String,
        /// Ids of the keys at hand.
        at_hand: String,
    },
    /// The wrapping does not come from this key, or not for this tenant, or was changed.
    #[error(
        "the wrapped data key of tenant {tenant} is damaged, or another tenant's: put back the object that was there"
    )]
    Unwrap {
        /// The tenant whose data key it should be.
        tenant: String,
    },
    /// The document that holds a wrapped data key makes no sense.
    #[error("the document of a wrapped data key is damaged: {0}")]
    Document(String),
    /// A newer version of Weir wrote it.
    #[error("{what} has format version {found}; this program reads up to {known}: use a newer one")]
    TooNew {
        /// What has that version.
        what: &'static str,
        /// Version that it says.
        found: u32,
        /// Newest version that this program reads.
        known: u32,
    },
    /// The file is encrypted, and there is no data key of its tenant.
    #[error(
        "it is encrypted, and the data key of its tenant is not at hand: give the key file (--key-file)"
    )]
    NoKey,
    /// The file is not encrypted, and the tenant has had encrypted files alone since it was made.
    #[error(
        "it is not encrypted, and its tenant has encrypted files alone: somebody has put it there"
    )]
    PlainRefused,
    /// Another data key than the tenant's has encrypted the file.
    #[error("it is encrypted with data key {found}, its tenant's is {expected}")]
    OtherKey {
        /// Id that the file names.
        found: String,
        /// Id of the tenant's data key.
        expected: String,
    },
    /// The header makes no sense.
    #[error("its header is damaged: {0}")]
    Header(&'static str),
    /// The header was changed, or the file is another object's.
    #[error("its header does not fit the object: it is damaged, or another object lies here")]
    NotThisObject,
    /// The file was cut or made longer.
    #[error("it has {stored} bytes; encrypted content of {content} bytes takes {expected}")]
    Length {
        /// Bytes of the file.
        stored: u64,
        /// Bytes of its content, as its header says.
        content: u64,
        /// Bytes that the file should have.
        expected: u64,
    },
    /// A block was changed, or is another's.
    #[error("its block {0} is damaged, or another block lies there")]
    Block(u64),
    /// The system has no random bytes.
    #[error("the system gives no random bytes")]
    Random,
}

impl EncryptionError {
    /// Whether the error is about keys that an operator may put in place, not about what is stored.
    pub fn may_be_mended(&self) -> bool {
        matches!(
            self,
            EncryptionError::KeyFile { .. }
                | EncryptionError::UnknownKey { .. }
                | EncryptionError::NoKey
                | EncryptionError::Random
        )
    }
}
