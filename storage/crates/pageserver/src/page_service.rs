//! The page service: `wire::page` over TCP.
//!
//! Requests of one connection are served concurrently, up to a bound, and each reply goes out when it is ready; a
//! page that is at hand is answered on the spot. The connection's term is checked before each answer is sent: a
//! compute that has been fenced gets no page, not even for a request it sent earlier. A connection holds no state a
//! crash could lose.

use std::collections::{HashSet, VecDeque};
use std::io::IoSlice;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use bytes::{Buf, Bytes};
use futures::{SinkExt, StreamExt};
use part_tls::{Acceptor, Stream};
use pg_types::{Lsn, Term};
use token::{Gate, Need, Refusal, Rights, Scope};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio_util::codec::{Framed, FramedRead, LengthDelimitedCodec};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;
use wire::first;
use wire::page::{
    ErrorKind, ErrorReply, Hello, HelloReply, MAX_FRAME_BYTES, MAX_PAGES_PER_REQUEST, Reply,
    ReplyFrame, Request, RequestFrame, VERSION,
};
use wire::page_frames::encode_reply;

use crate::error::Error;
use crate::manager::TenantManager;
use crate::timeline::{LONG_LIST, Timeline};

/// Requests of one connection in work at the same time; further ones wait in the socket.
const MAX_IN_FLIGHT: usize = 64;
/// How long a client may take to say hello.
const HELLO_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(10);

type Frames = Framed<Stream, LengthDelimitedCodec>;

/// Accepts connections until cancelled, and returns once all of them have ended. Nothing makes it fail: what goes
/// wrong with a connection is logged and ends that connection.
pub async fn serve(listener: TcpListener, manager: Arc<TenantManager>, cancel: CancellationToken) {
    let (gate, acceptor) = (Gate::lets_all_in(), Acceptor::lets_all_in());
    serve_behind(gate, acceptor, listener, manager, cancel).await;
}

/// [`serve`] for those whom `acceptor` lets in, and then `gate` for their token. Both are asked once, when a connection opens:
/// one that is open outlives its token and its certificate.
pub async fn serve_behind(
    gate: Arc<Gate>,
    acceptor: Arc<Acceptor>,
    listener: TcpListener,
    manager: Arc<TenantManager>,
    cancel: CancellationToken,
) {
    let connections = tokio_util::task::TaskTracker::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = cancel.cancelled() => break,
        };
        match accepted {
            Ok((stream, peer)) => {
                let (manager, gate, cancel) = (manager.clone(), gate.clone(), cancel.clone());
                let acceptor = acceptor.clone();
                let connection = async move {
                    tokio::select! {
                        result = connection(stream, &acceptor, &manager, &gate) => {
                            if let Err(error) = result {
                                tracing::info!(%peer, "page connection closed: {error:#}");
                            }
                        }
                        () = cancel.cancelled() => {}
                    }
                };
                connections.spawn(stalls::watched("page connection", connection));
            }
            Err(error) => {
                // Out of file descriptors, mostly: others may free some.
                tracing::warn!("cannot accept a page connection: {error}");
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
        }
    }
    connections.close();
    connections.wait().await;
}

fn framed(stream: Stream) -> Frames {
    LengthDelimitedCodec::builder()
        .max_frame_length(MAX_FRAME_BYTES)
        .new_framed(stream)
}

