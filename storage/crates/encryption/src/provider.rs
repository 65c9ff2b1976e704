//! Where key-encryption keys are: what a key file and a KMS have in common.

use zeroize::Zeroizing;

use crate::error::EncryptionError;

/// A data key as a key-encryption key has wrapped it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wrapping {
    /// Id of the key-encryption key.
    pub key: String,
    /// What that key made of the data key; only the provider knows its form.
    pub bytes: Vec<u8>,
}

/// Wraps and unwraps data keys. A provider has several keys: the newest wraps, and all of them unwrap. What it is
/// asked may take as long as a request to a KMS does.
pub trait KeyProvider: std::fmt::Debug + Send + Sync {
    /// Id of the key that wraps from now on.
    fn newest(&self) -> Result<String, EncryptionError>;

    /// Wraps a secret with the newest key, for a context: other contexts do not unwrap it. `tenant` is for errors.
    fn wrap(
        &self,
        tenant: &str,
        context: &[u8],
        secret: &[u8; 32],
    ) -> Result<Wrapping, EncryptionError>;

    /// The secret. [`EncryptionError::UnknownKey`] if the key is not at hand, [`EncryptionError::Unwrap`] if the
    /// wrapping or the context is not what it was.
    fn unwrap(
        &self,
        tenant: &str,
        context: &[u8],
        wrapping: &Wrapping,
    ) -> Result<Zeroizing<[u8; 32]>, EncryptionError>;
}
