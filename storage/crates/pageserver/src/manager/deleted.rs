//! The end of tombstones: what safekeepers have put into the object store for a timeline that was deleted goes with them.
//!
//! A safekeeper that still has the log of a deleted timeline finds the tombstone and takes back what it has put (see
//! `blob`). What one left there that died in between, or that knew no tombstones, goes here. Tombstones are all that
//! stays of a deleted timeline, an empty object each, and none outlives its time by more than a round.
//!
//! The time is compared with the store's, and a clock that jumps forward ends tombstones early. That costs no data: WAL that
//! is put there afterwards stays, as garbage. Several pageservers of one store do the same work, which does no harm. A crash
//! leaves a tombstone for the next round.

use std::sync::Weak;
use std::time::Duration;

use blob::BlobError;

use super::TenantManager;

/// Rounds within the time of a tombstone, and the shortest and the longest time between two.
const ROUNDS: u32 = 24;
const SHORTEST: Duration = Duration::from_millis(500);
const LONGEST: Duration = Duration::from_secs(3600);

/// Ends tombstones whose time is over, again and again, for as long as there is a manager.
pub(super) async fn sweep(manager: Weak<TenantManager>) {
    loop {
        let Some(manager) = manager.upgrade() else {
            return;
        };
        if let Err(error) = manager.sweep_tombstones().await {
            tracing::warn!(%error, "tombstones of deleted timelines cannot be listed");
        }
        let pause = (manager.options.tombstones / ROUNDS).clamp(SHORTEST, LONGEST);
        drop(manager);
        tokio::time::sleep(pause).await;
    }
}

impl TenantManager {
    async fn sweep_tombstones(&self) -> Result<(), BlobError> {
        let kept = i64::try_from(self.options.tombstones.as_micros()).unwrap_or(i64::MAX);
        let now = self.options.time.read().wall;
        for tombstone in self.options.objects.tombstones().await? {
            if now.saturating_sub(tombstone.since) < kept {
                continue;
            }
            let (tenant, timeline) = (tombstone.tenant, tombstone.timeline);
            let remote = self.options.objects.timeline(tenant, timeline);
            match remote.remove_tombstone().await {
                Ok(0) => {}
                Ok(pieces) => {
                    tracing::info!(%tenant, %timeline, pieces, "removed WAL that was put there after the timeline was deleted");
                }
                // The others go nevertheless.
                Err(error) => {
                    tracing::warn!(%tenant, %timeline, %error, "the tombstone of a deleted timeline stays for now");
                }
            }
        }
        Ok(())
    }
}
