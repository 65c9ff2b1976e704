//! Messages between simulated proposers and acceptors, and what the network does to them.

use std::collections::BTreeSet;

use consensus::{
    AppendHeader, AppendReply, ConfigureRequest, ElectedReply, ElectedRequest, LogPosition,
    Refusal, ResetRequest, VoteReply, VoteRequest,
};
use pg_types::{Lsn, Term};
use rand::RngExt as _;
use rand_chacha::ChaCha8Rng;

/// A message of a proposer.
#[derive(Clone, Debug)]
pub enum ToAcceptor {
    /// Asks for a greeting.
    Greet,
    /// Asks for a vote.
    Vote(VoteRequest),
    /// Announces a won election.
    Elected(ElectedRequest),
    /// A change of the members.
    Configure(ConfigureRequest),
    /// WAL with its header.
    Append(AppendHeader, Vec<u8>),
    /// Has the log begin anew.
    Reset(ResetRequest),
    /// Asks for WAL, for a peer that lacks it.
    Fetch {
        /// The term that the log has to follow.
        term: Term,
        /// First byte wanted.
        from: Lsn,
        /// Behind the last byte wanted.
        to: Lsn,
    },
}

/// A message of an acceptor.
#[derive(Clone, Debug)]
pub enum ToProposer {
    /// Where the log is.
    Greeting(LogPosition),
    /// A vote, or its refusal.
    Vote(VoteReply),
    /// The announced history is adopted.
    Elected(ElectedReply),
    /// The positions of the log.
    Append(AppendReply),
    /// A rule of consensus forbids what was asked for.
    Refused(Refusal),
    /// WAL that was asked for.
    Fetched {
        /// LSN of the first byte.
        from: Lsn,
        /// The bytes.
        wal: Vec<u8>,
    },
    /// What was to be fetched is gone below this record boundary.
    Trimmed {
        /// Record boundary at which the log begins.
        horizon: Lsn,
    },
}

/// How rough the network is in this run.
#[derive(Clone, Debug)]
pub struct Network {
    loss: f64,
    repeat: f64,
    max_delay: u64,
    /// Links that carry nothing, `(proposer, acceptor)`.
    cut: BTreeSet<(usize, usize)>,
}

impl Network {
    /// Loss of less than 25%, repetition of less than 15%, delays of less than 60 ms for most messages, and no link
    /// cut.
    pub fn random(rng: &mut ChaCha8Rng) -> Network {
        Network {
            loss: rng.random_range(0.0..0.25),
            repeat: rng.random_range(0.0..0.15),
            max_delay: rng.random_range(2..60),
            cut: BTreeSet::new(),
        }
    }

    /// Nothing is lost or repeated any more, no link is cut, and delays are short.
    pub fn heal(&mut self) {
        *self = Network {
            loss: 0.0,
            repeat: 0.0,
            max_delay: 3,
            cut: BTreeSet::new(),
        };
    }

    /// Cuts a random set of links, another one than before.
    pub fn partition(&mut self, rng: &mut ChaCha8Rng, proposers: usize, acceptors: usize) {
        self.cut.clear();
        let density = rng.random_range(0.0..0.6);
        for link in (0..proposers).flat_map(|p| (0..acceptors).map(move |a| (p, a))) {
            if rng.random_bool(density) {
                self.cut.insert(link);
            }
        }
    }

    /// After which delays a message arrives: never, once or twice.
    pub fn deliveries(&self, rng: &mut ChaCha8Rng, link: (usize, usize)) -> Vec<u64> {
        if self.cut.contains(&link) || rng.random_bool(self.loss) {
            return Vec::new();
        }
        let copies = if rng.random_bool(self.repeat) { 2 } else { 1 };
        (0..copies)
            .map(|_| {
                // Now and then a message is stuck somewhere for long.
                let stretch = if rng.random_bool(0.02) { 20 } else { 1 };
                rng.random_range(1..=self.max_delay) * stretch
            })
            .collect()
    }
}
