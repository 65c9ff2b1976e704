//! Bytes both ways between a client and its compute.
//!
//! While nothing is under way a session holds no buffers: bytes are read into a buffer of the thread and written from
//! there, and only what the other side does not take at once is kept, at most [`MOST_BYTES`] each way. Nothing more is
//! read from a side until the other has taken what there is.
//!
//! Both streams are followed message by message, to know when a session is idle and may be ended without harm, and when
//! it changes the schema of its database, for which pooled clients have prepared statements.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use pg_protocol::messages::{Fatal, message};
use pg_protocol::tracker::{Seen, Tracker};
use prometheus::IntCounter;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::sync::watch;

use crate::metrics;
use crate::pool::schema::{self, Pending, Schema};

/// Most bytes kept each way.
pub const MOST_BYTES: usize = 64 << 10;
/// After so many reads a session lets others run.
const MOST_READS: usize = 16;

thread_local! {
    static BUFFER: RefCell<Box<[u8]>> = RefCell::new(vec![0; MOST_BYTES].into_boxed_slice());
}

/// What the process wants of its sessions.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Drain {
    /// That they go on.
    No,
    /// That those end that are idle, and others as soon as they are.
    Idle,
    /// That all end.
    All,
}

/// Why a session ended.
#[derive(Debug)]
pub enum End {
    /// The client closed the connection; `said` when it sent Terminate before.
    Client {
        /// Whether the client said that it goes.
        said: bool,
    },
    /// The connection to the client broke.
    ClientBroke(io::Error),
    /// The compute closed the connection.
    Compute,
    /// The connection to the compute broke.
    ComputeBroke(io::Error),
    /// The proxy is to end.
    Shutdown,
}

/// What passed, without TLS.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Passed {
    /// Bytes from the client to the compute.
    pub to_compute: u64,
    /// Bytes from the compute to the client.
    pub to_client: u64,
}

/// What is known of the session from its messages.
struct Activity {
    /// ReadyForQuery that the client's messages have asked for and that have not come.
    expected: u64,
    /// What the last ReadyForQuery said: `I` outside of transactions.
    status: u8,
    /// The client has sent Terminate.
    terminated: bool,
    /// That of the session's database.
    schema: Arc<Schema>,
    /// The transaction has changed it.
    altering: Option<Pending>,
}

impl Activity {
    fn sent_by_client(&mut self, seen: Seen) {
        match seen.tag {
            b'Q' | b'S' | b'F' => self.expected += 1,
            b'X' => self.terminated = true,
            _ => {}
        }
    }

    fn sent_by_compute(&mut self, seen: Seen) {
        match seen.tag {
            b'Z' => {
                self.expected = self.expected.saturating_sub(1);
                self.status = seen.begin[0];
                if self.status == b'I' {
                    self.altering = None;
                }
            }
            b'C' if schema::begins_like_a_change(seen.begin) => {
                self.altering = Some(Pending::new(self.schema.clone()));
            }
            _ => {}
        }
    }

    fn idle(&self) -> bool {
        self.expected == 0 && self.status == b'I'
    }
}

enum HalfError {
    Read(io::Error),
    Write(io::Error),
}

/// One direction.
struct Half {
    kept: Vec<u8>,
    written: usize,
    unflushed: bool,
    ended: bool,
    shut: bool,
    bytes: u64,
    tracker: Tracker,
    counter: &'static IntCounter,
}

impl Half {
    fn new(counter: &'static IntCounter, kept: Vec<u8>) -> Half {
        Half {
            kept,
            written: 0,
            unflushed: false,
            ended: false,
            shut: false,
            bytes: 0,
            tracker: Tracker::default(),
            counter,
        }
    }

    fn quiet(&self) -> bool {
        self.kept.is_empty() && self.tracker.between_messages()
    }

