//! Requests to cancel: which connection's key stands for which backend of which compute.
//!
//! Clients are told a key of the proxy's own, so that a key tells nothing of other connections and reaches a compute
//! only through here. The process id is the backend's, since clients compare it with `pg_backend_pid()`.

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
    pub address: String,
    pub process_id: u32,
    pub key: Vec<u8>,
}

type Backends = Arc<Mutex<HashMap<CancelRequest, Backend>>>;

/// The connections that can be asked to cancel.
#[derive(Clone, Default)]
pub struct Cancels {
    backends: Backends,
}

/// A connection's entry, taken out when this goes.
pub struct Registered {
    backends: Backends,
    pub request: CancelRequest,
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.backends.lock().remove(&self.request);
    }
}

impl Cancels {
    /// Gives a backend a key of `key_bytes` random bytes: 4 in protocol 3.0, up to 256 from 3.2 on.
    pub fn register(&self, backend: Backend, key_bytes: usize) -> Registered {
        let mut backends = self.backends.lock();
        let mut request = CancelRequest {
            process_id: backend.process_id,
            key: vec![0; key_bytes],
        };
        // Backends of two computes can have one process id; they never get one key.
        loop {
            rand::fill(&mut request.key[..]);
            if !backends.contains_key(&request) {
                break;
            }
        }
        backends.insert(request.clone(), backend);
        Registered {
            backends: self.backends.clone(),
            request,
        }
    }

    /// Passes a request on to the compute. The client is told nothing, whatever becomes of it.
    pub async fn cancel(&self, request: &CancelRequest) {
        let backend = self.backends.lock().get(request).cloned();
        let result = match backend {
            None => "unknown",
            Some(backend) => match tokio::time::timeout(PATIENCE, send(&backend)).await {
                Ok(Ok(())) => "sent",
                Ok(Err(error)) => {
                    tracing::warn!(compute = %backend.address, %error, "cannot pass a cancel request on");
                    "failed"
                }
                Err(_) => {
                    tracing::warn!(compute = %backend.address, "does not take a cancel request");
                    "failed"
                }
            },
        };
        metrics::CANCELS.with_label_values(&[result]).inc();
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
}