async fn connection(
    stream: TcpStream,
    acceptor: &Acceptor,
    manager: &Arc<TenantManager>,
    gate: &Gate,
) -> Result<()> {
    stream.set_nodelay(true).context("set TCP_NODELAY")?;
    let mut frames = framed(acceptor.accept(stream).await.context("no TLS")?);
    let opening = tokio::time::timeout(HELLO_TIMEOUT, opening(&mut frames))
        .await
        .context("no hello in time")?;
    let Some((token, hello)) = opening? else {
        return Ok(());
    };
    let admitted = match may_read(gate, token.as_deref(), &hello) {
        Ok(()) => admit(manager, &hello).await,
        Err(refusal) => Err(refusal),
    };
    let timeline = match admitted {
        Ok(timeline) => timeline,
        Err(refusal) => {
            let message = refusal.message.clone();
            frames.send(encode(&HelloReply::Refused(refusal))?).await?;
            bail!(
                "refused tenant {} timeline {}: {message}",
                hello.tenant,
                hello.timeline
            );
        }
    };
    frames.send(encode(&HelloReply::Ok)?).await?;
    let span = tracing::info_span!(
        "page_connection", tenant = %hello.tenant, timeline = %hello.timeline, term = %hello.term
    );
    telemetry::continue_trace(&span, &hello.traceparent);
    serve_requests(frames, timeline, hello.term)
        .instrument(span)
        .await
}

/// The token that the connection begins with, and the hello; `None` when it ends before. No memory is taken for long
/// frames of strangers.
async fn opening(frames: &mut Frames) -> Result<Option<(Option<String>, Hello)>> {
    frames
        .codec_mut()
        .set_max_frame_length(first::MAX_FRAME_BYTES);
    let Some(body) = frames.next().await else {
        return Ok(None);
    };
    let mut body = body.context("read hello")?;
    let token = first::token_of(&body).map(str::to_owned);
    if token.is_some() {
        let Some(next) = frames.next().await else {
            return Ok(None);
        };
        body = next.context("read hello")?;
    }
    frames.codec_mut().set_max_frame_length(MAX_FRAME_BYTES);
    let hello = postcard::from_bytes(&body).context("decode hello")?;
    Ok(Some((token, hello)))
}

fn may_read(gate: &Gate, token: Option<&str>, hello: &Hello) -> Result<(), ErrorReply> {
    let need = Need {
        any_of: &[Rights::READ_PAGES],
        scope: Scope::timeline(hello.tenant, hello.timeline),
    };
    let asked = format!("a page connection to timeline {}", hello.timeline);
    let token = token.ok_or(Refusal::Missing);
    gate.admit(token, &need, &asked)
        .map_err(|refusal| ErrorReply {
            kind: ErrorKind::BadRequest,
            message: refusal.to_string(),
        })
}

async fn admit(manager: &TenantManager, hello: &Hello) -> Result<Arc<Timeline>, ErrorReply> {
    if hello.version != VERSION {
        return Err(ErrorReply {
            kind: ErrorKind::BadRequest,
            message: format!(
                "page protocol version {} is not supported, this server speaks {VERSION}",
                hello.version
            ),
        });
    }
    let timeline = manager
        .timeline(hello.tenant, hello.timeline)
        .map_err(|error| error.to_reply())?;
    timeline
        .check_term(hello.term)
        .map_err(|error| error.to_reply())?;
    Ok(timeline)
}

