//! Who the simulated safekeepers are, and what has become of their disks.

use consensus::{Configuration, Generation, MemberId};
use pg_types::DiskId;
use rand::RngExt as _;
use rand_chacha::ChaCha8Rng;

use crate::Bug;
use crate::acceptor::SimAcceptor;

/// The identity of a disk; each has a number of its own.
pub fn disk(number: u64) -> DiskId {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    DiskId(bytes)
}

/// Founding members, mostly with some spare safekeepers beside them, and the configuration that the control plane founds
/// the log with. One log in four does not name its members; that one has no spares.
pub fn populate(rng: &mut ChaCha8Rng, bug: Option<Bug>) -> (Vec<SimAcceptor>, Configuration) {
    let members: u64 = [1, 3, 3, 3, 5][rng.random_range(0..5)];
    let listed = rng.random_bool(0.75);
    let spares = if listed { rng.random_range(0..3) } else { 0 };
    let id = |node| MemberId {
        node,
        disk: disk(node),
        incarnation: 1,
    };
    let ids: Vec<MemberId> = (0..members).map(id).collect();
    let founders = if listed {
        Configuration::founding(&ids).expect("members are distinct")
    } else {
        Configuration::default()
    };
    let acceptor = |node: u64| {
        let configuration = if node < members {
            founders.clone()
        } else {
            Configuration::waiting(id(node))
        };
        SimAcceptor::new(id(node), configuration, bug)
    };
    let acceptors = (0..members + spares).map(acceptor).collect();
    (acceptors, founders)
}

/// Whether the voters of the newest configuration that is stored anywhere have kept a majority of their disks.
pub fn majority_kept(acceptors: &[SimAcceptor]) -> bool {
    let known = acceptors.iter().map(SimAcceptor::configuration);
    let Some(newest) = known.max_by_key(|known| known.generation) else {
        return false;
    };
    if newest.is_unlisted() || newest.generation == Generation::ZERO {
        let voters = acceptors.iter().filter(|acceptor| acceptor.is_original());
        return voters.count() >= consensus::majority(acceptors.len());
    }
    let kept = |id: &MemberId| acceptors.iter().any(|acceptor| acceptor.id == *id);
    newest.voters().filter(kept).count() >= newest.quorum()
}
