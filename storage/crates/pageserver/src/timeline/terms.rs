//! Whose WAL was ingested, and refusing to ingest another log's.
//!
//! Invariants: WAL is ingested only of a log whose history, as far as WAL was ingested, is the one noted here; what is stored
//! in the index says whose WAL everything before its LSN is, and soon after a term has begun, that it has. A crash leaves
//! what was stored: ingest begins again at the index's LSN, of a log that agrees with all of it.

use consensus::{TermHistory, TermStart};
use pg_types::Lsn;

use super::Timeline;
use crate::term_history::{Ingested, OtherHistory};

pub(super) struct Terms {
    /// None for a timeline whose WAL was ingested before this was noted, until the safekeepers have told.
    ingested: Option<Ingested>,
    /// The last term that the index was told of.
    stored: Option<TermStart>,
}

impl Terms {
    pub fn new(ingested: Option<Ingested>) -> Terms {
        let last = ingested.as_ref().and_then(|it| it.terms.last());
        Terms {
            ingested,
            stored: last,
        }
    }
}

impl Timeline {
    /// Whose WAL was ingested; none as long as that is not known.
    pub fn ingested(&self) -> Option<Ingested> {
        // In this order: the terms say enough of what was published before.
        let last = self.last_record_lsn();
        let ingested = self.terms.lock().ingested.clone();
        ingested.map(|it| it.reaching(last).cut())
    }

    /// Takes note of what the safekeepers say of what was ingested; nothing where it is known.
    pub(crate) fn found_ingested(&self, found: Ingested) {
        tracing::info!(
            tenant = %self.tenant(), timeline = %self.id(), terms = ?found.terms.entries(),
            "a majority of the safekeepers says whose WAL was ingested"
        );
        self.terms.lock().ingested.get_or_insert(found);
    }

    /// Checks a log whose WAL was received up to `received`, and which sends none now.
    pub(crate) fn compare_terms(
        &self,
        received: Lsn,
        theirs: &TermHistory,
        committed: Lsn,
    ) -> Result<(), OtherHistory> {
        match self.terms.lock().ingested.clone() {
            Some(ours) => ours.reaching(received).compare(theirs, committed),
            None => Ok(()),
        }
    }

    /// To be called before WAL of a log is ingested that follows `received`: from then on only its history counts. False
    /// while the log has less committed than is known: it has to be compared again.
    pub(crate) fn follow_terms(
        &self,
        received: Lsn,
        theirs: &TermHistory,
        committed: Lsn,
    ) -> Result<bool, OtherHistory> {
        let mut terms = self.terms.lock();
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
    pub(crate) fn note_terms(&self) {
        let last_record = self.last_record_lsn();
        let mut terms = self.terms.lock();
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
            tracing::warn!(tenant = %self.tenant(), timeline = %self.id(), "cannot store whose WAL is ingested: {error}");
        }
    }
}
