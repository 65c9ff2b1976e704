//! The side that knows a verifier.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::keys::{LoginKeys, Verifier, hmac256, xor};
use super::{SCRAM_SHA_256, SCRAM_SHA_256_PLUS, ScramError, attribute, nonce, utf8};

const END_POINT: &str = "p=tls-server-end-point";

/// The mechanism that the client chose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mechanism {
    /// SCRAM-SHA-256, without channel binding.
    Plain,
    /// With channel binding.
    Plus,
}

impl Mechanism {
    /// The mechanism of this name, as it stands in SASLInitialResponse; None for one that is not spoken here.
    pub fn of_name(name: &str) -> Option<Mechanism> {
        match name {
            SCRAM_SHA_256 => Some(Mechanism::Plain),
            SCRAM_SHA_256_PLUS => Some(Mechanism::Plus),
            _ => None,
        }
    }
}

/// A server that has answered the client's first message and waits for its final one.
pub struct Server {
    verifier: Verifier,
    /// The client's first message without its GS2 header, a comma, the server's first message.
    transcript: String,
    nonce: String,
    /// What the client has to repeat under `c=`.
    binding: String,
}

impl Server {
    /// Takes the client's first message; answers with the server's first message. `end_point` is the hash of the
    /// server's certificate that the connection is bound to, None when no channel binding was offered. `random` makes
    /// the nonce.
    pub fn start(
        mechanism: Mechanism,
        client_first: &[u8],
        verifier: Verifier,
        end_point: Option<&[u8]>,
        random: &[u8; super::NONCE_BYTES],
    ) -> Result<(Server, String), ScramError> {
        let message = utf8(client_first)?;
        let (flag, rest) = message
            .split_once(',')
            .ok_or(ScramError::Malformed("no GS2 header"))?;
        let bare = rest.strip_prefix(',').ok_or(ScramError::Malformed(
            "an authorization identity is not supported",
        ))?;
        let mut bound = format!("{flag},,").into_bytes();
        match (mechanism, flag, end_point) {
            (Mechanism::Plus, END_POINT, Some(end_point)) => bound.extend_from_slice(end_point),
            (Mechanism::Plus, ..) => {
                return Err(ScramError::Malformed(
                    "the channel binding asked for is not tls-server-end-point",
                ));
            }
            (Mechanism::Plain, "n", _) | (Mechanism::Plain, "y", None) => {}
            // Someone between the two has taken the mechanism with channel binding out of the list.
            (Mechanism::Plain, "y", Some(_)) => {
                return Err(ScramError::Malformed(
                    "the client could bind the channel and believes that the server cannot; the offer was changed on its way",
                ));
            }
            (Mechanism::Plain, ..) => {
                return Err(ScramError::Malformed(
                    "channel binding needs SCRAM-SHA-256-PLUS",
                ));
            }
        }
        let mut rest = bare;
        // Postgres goes by the user of the startup packet, and clients leave this one empty.
        attribute(&mut rest, 'n')?;
        let client_nonce = nonce(attribute(&mut rest, 'r')?)?;
        let nonce = format!("{client_nonce}{}", STANDARD.encode(random));
        let first = format!(
            "r={nonce},s={},i={}",
            STANDARD.encode(&verifier.salt),
            verifier.iterations
        );
        let server = Server {
            verifier,
            transcript: format!("{bare},{first}"),
            nonce,
            binding: STANDARD.encode(bound),
        };
        Ok((server, first))
    }

    /// Takes the client's final message. Answers with the keys for a login elsewhere and with the server's final
    /// message, which proves to the client that the server knows the verifier.
    pub fn finish(self, client_final: &[u8]) -> Result<(LoginKeys, String), ScramError> {
        let message = utf8(client_final)?;
        let (unproven, proof) = message
            .rsplit_once(",p=")
            .ok_or(ScramError::Malformed("no proof"))?;
        let mut rest = unproven;
        let binding = attribute(&mut rest, 'c')?;
        if binding != self.binding {
            return Err(ScramError::Malformed(
                "the channel binding is that of another connection",
            ));
        }
        if attribute(&mut rest, 'r')? != self.nonce {
            return Err(ScramError::Malformed("the nonce is another one"));
        }
        let proof = STANDARD
            .decode(proof)
            .ok()
            .and_then(|bytes| bytes.try_into().ok())
            .ok_or(ScramError::Malformed("the proof has not 32 bytes"))?;
        let transcript = format!("{},{unproven}", self.transcript);
        let signature = hmac256(&self.verifier.stored_key, transcript.as_bytes());
        let keys = LoginKeys::proven(xor(&proof, &signature), &self.verifier)
            .ok_or(ScramError::Refused)?;
        let signature = hmac256(&self.verifier.server_key, transcript.as_bytes());
        Ok((keys, format!("v={}", STANDARD.encode(signature))))
    }
}

impl std::fmt::Debug for Server {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Server")
    }
}

#[cfg(test)]
impl Server {
    /// The server with a nonce that `start` cannot make, and its first message.
    pub(super) fn with_server_nonce(
        self,
        made: &str,
        wanted: &str,
        first: &str,
    ) -> (Server, String) {
        let server = Server {
            transcript: self.transcript.replace(made, wanted),
            nonce: self.nonce.replace(made, wanted),
            ..self
        };
        (server, first.replace(made, wanted))
    }
}
