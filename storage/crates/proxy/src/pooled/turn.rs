//! The bytes of a turn, both ways at once. Nothing more is read from a side while the other has not taken what there is.

use std::io;
use std::time::Duration;

use parking_lot::Mutex;
use pg_protocol::messages::Fatal;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::{Notify, watch};
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

/// What both directions share.
struct Shared {
    turn: Mutex<Turn>,
    /// The client has asked for something.
    asked: Notify,
    /// The server has answered something.
    answered: Notify,
    passed: Mutex<Passed>,
}

/// Passes messages on until the turn ends. Answers with what is known of both sides then.
pub async fn run(
    turn: Turn,
    client: (
        &mut (impl AsyncRead + Unpin),
        &mut (impl AsyncWrite + Unpin),
    ),
    compute: &mut TcpStream,
    drain: &mut watch::Receiver<Drain>,
    passed: &mut Passed,
) -> (Ended, Turn) {
    let shared = Shared {
        turn: Mutex::new(turn),
        asked: Notify::new(),
        answered: Notify::new(),
        passed: Mutex::new(*passed),
    };
    let (from_compute, to_compute) = compute.split();
    let ended = {
        let up = up(&shared, client.0, to_compute);
        let down = down(&shared, from_compute, client.1);
        tokio::pin!(up, down);
        tokio::select! {
            biased;
            ended = &mut down => ended,
            ended = &mut up => ended,
            () = all_are_to_end(drain) => Ended::Shutdown,
        }
    };
    *passed = *shared.passed.lock();
    (ended, shared.turn.into_inner())
}

async fn all_are_to_end(drain: &mut watch::Receiver<Drain>) {
    if drain.wait_for(|drain| *drain == Drain::All).await.is_err() {
        // Without anybody who could say otherwise, a session goes on to its own end.
        std::future::pending::<()>().await;
    }
}

async fn up(
    shared: &Shared,
    client: &mut (impl AsyncRead + Unpin),
    mut compute: impl AsyncWrite + Unpin,
) -> Ended {
    let mut out = Vec::new();
    loop {
        let took = shared.turn.lock().take_from_client(&mut out);
        if !out.is_empty() {
            shared.passed.lock().to_compute += out.len() as u64;
            count("compute", out.len());
            if let Err(error) = compute.write_all(&out).await {
                return Ended::ComputeBroke(error);
            }
            out.clear();
            shared.turn.lock().sent();
        }
        shared.asked.notify_one();
        match took {
            Err(fatal) => return Ended::Violation(fatal),
            Ok(Took::Terminate) => return Ended::ClientLeft { said: true },
            Ok(Took::Some) => continue,
            Ok(Took::Enough) => {
                shared.answered.notified().await;
                continue;
            }
            Ok(Took::All) => {}
        }
        let read = super::read(client, |bytes| {
            shared.turn.lock().client.inbox.extend(bytes)
        });
        match read.await {
            Ok(0) => return Ended::ClientLeft { said: false },
            Ok(_) => {}
            Err(error) => return Ended::ClientBroke(error),
        }
    }
}

async fn down(
    shared: &Shared,
    mut compute: impl AsyncRead + Unpin,
    client: &mut (impl AsyncWrite + Unpin),
) -> Ended {
    let mut out = Vec::new();
    loop {
        shared.turn.lock().answer(&mut out);
        if !out.is_empty() {
            shared.passed.lock().to_client += out.len() as u64;
            count("client", out.len());
            if let Err(error) = send(client, &out).await {
                return Ended::ClientBroke(error);
            }
            out.clear();
        }
        if shared.turn.lock().is_over() {
            return Ended::Over;
        }
        let mut taken = Ok(());
        let read = super::read(&mut compute, |bytes| {
            taken = shared.turn.lock().take_from_server(bytes, &mut out);
        });
        tokio::select! {
            read = read => match read {
                Ok(0) => return Ended::ComputeLeft,
                Ok(_) => {}
                Err(error) => return Ended::ComputeBroke(error),
            },
            () = shared.asked.notified() => {}
        }
        if let Err(desync) = taken {
            return Ended::Desync(desync);
        }
        shared.answered.notify_one();
    }
}

/// Writes, and sees to it that TLS holds nothing back.
pub async fn send(client: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> io::Result<()> {
    client.write_all(bytes).await?;
    client.flush().await
}

fn count(direction: &str, bytes: usize) {
    metrics::BYTES
        .with_label_values(&[direction])
        .inc_by(bytes as u64);
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
