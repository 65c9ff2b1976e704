//! The public keys that count: a JSON web key set (RFC 7517) of Ed25519 keys (RFC 8037).

use std::collections::HashMap;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde::Deserialize;

/// No key set is longer.
const LONGEST_FILE_BYTES: usize = 64 << 10;
const PUBLIC_KEY_BYTES: usize = 32;

/// The keys by name. There is at least one.
#[derive(Debug)]
pub struct KeySet {
    keys: HashMap<String, Key>,
}

#[derive(Debug)]
pub(crate) struct Key {
    pub public: [u8; PUBLIC_KEY_BYTES],
    /// Seconds since the Unix epoch from which on the key counts no longer.
    pub retires: Option<u64>,
}

#[derive(Deserialize)]
struct Written {
    keys: Vec<WrittenKey>,
}

#[derive(Deserialize)]
struct WrittenKey {
    kty: String,
    crv: String,
    kid: String,
    x: String,
    alg: Option<String>,
    /// Weir's own: when a key that was replaced stops to count.
    weir_retires: Option<u64>,
}

/// Why a file is no key set.
#[derive(Debug, thiserror::Error)]
pub enum KeySetError {
    /// Longer than any key set.
    #[error("it is longer than {LONGEST_FILE_BYTES} bytes")]
    TooLong,
    /// Not JSON, or not a key set.
    #[error("it is no JSON web key set: {0}")]
    Json(#[from] serde_json::Error),
    /// A key set without keys would refuse everybody.
    #[error("it has no keys")]
    Empty,
    /// A key that is not one of Ed25519.
    #[error(
        "its key {0:?} is not of Ed25519 (kty OKP, crv Ed25519, alg EdDSA or none, x of 32 bytes)"
    )]
    OtherKey(String),
    /// The name of a key has to say which one it is.
    #[error("two of its keys are called {0:?}")]
    Twice(String),
}

impl KeySet {
    /// Reads a whole key set; one key that can't be used makes all of it unusable.
    pub fn parse(text: &[u8]) -> Result<KeySet, KeySetError> {
        if text.len() > LONGEST_FILE_BYTES {
            return Err(KeySetError::TooLong);
        }
        let written: Written = serde_json::from_slice(text)?;
        let mut keys = HashMap::new();
        for key in written.keys {
            let is_ours = key.kty == "OKP"
                && key.crv == "Ed25519"
                && key.alg.as_deref().is_none_or(|alg| alg == "EdDSA");
            let public = BASE64_URL_SAFE_NO_PAD.decode(&key.x).ok();
            let public = public.and_then(|bytes| bytes.try_into().ok());
            let Some(public) = public.filter(|_| is_ours) else {
                return Err(KeySetError::OtherKey(key.kid));
            };
            let retires = key.weir_retires;
            if keys
                .insert(key.kid.clone(), Key { public, retires })
                .is_some()
            {
                return Err(KeySetError::Twice(key.kid));
            }
        }
        match keys.is_empty() {
            true => Err(KeySetError::Empty),
            false => Ok(KeySet { keys }),
        }
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Key> {
        self.keys.get(name)
    }

    /// Names of the keys, in order.
    pub fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.keys.keys().map(String::as_str).collect();
        names.sort_unstable();
        names
    }
}
