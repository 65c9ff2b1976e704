//! Deterministic simulation of the safekeeper quorum: one seed drives the clock, the network, the disks and
//! every crash, and the real state machines of `consensus` run on top.
//!
//! A run has one to five voters, some spare safekeepers, and several proposers that come, compete, stall and die. Messages
//! are delayed, reordered, lost, repeated and cut off by partitions; acceptors crash at any moment, lose what was
//! not fsynced or keep a torn piece of it, and start again from what is left; WAL is trimmed under way. Disks are lost,
//! or put back from an old copy, and the control plane founds the log there once more; members are added, promoted and
//! removed, while computes are started with outdated lists of addresses. Some runs begin with a log that does not name
//! its members. At the end everything heals and one more election must succeed, if a majority of the newest
//! configuration has kept its disks.
//!
//! Voters put what is committed into a store, and logs that do not count, or that have taken part in nothing, are filled
//! from it. Some runs lose all disks before they heal: logs are then founded again and filled from there.
//!
//! Checked throughout (see [`checker`]): what was committed is never lost or changed, a majority's logs agree
//! up to the commit LSN, each position is committed with one content, every new term begins behind
//! everything committed. [`Bug`]s can be planted to see that the checker has teeth.
//!
//! The same seed gives the same run, to the byte: a failure is reported as its seed.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod acceptor;
pub mod checker;
pub mod disks;
pub mod log;
pub mod network;
pub mod proposer;
pub mod report;
pub mod store;
pub mod trace;
pub mod world;

pub use checker::Violation;
pub use report::Report;
pub use world::{run, run_traced, run_with};

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
    /// A proposer reports as committed what one acceptor has fsynced.
    AckBeforeMajority,
    /// An acceptor takes WAL from a proposer of an older term.
    AcceptOldTerm,
    /// A safekeeper that lost its disk is founded once more under the name it had.
    EmptyMemberVotes,
    /// A disk that was put back from an old copy keeps the name it had.
    RestoredDiskVotes,
    /// A learner votes, and its vote counts.
    LearnerVotes,
    /// Acceptors take WAL whatever generation its sender goes by, and what they hold counts under any.
    TwoGenerations,
    /// A voter puts WAL into the store of finished WAL that is not committed.
    OffloadUncommitted,
    /// When all disks were lost, one log is filled from the store, and elections begin.
    FillMinority,
}

impl Bug {
    /// Every mistake once.
    pub const ALL: [Bug; 14] = [
        Bug::CountOtherTerms,
        Bug::CountBeforeAdoption,
        Bug::AckBeforeFsync,
        Bug::HistoryBeforeCut,
        Bug::VoteNotStored,
        Bug::CutBelowCommit,
        Bug::AckBeforeMajority,
        Bug::AcceptOldTerm,
        Bug::EmptyMemberVotes,
        Bug::RestoredDiskVotes,
        Bug::LearnerVotes,
        Bug::TwoGenerations,
        Bug::OffloadUncommitted,
        Bug::FillMinority,
    ];
}
