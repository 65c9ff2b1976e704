//! The volume as a cache: how many clean pages its files hold, which of them were read lately, and when some have to go.
//!
//! A page is clean when it came from storage and was not written here since: storage gives it again. Clean pages share one
//! budget of disk. When it is exceeded, files are gone through in turn, as the hand of a clock, and give back clean pages
//! that nobody has read since the hand was there last (the clock algorithm, a cheap approximation of least recently
//! used). The kernel's cache answers most reads, so what is read here is what the kernel did not have.
//!
//! Written pages are not counted and never go.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;
use pg_types::BLCKSZ;

use super::Volume;
use super::bitmap::{Bitmap, within};
use super::stats::Stats;

/// One part in so many of the budget is given back at a time, so that most reads that fetch find room.
const AT_A_TIME: u64 = 16;
/// Pages that one file gives back while its readers wait.
const OF_A_FILE: usize = 1024;

/// The clean pages of a volume.
#[derive(Debug)]
pub struct CleanPages {
    count: AtomicU64,
    /// Pages; `u64::MAX` for no limit.
    budget: AtomicU64,
    stats: Arc<Stats>,
    /// The file that gave pages back last.
    hand: Mutex<u64>,
}

impl CleanPages {
    /// None yet, and no limit.
    pub fn new(stats: Arc<Stats>) -> CleanPages {
        CleanPages {
            count: AtomicU64::new(0),
            budget: AtomicU64::new(u64::MAX),
            stats,
            hand: Mutex::default(),
        }
    }

    /// Bytes that clean pages may take; `None` is no limit.
    pub fn set_budget(&self, bytes: Option<u64>) {
        let pages = bytes.map_or(u64::MAX, |bytes| bytes / BLCKSZ as u64);
        self.budget.store(pages, Ordering::Relaxed);
    }

    /// Pages held.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    fn exceeded(&self) -> bool {
        self.count() > self.budget.load(Ordering::Relaxed)
    }

    /// How many pages are to be given back now.
    fn excess(&self) -> u64 {
        let budget = self.budget.load(Ordering::Relaxed);
        self.count().saturating_sub(budget - budget / AT_A_TIME)
    }
}

/// The clean pages of one file.
#[derive(Debug)]
pub(super) struct FileClean {
    all: Arc<CleanPages>,
    count: AtomicUsize,
    /// Blocks read since the hand was here.
    recent: Mutex<Bitmap>,
}

impl FileClean {
    /// None yet; those that come count in `all` as well.
    pub fn new(all: Arc<CleanPages>) -> FileClean {
        FileClean {
            all,
            count: AtomicUsize::new(0),
            recent: Mutex::default(),
        }
    }

    /// So many pages came from storage.
    pub fn came(&self, pages: usize) {
        self.count.fetch_add(pages, Ordering::Relaxed);
        self.all.count.fetch_add(pages as u64, Ordering::Relaxed);
    }

    /// So many pages were written, cut off or evicted.
    pub fn gone(&self, pages: usize) {
        let before = self.count.fetch_sub(pages, Ordering::Relaxed);
        assert!(before >= pages, "{pages} of {before} clean pages are gone");
        self.all.count.fetch_sub(pages as u64, Ordering::Relaxed);
    }

    /// So many pages were given back to keep within the budget.
    pub fn evicted(&self, pages: usize) {
        self.gone(pages);
        let evicted = &self.all.stats.pages_evicted;
        evicted.fetch_add(pages as u64, Ordering::Relaxed);
    }

    /// So many pages came and found no room on the local disk.
    pub fn not_kept(&self, pages: usize) {
        let not_kept = &self.all.stats.pages_not_kept;
        not_kept.fetch_add(pages as u64, Ordering::Relaxed);
    }

    /// Blocks were read.
    pub fn read(&self, blocks: Range<u32>) {
        if self.all.budget.load(Ordering::Relaxed) == u64::MAX {
            return;
        }
        let mut recent = self.recent.lock();
        blocks.for_each(|block| recent.insert(block));
    }

    /// At most `most` clean blocks that were not read since the last call. Those that were are spared once.
    pub fn victims(
        &self,
        present: &Bitmap,
        written: &Bitmap,
        stored: u32,
        most: usize,
    ) -> Vec<u32> {
        let mut victims = Vec::new();
        if self.count.load(Ordering::Relaxed) == 0 {
            return victims;
        }
        let mut recent = self.recent.lock();
        for index in 0..stored.div_ceil(64) {
            let clean = present.word(index) & !written.word(index) & within(index, &(0..stored));
            let mut idle = clean & !recent.word(index);
            recent.clear(index, clean);
            while idle != 0 {
                if victims.len() == most {
                    return victims;
                }
                victims.push(index * 64 + idle.trailing_zeros());
                idle &= idle - 1;
            }
        }
        victims
    }
}

impl Drop for FileClean {
    fn drop(&mut self) {
        let left = *self.count.get_mut() as u64;
        self.all.count.fetch_sub(left, Ordering::Relaxed);
    }
}

impl Volume {
    /// Gives clean pages back when they take more than their budget. Returns at once while another thread does so.
    pub(super) fn keep_to_budget(&self) {
        if !self.clean.exceeded() {
            return;
        }
        let Some(mut hand) = self.clean.hand.try_lock() else {
            return;
        };
        let mut nodes = self.tree.nodes();
        nodes.sort_unstable_by_key(|node| node.ino);
        let from = nodes.partition_point(|node| node.ino <= *hand);
        // Twice around: the first time spares what was read lately.
        let around = nodes.iter().cycle().skip(from).take(2 * nodes.len());
        for node in around {
            let Ok(file) = node.file() else { continue };
            loop {
                let most = (self.clean.excess() as usize).min(OF_A_FILE);
                if most == 0 {
                    return;
                }
                *hand = node.ino;
                match file.evict(most) {
                    Ok(evicted) if evicted == most => {}
                    Ok(_) => break,
                    // A file system that takes nothing back; the disk is as full as it was.
                    Err(error) => {
                        tracing::warn!("cannot keep the volume within its budget of disk: {error}");
                        return;
                    }
                }
            }
        }
    }
}
