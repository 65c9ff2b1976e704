//! Deterministic simulation of the safekeeper quorum: one seed drives the clock, the network, the disks and
//! every crash, and the real state machines of `consensus` run on top.
//!
//! A run has three or five acceptors and several proposers that come, compete, stall and die. Messages are
//! delayed, reordered, lost, repeated and cut off by partitions; acceptors crash at any moment, lose what was
//! not fsynced or keep a torn piece of it, and start again from what is left; WAL is trimmed under way. At
//! the end everything heals and one more election must succeed.
//!
//! Checked throughout (see [`checker`]): what was committed is never lost or changed, a majority's logs agree
//! up to the commit LSN, each position is committed with one content, every new term begins behind
//! everything committed. [`Bug`]s can be planted to see that the checker has teeth.
//!
//! The same seed gives the same run, to the byte: a failure is reported as its seed.

#![forbid(unsafe_code)]

pub mod acceptor;
pub mod checker;
pub mod log;
pub mod network;
pub mod proposer;
pub mod world;

pub use checker::Violation;
pub use world::{Report, run, run_with};

/// A mistake that real implementations have made, planted in the drivers around the state machines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bug {
    /// A proposer counts positions that an acceptor reported under another term.
    CountOtherTerms,
    /// A proposer counts acceptors that never adopted its history.
    CountBeforeAdoption,
    /// An acceptor reports WAL as flushed before its fsync is done.
    AckBeforeFsync,
    /// An acceptor stores the new history and dies before it has cut its log.
    HistoryBeforeCut,
    /// A vote is not on disk when the reply leaves.
    VoteNotStored,
    /// An acceptor cuts its log to the last position it stored instead of the common point.
    CutBelowCommit,
}

impl Bug {
    pub const ALL: [Bug; 6] = [
        Bug::CountOtherTerms,
        Bug::CountBeforeAdoption,
        Bug::AckBeforeFsync,
        Bug::HistoryBeforeCut,
        Bug::VoteNotStored,
        Bug::CutBelowCommit,
    ];
}
