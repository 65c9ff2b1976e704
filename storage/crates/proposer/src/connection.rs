//! A connection to a safekeeper, as frames.

use anyhow::Context as _;
use part_tls::{ReadHalf, WriteHalf, names};
use tokio_util::codec::{FramedRead, LengthDelimitedCodec};
use wire::{first, wal};

use crate::ProposerConfig;

/// What the safekeeper sends, a message a frame.
pub type Frames = FramedRead<ReadHalf, LengthDelimitedCodec>;

/// Fails when there is no connection within the time of the configuration. The connection begins with the proposer's
/// token, if it has one.
pub async fn connect(
    address: &str,
    config: &ProposerConfig,
) -> anyhow::Result<(Frames, WriteHalf)> {
    let timeout = config.connect_timeout;
    let connected = config.dialer.connect(address, names::SAFEKEEPER);
    let stream = tokio::time::timeout(timeout, connected)
        .await
        .with_context(|| format!("safekeeper {address}: no connection within {timeout:?}"))?
        .with_context(|| format!("safekeeper {address}: cannot connect"))?;
    let (reader, mut writer) = stream.into_split();
    if let Some(token) = config.token.current() {
        writer.send(&first::token_frame(&token)).await?;
    }
    Ok((FramedRead::new(reader, wal::codec()), writer))
}
