//! Requests to cancel: which connection's key stands for which backend of which compute.
//!
//! Clients are told a key of the proxy's own, so that a key tells nothing of other connections and reaches a compute
//! only through here. The process id is the backend's, since clients compare it with `pg_backend_pid()`; that of a pooled
//! client, which has many backends, is made up.
//!
//! A pooled client's entry is aimed at a backend for each turn. Aiming it elsewhere waits for requests that are under way,
//! so that none reaches a backend that works for somebody else already.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use pg_protocol::startup::CancelRequest;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::metrics;

/// How long a compute has to take a request.
const PATIENCE: Duration = Duration::from_secs(10);
const CANCEL_REQUEST: u32 = 80_877_102;

/// A backend, and the key that the compute gave for it.
#[derive(Clone)]
pub struct Backend {
    /// `HOST:PORT` of its compute.
    pub address: String,
    /// The backend's process id there.
    pub process_id: u32,
    /// The secret that the compute gave it.
    pub key: Vec<u8>,
}

/// What a request to cancel reaches.
#[derive(Default)]
struct Aim {
    backend: Option<Arc<Backend>>,
    /// A request was sent, and nobody knows whether the backend has been signalled yet.
    doubtful: bool,
}

type Shared = Arc<tokio::sync::Mutex<Aim>>;
type Backends = Arc<Mutex<HashMap<CancelRequest, Shared>>>;

/// The connections that can be asked to cancel.
#[derive(Clone, Default)]
pub struct Cancels {
    backends: Backends,
}

/// A connection's entry, taken out when this goes.
pub struct Registered {
    backends: Backends,
    aim: Shared,
    /// What the client has to send for its statement to be cancelled.
    pub request: CancelRequest,
}

impl Registered {
    /// Has requests reach this backend from now on, or none. Returns once no request is under way to the backend before.
    /// False: one was sent to that backend that may reach it any time, so that it must not work for anybody else.
    pub async fn aim(&self, backend: Option<Arc<Backend>>) -> bool {
        let mut aim = self.aim.lock().await;
        let doubtful = std::mem::take(&mut aim.doubtful);
        aim.backend = backend;
        !doubtful
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.backends.lock().remove(&self.request);
    }
}

impl Cancels {
    /// Gives a backend a key of `key_bytes` random bytes: 4 in protocol 3.0, up to 256 from 3.2 on.
    pub fn register(&self, backend: Backend, key_bytes: usize) -> Registered {
        self.entry(backend.process_id, Some(Arc::new(backend)), key_bytes)
    }

    /// Gives a pooled client such a key, which reaches nothing until it is aimed.
    pub fn register_pooled(&self, key_bytes: usize) -> Registered {
        // Process ids are positive.
        let process_id = rand::random::<u32>() >> 1;
        self.entry(process_id, None, key_bytes)
    }

    fn entry(
        &self,
        process_id: u32,
        backend: Option<Arc<Backend>>,
        key_bytes: usize,
    ) -> Registered {
        let mut backends = self.backends.lock();
        let mut request = CancelRequest {
            process_id,
            key: vec![0; key_bytes],
        };
        // Backends of two computes can have one process id; they never get one key.
        loop {
            rand::fill(&mut request.key[..]);
            if !backends.contains_key(&request) {
                break;
            }
        }
        let aim = Shared::new(tokio::sync::Mutex::new(Aim {
            backend,
            doubtful: false,
        }));
        backends.insert(request.clone(), aim.clone());
        Registered {
            backends: self.backends.clone(),
            aim,
            request,
        }
    }

    /// Passes a request on to the compute. The client is told nothing, whatever becomes of it.
    pub async fn cancel(&self, request: &CancelRequest) {
        let aim = self.backends.lock().get(request).cloned();
        let result = match aim {
            None => "unknown",
            Some(aim) => {
                // Held until the compute has taken the request: the backend works for this client as long.
                let mut aim = aim.lock().await;
                match aim.backend.clone() {
                    None => "idle",
                    Some(backend) => {
                        aim.doubtful = true;
                        let (result, taken) = pass_on(&backend).await;
                        aim.doubtful = !taken;
                        result
                    }
                }
            }
        };
        metrics::CANCELS.with_label_values(&[result]).inc();
    }
}

