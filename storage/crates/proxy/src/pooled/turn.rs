//! The bytes of a turn, both ways at once. Nothing more is read from a side while the other has not taken what there is.
//!
//! Both directions are steps of one future, which looks at both each time that it is woken. Two futures that told each
//! other by wakers would have the runtime wake a second thread for each message of the client.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use pg_protocol::messages::Fatal;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::timeout;

use super::connection::Connection;
use crate::metrics;
use crate::pool::turn::{Desync, Took, Turn};
use crate::relay::{Drain, Passed};

/// What a client has left behind may take so long to come to its end.
const FINISH: Duration = Duration::from_secs(5);

/// How a turn ended.
#[derive(Debug)]
pub enum Ended {
    /// Well: the server connection is ready for the next client, and this client for its next turn.
    Over,
    /// The client closed the connection; `said` when it sent Terminate before.
    ClientLeft {
        said: bool,
    },
    ClientBroke(io::Error),
    /// The client has to be told this, and cannot be understood any more.
    Violation(Fatal),
    /// The compute closed the connection.
    ComputeLeft,
    ComputeBroke(io::Error),
    Desync(Desync),
    Shutdown,
}

impl Ended {
    /// Whether the server connection has broken, or what it says makes no sense.
    pub fn is_computes(&self) -> bool {
        matches!(
            self,
            Ended::ComputeLeft | Ended::ComputeBroke(_) | Ended::Desync(_)
        )
    }
}

/// Bytes for one side, and how many of them it has taken.
#[derive(Default)]
struct Outgoing {
    bytes: Vec<u8>,
    written: usize,
    unflushed: bool,
}

impl Outgoing {
    /// Ready once the side has taken all, and TLS holds nothing of it back.
    fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        writer: &mut (impl AsyncWrite + Unpin),
    ) -> Poll<io::Result<()>> {
        while self.written < self.bytes.len() {
            let rest = &self.bytes[self.written..];
            match ready!(Pin::new(&mut *writer).poll_write(cx, rest))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                count => self.written += count,
            }
            self.unflushed = true;
        }
        self.bytes.clear();
        self.written = 0;
        if self.unflushed {
            ready!(Pin::new(writer).poll_flush(cx))?;
            self.unflushed = false;
        }
        Poll::Ready(Ok(()))
    }
}

/// A turn under way.
struct Flow<'t> {
    turn: Turn,
    passed: &'t mut Passed,
    to_compute: Outgoing,
    to_client: Outgoing,
    /// What becomes of the client's messages once what was taken of them has been sent.
    took: Result<Took, Fatal>,
    is_begun: bool,
}

/// Passes messages on until the turn ends. Answers with what is known of both sides then.
pub async fn run(
    turn: Turn,
    client: &mut (impl AsyncRead + AsyncWrite + Unpin),
    compute: &mut TcpStream,
    drain: &mut watch::Receiver<Drain>,
    passed: &mut Passed,
) -> (Ended, Turn) {
    let mut flow = Flow {
        turn,
        passed,
        to_compute: Outgoing::default(),
        to_client: Outgoing::default(),
        took: Ok(Took::Some),
        is_begun: false,
    };
    let ended = tokio::select! {
        biased;
        ended = poll_fn(|cx| flow.poll(cx, client, compute)) => ended,
        () = all_are_to_end(drain) => Ended::Shutdown,
    };
    (ended, flow.turn)
}

async fn all_are_to_end(drain: &mut watch::Receiver<Drain>) {
    if drain.wait_for(|drain| *drain == Drain::All).await.is_err() {
        // Without anybody who could say otherwise, a session goes on to its own end.
        std::future::pending::<()>().await;
    }
}

