//! The logical size of a timeline: bytes of all main forks.
//!
//! The size is counted once, by reading every fork's size as of one record, and from then on updated record by
//! record: ingest knows by how much each record changes it. Nothing is stored: after a restart or a crash the first
//! request for the size counts again.

use std::sync::atomic::{AtomicU64, Ordering};

use pg_types::Lsn;

use super::Timeline;
use super::lock_order::{Ranked, SIZE};
use crate::error::Result;

/// The logical size in bytes, as of the last record, once it was counted.
#[derive(Default)]
pub struct LogicalSize {
    inner: Ranked<SIZE, Inner>,
    counting: tokio::sync::Mutex<()>,
    counted: AtomicU64,
}

#[derive(Clone, Copy, Default)]
struct Inner {
    /// Growth by the records ingested since the timeline was opened.
    growth: i64,
    /// The size when it was opened, once known.
    base: Option<i64>,
}

impl LogicalSize {
    /// The caller publishes the record under the lock that readers of the position take as well.
    pub(super) fn grown(&self, bytes: i64) {
        self.inner.lock().growth += bytes;
    }

    fn known(&self) -> Option<u64> {
        let inner = *self.inner.lock();
        let size = inner.base?.saturating_add(inner.growth);
        Some(u64::try_from(size).unwrap_or(0))
    }
}

impl Timeline {
    /// Bytes of all main forks as of the last record. Fails when the size has to be counted and layers can't be read.
    pub async fn current_size(&self) -> Result<u64> {
        let size = &self.position.size;
        if let Some(known) = size.known() {
            return Ok(known);
        }
        let _one_counts = size.counting.lock().await;
        if let Some(known) = size.known() {
            return Ok(known);
        }
        let (at, growth): (Lsn, i64) = {
            let _nothing_is_published = self.layers.stand_still();
            (self.last_record_lsn(), size.inner.lock().growth)
        };
        let counted = i64::try_from(self.reads.size_at(at).await?).unwrap_or(i64::MAX);
        size.counted.fetch_add(1, Ordering::Relaxed);
        size.inner.lock().base = Some(counted - growth);
        Ok(size.known().unwrap_or(0))
    }

    /// WAL bytes from where the timeline's own history begins to its newest record.
    pub fn history_bytes(&self) -> u64 {
        let first = self.retention.begin();
        self.last_record_lsn().0.saturating_sub(first.0)
    }

    /// How often the size was counted since the timeline was opened.
    pub fn times_counted(&self) -> u64 {
        self.position.size.counted.load(Ordering::Relaxed)
    }
}
