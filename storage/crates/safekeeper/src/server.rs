//! The WAL port: proposers write, peers of lagging safekeepers fetch, readers follow.

mod proposing;
mod reading;
mod renewal;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use bytes::{Buf as _, Bytes};
use futures::StreamExt as _;
use tokio::io::AsyncWriteExt as _;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::codec::{FramedRead, LengthDelimitedCodec};
use tracing::Instrument as _;
use wire::wal::{
    self, AcceptorMessage, Failure, FailureKind, FetchReply, FetchRequest, FirstMessage, ReadReply,
};

use crate::metrics::{self, Connection};
use crate::registry::Registry;
use crate::timeline::Timeline;

use proposing::Proposing;

const FIRST_MESSAGE_TIMEOUT: Duration = Duration::from_secs(10);
/// WAL of one frame to a reader: small enough to begin applying soon, large enough to be cheap.
const FRAME_WAL_BYTES: usize = 256 << 10;

type Frames = FramedRead<OwnedReadHalf, LengthDelimitedCodec>;

/// Serves WAL connections until the task is dropped. `id` is the number of this safekeeper.
pub async fn serve(listener: TcpListener, registry: Arc<Registry>, id: u64) {
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                let registry = registry.clone();
                let span = tracing::info_span!("wal connection", %peer);
                stalls::spawn(
                    "wal connection",
                    async move {
                        if let Err(error) = handle(stream, registry, id).await {
                            tracing::info!("connection ended: {error:#}");
                        }
                    }
                    .instrument(span),
                );
            }
            Err(error) => {
                // Out of file descriptors, say: serving the others goes on.
                tracing::error!(%error, "cannot accept a WAL connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

fn frames_of(reader: OwnedReadHalf) -> Frames {
    FramedRead::new(reader, wal::codec())
}

async fn handle(stream: TcpStream, registry: Arc<Registry>, id: u64) -> anyhow::Result<()> {
    stream.set_nodelay(true)?;
    let (reader, mut writer) = stream.into_split();
    let mut frames = frames_of(reader);
    let first = tokio::time::timeout(FIRST_MESSAGE_TIMEOUT, frames.next())
        .await
        .context("nothing came within the time for a first message")?;
    let Some(first) = first.transpose()? else {
        return Ok(());
    };
    match wal::decode::<FirstMessage>(&first)? {
        FirstMessage::Propose(request) => {
            let found = checked(
                request.version,
                &[wal::VERSION, wal::ROOM_VERSION, wal::PROPOSE_VERSION],
                registry.connect((request.tenant, request.timeline)).await,
            );
            match found {
                Ok(timeline) => {
                    let proposing = Proposing {
                        timeline,
                        request,
                        id,
                    };
                    proposing.start(frames, writer)
                }
                Err(failure) => send(&mut writer, &AcceptorMessage::Failed(failure)).await,
            }
        }
        FirstMessage::Fetch(request) => {
            let found = checked(
                request.version,
                &[wal::VERSION],
                registry.connect((request.tenant, request.timeline)).await,
            );
            match found {
                Ok(timeline) => fetch(timeline, writer, request).await,
                Err(failure) => send(&mut writer, &FetchReply::Failed(failure)).await,
            }
        }
        FirstMessage::Read(request) => {
            let found = registry.connect((request.tenant, request.timeline)).await;
            match checked(
                request.version,
                &[reading::WITHOUT_HISTORY, wal::READ_VERSION],
                found,
            ) {
                Ok(timeline) => reading::read(timeline, frames, writer, request).await,
                Err(failure) => send(&mut writer, &ReadReply::Refused(failure)).await,
            }
        }
    }
}

/// The timeline, for a caller whose protocol version is one of those `spoken` here.
fn checked(
    version: u16,
    spoken: &[u16],
    found: Result<Arc<Timeline>, Failure>,
) -> Result<Arc<Timeline>, Failure> {
    if spoken.contains(&version) {
        return found;
    }
    let spoken: Vec<String> = spoken.iter().map(u16::to_string).collect();
    Err(Failure {
        kind: FailureKind::BadRequest,
        message: format!(
            "protocol version {version} is not spoken here, only {}",
            spoken.join(" and ")
        ),
    })
}

async fn send<T: serde::Serialize>(writer: &mut OwnedWriteHalf, message: &T) -> anyhow::Result<()> {
    Ok(writer.write_all(&wal::encode(message)).await?)
}

async fn send_wal<T: serde::Serialize>(
    writer: &mut OwnedWriteHalf,
    message: &T,
    wal: Bytes,
) -> anyhow::Result<()> {
    metrics::SENT_BYTES.inc_by(wal.len() as u64);
    let head = wal::encode_head(message, wal.len());
    Ok(writer.write_all_buf(&mut head.chain(wal)).await?)
}

async fn fetch(
    timeline: Arc<Timeline>,
    mut writer: OwnedWriteHalf,
    request: FetchRequest,
) -> anyhow::Result<()> {
    let _open = Connection::open("fetch");
    let mut at = request.start_lsn;
    while at < request.end_lsn {
        let reader = timeline.clone();
        let read = move || reader.read_log(request.term, at, request.end_lsn, FRAME_WAL_BYTES);
        match tokio::task::spawn_blocking(read).await? {
            Ok(wal) => {
                let start_lsn = at;
                at = at + wal.len() as u64;
                send_wal(&mut writer, &FetchReply::Wal { start_lsn }, wal).await?;
            }
            Err(failure) => {
                tracing::info!("fetch refused: {failure}");
                return send(&mut writer, &FetchReply::Failed(failure)).await;
            }
        }
    }
    Ok(writer.shutdown().await?)
}
