//! The promises of an acceptor: what has to be on disk before an answer that follows from it leaves.

use pg_types::{Lsn, Term};
use serde::{Deserialize, Serialize};

use crate::configuration::{Configuration, MemberId};
use crate::history::TermHistory;
use crate::message::CandidateId;

/// What survives a crash beside the log itself.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Durable {
    /// The member that this log was made to be; another member where the disk is a copy, or one from the past.
    pub member: MemberId,
    /// Highest term that this log has promised itself to or learned of; never goes back.
    pub term: Term,
    /// The candidate that got the vote for `term`; `None` when the term was learned from its winner.
    pub voted_for: Option<CandidateId>,
    /// Terms that wrote the log, and the one that was announced last.
    pub history: TermHistory,
    /// A committed record boundary that is in the log; may lag the one in memory.
    pub commit_lsn: Lsn,
    /// Record boundary below which WAL may be gone.
    pub remote_consistent_lsn: Lsn,
    /// The newest configuration heard of.
    pub configuration: Configuration,
}

impl Durable {
    /// A timeline whose WAL begins at `start_lsn` and that no compute has written yet.
    pub fn new(member: MemberId, start_lsn: Lsn, configuration: Configuration) -> Durable {
        Durable {
            member,
            term: Term(0),
            voted_for: None,
            history: TermHistory::default(),
            commit_lsn: start_lsn,
            remote_consistent_lsn: start_lsn,
            configuration,
        }
    }

    pub(crate) fn assert_configuration(&self) {
        let Durable {
            term,
            configuration,
            ..
        } = self;
        assert!(
            configuration.is_valid_in(*term),
            "term {term} holds configuration {configuration:?}"
        );
    }
}
