//! A state of the whole system, cheap to copy and to tell from others.

use std::hash::{BuildHasher, Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

use consensus::{AppendHeader, AppendReply, ConfigureRequest, ElectedRequest, MemberId, VoteReply};
use foldhash::quality::FixedState;

use crate::compute::Compute;
use crate::log::{Log, Record};
use crate::safekeeper::Safekeeper;

fn key_of(value: &impl Hash) -> u64 {
    FixedState::with_seed(0).hash_one(value)
}

/// A part of the state, shared between all states in which it is the same, with its fingerprint.
#[derive(Clone)]
pub struct Part<T> {
    value: Arc<T>,
    key: u64,
}

impl<T: Hash + Clone> Part<T> {
    /// A part that is not yet shared.
    pub fn new(value: T) -> Part<T> {
        let key = key_of(&value);
        let value = Arc::new(value);
        Part { value, key }
    }

    /// The part after `change`; what that returned comes with it.
    pub fn change<R>(&mut self, change: impl FnOnce(&mut T) -> R) -> R {
        let mut value = (*self.value).clone();
        let result = change(&mut value);
        *self = Part::new(value);
        result
    }
}

impl<T> Deref for Part<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

/// A message that is on its way while other things happen. It stays: it can arrive never, or more than once.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Late {
    /// WAL on its way to a safekeeper.
    Append {
        /// Number of the safekeeper.
        to: usize,
        /// The member that the compute had reached there; another one does not take the message.
        id: MemberId,
        /// What the compute says of the WAL.
        header: AppendHeader,
        /// The records.
        wal: Vec<Record>,
    },
    /// Positions on their way to a compute.
    Appended {
        /// Number of the safekeeper.
        from: usize,
        /// The member that replied; a compute that has reached another one there passes over the reply.
        id: MemberId,
        /// Number of the compute.
        compute: usize,
        /// The positions.
        reply: AppendReply,
    },
    /// A winner's history on its way to a safekeeper.
    Elected {
        /// Number of the safekeeper.
        to: usize,
        /// The member that the compute had reached there; another one does not take the message.
        id: MemberId,
        /// The history and the configuration.
        request: ElectedRequest,
    },
    /// A change of the members on its way to a safekeeper.
    Configure {
        /// Number of the safekeeper.
        to: usize,
        /// The member that the compute had reached there; another one does not take the message.
        id: MemberId,
        /// The changed configuration.
        request: ConfigureRequest,
    },
    /// A vote, or its refusal, on its way to a compute.
    Voted {
        /// Number of the safekeeper.
        from: usize,
        /// Number of the compute.
        compute: usize,
        /// The answer.
        reply: VoteReply,
        /// What the safekeeper held when it answered.
        log: Log,
    },
}

/// What may still go wrong.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Faults {
    /// Crashes of safekeepers that may still happen.
    pub crashes: u8,
    /// Disks that may still be lost.
    pub lost_disks: u8,
    /// Copies of disks that may still be made.
    pub copies: u8,
    /// Messages that may still be late.
    pub late: u8,
}

/// A state of the whole system. Two states are equal when their fingerprints are.
#[derive(Clone)]
pub struct State {
    /// The safekeepers by their numbers.
    pub safekeepers: Vec<Part<Safekeeper>>,
    /// The computes by their numbers.
    pub computes: Vec<Part<Compute>>,
    /// In the order of their fingerprints.
    pub late: Vec<Part<Late>>,
    /// What may still go wrong.
    pub faults: Faults,
    /// An assertion of the code failed, or something went back that never may.
    pub failure: Option<Arc<str>>,
}

impl State {
    /// Puts a message on its way, unless the same one is there already.
    pub fn put_late(&mut self, message: Late) {
        let message = Part::new(message);
        if !self.late.iter().any(|other| other.key == message.key) {
            self.late.push(message);
            self.late.sort_by_key(|message| message.key);
        }
    }
}

impl Hash for State {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        let keys = self.safekeepers.iter().map(|part| part.key);
        keys.chain(self.computes.iter().map(|part| part.key))
            .chain(self.late.iter().map(|part| part.key))
            .for_each(|key| hasher.write_u64(key));
        (self.faults, &self.failure).hash(hasher);
    }
}

impl PartialEq for State {
    fn eq(&self, other: &State) -> bool {
        key_of(self) == key_of(other)
    }
}