impl Flow<'_> {
    /// Takes both directions as far as they go now. The runtime's budget of reads and writes bounds one call.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        client: &mut (impl AsyncRead + AsyncWrite + Unpin),
        compute: &mut TcpStream,
    ) -> Poll<Ended> {
        if !self.is_begun {
            // A turn begins with something that the client has sent.
            self.is_begun = true;
            if let (Poll::Ready(ended), _) = self.poll_up(cx, client, compute) {
                return Poll::Ready(ended);
            }
        }
        loop {
            // What the compute has said comes first: it may end the turn.
            if let Poll::Ready(ended) = self.poll_down(cx, compute, client) {
                return Poll::Ready(ended);
            }
            match self.poll_up(cx, client, compute) {
                (Poll::Ready(ended), _) => return Poll::Ready(ended),
                (Poll::Pending, false) => return Poll::Pending,
                // What was taken may be answered here, and may be the turn's end.
                (Poll::Pending, true) => {}
            }
        }
    }

    /// From the client to the compute. The second: whether anything of the client was taken.
    fn poll_up(
        &mut self,
        cx: &mut Context<'_>,
        client: &mut (impl AsyncRead + Unpin),
        compute: &mut TcpStream,
    ) -> (Poll<Ended>, bool) {
        let mut moved = false;
        loop {
            match self.to_compute.poll_send(cx, compute) {
                Poll::Pending => return (Poll::Pending, moved),
                Poll::Ready(Err(error)) => return (Poll::Ready(Ended::ComputeBroke(error)), moved),
                Poll::Ready(Ok(())) => self.turn.sent(),
            }
            match &self.took {
                Err(fatal) => return (Poll::Ready(Ended::Violation(fatal.clone())), moved),
                Ok(Took::Terminate) => {
                    return (Poll::Ready(Ended::ClientLeft { said: true }), moved);
                }
                Ok(Took::Some | Took::Enough) => {}
                Ok(Took::All) => {
                    let inbox = &mut self.turn.client.inbox;
                    match super::poll_read(cx, client, |bytes| inbox.extend(bytes)) {
                        Poll::Pending => return (Poll::Pending, moved),
                        Poll::Ready(Ok(0)) => {
                            return (Poll::Ready(Ended::ClientLeft { said: false }), moved);
                        }
                        Poll::Ready(Ok(_)) => {}
                        Poll::Ready(Err(error)) => {
                            return (Poll::Ready(Ended::ClientBroke(error)), moved);
                        }
                    }
                }
            }
            self.took = self.turn.take_from_client(&mut self.to_compute.bytes);
            let count = self.to_compute.bytes.len();
            if count > 0 {
                self.passed.to_compute += count as u64;
                metrics::BYTES_TO_COMPUTE.inc_by(count as u64);
            } else if matches!(self.took, Ok(Took::Enough)) {
                // The compute has to answer something first; this is called again then.
                return (Poll::Pending, moved);
            }
            moved = true;
        }
    }

    /// From the compute to the client.
    fn poll_down(
        &mut self,
        cx: &mut Context<'_>,
        compute: &mut TcpStream,
        client: &mut (impl AsyncWrite + Unpin),
    ) -> Poll<Ended> {
        loop {
            if let Err(error) = ready!(self.to_client.poll_send(cx, client)) {
                return Poll::Ready(Ended::ClientBroke(error));
            }
            let (turn, out) = (&mut self.turn, &mut self.to_client.bytes);
            turn.answer(out);
            if out.is_empty() {
                if turn.is_over() {
                    return Poll::Ready(Ended::Over);
                }
                let mut taken = Ok(());
                let read = super::poll_read(cx, compute, |bytes| {
                    taken = turn.take_from_server(bytes, out);
                });
                match ready!(read) {
                    Ok(0) => return Poll::Ready(Ended::ComputeLeft),
                    Ok(_) => {}
                    Err(error) => return Poll::Ready(Ended::ComputeBroke(error)),
                }
                if let Err(desync) = taken {
                    return Poll::Ready(Ended::Desync(desync));
                }
            }
            let count = self.to_client.bytes.len() as u64;
            self.passed.to_client += count;
            metrics::BYTES_TO_CLIENT.inc_by(count);
        }
    }
}

/// Writes, and sees to it that TLS holds nothing back.
pub async fn send(client: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> io::Result<()> {
    client.write_all(bytes).await?;
    client.flush().await
}

/// Brings a server connection to its end of what a client has left behind, without the client: what was asked for is done,
/// and a transaction that was not ended is rolled back. False: it could not be done in time, or not at all, and the
/// connection has to be closed.
pub async fn finish(mut turn: Turn, connection: &mut Connection) -> bool {
    let mut out = Vec::new();
    if !turn.leave(&mut out) {
        return false;
    }
    let done = timeout(FINISH, async {
        connection.stream.write_all(&out).await.ok()?;
        connection.is_between = true;
        let mut unheard = Vec::new();
        while !turn.is_over() {
            let mut taken = Ok(());
            let read = super::read(&mut connection.stream, |bytes| {
                taken = turn.take_from_server(bytes, &mut unheard);
                unheard.clear();
            });
            if read.await.ok()? == 0 || taken.is_err() {
                return None;
            }
            turn.answer(&mut unheard);
        }
        let outside = turn.is_outside();
        connection.server = Some(turn.server);
        if !outside {
            connection.command("ROLLBACK").await.ok()?;
        }
        Some(())
    });
    matches!(done.await, Ok(Some(())))
}
