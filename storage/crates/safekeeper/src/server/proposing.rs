//! A proposer's connection: votes, adoption, appends, and the replies to them.
//!
//! A connection has a thread of its own, which reads, writes and fsyncs WAL and answers. On the threads that all
//! connections share, an append would be handed on four times, each time to a thread that has to be woken
//! (docs/adr/0045-the-commit-path.md). There is one such connection for each compute that runs.
//!
//! Appends that have come are written before one fsync covers them all; they are answered when it has ended. What only
//! moved in memory is answered with the next heartbeat. While an fsync takes long, the heartbeats and renewals that wait
//! behind it are answered from another thread: a slow disk is no dead safekeeper.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use bytes::BytesMut;
use futures::{FutureExt as _, StreamExt as _};
use parking_lot::Mutex;
use part_tls::{Detached, Stream, WriteHalf};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Mutex as AsyncMutex, watch};
use tracing::{Instrument as _, Span};
use wire::wal::{
    self, AcceptorMessage, Failure, FailureKind, Greeting, ProposeRequest, ProposerMessage,
    ROOM_VERSION, Room,
};

use super::renewal::Renewal;
use super::{Frames, frames_of, send};
use crate::metrics::Connection;
use crate::timeline::{Progress, Timeline, TimelineError};

/// WAL that one fsync covers at most, bytes: what comes after it waits in the kernel meanwhile.
const FLUSH_BYTES: usize = 4 << 20;
/// While an fsync takes longer than this, the proposer is told so often that this safekeeper lives.
const SIGN_OF_LIFE_PERIOD: Duration = Duration::from_secs(1);

/// A proposer's connection after its first message.
pub(super) struct Proposing {
    pub timeline: Arc<Timeline>,
    pub request: ProposeRequest,
    /// Number of this safekeeper.
    pub id: u64,
}

impl Proposing {
    /// Moves the connection to a thread of its own, which ends with it. Fails when the system gives no thread.
    pub(super) fn start(self, frames: Frames, writer: WriteHalf) -> anyhow::Result<()> {
        let received = BytesMut::from(&frames.read_buffer()[..]);
        let stream = Stream::reunite(frames.into_inner(), writer)?.detach()?;
        let own = Builder::new_current_thread()
            .enable_all()
            .build()
            .context("cannot wait for a proposer's messages")?;
        let (span, shared) = (Span::current(), tokio::runtime::Handle::current());
        let serve = move || {
            let _entered = span.enter();
            if let Err(error) = self.serve(&own, &shared, stream, received) {
                tracing::info!("connection ended: {error:#}");
            }
        };
        thread::Builder::new()
            .name("wal connection".into())
            .spawn(serve)
            .context("cannot start a thread for a proposer's connection")?;
        Ok(())
    }

    fn serve(
        self,
        own: &Runtime,
        shared: &tokio::runtime::Handle,
        stream: Detached,
        received: BytesMut,
    ) -> anyhow::Result<()> {
        let _open = Connection::open("proposer");
        own.block_on(async {
            let (reader, writer) = stream.attach()?.into_split();
            let mut frames = frames_of(reader);
            *frames.read_buffer_mut() = received;
            let version = self.request.version;
            let replies = Arc::new(Replies::new(self.timeline.clone(), writer, version));
            let lives = {
                let life = replies.clone().show_life().in_current_span();
                shared.spawn(stalls::watched("signs of life", life))
            };
            let outcome = self.answer(&mut frames, &replies).await;
            lives.abort();
            replies.end().await?;
            outcome
        })
    }

    async fn answer(&self, frames: &mut Frames, replies: &Replies) -> anyhow::Result<()> {
        let timeline = &self.timeline;
        let connection = timeline.connect();
        let greeting = timeline.position().map(|(position, oldest_lsn)| Greeting {
            safekeeper_id: self.id,
            system_identifier: timeline.identity.system_identifier,
            pg_version: timeline.identity.pg_version,
            timeline_start_lsn: timeline.identity.start_lsn,
            oldest_lsn,
            position,
        });
        match greeting {
            Ok(greeting) => replies.greet(greeting).await?,
            Err(failure) => return replies.send(&AcceptorMessage::Failed(failure)).await,
        }
        let mut progress = timeline.progress();
        loop {
            let frame = tokio::select! {
                frame = frames.next() => frame,
                changed = progress.changed() => {
                    changed?;
                    replies.send_news(&mut progress).await?;
                    continue;
                }
                () = timeline.closed().cancelled() => {
                    let message = timeline.stop_state().map_or_else(String::new, |stop| stop.reason);
                    let failure = Failure { kind: FailureKind::Stopped, message };
                    return replies.send(&AcceptorMessage::Failed(failure)).await;
                }
            };
            let Some(frame) = frame.transpose()? else {
                return Ok(());
            };
            if !self
                .take_and_flush(connection, frame, frames, replies)
                .await?
            {
                return Ok(());
            }
        }
    }

