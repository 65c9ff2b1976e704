//! The WAL port: proposers write, peers of lagging safekeepers fetch, readers follow.

mod reading;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use bytes::{Buf as _, Bytes};
use futures::StreamExt as _;
use tokio::io::AsyncWriteExt as _;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::block_in_place;
use tokio_util::codec::{FramedRead, LengthDelimitedCodec};
use tracing::Instrument as _;
use wire::wal::{
    self, AcceptorMessage, Failure, FailureKind, FetchReply, FetchRequest, FirstMessage, Greeting,
    MAX_FRAME_BYTES, ProposeRequest, ProposerMessage, ReadReply,
};

use crate::metrics::{self, Connection};
use crate::registry::Registry;
use crate::timeline::{Timeline, TimelineError};

const FIRST_MESSAGE_TIMEOUT: Duration = Duration::from_secs(10);
/// WAL of one frame to a reader: small enough to begin applying soon, large enough to be cheap.
const FRAME_WAL_BYTES: usize = 256 << 10;
/// Replies that may wait for a proposer which does not read.
const REPLY_BACKLOG: usize = 64;

type Frames = FramedRead<OwnedReadHalf, LengthDelimitedCodec>;

pub async fn serve(listener: TcpListener, registry: Arc<Registry>, id: u64) {
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                let registry = registry.clone();
                let span = tracing::info_span!("wal connection", %peer);
                tokio::spawn(
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

async fn handle(stream: TcpStream, registry: Arc<Registry>, id: u64) -> anyhow::Result<()> {
    stream.set_nodelay(true)?;
    let (reader, mut writer) = stream.into_split();
    let mut frames = LengthDelimitedCodec::builder()
        .max_frame_length(MAX_FRAME_BYTES)
        .new_read(reader);
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
                registry.connect((request.tenant, request.timeline)).await,
            );
            match found {
                Ok(timeline) => propose(timeline, frames, writer, request, id).await,
                Err(failure) => send(&mut writer, &AcceptorMessage::Failed(failure)).await,
            }
        }
        FirstMessage::Fetch(request) => {
            let found = checked(
                request.version,
                registry.connect((request.tenant, request.timeline)).await,
            );
            match found {
                Ok(timeline) => fetch(timeline, writer, request).await,
                Err(failure) => send(&mut writer, &FetchReply::Failed(failure)).await,
            }
        }
        FirstMessage::Read(request) => {
            let found = registry.connect((request.tenant, request.timeline)).await;
            match checked_for_reading(request.version, found) {
                Ok(timeline) => reading::read(timeline, frames, writer, request).await,
                Err(failure) => send(&mut writer, &ReadReply::Refused(failure)).await,
            }
        }
    }
}

fn checked(version: u16, found: Result<Arc<Timeline>, Failure>) -> Result<Arc<Timeline>, Failure> {
    match version {
        wal::VERSION => found,
        _ => Err(not_spoken(version, &wal::VERSION.to_string())),
    }
}

fn checked_for_reading(
    version: u16,
    found: Result<Arc<Timeline>, Failure>,
) -> Result<Arc<Timeline>, Failure> {
    match version {
        reading::WITHOUT_HISTORY | wal::READ_VERSION => found,
        _ => {
            let spoken = format!("{} and {}", reading::WITHOUT_HISTORY, wal::READ_VERSION);
            Err(not_spoken(version, &spoken))
        }
    }
}

