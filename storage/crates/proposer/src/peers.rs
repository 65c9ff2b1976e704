//! Where the safekeepers are, by the number that `consensus` knows each of them by. The list only grows.

use std::sync::Arc;

use parking_lot::RwLock;
use tokio::sync::Notify;

pub struct Peer {
    pub address: String,
    /// There may be something to send.
    pub wake: Notify,
}

#[derive(Default)]
pub struct Peers(RwLock<Vec<Arc<Peer>>>);

impl Peers {
    pub fn new(addresses: &[String]) -> Peers {
        let peers = Peers::default();
        for address in addresses {
            peers.add(address.clone());
        }
        peers
    }

    pub fn add(&self, address: String) {
        let wake = Notify::new();
        self.0.write().push(Arc::new(Peer { address, wake }));
    }

    /// Panics for a number that no peer has.
    pub fn get(&self, number: usize) -> Arc<Peer> {
        self.0.read()[number].clone()
    }

    pub fn find(&self, address: &str) -> Option<usize> {
        self.0
            .read()
            .iter()
            .position(|peer| peer.address == address)
    }

    pub fn wake_all(&self) {
        self.0.read().iter().for_each(|peer| peer.wake.notify_one());
    }
}