async fn serve_requests(frames: Frames, timeline: Arc<Timeline>, term: Term) -> Result<()> {
    let parts = frames.into_parts();
    let (from, mut to) = parts.io.into_split();
    let mut requests = FramedRead::new(from, parts.codec);
    *requests.read_buffer_mut() = parts.read_buf;
    let (replies, mut outgoing) = mpsc::channel::<Vec<Bytes>>(MAX_IN_FLIGHT);
    let writer = async move {
        let mut pieces = Pieces::default();
        while let Some(frame) = outgoing.recv().await {
            pieces.0.extend(frame);
            // All replies that are ready by now go out together.
            while let Ok(frame) = outgoing.try_recv() {
                pieces.0.extend(frame);
            }
            to.send_all(&mut pieces).await?;
        }
        std::io::Result::Ok(())
    };
    let limit = Arc::new(Semaphore::new(MAX_IN_FLIGHT));
    let reader = async move {
        let mut tasks = tokio::task::JoinSet::new();
        while let Some(frame) = requests.next().await {
            let frame: RequestFrame = postcard::from_bytes(&frame.context("read a request")?)
                .context("decode a request")?;
            if let Some(reply) = hot_answer(&timeline, term, &frame) {
                let reply = Ok(reply);
                let id = frame.id;
                if replies
                    .send(encode_reply(&ReplyFrame { id, reply }).context("encode a reply")?)
                    .await
                    .is_err()
                {
                    break;
                }
                continue;
            }
            let permit = limit
                .clone()
                .acquire_owned()
                .await
                .context("request limit closed")?;
            let (timeline, replies) = (timeline.clone(), replies.clone());
            let answering = async move {
                let reply = answer(&timeline, term, &frame).await;
                let is_long = reply.as_ref().is_ok_and(is_long_list);
                let reply = ReplyFrame {
                    id: frame.id,
                    reply,
                };
                match stalls::off_worker_if(is_long, move || encode_reply(&reply)) {
                    // A closed channel means that the client is gone, and with it the only reader of the reply.
                    Ok(bytes) => drop(replies.send(bytes).await),
                    Err(error) => tracing::error!("cannot encode a page reply: {error}"),
                }
                drop(permit);
            };
            tasks.spawn(stalls::watched("page request", answering.in_current_span()));
            while tasks.try_join_next().is_some() {}
        }
        // The client stopped sending; what it asked for is still answered.
        while tasks.join_next().await.is_some() {}
        anyhow::Ok(())
    };
    // The reader owns the only long-lived sender: when it ends, the writer drains and ends.
    let (read, written) = tokio::join!(reader, writer);
    read?;
    written.context("write replies")
}

/// Pieces of replies on their way out, in order.
#[derive(Default)]
struct Pieces(VecDeque<Bytes>);

impl Buf for Pieces {
    fn remaining(&self) -> usize {
        self.0.iter().map(Bytes::len).sum()
    }

    fn has_remaining(&self) -> bool {
        !self.0.is_empty()
    }

    fn chunk(&self) -> &[u8] {
        self.0.front().map_or(&[], |piece| &piece[..])
    }

    fn chunks_vectored<'a>(&'a self, into: &mut [IoSlice<'a>]) -> usize {
        let pairs = into.iter_mut().zip(&self.0);
        pairs
            .map(|(slice, piece)| *slice = IoSlice::new(piece))
            .count()
    }

    fn advance(&mut self, mut count: usize) {
        while let Some(piece) = self.0.front_mut() {
            if count < piece.len() {
                piece.advance(count);
                return;
            }
            count -= piece.len();
            self.0.pop_front();
        }
    }
}

fn encode<T: serde::Serialize>(message: &T) -> Result<Bytes> {
    Ok(postcard::to_stdvec(message)
        .context("encode a reply")?
        .into())
}

/// What was read, if the compute's term was the newest both before and after, and what was read is still within the
/// history. `None` leaves the answer, and the refusal, to [`answer`].
fn while_allowed<T>(
    timeline: &Timeline,
    term: Term,
    read: impl FnOnce() -> Option<(Lsn, T)>,
) -> Option<(Lsn, T)> {
    timeline.check_term(term).ok()?;
    let (as_of, found) = read()?;
    timeline.check_term(term).ok()?;
    timeline.check_readable(as_of).ok()?;
    Some((as_of, found))
}

/// The answer to a request for one page that is at hand, with no task of its own for it.
fn hot_answer(timeline: &Timeline, term: Term, frame: &RequestFrame) -> Option<Reply> {
    let Request::Pages { rel, blocks } = &frame.request else {
        return None;
    };
    let [block] = blocks[..] else { return None };
    let started = Instant::now();
    let position = frame.position;
    let (as_of, page) = while_allowed(timeline, term, || {
        let as_of = timeline.position_now(position.not_modified_since, position.at)?;
        Some((as_of, timeline.reads().hot_page(*rel, block, as_of)?))
    })?;
    let metrics = timeline.metrics();
    metrics.observe_request("pages", true, started.elapsed());
    Some(Reply::Pages {
        as_of,
        pages: vec![page],
    })
}

