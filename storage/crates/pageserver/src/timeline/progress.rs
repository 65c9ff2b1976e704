//! Terms and positions of a timeline: which term may read and write, how far ingest is, and waiting for an LSN.

use std::time::Duration;

use pg_types::{Lsn, Term};

use super::Timeline;
use crate::error::{Error, Result};

impl Timeline {
    /// Refuses a compute that a newer one has taken the timeline from, with `Fenced`. Term 0 is for read-only tools
    /// and never fenced. Fails with `ShuttingDown` for any term once the timeline's end has begun.
    pub fn check_term(&self, term: Term) -> Result<()> {
        if self.cancel.is_cancelled() {
            return Err(self.shutting_down());
        }
        let max_term = self.max_term();
        if term.0 != 0 && term < max_term {
            return Err(Error::Fenced { term, max_term });
        }
        Ok(())
    }

    /// Waits until everything up to `lsn` is ingested. Fails with `Timeout`, with `Stopped` when ingest has stopped
    /// before `lsn`, and with `ShuttingDown`.
    pub async fn wait_lsn(&self, lsn: Lsn, timeout: Duration) -> Result<()> {
        self.position.wait_for(lsn, timeout, &self.cancel).await
    }

    /// Waits for what a read asks for and says at which LSN to read: `at`, or the newest when it is `None`. Fails as
    /// [`Timeline::wait_lsn`] does, for the timeline or an ancestor, and as [`Timeline::check_readable`] does.
    pub async fn resolve_position(&self, not_modified_since: Lsn, at: Option<Lsn>) -> Result<Lsn> {
        let timeout = self.config().wait_lsn_timeout();
        let needed = not_modified_since.max(at.unwrap_or_default());
        if self.last_record_lsn() < needed {
            self.wait_lsn(needed, timeout).await?;
        }
        self.wait_for_ancestors(timeout).await?;
        let at = at.unwrap_or_else(|| self.last_record_lsn());
        self.check_readable(at)?;
        Ok(at)
    }

    /// The same if there is nothing to wait for.
    pub(crate) fn position_now(&self, not_modified_since: Lsn, at: Option<Lsn>) -> Option<Lsn> {
        let last = self.last_record_lsn();
        let is_here = not_modified_since.max(at.unwrap_or_default()) <= last;
        let at = at.unwrap_or(last);
        (is_here && self.lineage.has_all() && self.check_readable(at).is_ok()).then_some(at)
    }

    /// Waits until each ancestor has ingested what the branch reads of it: after a restart an ancestor may have to
    /// ingest again what lay in memory below a branch point. `timeout` is for each ancestor. Fails as
    /// [`Timeline::wait_lsn`] does, of an ancestor.
    pub async fn wait_for_ancestors(&self, timeout: Duration) -> Result<()> {
        self.lineage.wait_for_all(timeout).await
    }

    pub(super) fn shutting_down(&self) -> Error {
        self.identity.shutting_down()
    }
}
