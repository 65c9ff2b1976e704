//! A connection to a safekeeper, as frames.

use anyhow::Context as _;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio_util::codec::{FramedRead, LengthDelimitedCodec};
use wire::{first, wal};

use crate::ProposerConfig;

/// What the safekeeper sends, a message a frame.
pub type Frames = FramedRead<OwnedReadHalf, LengthDelimitedCodec>;

/// Fails when there is no connection within the time of the configuration. The connection begins with the proposer's
/// token, if it has one.
pub async fn connect(
    address: &str,
    config: &ProposerConfig,
) -> anyhow::Result<(Frames, OwnedWriteHalf)> {
    let timeout = config.connect_timeout;
    let stream = tokio::time::timeout(timeout, TcpStream::connect(address))
        .await
        .with_context(|| format!("safekeeper {address}: no connection within {timeout:?}"))?
        .with_context(|| format!("safekeeper {address}: cannot connect"))?;
    stream.set_nodelay(true)?;
    let (reader, mut writer) = stream.into_split();
    if let Some(token) = config.token.current() {
        writer.write_all(&first::token_frame(&token)).await?;
    }
    Ok((FramedRead::new(reader, wal::codec()), writer))
}
