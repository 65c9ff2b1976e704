//! Taking WAL from the store of finished segments as one's own log (rule 9 of `docs/consensus.md`).
//!
//! What is there was committed, under the history that it is stored with. So it is part of every log that can still win,
//! and whoever takes it knows no more than any member that was brought up to the same position.

use pg_types::{Lsn, Term};

use super::Acceptor;
use crate::configuration::Role;
use crate::durable::Durable;
use crate::history::TermHistory;

/// Why a log does not take WAL from the store. Nothing has changed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AdoptionRefusal {
    /// A voter that has voted, was announced a term or holds WAL. The store is no source for it.
    #[error(
        "this log is a voter that has taken part in elections; its compute, or its peers, bring it up to date"
    )]
    Votes,
    /// Between the end of the log and what the store has, WAL is missing. A caller that has WAL from `end` on may
    /// offer it.
    #[error("the log here ends at {end}, and what the store has begins at {begin}")]
    Gap {
        /// End of the log, exclusive.
        end: Lsn,
        /// LSN of the first byte that was offered.
        begin: Lsn,
    },
    /// The terms that wrote the log are not those of the WAL that was offered, as far as both go. Nothing of it may
    /// be taken.
    #[error("the log here, up to {end}, belongs to another history than what the store has")]
    OtherHistory {
        /// End of the log, exclusive.
        end: Lsn,
    },
    /// The range or its history is empty, the history is out of order, or its last term begins at the range's end or
    /// behind it.
    #[error("the WAL from the store is described in a way that makes no sense")]
    Malformed,
}

/// Steps that take WAL from the store: the bytes `[from, state.commit_lsn)` and `state` become durable together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Filling {
    /// LSN of the first byte to write: the end of the log, or a later position where a log that holds nothing begins
    /// anew.
    pub from: Lsn,
    /// State to store with the WAL; its commit LSN is the new end of the log.
    pub state: Durable,
}

impl Acceptor {
    /// Whether the log is one that takes WAL from the store at all: one that does not count, or that was founded and
    /// has neither voted nor held anything.
    pub fn may_adopt(&self) -> Result<(), AdoptionRefusal> {
        let untouched = self.durable.voted_for.is_none() && self.is_blank();
        if self.role() != Some(Role::Voter) || untouched {
            return Ok(());
        }
        Err(AdoptionRefusal::Votes)
    }

    /// Whether there is no WAL in the log, and no term has written or was announced.
    fn is_blank(&self) -> bool {
        self.holds_nothing() && self.durable.history.entries().is_empty()
    }

    /// Whether there is no WAL in the log.
    fn holds_nothing(&self) -> bool {
        self.end_lsn == self.durable.remote_consistent_lsn
    }

    /// What taking the committed WAL `[begin, end)`, written by the terms of `history`, takes; `None` when the log holds
    /// it already. Both positions are record boundaries.
    pub fn adopt(
        &self,
        history: &TermHistory,
        begin: Lsn,
        end: Lsn,
    ) -> Result<Option<Filling>, AdoptionRefusal> {
        if end <= self.end_lsn {
            return Ok(None);
        }
        self.may_adopt()?;
        let last = history.last().ok_or(AdoptionRefusal::Malformed)?;
        if !history.is_ordered() || begin >= end || last.start_lsn >= end {
            return Err(AdoptionRefusal::Malformed);
        }
        let from = self.joins_at(begin)?;
        let state = Durable {
            term: self.durable.term.max(last.term),
            // Given for the stored term; a higher one is learned here, as from its winner.
            voted_for: self
                .durable
                .voted_for
                .filter(|_| last.term <= self.durable.term),
            history: self.joined(history, end)?,
            commit_lsn: end,
            remote_consistent_lsn: if from > self.end_lsn {
                from
            } else {
                self.durable.remote_consistent_lsn
            },
            ..self.durable.clone()
        };
        Ok(Some(Filling { from, state }))
    }

    /// Where WAL from `begin` on continues the log. A log that holds nothing and does not count may begin later: what is
    /// missing in the store is durable as pages. A voter was founded where it is needed from.
    fn joins_at(&self, begin: Lsn) -> Result<Lsn, AdoptionRefusal> {
        if begin <= self.end_lsn {
            return Ok(self.end_lsn);
        }
        if self.holds_nothing() && self.role() != Some(Role::Voter) {
            return Ok(begin);
        }
        let end = self.end_lsn;
        Err(AdoptionRefusal::Gap { end, begin })
    }

    /// The history of the log once it goes to `end`: the one that knows of more terms, if the two agree as far as both
    /// logs go.
    fn joined(&self, theirs: &TermHistory, end: Lsn) -> Result<TermHistory, AdoptionRefusal> {
        let mine = &self.durable.history;
        let other = AdoptionRefusal::OtherHistory { end: self.end_lsn };
        let (Some(my_last), Some(their_last)) = (mine.last(), theirs.last()) else {
            return if self.is_blank() {
                Ok(theirs.clone())
            } else {
                Err(other)
            };
        };
        let (agreed, joined) = if their_last.term > my_last.term {
            let to = mine.common_point(self.end_lsn, theirs);
            (to >= Some(self.end_lsn), theirs)
        } else {
            (theirs.common_point(end, mine) >= Some(end), mine)
        };
        if agreed {
            Ok(joined.clone())
        } else {
            Err(other)
        }
    }

    /// The WAL and `state` are durable.
    pub fn install_adopted(&mut self, state: Durable) {
        assert!(
            state.commit_lsn >= self.end_lsn && state.term >= self.durable.term,
            "WAL up to {} of term {} was taken into a log up to {} of term {}",
            state.commit_lsn,
            state.term,
            self.end_lsn,
            self.durable.term
        );
        let (end, cuts) = (state.commit_lsn, self.cuts + 1);
        *self = Acceptor {
            cuts,
            ..Acceptor::new(self.member, state, end)
        };
    }

    /// The state to store when a log that takes WAL from the store is told that terms up to `term` were won before;
    /// `None` when it knows. It then votes for none of them.
    pub fn forbid(&self, term: Term) -> Result<Option<Durable>, AdoptionRefusal> {
        if term <= self.durable.term {
            return Ok(None);
        }
        self.may_adopt()?;
        Ok(Some(Durable {
            term,
            voted_for: None,
            ..self.snapshot()
        }))
    }
}

#[cfg(test)]
#[path = "adoption_tests.rs"]
mod tests;
