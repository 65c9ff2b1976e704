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
    Append {
        to: usize,
        id: MemberId,
        header: AppendHeader,
        wal: Vec<Record>,
    },
    Appended {
        from: usize,
        id: MemberId,
        compute: usize,
        reply: AppendReply,
    },
    Elected {
        to: usize,
        id: MemberId,
        request: ElectedRequest,
    },
    Configure {
        to: usize,
        id: MemberId,
        request: ConfigureRequest,
    },
    Voted {
        from: usize,
        compute: usize,
        reply: VoteReply,
        log: Log,
    },
}

/// What may still go wrong.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Faults {
    pub crashes: u8,
    pub lost_disks: u8,
    pub copies: u8,
    pub late: u8,
}

#[derive(Clone)]
pub struct State {
    pub safekeepers: Vec<Part<Safekeeper>>,
    pub computes: Vec<Part<Compute>>,
    /// In the order of their fingerprints.
    pub late: Vec<Part<Late>>,
    pub faults: Faults,
    /// An assertion of the code failed, or something went back that never may.
    pub failure: Option<Arc<str>>,
}

impl State {
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