/// Sends a request to a compute. The word for metrics, and whether Postgres has signalled the backend, or never will.
pub(crate) async fn pass_on(backend: &Backend) -> (&'static str, bool) {
    match tokio::time::timeout(PATIENCE, send(backend)).await {
        Ok(Ok(())) => ("sent", true),
        Ok(Err(error)) => {
            tracing::warn!(compute = %backend.address, %error, "cannot pass a cancel request on");
            (
                "failed",
                error.kind() == std::io::ErrorKind::ConnectionRefused,
            )
        }
        Err(_) => {
            tracing::warn!(compute = %backend.address, "does not take a cancel request");
            ("failed", false)
        }
    }
}

/// Returns when Postgres has taken the request: it closes the connection then.
async fn send(backend: &Backend) -> std::io::Result<()> {
    let mut packet = Vec::with_capacity(12 + backend.key.len());
    packet.extend_from_slice(&(12 + backend.key.len() as u32).to_be_bytes());
    packet.extend_from_slice(&CANCEL_REQUEST.to_be_bytes());
    packet.extend_from_slice(&backend.process_id.to_be_bytes());
    packet.extend_from_slice(&backend.key);
    let mut stream = TcpStream::connect(&backend.address).await?;
    stream.write_all(&packet).await?;
    let mut end = [0; 1];
    stream.read(&mut end).await.map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backends_with_one_process_id_have_different_keys_and_leave_nothing_behind() {
        let cancels = Cancels::default();
        let all: Vec<_> = (0..300)
            .map(|number| {
                let backend = Backend {
                    address: format!("compute {number}"),
                    process_id: 7,
                    key: vec![1, 2, 3, 4],
                };
                // One byte: 256 keys, of which some must come twice, were they not looked up.
                cancels.register(backend, if number < 200 { 1 } else { 32 })
            })
            .collect();
        assert_eq!(cancels.backends.lock().len(), 300);
        assert!(all.iter().all(|entry| entry.request.process_id == 7));
        drop(all);
        assert!(cancels.backends.lock().is_empty());
    }

    /// A compute that takes a request, and closes the connection when it is told to.
    async fn slow_compute() -> (Arc<Backend>, tokio::net::TcpListener) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await;
        let listener = listener.expect("a port");
        let backend = Backend {
            address: listener.local_addr().expect("bound").to_string(),
            process_id: 7,
            key: vec![1, 2, 3, 4],
        };
        (Arc::new(backend), listener)
    }

    #[tokio::test]
    async fn a_turn_does_not_end_while_a_request_to_cancel_it_is_under_way() {
        let cancels = Cancels::default();
        let (backend, listener) = slow_compute().await;
        let client = cancels.register_pooled(4);
        // Before its turn, and after it, nothing is sent.
        cancels.cancel(&client.request).await;
        assert!(client.aim(Some(backend)).await);
        let request = client.request.clone();
        let asking = tokio::spawn({
            let cancels = cancels.clone();
            async move { cancels.cancel(&request).await }
        });
        let (mut compute, _) = listener.accept().await.expect("a request");
        let mut packet = [0; 16];
        compute.read_exact(&mut packet).await.expect("it is sent");
        let end_of_turn = client.aim(None);
        tokio::pin!(end_of_turn);
        let soon = Duration::from_millis(200);
        assert!(tokio::time::timeout(soon, &mut end_of_turn).await.is_err());
        drop(compute);
        assert!(end_of_turn.await, "the backend has been signalled");
        asking.await.expect("no panic");
        cancels.cancel(&client.request).await;
        assert!(tokio::time::timeout(soon, listener.accept()).await.is_err());
    }

    #[tokio::test]
    async fn after_a_request_that_may_come_any_time_the_backend_is_in_doubt() {
        let cancels = Cancels::default();
        let (backend, listener) = slow_compute().await;
        let client = cancels.register_pooled(32);
        client.aim(Some(backend)).await;
        let asking = cancels.cancel(&client.request);
        // The one who asked is gone before the compute has answered.
        let soon = Duration::from_millis(200);
        assert!(tokio::time::timeout(soon, asking).await.is_err());
        drop(listener);
        assert!(!client.aim(None).await);
        assert!(client.aim(None).await, "the next backend is another");
    }
}
