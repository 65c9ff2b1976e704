//! Whom a timeline gets its WAL from, and how that changes while it is open.

use tokio::sync::watch;

use super::Timeline;
use crate::api::SickSafekeeper;
use crate::error::Result;

impl Timeline {
    /// Whom WAL comes from. Who waits for a change is woken by each request to change it, also by one that repeats the
    /// list: it asks for another attempt where ingest has stopped.
    pub fn safekeepers(&self) -> watch::Receiver<Vec<String>> {
        self.safekeepers.subscribe()
    }

    /// Goes on with these, once that is durable. The caller lets one change happen at a time. After an error the list
    /// may be either one until the request is repeated: what could not be stored now is stored with the next change.
    pub(crate) async fn set_safekeepers(&self, safekeepers: Vec<String>) -> Result<()> {
        self.index.store_safekeepers(safekeepers.clone()).await?;
        let mut sick = self.sick_safekeepers.lock();
        sick.retain(|known| safekeepers.contains(&known.safekeeper));
        drop(sick);
        tracing::info!(tenant = %self.tenant(), timeline = %self.id(), ?safekeepers, "the safekeepers are these from now on");
        self.safekeepers.send_replace(safekeepers);
        Ok(())
    }

    /// What a safekeeper has behind `lsn` is not to be read; empty for a source that has no name. The first place and
    /// reason are kept.
    pub(crate) fn found_sick(&self, safekeeper: &str, lsn: pg_types::Lsn, reason: &str) {
        let mut sick = self.sick_safekeepers.lock();
        if sick.iter().any(|known| known.safekeeper == safekeeper) {
            tracing::info!(
                tenant = %self.tenant(), timeline = %self.id(), safekeeper, %lsn,
                "the WAL is still not the timeline's: {reason}"
            );
            return;
        }
        tracing::error!(
            tenant = %self.tenant(), timeline = %self.id(), safekeeper, %lsn,
            "what a safekeeper has is not the timeline's WAL: {reason}"
        );
        if !safekeeper.is_empty() {
            sick.push(SickSafekeeper {
                safekeeper: safekeeper.to_owned(),
                lsn,
                reason: reason.to_owned(),
            });
        }
    }
}
