//! Whose WAL was ingested, and refusing to ingest another log's.
//!
//! Invariants: WAL is ingested only of a log whose history, up to where ingest stands, is the one noted here; what is
//! stored in the index beside a position says whose WAL everything before that position is. A crash leaves what was
//! stored with the position that ingest begins at again, and the rest is learned again with the WAL.

use consensus::TermHistory;
use pg_types::Lsn;

use super::Timeline;
use crate::term_history::{self, OtherHistory};

impl Timeline {
    /// Terms that begin at or behind the position of ingest say nothing yet. None for a timeline whose WAL was ingested
    /// before this was noted, until the safekeepers have told.
    pub fn term_history(&self) -> Option<TermHistory> {
        self.terms.lock().clone()
    }

    /// What the history says of everything before a position.
    pub(crate) fn term_history_up_to(&self, lsn: Lsn) -> Option<TermHistory> {
        let terms = self.terms.lock();
        terms.as_ref().map(|it| term_history::up_to(it, lsn))
    }

    /// Takes note of what the safekeepers say of what was ingested; nothing where it is known.
    pub(crate) fn found_term_history(&self, found: TermHistory) {
        tracing::info!(
            tenant = %self.tenant, timeline = %self.id, terms = ?found.entries(),
            "a majority of the safekeepers says whose WAL was ingested"
        );
        self.terms.lock().get_or_insert(found);
    }

    /// Checks that a log that is committed up to `committed` may have WAL of this timeline from `received` on.
    pub(crate) fn compare_terms(
        &self,
        received: Lsn,
        theirs: &TermHistory,
        committed: Lsn,
    ) -> Result<(), OtherHistory> {
        match &*self.terms.lock() {
            Some(ours) => term_history::compare(ours, received, theirs, committed),
            None => Ok(()),
        }
    }

    /// To be called before WAL of a log is ingested that follows `received`: from then on only its history counts.
    pub(crate) fn follow_terms(
        &self,
        received: Lsn,
        theirs: &TermHistory,
    ) -> Result<(), OtherHistory> {
        let mut terms = self.terms.lock();
        if let Some(ours) = &*terms {
            term_history::compare_to_ingest(ours, received, theirs)?;
            *terms = Some(term_history::continued(ours, theirs));
        }
        Ok(())
    }
}