    /// Ready when the reader has ended and the writer has been told.
    fn poll<R: AsyncRead + Unpin, W: AsyncWrite + Unpin>(
        &mut self,
        cx: &mut Context<'_>,
        reader: &mut R,
        writer: &mut W,
        mut seen: impl FnMut(Seen),
    ) -> Poll<Result<(), HalfError>> {
        for _ in 0..MOST_READS {
            ready!(self.write_kept(cx, writer))?;
            if self.ended {
                if !self.shut {
                    ready!(Pin::new(&mut *writer).poll_shutdown(cx)).map_err(HalfError::Write)?;
                    self.shut = true;
                }
                return Poll::Ready(Ok(()));
            }
            let read = BUFFER.with_borrow_mut(|buffer| {
                let mut buffer = ReadBuf::new(buffer);
                ready!(Pin::new(&mut *reader).poll_read(cx, &mut buffer))
                    .map_err(HalfError::Read)?;
                self.pass_on(cx, buffer.filled(), writer, &mut seen)?;
                Poll::Ready(Ok(()))
            });
            match read {
                Poll::Ready(outcome) => outcome?,
                Poll::Pending => {
                    if self.unflushed {
                        ready!(Pin::new(&mut *writer).poll_flush(cx)).map_err(HalfError::Write)?;
                        self.unflushed = false;
                    }
                    return Poll::Pending;
                }
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn write_kept<W: AsyncWrite + Unpin>(
        &mut self,
        cx: &mut Context<'_>,
        writer: &mut W,
    ) -> Poll<Result<(), HalfError>> {
        while self.written < self.kept.len() {
            let rest = &self.kept[self.written..];
            let written = ready!(Pin::new(&mut *writer).poll_write(cx, rest))
                .and_then(some)
                .map_err(HalfError::Write)?;
            self.written += written;
            self.unflushed = true;
        }
        if !self.kept.is_empty() {
            // Given back: an idle session is to hold nothing.
            self.kept = Vec::new();
            self.written = 0;
        }
        Poll::Ready(Ok(()))
    }

    fn pass_on<W: AsyncWrite + Unpin>(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
        writer: &mut W,
        seen: &mut impl FnMut(Seen),
    ) -> Result<(), HalfError> {
        if bytes.is_empty() {
            self.ended = true;
            return Ok(());
        }
        self.tracker.feed(bytes, seen);
        self.bytes += bytes.len() as u64;
        self.counter.inc_by(bytes.len() as u64);
        let written = match Pin::new(writer).poll_write(cx, bytes) {
            Poll::Pending => 0,
            Poll::Ready(written) => {
                self.unflushed = true;
                written.and_then(some).map_err(HalfError::Write)?
            }
        };
        if written < bytes.len() {
            self.kept = bytes[written..].to_vec();
        }
        Ok(())
    }
}

fn some(written: usize) -> io::Result<usize> {
    match written {
        0 => Err(io::ErrorKind::WriteZero.into()),
        written => Ok(written),
    }
}

/// A session whose compute waits for the first statement.
pub struct Relay<C, S> {
    client: C,
    compute: S,
    to_compute: Half,
    to_client: Half,
    activity: Activity,
}

impl<C, S> Relay<C, S>
where
    C: AsyncRead + AsyncWrite + Unpin,
    S: AsyncRead + AsyncWrite + Unpin,
{
    /// `rest` came from the compute already and is for the client. `schema` is that of the session's database.
    pub fn new(client: C, compute: S, rest: Vec<u8>, schema: Arc<Schema>) -> Relay<C, S> {
        let mut activity = Activity {
            expected: 0,
            status: b'I',
            terminated: false,
            schema,
            altering: None,
        };
        let mut to_client = Half::new(&metrics::BYTES_TO_CLIENT, Vec::new());
        to_client
            .tracker
            .feed(&rest, |seen| activity.sent_by_compute(seen));
        to_client.bytes = rest.len() as u64;
        to_client.kept = rest;
        Relay {
            client,
            compute,
            to_compute: Half::new(&metrics::BYTES_TO_COMPUTE, Vec::new()),
            to_client,
            activity,
        }
    }

    /// Until one side ends, or `drain` says so.
    pub async fn run(mut self, mut drain: watch::Receiver<Drain>) -> (End, Passed) {
        let end = loop {
            let wanted = *drain.borrow_and_update();
            let polled = poll_fn(|cx| self.poll(cx, wanted));
            tokio::select! {
                end = polled => break end,
                changed = drain.changed() => {
                    // Without anybody who could say otherwise, a session goes on to its own end.
                    if changed.is_err() {
                        break poll_fn(|cx| self.poll(cx, wanted)).await;
                    }
                }
            }
        };
        self.say_goodbye(&end).await;
        let passed = Passed {
            to_compute: self.to_compute.bytes,
            to_client: self.to_client.bytes,
        };
        (end, passed)
    }

    fn poll(&mut self, cx: &mut Context<'_>, drain: Drain) -> Poll<End> {
        let activity = &mut self.activity;
        let to_compute = self
            .to_compute
            .poll(cx, &mut self.client, &mut self.compute, |seen| {
                activity.sent_by_client(seen)
            });
        match to_compute {
            // Without TLS's own goodbye, as some drivers go.
            Poll::Ready(Err(HalfError::Read(error)))
                if error.kind() == io::ErrorKind::UnexpectedEof =>
            {
                self.to_compute.ended = true;
                cx.waker().wake_by_ref();
            }
            Poll::Ready(Err(HalfError::Read(error))) => {
                return Poll::Ready(End::ClientBroke(error));
            }
            Poll::Ready(Err(HalfError::Write(error))) => {
                return Poll::Ready(self.compute_broke(error));
            }
            // The compute has been told that nothing more comes; it ends in its own time.
            Poll::Ready(Ok(())) | Poll::Pending => {}
        }
        let activity = &mut self.activity;
        let to_client = self
            .to_client
            .poll(cx, &mut self.compute, &mut self.client, |seen| {
                activity.sent_by_compute(seen)
            });
        match to_client {
            Poll::Ready(Err(HalfError::Read(error))) => {
                return Poll::Ready(self.compute_broke(error));
            }
            Poll::Ready(Err(HalfError::Write(error))) => {
                return Poll::Ready(self.client_gone(error));
            }
            Poll::Ready(Ok(())) => return Poll::Ready(self.compute_ended()),
            Poll::Pending => {}
        }
        let idle = self.activity.idle() && self.to_compute.quiet() && self.to_client.quiet();
        match drain {
            Drain::All => Poll::Ready(End::Shutdown),
            Drain::Idle if idle => Poll::Ready(End::Shutdown),
            _ => Poll::Pending,
        }
    }

    fn left(&self) -> bool {
        self.to_compute.ended || self.activity.terminated
    }

    fn compute_ended(&self) -> End {
        match self.left() {
            true => End::Client {
                said: self.activity.terminated,
            },
            false => End::Compute,
        }
    }

    fn compute_broke(&self, error: io::Error) -> End {
        match self.left() {
            true => self.compute_ended(),
            false => End::ComputeBroke(error),
        }
    }

    fn client_gone(&self, error: io::Error) -> End {
        match self.left() {
            true => self.compute_ended(),
            false => End::ClientBroke(error),
        }
    }

    /// Tells the client why, where no message is cut by it.
    async fn say_goodbye(&mut self, end: &End) {
        let fatal = match end {
            End::Shutdown => Fatal::new("57P01", "terminating connection: the proxy shuts down"),
            End::ComputeBroke(_) => Fatal::new("08006", "the connection to the compute broke"),
            _ => return,
        };
        if self.to_client.quiet() {
            let _ = self.client.write_all(&fatal.to_message()).await;
        }
        let _ = self.client.shutdown().await;
        if self.to_compute.quiet() {
            let _ = self.compute.write_all(&message(b'X', b"")).await;
        }
        let _ = self.compute.shutdown().await;
    }
}

#[cfg(test)]
mod tests;
