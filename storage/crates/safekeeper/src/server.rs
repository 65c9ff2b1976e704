//! The WAL port: proposers write, peers of lagging safekeepers fetch, readers follow.

mod admission;
mod proposing;
mod reading;
mod renewal;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use bytes::{Buf as _, Bytes};
use futures::StreamExt as _;
use part_tls::{Acceptor, ReadHalf, WriteHalf};
use token::Gate;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::codec::{FramedRead, LengthDelimitedCodec};
use tracing::Instrument as _;
use wire::first;
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

type Frames = FramedRead<ReadHalf, LengthDelimitedCodec>;

/// Serves WAL connections until the task is dropped. `id` is the number of this safekeeper. `gate` is asked once, when a
/// connection opens: one that is open outlives its token. `acceptor` is before it, and decides who comes to it at all.
pub async fn serve(
    listener: TcpListener,
    acceptor: Arc<Acceptor>,
    registry: Arc<Registry>,
    id: u64,
    gate: Arc<Gate>,
) {
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                let (registry, gate, acceptor) = (registry.clone(), gate.clone(), acceptor.clone());
                let span = tracing::info_span!("wal connection", %peer);
                stalls::spawn(
                    "wal connection",
                    async move {
                        if let Err(error) = handle(stream, &acceptor, registry, id, &gate).await {
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

fn frames_of(reader: ReadHalf) -> Frames {
    FramedRead::new(reader, wal::codec())
}

async fn handle(
    stream: TcpStream,
    acceptor: &Acceptor,
    registry: Arc<Registry>,
    id: u64,
    gate: &Gate,
) -> anyhow::Result<()> {
    stream.set_nodelay(true)?;
    let stream = acceptor.accept(stream).await.context("no TLS")?;
    let (reader, mut writer) = stream.into_split();
    let mut frames = frames_of(reader);
    let opening = tokio::time::timeout(FIRST_MESSAGE_TIMEOUT, opening(&mut frames))
        .await
        .context("nothing came within the time for a first message")?;
    let Some((token, first)) = opening? else {
        return Ok(());
    };
    let admitted = admission::admit(gate, token.as_deref(), &first);
    let found = match admitted {
        Ok(()) => registry.connect(admission::of(&first)).await,
        Err(failure) => Err(failure),
    };
    match first {
        FirstMessage::Propose(request) => {
            let spoken = [wal::VERSION, wal::ROOM_VERSION, wal::PROPOSE_VERSION];
            match checked(request.version, &spoken, found) {
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
        FirstMessage::Fetch(request) => match checked(request.version, &[wal::VERSION], found) {
            Ok(timeline) => fetch(timeline, writer, request).await,
            Err(failure) => send(&mut writer, &FetchReply::Failed(failure)).await,
        },
        FirstMessage::Read(request) => {
            let spoken = [reading::WITHOUT_HISTORY, wal::READ_VERSION];
            // Who has the right to read alone moves nothing, not even by saying how far it is.
            let counts = request.holds_wal || !gate.authenticates();
            match checked(request.version, &spoken, found) {
                Ok(timeline) => reading::read(timeline, frames, writer, request, counts).await,
                Err(failure) => send(&mut writer, &ReadReply::Refused(failure)).await,
            }
        }
    }
}

/// The token that the connection begins with, and its first message; `None` when it ends before. No memory is taken for
/// long frames of strangers.
async fn opening(frames: &mut Frames) -> anyhow::Result<Option<(Option<String>, FirstMessage)>> {
    frames
        .decoder_mut()
        .set_max_frame_length(first::MAX_FRAME_BYTES);
    let Some(mut body) = frames.next().await.transpose()? else {
        return Ok(None);
    };
    let token = first::token_of(&body).map(str::to_owned);
    if token.is_some() {
        let Some(next) = frames.next().await.transpose()? else {
            return Ok(None);
        };
        body = next;
    }
    frames
        .decoder_mut()
        .set_max_frame_length(wal::MAX_FRAME_BYTES);
    Ok(Some((token, wal::decode(&body)?)))
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

async fn send<T: serde::Serialize>(writer: &mut WriteHalf, message: &T) -> anyhow::Result<()> {
    Ok(writer.send(&wal::encode(message)).await?)
}

async fn send_wal<T: serde::Serialize>(
    writer: &mut WriteHalf,
    message: &T,
    wal: Bytes,
) -> anyhow::Result<()> {
    metrics::SENT_BYTES.inc_by(wal.len() as u64);
    let head = wal::encode_head(message, wal.len());
    Ok(writer.send_all(&mut head.chain(wal)).await?)
}

async fn fetch(
    timeline: Arc<Timeline>,
    mut writer: WriteHalf,
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