async fn answer(
    timeline: &Arc<Timeline>,
    term: Term,
    frame: &RequestFrame,
) -> Result<Reply, ErrorReply> {
    let started = Instant::now();
    let result = read(timeline, term, frame).await;
    let kind = request_name(&frame.request);
    timeline
        .metrics()
        .observe_request(kind, result.is_ok(), started.elapsed());
    result.map_err(|error| {
        match &error {
            Error::Internal(_) => {
                tracing::error!(request = ?frame.request, "page request failed: {error}")
            }
            other => tracing::debug!(request = ?frame.request, "page request refused: {other}"),
        }
        error.to_reply()
    })
}

/// Reading many pages in one pass relies on each being asked for once: what is known of a page must not change
/// between two looks at it.
fn refuse_twice(blocks: &[u32]) -> Result<(), Error> {
    if blocks.is_sorted_by(|one, next| one < next) {
        return Ok(());
    }
    let mut seen = HashSet::with_capacity(blocks.len());
    match blocks.iter().find(|block| !seen.insert(**block)) {
        None => Ok(()),
        Some(block) => Err(Error::BadRequest(format!(
            "block {block} is asked for twice in one request; ask for each once"
        ))),
    }
}

async fn read(timeline: &Arc<Timeline>, term: Term, frame: &RequestFrame) -> Result<Reply, Error> {
    timeline.check_term(term)?;
    let at = timeline
        .resolve_position(frame.position.not_modified_since, frame.position.at)
        .await?;
    let reply = match &frame.request {
        Request::Pages { rel, blocks } => {
            if blocks.len() > MAX_PAGES_PER_REQUEST {
                return Err(Error::BadRequest(format!(
                    "{} pages asked for in one request; ask for at most {MAX_PAGES_PER_REQUEST}",
                    blocks.len()
                )));
            }
            refuse_twice(blocks)?;
            Reply::Pages {
                as_of: at,
                pages: timeline.reads().rel_pages(*rel, blocks, at).await?,
            }
        }
        Request::SlruPage { kind, pageno } => Reply::SlruPage {
            page: timeline.reads().slru_page(*kind, *pageno, at).await?,
        },
        Request::RelSize { rel } => Reply::RelSize {
            blocks: timeline.reads().rel_size(*rel, at).await?,
        },
        Request::ListRels { spc, db } => Reply::Rels {
            rels: timeline.reads().list_rels(*spc, *db, at).await?,
        },
        Request::ListDatabases => Reply::Databases {
            databases: timeline.reads().list_databases(at).await?,
        },
        Request::ListSlruSegments { kind } => Reply::SlruSegments {
            segments: timeline.reads().list_slru_segments(*kind, at).await?,
        },
    };
    // A newer compute may have come while this was being read, and history may have been let go of.
    timeline.check_term(term)?;
    timeline.check_readable(at)?;
    Ok(reply)
}

fn is_long_list(reply: &Reply) -> bool {
    matches!(reply, Reply::Rels { rels } if rels.len() >= LONG_LIST)
}

fn request_name(request: &Request) -> &'static str {
    match request {
        Request::Pages { .. } => "pages",
        Request::SlruPage { .. } => "slru_page",
        Request::RelSize { .. } => "rel_size",
        Request::ListRels { .. } => "list_rels",
        Request::ListDatabases => "list_databases",
        Request::ListSlruSegments { .. } => "list_slru_segments",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeline::Machine;

    /// Promise: a page that was at hand is not given to a compute that was replaced while it was read.
    #[tokio::test]
    async fn a_newer_compute_that_comes_during_a_read_keeps_the_page_from_the_older_one() {
        let machine = Machine::start().await;
        let (timeline, at) = (&machine.timeline, machine.compute(1).await.lsn);
        let read = while_allowed(timeline, Term(1), || Some((at, "page")));
        assert_eq!(read, Some((at, "page")));
        let late = while_allowed(timeline, Term(1), || {
            timeline.raise_term(Term(2));
            Some((at, "page"))
        });
        assert_eq!(late, None);
        let before = while_allowed(timeline, Term(1), || panic!("it is fenced already"));
        assert_eq!(before, None::<(Lsn, ())>);
    }
}
