//! Whose WAL was ingested: the terms that wrote it, and the refusal to ingest the WAL of another log.
//!
//! Invariants:
//! - WAL is ingested only from a log whose term history agrees, as far as WAL was ingested, with the history noted
//!   here.
//! - The stored index says which terms wrote the WAL before its LSN; soon after a new term has begun, the index says
//!   so too.
//!
//! A crash leaves the stored index: ingest begins again at its LSN, from a log that agrees with the whole stored
//! history.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use consensus::{TermHistory, TermStart};
use pg_types::{Lsn, Term};

use super::Timeline;
use super::identity::Identity;
use super::lock_order::{Ranked, TERMS};
use super::position::Position;
use crate::term_history::{Ingested, OtherHistory};
use crate::timeline_index::TimelineIndex;

/// The highest term seen, and the terms of the WAL that was ingested. This part knows `Identity`, `Position` and the
/// index.
pub(super) struct Terms {
    identity: Arc<Identity>,
    position: Arc<Position>,
    index: Arc<TimelineIndex>,
    /// The highest term of any request so far.
    max: AtomicU64,
    known: Ranked<TERMS, Known>,
}

struct Known {
    /// None for a timeline whose WAL was ingested before this was noted, until the safekeepers have told.
    ingested: Option<Ingested>,
    /// The last term that the index was told of.
    stored: Option<TermStart>,
}

impl Terms {
    /// What the index says.
    pub fn new(
        identity: Arc<Identity>,
        position: Arc<Position>,
        index: Arc<TimelineIndex>,
    ) -> Terms {
        // Where no WAL was ingested yet, the history of the ingested WAL is known: it is empty.
        let is_untouched = position.last_record_lsn() == identity.manifest.start_lsn;
        let ingested = index.ingested();
        let ingested = ingested.or_else(|| is_untouched.then(Default::default));
        let stored = ingested.as_ref().and_then(|it| it.terms.last());
        Terms {
            max: AtomicU64::new(index.max_term().0),
            known: Ranked::new(Known { ingested, stored }),
            identity,
            position,
            index,
        }
    }

    /// The highest term of any compute that has asked for its bundle, or whose WAL was read.
    pub fn max(&self) -> Term {
        Term(self.max.load(Ordering::SeqCst))
    }

    /// Takes note of a term; true when it is the highest so far.
    pub fn raise(&self, term: Term) -> bool {
        let before = self.max.fetch_max(term.0, Ordering::SeqCst);
        if before < term.0 {
            tracing::info!(tenant = %self.identity.tenant, timeline = %self.identity.id, %term, before, "a newer compute owns the timeline");
        }
        before < term.0
    }

    /// The terms that wrote the WAL that was ingested; none as long as they are not known.
    pub fn ingested(&self) -> Option<Ingested> {
        // In this order: the terms say enough of what was published before.
        let last = self.position.last_record_lsn();
        let ingested = self.known.lock().ingested.clone();
        ingested.map(|it| it.reaching(last).cut())
    }

    /// Takes note of what the safekeepers say of what was ingested; nothing where it is known.
    pub fn found(&self, found: Ingested) {
        tracing::info!(
            tenant = %self.identity.tenant, timeline = %self.identity.id, terms = ?found.terms.entries(),
            "a majority of the safekeepers says whose WAL was ingested"
        );
        self.known.lock().ingested.get_or_insert(found);
    }

    /// Checks a log whose WAL was received up to `received`, and which sends none now.
    pub fn compare(
        &self,
        received: Lsn,
        theirs: &TermHistory,
        committed: Lsn,
    ) -> Result<(), OtherHistory> {
        match self.known.lock().ingested.clone() {
            Some(ours) => ours.reaching(received).compare(theirs, committed),
            None => Ok(()),
        }
    }

    /// To be called before WAL of a log is ingested that follows `received`: from then on only its history counts.
    /// False while the log has less committed than is known: it has to be compared again.
    pub fn follow(
        &self,
        received: Lsn,
        theirs: &TermHistory,
        committed: Lsn,
    ) -> Result<bool, OtherHistory> {
        let mut terms = self.known.lock();
        let Some(ours) = &mut terms.ingested else {
            return Ok(true);
        };
        let mut known = ours.clone().reaching(received);
        known.compare_at(received, theirs, committed)?;
        let is_settled = known.follow(theirs, committed);
        *ours = known;
        Ok(is_settled)
    }

    /// Has it stored that a term's WAL was ingested, once some was.
    pub fn note(&self) {
        let last_record = self.position.last_record_lsn();
        let mut terms = self.known.lock();
        let Some(ingested) = &terms.ingested else {
            return;
        };
        let entries = ingested.terms.entries().iter().rev();
        let mut begun = entries.filter(|entry| entry.start_lsn < last_record);
        let last = begun.next().copied();
        if last == terms.stored {
            return;
        }
        let known = ingested.clone().reaching(last_record).cut();
        terms.stored = last;
        drop(terms);
        if let Err(error) = self.index.note_ingested(known) {
            tracing::warn!(tenant = %self.identity.tenant, timeline = %self.identity.id, "cannot store whose WAL is ingested: {error}");
        }
    }
}

impl Timeline {
    /// The highest term of any compute that has asked for its bundle, or whose WAL was read; 0 before the first.
    pub fn max_term(&self) -> Term {
        self.terms.max()
    }

    /// Takes note of a term; true when it is the highest so far.
    pub fn raise_term(&self, term: Term) -> bool {
        self.terms.raise(term)
    }

    /// The terms that wrote the WAL that was ingested; none as long as they are not known.
    pub fn ingested(&self) -> Option<Ingested> {
        self.terms.ingested()
    }
}