    /// Takes a message and, if it needs an fsync, those that have come behind it, then fsyncs. Returns false when the
    /// proposer has closed the connection.
    async fn take_and_flush(
        &self,
        connection: u64,
        first: BytesMut,
        frames: &mut Frames,
        replies: &Replies,
    ) -> anyhow::Result<bool> {
        let mut unflushed = self.take(connection, first, replies).await?;
        let mut is_open = true;
        while (1..FLUSH_BYTES).contains(&unflushed) && is_open {
            match frames.next().now_or_never() {
                Some(Some(frame)) => unflushed += self.take(connection, frame?, replies).await?,
                Some(None) => is_open = false,
                None => break,
            }
        }
        if unflushed > 0 {
            // An error has stopped the timeline, which the next look at it tells the proposer.
            let _ = replies.while_flushing(|| self.timeline.flush());
        }
        Ok(is_open)
    }

    /// Takes one message and answers what is not an append. Returns how much WAL waits for an fsync, bytes.
    async fn take(
        &self,
        connection: u64,
        frame: BytesMut,
        replies: &Replies,
    ) -> anyhow::Result<usize> {
        let (message, wal) = wal::decode_with_wal::<ProposerMessage>(frame.freeze())?;
        let reply = match self.handle(connection, message, &wal, replies) {
            Ok(Reply::Flush) => return Ok(wal.len()),
            Ok(Reply::Nothing) => return Ok(0),
            Ok(Reply::Positions) => return replies.send_positions().await.map(|()| 0),
            Ok(Reply::Message(message)) => message,
            Err(TimelineError::Refused(refusal)) => AcceptorMessage::Refused(refusal),
            Err(TimelineError::Failed(failure)) => {
                let message = failure.message.clone();
                replies.send(&AcceptorMessage::Failed(failure)).await?;
                bail!(message);
            }
        };
        replies.send(&reply).await.map(|()| 0)
    }

    /// Blocks, except for an append.
    fn handle(
        &self,
        connection: u64,
        message: ProposerMessage,
        wal: &[u8],
        replies: &Replies,
    ) -> Result<Reply, TimelineError> {
        let timeline = &self.timeline;
        let traced = |name: &str, term: pg_types::Term| {
            let span = tracing::info_span!("election", otel.name = name, timeline = %timeline.identity.timeline, %term);
            telemetry::continue_trace(&span, &self.request.traceparent);
            span
        };
        Ok(match message {
            ProposerMessage::Append(header) => {
                let wants_flush = timeline.append(connection, &header, wal)?;
                match (wal.is_empty(), wants_flush) {
                    // A heartbeat asks where the log is.
                    (true, _) => Reply::Positions,
                    (false, true) => Reply::Flush,
                    (false, false) => Reply::Nothing,
                }
            }
            ProposerMessage::Renew { term, sent_us } => {
                let renewal = Renewal::new(term, sent_us);
                let answer = renewal.answer(timeline)?;
                *replies.renewal.lock() = Some(renewal);
                Reply::Message(answer)
            }
            ProposerMessage::Vote(request) => {
                let _span = traced("safekeeper vote", request.term).entered();
                let reply = timeline.vote(&request)?;
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
                let reply = timeline.elected(connection, &request)?;
                tracing::info!(flush_lsn = %reply.flush_lsn, "history adopted");
                Reply::Message(AcceptorMessage::Elected(reply))
            }
            ProposerMessage::Configure(request) => {
                let _span = traced("safekeeper configure", request.term).entered();
                timeline.configure(&request)?;
                let generation = request.configuration.generation;
                tracing::info!(%generation, members = request.configuration.members().len(), "members changed");
                Reply::Positions
            }
            ProposerMessage::Reset(request) => {
                let _span = traced("safekeeper reset", request.term).entered();
                timeline.reset(connection, &request)?;
                tracing::warn!(to = %request.to, "log emptied, what came before is in object storage");
                Reply::Positions
            }
        })
    }
}

/// What a message calls for.
enum Reply {
    Message(AcceptorMessage),
    /// Where the log is, changed or not.
    Positions,
    /// An fsync, which is the answer when it has ended.
    Flush,
    Nothing,
}

/// The sending half of a proposer's connection.
struct Replies {
    timeline: Arc<Timeline>,
    sender: AsyncMutex<Sender>,
    flushing_since: Mutex<Option<Instant>>,
    /// The last renewal that was answered.
    renewal: Mutex<Option<Renewal>>,
}

struct Sender {
    writer: WriteHalf,
    /// The positions that the proposer was sent last.
    sent: Progress,
    tells_room: bool,
    /// The room that the proposer was told last; the outer `None` before.
    room: Option<Option<Room>>,
}

impl Replies {
    /// `version` is the proposer's.
    fn new(timeline: Arc<Timeline>, writer: WriteHalf, version: u16) -> Replies {
        let sent = *timeline.progress().borrow();
        let sender = Sender {
            writer,
            sent,
            tells_room: version >= ROOM_VERSION,
            room: None,
        };
        Replies {
            timeline,
            sender: AsyncMutex::new(sender),
            flushing_since: Mutex::new(None),
            renewal: Mutex::new(None),
        }
    }