fn not_spoken(version: u16, spoken: &str) -> Failure {
    Failure {
        kind: FailureKind::BadRequest,
        message: format!("protocol version {version} is not spoken here, only {spoken}"),
    }
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

/// What the receiving half of a proposer's connection tells the sending half.
enum Reply {
    Message(AcceptorMessage),
    /// Say where the log is, changed or not.
    Positions,
    Last(AcceptorMessage),
}

async fn propose(
    timeline: Arc<Timeline>,
    mut frames: Frames,
    writer: OwnedWriteHalf,
    request: ProposeRequest,
    id: u64,
) -> anyhow::Result<()> {
    let _open = Connection::open("proposer");
    let connection = timeline.connect();
    let (replies, backlog) = mpsc::channel(REPLY_BACKLOG);
    let sender = tokio::spawn(send_replies(timeline.clone(), writer, backlog).in_current_span());
    let greeting = block_in_place(|| timeline.position()).map(|(position, oldest_lsn)| Greeting {
        safekeeper_id: id,
        system_identifier: timeline.identity.system_identifier,
        pg_version: timeline.identity.pg_version,
        timeline_start_lsn: timeline.identity.start_lsn,
        oldest_lsn,
        position,
    });
    match greeting {
        Ok(greeting) => {
            replies
                .send(Reply::Message(AcceptorMessage::Greeting(greeting)))
                .await?
        }
        Err(failure) => {
            replies
                .send(Reply::Last(AcceptorMessage::Failed(failure)))
                .await?
        }
    }
    let outcome = receive(&timeline, connection, &mut frames, &replies, &request).await;
    drop(replies);
    sender.await??;
    outcome
}

async fn receive(
    timeline: &Timeline,
    connection: u64,
    frames: &mut Frames,
    replies: &mpsc::Sender<Reply>,
    request: &ProposeRequest,
) -> anyhow::Result<()> {
    loop {
        let frame = tokio::select! {
            frame = frames.next() => frame,
            () = timeline.closed().cancelled() => {
                let message = timeline.stop_state().map_or_else(String::new, |stop| stop.reason);
                let failure = Failure { kind: FailureKind::Stopped, message };
                replies.send(Reply::Last(AcceptorMessage::Failed(failure))).await?;
                return Ok(());
            }
        };
        let Some(frame) = frame.transpose()? else {
            return Ok(());
        };
        let (message, wal) = wal::decode_with_wal::<ProposerMessage>(frame.freeze())?;
        let reply = match handle_message(timeline, connection, message, &wal, &request.traceparent)
        {
            Ok(reply) => reply,
            Err(TimelineError::Refused(refusal)) => {
                Reply::Message(AcceptorMessage::Refused(refusal))
            }
            Err(TimelineError::Failed(failure)) => {
                let message = failure.message.clone();
                replies
                    .send(Reply::Last(AcceptorMessage::Failed(failure)))
                    .await?;
                bail!(message);
            }
        };
        // The positions are sent whenever they change; only a heartbeat asks for them as they are.
        if !matches!(reply, Reply::Positions) || wal.is_empty() {
            replies.send(reply).await?;
        }
    }
}

fn handle_message(
    timeline: &Timeline,
    connection: u64,
    message: ProposerMessage,
    wal: &[u8],
    traceparent: &str,
) -> Result<Reply, TimelineError> {
    let traced = |name: &str, term: pg_types::Term| {
        let span = tracing::info_span!("election", otel.name = name, timeline = %timeline.identity.timeline, %term);
        telemetry::continue_trace(&span, traceparent);
        span
    };
    Ok(match message {
        ProposerMessage::Append(header) => {
            timeline.append(connection, &header, wal)?;
            Reply::Positions
        }
        ProposerMessage::Vote(request) => {
            let _span = traced("safekeeper vote", request.term).entered();
            let reply = block_in_place(|| timeline.vote(&request))?;
            tracing::info!(granted = reply.granted, flush_lsn = %reply.position.flush_lsn, "vote");
            Reply::Message(AcceptorMessage::Vote(reply))
        }
        ProposerMessage::Elected(request) => {
            let term = request
                .history
                .last()
                .map(|last| last.term)
                .unwrap_or_default();
            let _span = traced("safekeeper adopt", term).entered();
            let reply = block_in_place(|| timeline.elected(connection, &request))?;
            tracing::info!(flush_lsn = %reply.flush_lsn, "history adopted");
            Reply::Message(AcceptorMessage::Elected(reply))
        }
        ProposerMessage::Configure(request) => {
            let _span = traced("safekeeper configure", request.term).entered();
            block_in_place(|| timeline.configure(&request))?;
            let generation = request.configuration.generation;
            tracing::info!(%generation, members = request.configuration.members().len(), "members changed");
            Reply::Positions
        }
        ProposerMessage::Reset(request) => {
            let _span = traced("safekeeper reset", request.term).entered();
            block_in_place(|| timeline.reset(connection, &request))?;
            tracing::warn!(to = %request.to, "log emptied, what came before is in object storage");
            Reply::Positions
        }
    })
}

async fn send_replies(
    timeline: Arc<Timeline>,
    mut writer: OwnedWriteHalf,
    mut backlog: mpsc::Receiver<Reply>,
) -> anyhow::Result<()> {
    let mut progress = timeline.progress();
    progress.mark_unchanged();
    loop {
        let reply = tokio::select! {
            biased;
            reply = backlog.recv() => reply,
            changed = progress.changed() => {
                changed?;
                Some(Reply::Positions)
            }
        };
        match reply {
            None => break,
            Some(Reply::Message(message)) => send(&mut writer, &message).await?,
            Some(Reply::Last(message)) => {
                send(&mut writer, &message).await?;
                break;
            }
            Some(Reply::Positions) => {
                let now = *progress.borrow_and_update();
                let message = AcceptorMessage::Append {
                    reply: now.reply,
                    ingested_lsn: now.ingested_lsn,
                    remote_consistent_lsn: now.remote_consistent_lsn,
                };
                send(&mut writer, &message).await?;
            }
        }
    }
    Ok(writer.shutdown().await?)
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
