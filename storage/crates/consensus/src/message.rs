//! What proposers and acceptors tell each other.

use pg_types::{Lsn, Term};
use serde::{Deserialize, Serialize};

use crate::configuration::{Configuration, Generation, MemberId};
use crate::history::TermHistory;

/// Tells one election attempt from another, so that a repeated vote request is the same vote.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct CandidateId(pub [u8; 16]);

/// How far an acceptor's log reaches, and what is known about it.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct LogPosition {
    /// The member whose log this is.
    pub member: MemberId,
    /// The newest configuration that the acceptor knows.
    pub configuration: Configuration,
    /// The highest term the acceptor has promised itself to.
    pub term: Term,
    pub history: TermHistory,
    /// Last record boundary that is fsynced here.
    pub flush_lsn: Lsn,
    pub commit_lsn: Lsn,
    /// Record boundary below which WAL may be gone, because object storage holds what it made.
    pub remote_consistent_lsn: Lsn,
}

impl LogPosition {
    /// Orders logs by how advanced they are.
    pub fn rank(&self) -> (Term, Lsn) {
        (self.history.term_at(self.flush_lsn), self.flush_lsn)
    }
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct VoteRequest {
    pub term: Term,
    pub candidate: CandidateId,
    /// The newest configuration that anyone has shown to the candidate; a majority of its voters decides.
    pub configuration: Configuration,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct VoteReply {
    pub granted: bool,
    pub position: LogPosition,
}

/// Announces the winner's history, whose last entry is `(term, L)`, and its configuration.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct ElectedRequest {
    pub history: TermHistory,
    pub configuration: Configuration,
}

/// The proposer of `term` has changed the configuration.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct ConfigureRequest {
    pub term: Term,
    pub configuration: Configuration,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct ElectedReply {
    pub term: Term,
    /// Of the configuration that the acceptor has stored.
    pub generation: Generation,
    /// Where the proposer must continue; at most the common point of the two logs.
    pub flush_lsn: Lsn,
    /// Start of the record that ends at `flush_lsn`, when this acceptor has read it.
    pub prev_record_lsn: Option<Lsn>,
}

/// Start again at `to` with an empty log: the WAL before it is gone everywhere and what it made is in
/// object storage.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ResetRequest {
    pub term: Term,
    pub to: Lsn,
    pub commit_lsn: Lsn,
}

/// WAL follows, `[begin_lsn, end_lsn)`, cut at any byte; empty to announce a commit LSN.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct AppendHeader {
    pub term: Term,
    /// Of the configuration that the proposer counts by.
    pub generation: Generation,
    pub begin_lsn: Lsn,
    pub end_lsn: Lsn,
    pub commit_lsn: Lsn,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct AppendReply {
    /// The acceptor's term when it read the positions; higher than the proposer's means fenced.
    pub term: Term,
    /// Of the configuration that the acceptor has stored.
    pub generation: Generation,
    /// Last record boundary in memory.
    pub write_lsn: Lsn,
    /// Last record boundary fsynced.
    pub flush_lsn: Lsn,
    pub commit_lsn: Lsn,
}

/// Why an acceptor did not do what it was asked.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, thiserror::Error)]
pub enum Refusal {
    #[error("this safekeeper has promised itself to term {0}; the sender is fenced and must stop")]
    HigherTerm(Term),
    #[error("term {0} was never announced to this safekeeper; announce it before appending")]
    NotAnnounced(Term),
    #[error(
        "the sender goes by an older configuration; this safekeeper knows generation {}", .0.generation
    )]
    OlderGeneration(Box<Configuration>),
    #[error(
        "the sender goes by generation {sender}, which this safekeeper has not heard of (it knows {known}); announce it"
    )]
    UnknownGeneration {
        sender: Generation,
        known: Generation,
    },
    #[error("{0} is no member of the configuration that was announced")]
    NotMember(MemberId),
    #[error("append begins at {begin}, beyond the end of the log at {end}; send from there")]
    Gap { begin: Lsn, end: Lsn },
    #[error("a message whose fields contradict each other")]
    Malformed,
    #[error(
        "was asked to cut its log to {to}, below {commit}, up to which it is committed; it keeps the log as it is"
    )]
    Diverged { to: Lsn, commit: Lsn },
    #[error(
        "asked to start again at {to}, which lies behind the log's end {end} or past the committed {commit}"
    )]
    BadReset { to: Lsn, end: Lsn, commit: Lsn },
}
