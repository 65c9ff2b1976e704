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
    /// Terms that wrote the log, and the one that was announced last.
    pub history: TermHistory,
    /// Last record boundary that is fsynced here.
    pub flush_lsn: Lsn,
    /// Last position known to be committed, as far as it is fsynced here.
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

/// A candidate asks for a vote.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct VoteRequest {
    /// The term that is to be won.
    pub term: Term,
    /// Identity of the candidate; a voter gives one candidate its vote for a term.
    pub candidate: CandidateId,
    /// The newest configuration that anyone has shown to the candidate; a majority of its voters decides.
    pub configuration: Configuration,
}

/// The answer to a [`VoteRequest`].
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct VoteReply {
    /// Whether the vote is stored, for this term, candidate and configuration.
    pub granted: bool,
    /// Where the voter's log is; of a refusal, what the candidate did not know.
    pub position: LogPosition,
}

/// Announces the winner's history, whose last entry is `(term, L)`, and its configuration.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct ElectedRequest {
    /// History of the log that won, with the new term at its end.
    pub history: TermHistory,
    /// The configuration that the winner counts by, confirmed in its term.
    pub configuration: Configuration,
}

/// The proposer of `term` has changed the configuration.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct ConfigureRequest {
    /// Term of the proposer; the acceptor has to follow it.
    pub term: Term,
    /// The configuration after the change.
    pub configuration: Configuration,
}

/// An acceptor has adopted the winner's history.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct ElectedReply {
    /// The acceptor's term; higher than the proposer's means fenced.
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
    /// Term of the proposer; the acceptor has to follow it.
    pub term: Term,
    /// Record boundary at which the log begins anew; not below its end, and committed.
    pub to: Lsn,
    /// Commit LSN of the proposer.
    pub commit_lsn: Lsn,
}

/// WAL follows, `[begin_lsn, end_lsn)`, cut at any byte; empty to announce a commit LSN.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct AppendHeader {
    /// Term of the proposer; the acceptor has to follow it.
    pub term: Term,
    /// Of the configuration that the proposer counts by.
    pub generation: Generation,
    /// LSN of the first byte that follows.
    pub begin_lsn: Lsn,
    /// LSN behind the last byte that follows; `begin_lsn` where there is none.
    pub end_lsn: Lsn,
    /// Commit LSN of the proposer; can lie beyond the receiver's log.
    pub commit_lsn: Lsn,
}

/// Where an acceptor's log is.
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
    /// Last position known to be committed, as far as it is fsynced here.
    pub commit_lsn: Lsn,
}

/// Why an acceptor did not do what it was asked.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, thiserror::Error)]
pub enum Refusal {
    /// The sender's term is over; it stops, or as a candidate tries again in a higher term. The field is the stored
    /// term.
    #[error("this safekeeper has promised itself to term {0}; the sender is fenced and must stop")]
    HigherTerm(Term),
    /// A term that the acceptor does not follow: its proposer announces it first.
    #[error("term {0} was never announced to this safekeeper; announce it before appending")]
    NotAnnounced(Term),
    /// The acceptor has stored a newer configuration, or another one of the same generation. The field is that
    /// configuration.
    #[error(
        "the sender goes by an older configuration; this safekeeper knows generation {}", .0.generation
    )]
    OlderGeneration(Box<Configuration>),
    /// An append under a newer configuration than the stored one: the sender announces that configuration first.
    #[error(
        "the sender goes by generation {sender}, which this safekeeper has not heard of (it knows {known}); announce it"
    )]
    UnknownGeneration {
        /// Generation that the sender goes by.
        sender: Generation,
        /// Generation that the acceptor has stored.
        known: Generation,
    },
    /// The log is no member, neither of the configuration that was announced nor, for an append, of the stored one.
    #[error("{0} is no member of the configuration that was announced")]
    NotMember(MemberId),
    /// WAL between the end of the log and the append is missing; the sender sends from `end` on.
    #[error("append begins at {begin}, beyond the end of the log at {end}; send from there")]
    Gap {
        /// LSN of the first byte that was sent.
        begin: Lsn,
        /// End of the log, exclusive.
        end: Lsn,
    },
    /// The message is at fault, as of a broken peer; a repetition does not help.
    #[error("a message whose fields contradict each other")]
    Malformed,
    /// Adopting the announced history would cut off what is committed: the log has two histories, and the sender
    /// stops.
    #[error(
        "was asked to cut its log to {to}, below {commit}, up to which it is committed; it keeps the log as it is"
    )]
    Diverged {
        /// Where the log would have had to end.
        to: Lsn,
        /// Commit LSN of the acceptor.
        commit: Lsn,
    },
    /// A reset to a position within the log, or beyond what the sender knows to be committed. The log stays as it is.
    #[error(
        "asked to start again at {to}, which lies behind the log's end {end} or past the committed {commit}"
    )]
    BadReset {
        /// Where the log was to begin anew.
        to: Lsn,
        /// End of the log, exclusive.
        end: Lsn,
        /// Commit LSN of the proposer.
        commit: Lsn,
    },
}
