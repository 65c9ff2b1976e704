//! Connections that come through a load balancer, which says in front of them whose they are.
//!
//! They come in at a port of their own, where only senders of a configured set are heard: whoever can say where a
//! connection comes from chooses the address by which `allowed_ips` lets it in and by which failed logins slow it. At the
//! port for clients such a header is no packet of theirs, and ends the connection.

use std::net::SocketAddr;

use pg_protocol::addresses::Addresses;
use pg_protocol::origin::{self, FIXED_BYTES, Origin, OriginError};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncReadExt as _};

/// Why a connection is not taken. Its sender is told nothing.
#[derive(Debug, Error)]
pub enum SenderError {
    /// The sender is none of those that are trusted.
    #[error("{0} is no trusted sender of the PROXY protocol")]
    Untrusted(SocketAddr),
    /// The sender does not say whose the connection is.
    #[error(transparent)]
    Header(#[from] OriginError),
    /// The connection broke, or ended.
    #[error("the connection broke: {0}")]
    Io(#[from] std::io::Error),
}

/// The address of the client that a connection is for. Of the connection no byte behind the header is read.
///
/// # Errors
/// [`SenderError::Untrusted`] before a byte is read; others when what comes is no header of a connection of TCP.
pub async fn client(
    stream: &mut (impl AsyncRead + Unpin),
    sender: SocketAddr,
    trusted: &Addresses,
) -> Result<SocketAddr, SenderError> {
    if !trusted.contains(sender.ip()) {
        return Err(SenderError::Untrusted(sender));
    }
    let mut fixed = [0; FIXED_BYTES];
    stream.read_exact(&mut fixed).await?;
    let mut rest = vec![0; origin::rest_bytes(&fixed)?];
    stream.read_exact(&mut rest).await?;
    match origin::parse(&fixed, &rest)? {
        Origin::Sender => Ok(sender),
        Origin::Client(address) => Ok(address),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &[u8] =
        b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\xc0\0\x02\x07\x0a\0\0\x01\xd4\x31\x15\x38";

    async fn of(sender: &str, bytes: &[u8]) -> (Result<SocketAddr, SenderError>, usize) {
        let trusted = Addresses::parse(["10.0.0.0/8"]).expect("well formed");
        let mut stream = bytes;
        let sender = sender.parse().expect("an address");
        let client = client(&mut stream, sender, &trusted).await;
        (client, stream.len())
    }

    #[tokio::test]
    async fn a_trusted_sender_says_whose_a_connection_is_and_no_more_is_read() {
        let bytes = [HEADER, b"rest"].concat();
        let (client, left) = of("10.1.2.3:4", &bytes).await;
        let expected: SocketAddr = "192.0.2.7:54321".parse().expect("an address");
        assert_eq!((client.expect("trusted"), left), (expected, 4));
        // As a listener of IPv6 sees the same sender.
        assert!(of("[::ffff:10.1.2.3]:4", &bytes).await.0.is_ok());
    }

    #[tokio::test]
    async fn nothing_is_read_of_a_sender_that_is_not_trusted() {
        for sender in ["192.0.2.7:1", "[::1]:1", "11.0.0.0:1"] {
            let (client, left) = of(sender, HEADER).await;
            assert!(
                matches!(client, Err(SenderError::Untrusted(_))),
                "{client:?}"
            );
            assert_eq!(left, HEADER.len());
        }
    }

    #[tokio::test]
    async fn a_trusted_sender_that_says_nothing_or_half_of_it_is_refused() {
        for bytes in [
            &b""[..],
            &HEADER[..15],
            &HEADER[..27],
            b"\0\0\0\x08\x04\xd2\x16\x2f\0\0\0\0\0\0\0\0",
        ] {
            let (client, _) = of("10.1.2.3:4", bytes).await;
            assert!(client.is_err(), "{client:?}");
        }
    }
}
