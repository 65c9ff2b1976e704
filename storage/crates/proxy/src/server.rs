//! The listeners, and the end of the process.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use pg_protocol::addresses::Addresses;
use pg_protocol::messages::Fatal;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;

use crate::behind;
use crate::metrics;
use crate::relay::Drain;
use crate::session;
use crate::shared::Shared;

/// A client that does not answer for so long is probed, so often, and then given up.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(120);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);
const KEEPALIVE_RETRIES: u32 = 6;
/// After this, a session that does not even take its goodbye is dropped.
const GOODBYE: Duration = Duration::from_secs(2);

/// Limits of the server.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections at a time.
    pub connections: usize,
    /// How long sessions get to finish their transactions when the process is to end.
    pub drain: Duration,
}

/// Where connections come in.
pub struct Door {
    /// The port.
    pub listener: TcpListener,
    /// The senders that may say there whose a connection is, and have to. None: clients come by themselves.
    pub senders: Option<Arc<Addresses>>,
}

/// Accepts connections until `stop` is done; then ends the sessions, idle ones first. Returns when none is left.
pub async fn serve(
    doors: Vec<Door>,
    shared: Arc<Shared>,
    limits: Limits,
    stop: impl Future<Output = ()>,
) {
    let places = Arc::new(Semaphore::new(limits.connections));
    let (drain, wanted) = watch::channel(Drain::No);
    let doors = doors.into_iter();
    let all = join_all(doors.map(|door| keep(door, &places, &shared, &wanted)));
    tokio::select! {
        _ = all => {}
        () = stop => {}
    }
    end_sessions(&places, limits, &drain).await;
}

/// Accepts connections, forever.
async fn keep(
    door: Door,
    places: &Arc<Semaphore>,
    shared: &Arc<Shared>,
    wanted: &watch::Receiver<Drain>,
) {
    loop {
        let (stream, peer) = match door.listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                // No file descriptors left, say: they come back as connections end.
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        prepare(&stream);
        match places.clone().try_acquire_owned() {
            Ok(place) => {
                let (shared, wanted) = (shared.clone(), wanted.clone());
                let senders = door.senders.clone();
                tokio::spawn(async move {
                    if let Some((stream, client)) = admit(stream, peer, senders, &shared).await {
                        session::serve(stream, client, shared, wanted).await;
                    }
                    drop(place);
                });
            }
            Err(_) => {
                tracing::warn!(client = %peer, "no place is left for a connection (--max-connections)");
                tokio::spawn(turn_away(stream));
            }
        }
    }
}

/// A connection and its client's address. None: who sent it may not, or has not said whose it is.
async fn admit(
    mut stream: TcpStream,
    peer: SocketAddr,
    senders: Option<Arc<Addresses>>,
    shared: &Shared,
) -> Option<(TcpStream, SocketAddr)> {
    let Some(senders) = senders else {
        return Some((stream, peer));
    };
    let said = timeout(
        shared.login_limit,
        behind::client(&mut stream, peer, &senders),
    );
    let reason = match said.await {
        Ok(Ok(client)) => return Some((stream, client)),
        Ok(Err(error)) => error.to_string(),
        Err(_) => "it did not say in time whose the connection is".to_owned(),
    };
    metrics::ENDED.with_label_values(&["not_a_sender"]).inc();
    tracing::warn!(sender = %peer, reason, "a connection to the port of load balancers is refused");
    None
}

/// Small messages go at once, and a peer that has vanished is noticed.
fn prepare(stream: &TcpStream) {
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE_IDLE)
        .with_interval(KEEPALIVE_INTERVAL)
        .with_retries(KEEPALIVE_RETRIES);
    let set = stream
        .set_nodelay(true)
        .and_then(|()| SockRef::from(stream).set_tcp_keepalive(&keepalive));
    if let Err(error) = set {
        tracing::debug!(%error, "a connection keeps the system's settings");
    }
}

async fn turn_away(mut stream: TcpStream) {
    let fatal = Fatal::new("53300", "sorry, too many clients already");
    let _ = timeout(GOODBYE, stream.write_all(&fatal.to_message())).await;
}

async fn end_sessions(places: &Semaphore, limits: Limits, drain: &watch::Sender<Drain>) {
    let open = limits.connections - places.available_permits();
    tracing::info!(open, "ends its sessions, idle ones first");
    let all = u32::try_from(limits.connections).unwrap_or(u32::MAX);
    for (wanted, patience) in [(Drain::Idle, limits.drain), (Drain::All, GOODBYE)] {
        drain.send_replace(wanted);
        if timeout(patience, places.acquire_many(all)).await.is_ok() {
            return;
        }
    }
    let open = limits.connections - places.available_permits();
    tracing::warn!(open, "leaves sessions that did not end");
}
