//! The newest term and where its compute started, and the horizon, which may pass that only once nobody holds it.

use pg_types::Lsn;

use super::{StartPoint, TimelineIndex};
use crate::error::Result;

impl TimelineIndex {
    /// Where the newest compute started, while history at it is kept for it.
    pub fn start_point(&self) -> Option<StartPoint> {
        self.metadata.lock().start
    }

    /// Stores a term that was accepted, and where it begins in place of where an earlier one did; durable on return.
    pub async fn store_start(&self, start: StartPoint) -> Result<()> {
        self.change_metadata(|metadata| {
            metadata.max_term = metadata.max_term.max(start.term);
            let newer = |known: StartPoint| known.term > start.term;
            if !metadata.start.is_some_and(newer) {
                metadata.start = Some(start);
            }
        })
        .await
    }

    /// Moves the horizon, forgets leases that have ended by `now`, and `lapsed`, a start that nobody holds any more; durable
    /// on return. Readers are refused from the beginning: what is stored may count even if this fails.
    pub async fn store_horizon(
        &self,
        horizon: Lsn,
        now: u64,
        lapsed: Option<StartPoint>,
    ) -> Result<()> {
        {
            let mut current = self.horizon.lock();
            *current = horizon.max(*current);
        }
        self.change_metadata(|metadata| {
            metadata.horizon = metadata.horizon.max(horizon);
            metadata.leases.retain(|lease| lease.until > now);
            metadata.start.take_if(|start| Some(*start) == lapsed);
        })
        .await
    }
}
