//! SCRAM-SHA-256 and SCRAM-SHA-256-PLUS (RFC 5802, RFC 7677), both sides.
//!
//! The server's side ([`Server`]) checks a client against a stored [`Verifier`]. A verifier does not let its holder log
//! in. The proof of a client that knows the password does: it gives the client key ([`LoginKeys`]), with which the
//! client's side ([`Client`]) logs in to another server that has the same verifier. With SCRAM the
//! password itself never comes by; a client that sends it in clear has it compared with the verifier
//! ([`LoginKeys::of_password`]).
//!
//! Of channel bindings `tls-server-end-point` (RFC 5929) is the only one that libpq can ask for, and the only one here.

mod client;
mod keys;
mod server;

pub use client::{Client, Waiting};
pub use keys::{LoginKeys, MockSecret, Verifier};
pub use server::{Mechanism, Server};

use thiserror::Error;

/// Name of the mechanism without channel binding.
pub const SCRAM_SHA_256: &str = "SCRAM-SHA-256";
/// Name of the mechanism with channel binding.
pub const SCRAM_SHA_256_PLUS: &str = "SCRAM-SHA-256-PLUS";

/// Random bytes of a nonce, before Base64; as many as Postgres takes.
pub const NONCE_BYTES: usize = 18;

/// Why an exchange does not succeed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ScramError {
    /// The other side does not follow the protocol.
    #[error("malformed SCRAM message: {0}")]
    Malformed(&'static str),
    /// The proof or the server's signature is not that of the verifier.
    #[error("the SCRAM proof is wrong")]
    Refused,
}

/// Takes `NAME=VALUE,` off the front of a text; the last attribute has no comma.
fn attribute<'a>(rest: &mut &'a str, name: char) -> Result<&'a str, ScramError> {
    let value = rest
        .strip_prefix(name)
        .and_then(|rest| rest.strip_prefix('='))
        .ok_or(ScramError::Malformed(
            "an attribute is missing or not in its place",
        ))?;
    let (value, after) = value.split_once(',').unwrap_or((value, ""));
    *rest = after;
    Ok(value)
}

/// A nonce is printable ASCII without a comma, and not empty.
fn nonce(text: &str) -> Result<&str, ScramError> {
    let printable = text.bytes().all(|byte| (0x21..=0x7E).contains(&byte));
    match printable && !text.is_empty() {
        true => Ok(text),
        false => Err(ScramError::Malformed("a nonce is not printable")),
    }
}

fn utf8(bytes: &[u8]) -> Result<&str, ScramError> {
    std::str::from_utf8(bytes).map_err(|_| ScramError::Malformed("not UTF-8"))
}

#[cfg(test)]
mod tests;
