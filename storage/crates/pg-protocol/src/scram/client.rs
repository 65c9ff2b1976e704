//! The side that logs in, with the keys of an earlier login in place of a password.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use subtle::ConstantTimeEq as _;

use super::keys::{LoginKeys, hmac256, sha256, xor};
use super::{NONCE_BYTES, ScramError, attribute, nonce, utf8};

/// The GS2 header of a client that does no channel binding, and it in Base64.
const GS2: (&str, &str) = ("n,,", "biws");

/// A client that has sent its first message.
#[derive(Debug)]
pub struct Client {
    nonce: String,
}

/// A client that has sent its final message and wants the server to prove itself.
#[derive(Debug)]
pub struct Waiting {
    expected: [u8; 32],
}

impl Client {
    /// A client and its first message.
    pub fn start(random: &[u8; NONCE_BYTES]) -> (Client, String) {
        let nonce = STANDARD.encode(random);
        let first = format!("{}n=,r={nonce}", GS2.0);
        (Client { nonce }, first)
    }

    /// Takes the server's first message; answers with the client's final one.
    pub fn answer(
        self,
        server_first: &[u8],
        keys: &LoginKeys,
    ) -> Result<(Waiting, String), ScramError> {
        let message = utf8(server_first)?;
        let mut rest = message;
        let nonce = nonce(attribute(&mut rest, 'r')?)?;
        // Salt and iterations were for the password.
        attribute(&mut rest, 's')?;
        attribute(&mut rest, 'i')?;
        if !nonce.starts_with(&self.nonce) || nonce.len() == self.nonce.len() {
            return Err(ScramError::Malformed("the server's nonce is another one"));
        }
        let unproven = format!("c={},r={nonce}", GS2.1);
        let transcript = format!("n=,r={},{message},{unproven}", self.nonce);
        let stored_key = sha256(keys.client_key.as_slice());
        let signature = hmac256(&stored_key, transcript.as_bytes());
        let proof = STANDARD.encode(xor(&keys.client_key, &signature));
        let expected = hmac256(keys.server_key.as_slice(), transcript.as_bytes());
        Ok((Waiting { expected }, format!("{unproven},p={proof}")))
    }
}

impl Waiting {
    /// Takes the server's final message: refused when the server does not know the verifier.
    pub fn verify(self, server_final: &[u8]) -> Result<(), ScramError> {
        let mut rest = utf8(server_final)?;
        let signature = STANDARD
            .decode(attribute(&mut rest, 'v')?)
            .map_err(|_| ScramError::Malformed("the server's signature is no Base64"))?;
        match bool::from(signature.as_slice().ct_eq(&self.expected)) {
            true => Ok(()),
            false => Err(ScramError::Refused),
        }
    }
}
