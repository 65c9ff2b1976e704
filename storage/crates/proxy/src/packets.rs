//! Reading packets and messages off a connection, none longer than its reader allows.

use std::io;

use pg_protocol::startup::{self, FirstPacket, StartupError};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncReadExt as _};

/// Why a packet did not come.
#[derive(Debug, Error)]
pub enum PacketError {
    /// The connection broke, or ended.
    #[error("the connection broke: {0}")]
    Io(#[from] io::Error),
    /// What came is no first packet.
    #[error(transparent)]
    Startup(#[from] StartupError),
    /// A message is longer than its reader allows.
    #[error("a message of {0} bytes is longer than any that can come here")]
    Length(u32),
}

/// A typed message.
#[derive(Debug)]
pub struct Message {
    /// The type byte.
    pub tag: u8,
    /// What follows the length word.
    pub body: Vec<u8>,
}

/// Reads a client's first packet, and not a byte of what follows.
pub async fn first(stream: &mut (impl AsyncRead + Unpin)) -> Result<FirstPacket, PacketError> {
    let mut length = [0; 4];
    stream.read_exact(&mut length).await?;
    let mut body = vec![0; startup::body_bytes(length)?];
    stream.read_exact(&mut body).await?;
    Ok(startup::parse(&body)?)
}

/// Reads a typed message whose body has at most `most` bytes.
pub async fn message(
    stream: &mut (impl AsyncRead + Unpin),
    most: u32,
) -> Result<Message, PacketError> {
    let mut header = [0; 5];
    stream.read_exact(&mut header).await?;
    let [tag, length @ ..] = header;
    let length = u32::from_be_bytes(length);
    let body = length
        .checked_sub(4)
        .filter(|body| *body <= most)
        .ok_or(PacketError::Length(length))?;
    let mut body = vec![0; body as usize];
    stream.read_exact(&mut body).await?;
    Ok(Message { tag, body })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_length_is_believed_only_up_to_its_limit() {
        for (bytes, fits) in [
            (&b"p\0\0\0\x08abcd"[..], true),
            (b"p\0\0\0\x09abcde", false),
            (b"p\0\0\0\x03", false),
            (b"p\xFF\xFF\xFF\xFF", false),
            (b"p\0\0\0\x08abc", false),
        ] {
            let mut stream = bytes;
            assert_eq!(message(&mut stream, 4).await.is_ok(), fits, "{bytes:?}");
        }
    }

    #[tokio::test]
    async fn what_follows_the_first_packet_is_left() {
        let mut stream = &b"\0\0\0\x08\x04\xd2\x16\x2frest"[..];
        let packet = first(&mut stream).await.expect("well formed");
        assert_eq!((packet, stream), (FirstPacket::SslRequest, &b"rest"[..]));
    }
}