    async fn greet(&self, greeting: Greeting) -> anyhow::Result<()> {
        let now = *self.timeline.progress().borrow();
        let mut sender = self.sender.lock().await;
        send(&mut sender.writer, &AcceptorMessage::Greeting(greeting)).await?;
        sender.send_room(now.room).await
    }

    async fn send(&self, message: &AcceptorMessage) -> anyhow::Result<()> {
        send(&mut self.sender.lock().await.writer, message).await
    }

    async fn send_positions(&self) -> anyhow::Result<()> {
        let now = *self.timeline.progress().borrow();
        self.sender.lock().await.send_positions(now).await
    }

    /// Sends where the log is, if the proposer does not know by itself.
    async fn send_news(&self, progress: &mut watch::Receiver<Progress>) -> anyhow::Result<()> {
        let now = *progress.borrow_and_update();
        let mut sender = self.sender.lock().await;
        if is_news(&sender.sent, &now) {
            sender.send_positions(now).await?;
        }
        Ok(())
    }

    fn while_flushing<T>(&self, flush: impl FnOnce() -> T) -> T {
        *self.flushing_since.lock() = Some(Instant::now());
        let flushed = flush();
        *self.flushing_since.lock() = None;
        flushed
    }

    /// Answers in place of the connection's thread while an fsync keeps it. Ends when the connection is lost.
    async fn show_life(self: Arc<Replies>) {
        loop {
            tokio::time::sleep(SIGN_OF_LIFE_PERIOD).await;
            let since = *self.flushing_since.lock();
            if since.is_some_and(|since| since.elapsed() >= SIGN_OF_LIFE_PERIOD)
                && self.say_alive().await.is_err()
            {
                return;
            }
        }
    }

    async fn say_alive(&self) -> anyhow::Result<()> {
        let renewal = *self.renewal.lock();
        if let Some(renewal) = renewal {
            let timeline = self.timeline.clone();
            let answer =
                tokio::task::spawn_blocking(move || renewal.answer_again(&timeline)).await?;
            // A refusal is left to the connection's own thread, which reads the next renewal.
            if let Ok(renewed) = answer {
                self.send(&renewed).await?;
            }
        }
        self.send_positions().await
    }

    async fn end(&self) -> anyhow::Result<()> {
        Ok(self.sender.lock().await.writer.shutdown().await?)
    }
}

impl Sender {
    async fn send_positions(&mut self, now: Progress) -> anyhow::Result<()> {
        let message = AcceptorMessage::Append {
            reply: now.reply,
            ingested_lsn: now.ingested_lsn,
            remote_consistent_lsn: now.remote_consistent_lsn,
        };
        self.send_room(now.room).await?;
        send(&mut self.writer, &message).await?;
        self.sent = now;
        Ok(())
    }

    /// Tells the proposer how much WAL is taken, if that has changed.
    async fn send_room(&mut self, room: Option<Room>) -> anyhow::Result<()> {
        if self.tells_room && self.room != Some(room) {
            send(&mut self.writer, &AcceptorMessage::Room(room)).await?;
            self.room = Some(room);
        }
        Ok(())
    }
}

/// Whether the proposer has to hear of it at once: it knows itself what it has written and committed.
fn is_news(sent: &Progress, now: &Progress) -> bool {
    let mut known = *now;
    known.reply.write_lsn = sent.reply.write_lsn;
    known.reply.commit_lsn = sent.reply.commit_lsn;
    known != *sent
}

#[cfg(test)]
mod tests {
    use tokio::net::{TcpListener, TcpStream};
    use tokio_util::codec::FramedRead;

    use super::*;
    use crate::timeline::alone;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_safekeeper_whose_disk_is_slow_says_that_it_lives() {
        let place = tempfile::tempdir().expect("temporary directory");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("listen");
        let address = listener.local_addr().expect("address");
        let proposer = TcpStream::connect(address).await.expect("connect");
        let accepted = listener.accept().await.expect("accept").0;
        let (_reader, writer) = Stream::from(accepted).into_split();
        let mut frames = FramedRead::new(proposer, wal::codec());
        let timeline = Arc::new(alone::create(place.path()).0);
        let replies = Arc::new(Replies::new(timeline, writer, wal::VERSION));
        let lives = tokio::spawn(replies.clone().show_life());
        let (ended, end) = std::sync::mpsc::channel::<()>();
        let connection = replies.clone();
        let thread = thread::spawn(move || connection.while_flushing(|| end.recv()));
        for _ in 0..2 {
            let sign = tokio::time::timeout(3 * SIGN_OF_LIFE_PERIOD, frames.next()).await;
            let sign = sign.expect("in time").expect("open").expect("a frame");
            let message = wal::decode(&sign).expect("a message");
            assert!(matches!(message, AcceptorMessage::Append { .. }));
        }
        drop(ended);
        let _ = thread.join().expect("no panic");
        // Without an fsync under way the connection's own thread answers.
        let more = tokio::time::timeout(2 * SIGN_OF_LIFE_PERIOD, frames.next()).await;
        assert!(more.is_err(), "{more:?}");
        lives.abort();
    }
}
