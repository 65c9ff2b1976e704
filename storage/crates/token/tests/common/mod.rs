//! A control plane's end for tests: keys, key sets and tokens of any kind.
#![allow(dead_code)]

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use serde_json::{Value, json};

pub const NOW: u64 = 1_800_000_000;
pub const TENANT: &str = "11111111111111111111111111111111";
pub const OTHER_TENANT: &str = "22222222222222222222222222222222";
pub const TIMELINE: &str = "33333333333333333333333333333333";
pub const OTHER_TIMELINE: &str = "44444444444444444444444444444444";

pub struct Signer {
    pub name: String,
    pair: Ed25519KeyPair,
}

pub fn base64url(bytes: impl AsRef<[u8]>) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(bytes)
}

impl Signer {
    pub fn new(name: &str, seed: u8) -> Signer {
        let pair = Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).expect("a seed");
        let name = name.to_owned();
        Signer { name, pair }
    }

    pub fn public(&self) -> Value {
        let x = base64url(self.pair.public_key());
        json!({"kty": "OKP", "crv": "Ed25519", "kid": self.name, "x": x, "alg": "EdDSA", "use": "sig"})
    }

    /// The signature part of a token, of these two parts.
    pub fn signature(&self, parts: &str) -> String {
        base64url(self.pair.sign(parts.as_bytes()))
    }

    pub fn sign_as(&self, header: &Value, claims: &Value) -> String {
        let parts = format!(
            "{}.{}",
            base64url(header.to_string()),
            base64url(claims.to_string())
        );
        format!("{parts}.{}", self.signature(&parts))
    }

    pub fn sign(&self, claims: &Value) -> String {
        let header = json!({"alg": "EdDSA", "typ": "JWT", "kid": self.name});
        self.sign_as(&header, claims)
    }
}

pub fn key_set(keys: &[Value]) -> Vec<u8> {
    json!({ "keys": keys }).to_string().into_bytes()
}

/// Claims that are good at `now`, of one timeline, for the pageserver.
pub fn claims(now: u64) -> Value {
    json!({
        "iss": "weir-control-plane", "aud": "pageserver", "sub": "a test", "iat": now, "exp": now + 300,
        "tenant": TENANT, "timeline": TIMELINE, "rights": ["read_pages"],
    })
}

/// The same with some changed; `null` takes one away.
pub fn claims_with(now: u64, changes: &Value) -> Value {
    let mut all = claims(now);
    let object = all.as_object_mut().expect("an object");
    for (name, value) in changes.as_object().expect("an object") {
        match value {
            Value::Null => object.remove(name),
            value => object.insert(name.clone(), value.clone()),
        };
    }
    all
}
