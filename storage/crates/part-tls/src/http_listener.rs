//! The HTTP port of a part.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::serve::Listener;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::acceptor::Acceptor;
use crate::stream::Stream;

/// Callers that have not proven themselves yet, at a time; further ones wait in the kernel.
const MOST_UNPROVEN: usize = 256;
/// Out of file descriptors, mostly: others may free some.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// What [`axum::serve`] gets connections from. A caller that is slow to prove itself keeps no other one waiting.
pub struct HttpListener {
    listener: TcpListener,
    acceptor: Arc<Acceptor>,
    unproven: JoinSet<Option<(Stream, SocketAddr)>>,
}

impl HttpListener {
    /// Connections to `listener` that `acceptor` lets in.
    pub fn new(listener: TcpListener, acceptor: Arc<Acceptor>) -> HttpListener {
        HttpListener {
            listener,
            acceptor,
            unproven: JoinSet::new(),
        }
    }

    fn prove(&mut self, stream: TcpStream, peer: SocketAddr) {
        let acceptor = self.acceptor.clone();
        let handshake = async move {
            // What is refused was counted and logged.
            let proven = acceptor.accept(stream).await.ok()?;
            Some((proven, peer))
        };
        self.unproven.spawn(stalls::watched("handshake", handshake));
    }
}

impl Listener for HttpListener {
    type Io = Stream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Stream, SocketAddr) {
        loop {
            let accepted = tokio::select! {
                Some(proven) = self.unproven.join_next() => match proven {
                    Ok(Some(proven)) => return proven,
                    Ok(None) | Err(_) => continue,
                },
                accepted = self.listener.accept(), if self.unproven.len() < MOST_UNPROVEN => accepted,
            };
            match accepted {
                Ok((stream, peer)) if self.acceptor.proves() => self.prove(stream, peer),
                Ok((stream, peer)) => return (Stream::from(stream), peer),
                Err(error) => {
                    tracing::warn!("cannot accept an HTTP connection: {error}");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}
