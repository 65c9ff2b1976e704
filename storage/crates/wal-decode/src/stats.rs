//! What WAL is made of: bytes of page images and of the rest by resource manager, transactions ended.

use pg_types::wal::{info, rmgr};
use serde::{Deserialize, Serialize};

use crate::record::Summary;

/// Totals of one resource manager.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RmgrStats {
    /// Number of records.
    pub records: u64,
    /// Bytes of the page images that recovery restores, as logged, that is after compression. These are what
    /// `full_page_writes` costs (and what a few record kinds always need).
    pub image_bytes: u64,
    /// Bytes of the records without those images; page headers and padding do not count. Images logged to be
    /// compared with (`wal_consistency_checking`) belong here: they come whether `full_page_writes` is on or off.
    pub rest_bytes: u64,
    /// Page images that recovery restores.
    pub images: u64,
}

impl RmgrStats {
    #[inline(always)]
    fn add(&mut self, record: &Summary) {
        self.records += 1;
        self.rest_bytes += u64::from(record.bytes - record.image_bytes);
        if record.images > 0 {
            self.images += u64::from(record.images);
            self.image_bytes += u64::from(record.image_bytes);
        }
    }

    fn merge(&mut self, other: &RmgrStats) {
        self.records += other.records;
        self.images += other.images;
        self.image_bytes += other.image_bytes;
        self.rest_bytes += other.rest_bytes;
    }
}

/// Totals over a stretch of WAL; the figures are those of `pg_waldump --stats`, which however counts images
/// for consistency checking as images.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WalStats {
    by_rmgr: [RmgrStats; rmgr::COUNT],
    /// Resource managers of extensions, together.
    pub custom: RmgrStats,
    /// Commits, prepared ones included.
    pub commits: u64,
    /// Aborts of whole transactions and of subtransactions, prepared ones included.
    pub aborts: u64,
    /// Checkpoints that ended, shutdown ones included.
    pub checkpoints: u64,
}

impl WalStats {
    /// Counts one record.
    #[inline(always)]
    pub fn add(&mut self, record: &Summary) {
        match self.by_rmgr.get_mut(usize::from(record.rmid)) {
            Some(stats) => stats.add(record),
            None => self.custom.add(record),
        }
        match record.rmid {
            rmgr::XACT => match record.info & info::xact::OP_MASK {
                info::xact::COMMIT | info::xact::COMMIT_PREPARED => self.commits += 1,
                info::xact::ABORT | info::xact::ABORT_PREPARED => self.aborts += 1,
                _ => {}
            },
            rmgr::XLOG => match record.info & 0xF0 {
                info::xlog::CHECKPOINT_SHUTDOWN | info::xlog::CHECKPOINT_ONLINE => {
                    self.checkpoints += 1;
                }
                _ => {}
            },
            _ => {}
        }
    }

    /// Adds what was counted over another stretch.
    pub fn merge(&mut self, other: &WalStats) {
        let theirs = other.by_rmgr.iter().chain([&other.custom]);
        let mine = self.by_rmgr.iter_mut().chain([&mut self.custom]);
        for (mine, theirs) in mine.zip(theirs) {
            mine.merge(theirs);
        }
        self.commits += other.commits;
        self.aborts += other.aborts;
        self.checkpoints += other.checkpoints;
    }

    /// Every resource manager that occurred, with its name.
    pub fn by_rmgr(&self) -> impl Iterator<Item = (&'static str, &RmgrStats)> {
        let built_in = self
            .by_rmgr
            .iter()
            .enumerate()
            .map(|(id, stats)| (rmgr::name(id as u8), stats));
        built_in
            .chain([("custom", &self.custom)])
            .filter(|(_, stats)| stats.records > 0)
    }

    /// The sum over all resource managers, those of extensions included.
    pub fn total(&self) -> RmgrStats {
        let mut total = RmgrStats::default();
        for (_, stats) in self.by_rmgr() {
            total.merge(stats);
        }
        total
    }
}
