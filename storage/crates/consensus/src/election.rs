//! What an election comes to.

use pg_types::{Lsn, Term};

use crate::history::TermHistory;

/// An acceptor has promised itself to a higher term: this proposer must stop.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("fenced by term {by}")]
pub struct Fenced {
    /// The higher term.
    pub by: Term,
}

/// Proof from before an election that WAL up to a position is committed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CommitProof {
    /// Everything before it is committed; `INVALID` when nobody has shown anything to be.
    pub lsn: Lsn,
    /// Number of the acceptor that has committed up to `lsn`; `None` when the proof comes from outside the log, such
    /// as from a reader that has ingested up to there.
    pub acceptor: Option<usize>,
}

/// A majority has voted, but the best log among the voters ends before WAL that is known to be committed. A voter
/// has lost WAL that it acknowledged: announcing this log would throw acknowledged commits away.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LostWal {
    /// Number of the voter whose log would have won.
    pub donor: usize,
    /// Where that log ends; a record boundary.
    pub end_lsn: Lsn,
    /// What shows that more than that is committed.
    pub proof: CommitProof,
}

/// What a won election settled.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Election {
    /// The term that was won.
    pub term: Term,
    /// Number of the acceptor whose log is the log.
    pub donor: usize,
    /// L: where the new term begins.
    pub start_lsn: Lsn,
    /// History of the donor's log, with the new term at its end.
    pub history: TermHistory,
    /// Highest commit LSN a voter knew.
    pub known_commit: Lsn,
}

/// What an election has come to with the vote that was taken last.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum VoteOutcome {
    /// Nothing is decided yet, or it was decided before.
    Pending,
    /// A majority of the voters has granted its vote, and their best log holds all that is known to be committed.
    Won(Election),
    /// No term may begin on what the voters hold. Nothing but their promises has changed.
    LostWal(LostWal),
    /// Try again with a term above this one.
    Lost {
        /// The highest term that anyone has shown.
        highest: Term,
    },
}
