//! What a volume counts.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;

use super::bitmap::Bitmap;

/// Counters of a volume since it was made.
#[derive(Debug, Default)]
pub struct Stats {
    /// Pages that storage gave, those read ahead included.
    pub pages_fetched: AtomicU64,
    /// Bytes of these pages; a page of zeroes has none.
    pub bytes_fetched: AtomicU64,
    /// Writes that the volume took.
    pub writes: AtomicU64,
    /// Bytes of these writes.
    pub bytes_written: AtomicU64,
    /// Reads that had to wait for storage and stood behind those of sessions.
    pub reads_behind: AtomicU64,
    /// Operations that ended in an error of storage, of the local disk, or of a closed volume.
    pub failed_operations: AtomicU64,
    /// Clean pages given back to keep within the budget of local disk.
    pub pages_evicted: AtomicU64,
    /// Pages that were fetched and answered a read, but that the local disk did not take.
    pub pages_not_kept: AtomicU64,
    /// Pages that came before anybody asked for them; they are among those fetched.
    pub pages_read_ahead: AtomicU64,
    /// Those that were read since.
    pub read_ahead_used: AtomicU64,
    /// Those that were overwritten, cut off or removed before anybody read them. The rest may still be read.
    pub read_ahead_unused: AtomicU64,
}

/// What a fetch cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fetched {
    /// Pages that came.
    pub pages: u64,
    /// Bytes that came; a page of zeroes has none.
    pub bytes: u64,
}

impl Stats {
    /// Adds what a fetch brought.
    pub fn fetched(&self, fetched: Fetched) {
        self.pages_fetched
            .fetch_add(fetched.pages, Ordering::Relaxed);
        self.bytes_fetched
            .fetch_add(fetched.bytes, Ordering::Relaxed);
    }
}

/// Blocks of one file that were read ahead and that nobody has read yet.
#[derive(Debug)]
pub struct Unread {
    blocks: Mutex<Bitmap>,
    /// How many there are: most reads find none, and need no lock to know it.
    count: AtomicUsize,
    stats: Arc<Stats>,
}

impl Unread {
    /// None yet; what becomes of the blocks is counted in `stats`.
    pub fn new(stats: Arc<Stats>) -> Unread {
        Unread {
            blocks: Mutex::default(),
            count: AtomicUsize::new(0),
            stats,
        }
    }

    /// Notes that this block was read ahead.
    pub fn arrived(&self, block: u32) {
        self.blocks.lock().insert(block);
        self.count.fetch_add(1, Ordering::Relaxed);
        self.stats.pages_read_ahead.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that these blocks are read.
    pub fn read(&self, blocks: Range<u32>) {
        self.take(blocks, &self.stats.read_ahead_used);
    }

    /// Notes that these blocks will not be read any more as they came.
    pub fn gone(&self, blocks: Range<u32>) {
        self.take(blocks, &self.stats.read_ahead_unused);
    }

    fn take(&self, range: Range<u32>, counter: &AtomicU64) {
        if self.count.load(Ordering::Relaxed) == 0 {
            return;
        }
        let taken = self.blocks.lock().remove(range);
        self.count.fetch_sub(taken, Ordering::Relaxed);
        counter.fetch_add(taken as u64, Ordering::Relaxed);
    }
}

impl Drop for Unread {
    fn drop(&mut self) {
        let left = *self.count.get_mut() as u64;
        self.stats
            .read_ahead_unused
            .fetch_add(left, Ordering::Relaxed);
    }
}
