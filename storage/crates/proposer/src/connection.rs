//! A connection to a safekeeper, as frames.

use std::time::Duration;

use anyhow::Context as _;
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio_util::codec::{FramedRead, LengthDelimitedCodec};
use wire::wal;

/// What the safekeeper sends, a message a frame.
pub type Frames = FramedRead<OwnedReadHalf, LengthDelimitedCodec>;

/// Fails when there is no connection within `timeout`.
pub async fn connect(address: &str, timeout: Duration) -> anyhow::Result<(Frames, OwnedWriteHalf)> {
    let stream = tokio::time::timeout(timeout, TcpStream::connect(address))
        .await
        .with_context(|| format!("safekeeper {address}: no connection within {timeout:?}"))?
        .with_context(|| format!("safekeeper {address}: cannot connect"))?;
    stream.set_nodelay(true)?;
    let (reader, writer) = stream.into_split();
    Ok((FramedRead::new(reader, wal::codec()), writer))
}
