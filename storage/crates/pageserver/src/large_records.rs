//! Turns at putting together large WAL records.
//!
//! A record is interpreted as a whole, and some may have a gigabyte: a commit or a prepare with very many
//! subtransactions. WAL comes in pieces, so that every timeline that follows one could hold most of a record at once.
//! The timelines take turns instead: large records that are put together or applied at the same time have at most
//! [`TOGETHER`] bytes in all, or it is a single one. Records of less than [`LARGE`] bytes need no turn.
//!
//! A safekeeper sends a record only when all of it is committed, so whoever has the turn waits for nobody's user. Nothing
//! here is stored; a turn ends with the attempt that has it.

use tokio::sync::{Semaphore, SemaphorePermit};

/// A record from this length on needs a turn, bytes.
const LARGE: usize = 16 << 20;
/// Bytes of large records at the same time, unless it is a single one.
const TOGETHER: usize = 256 << 20;
/// Bytes for which a permit stands.
const UNIT: usize = 1 << 20;

/// The turns of one process.
pub struct LargeRecords(Semaphore);

/// The right to hold a large record in memory, until it is dropped.
pub struct Turn<'a> {
    _permit: Option<SemaphorePermit<'a>>,
}

impl Default for LargeRecords {
    fn default() -> LargeRecords {
        LargeRecords(Semaphore::new(TOGETHER / UNIT))
    }
}

impl LargeRecords {
    /// The turn for a record that has begun and takes so many bytes: the one that `held` is, or a new one, for which
    /// this waits. None for a record that needs none.
    pub async fn turn<'a>(&'a self, bytes: usize, held: Option<Turn<'a>>) -> Option<Turn<'a>> {
        if bytes < LARGE {
            return None;
        }
        if held.is_some() {
            return held;
        }
        let wanted = bytes.min(TOGETHER).div_ceil(UNIT) as u32;
        // The semaphore is never closed.
        let _permit = self.0.acquire_many(wanted).await.ok();
        Some(Turn { _permit })
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    /// Promise: large records that do not fit together come one after the other; small ones never wait.
    #[tokio::test]
    async fn large_records_take_turns() {
        let records = LargeRecords::default();
        let first = records.turn(200 << 20, None).await;
        assert!(first.is_some());
        assert!(records.turn(100 << 20, None).now_or_never().is_none());
        assert!(records.turn(LARGE - 1, None).await.is_none());
        let kept = records.turn(200 << 20, first).now_or_never().flatten();
        assert!(kept.is_some(), "a record that goes on keeps its turn");
        assert!(records.turn(0, kept).await.is_none());
        // One that is longer than all may be together comes alone.
        let longest = records.turn(2 << 30, None).await;
        assert!(records.turn(LARGE, None).now_or_never().is_none());
        drop(longest);
        assert!(records.turn(LARGE, None).await.is_some());
    }
}
