//! The local disk as a cache of layers: how many bytes the copies of layers take, and which copies are evicted when
//! that is too much.
//!
//! Only copies count: a layer in a local object store is read in place. The copy that was not read for longest is
//! evicted first. A copy can be evicted at any moment: a read that has its file open keeps the file until the read
//! ends, and the next read fetches the layer again. A crash leaves whole copies and unfinished downloads
//! (`layer_file`).

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use prometheus::{IntCounter, IntGauge, register_int_counter, register_int_gauge};
use tokio::sync::Semaphore;

use crate::layer_file::LayerFile;

/// How often the disk is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Layers fetched at the same time, over all timelines.
const FETCHES_AT_ONCE: usize = 16;
/// This part of the file system is left free, whatever the limit says: one part in so many.
const LEFT_FREE: u64 = 20;
/// Evictions go on until this part of the limit is free, one in so many, so that they come in batches.
const HEADROOM: u64 = 10;

/// When a copy was last read, where that is not known.
pub(crate) const NEVER_USED: u64 = 0;
/// The first look. Looks before it are those of earlier processes, as far as they are remembered (`manager/warm`).
pub(crate) const FIRST_LOOK: u64 = 1 << 32;

/// What the look at one resident copy says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copy {
    pub bytes: u64,
    /// When it was last read, in looks.
    pub used: u64,
}

/// Which copies go, by their place: none while they take at most `limit` bytes, else the longest unused until a
/// tenth of the limit is free.
pub fn plan_eviction(copies: &[Copy], limit: u64) -> Vec<usize> {
    let mut total: u64 = copies.iter().map(|copy| copy.bytes).sum();
    if total <= limit {
        return Vec::new();
    }
    let mut longest_unused: Vec<usize> = (0..copies.len()).collect();
    longest_unused.sort_by_key(|at| copies[*at].used);
    let target = limit - limit / HEADROOM;
    let goes = longest_unused.into_iter().take_while(|at| {
        let is_too_much = total > target;
        total -= copies[*at].bytes;
        is_too_much
    });
    goes.collect()
}

/// Bytes that copies may take: at most `wanted`, and as much less as it takes to leave some of the disk free.
pub fn limit(wanted: u64, resident: u64, free: u64, size: u64) -> u64 {
    wanted.min((resident + free).saturating_sub(size / LEFT_FREE))
}

/// Bytes that can be fetched without an eviction, while copies of `resident` bytes are there: evictions would go on
/// until a tenth of `limit` is free, so a tenth stays free.
pub fn room(limit: u64, resident: u64) -> u64 {
    (limit - limit / HEADROOM).saturating_sub(resident)
}

/// Shared by all timelines of the process.
pub struct DiskCache {
    directory: PathBuf,
    wanted: u64,
    /// Looks so far: a clock that costs a reader one load.
    looks: AtomicU64,
    /// Bytes that can be fetched before anything is evicted, as of the last look.
    room: AtomicU64,
    fetches: Semaphore,
    copies: Mutex<Vec<Weak<LayerFile>>>,
}

impl DiskCache {
    /// Copies below `directory` take at most `wanted` bytes.
    pub fn new(directory: &Path, wanted: u64) -> Arc<DiskCache> {
        Arc::new(DiskCache {
            directory: directory.to_owned(),
            wanted,
            looks: AtomicU64::new(FIRST_LOOK),
            room: AtomicU64::new(0),
            fetches: Semaphore::new(FETCHES_AT_ONCE),
            copies: Mutex::default(),
        })
    }

    pub(crate) fn now(&self) -> u64 {
        self.looks.load(Ordering::Relaxed)
    }

    /// Counts a layer's copy from now on.
    pub(crate) fn add(&self, file: &Arc<LayerFile>) {
        self.copies.lock().push(Arc::downgrade(file));
    }

    /// Takes so many bytes of what room there is; false when they would push something out.
    pub(crate) fn take_room(&self, bytes: u64) -> bool {
        let less = |room: u64| room.checked_sub(bytes);
        let relaxed = Ordering::Relaxed;
        self.room.fetch_update(relaxed, relaxed, less).is_ok()
    }

    /// A permit to fetch a layer; at most [`FETCHES_AT_ONCE`] are given at the same time.
    pub(crate) async fn fetch_permit(&self) -> impl Drop + use<'_> {
        METRICS.fetched.inc();
        self.fetches
            .acquire()
            .await
            .expect("the semaphore is never closed")
    }

    /// Keeps copies within the limit, for as long as there is a cache.
    pub fn keep(cache: &Arc<DiskCache>) -> impl Future<Output = ()> + Send + use<> {
        let cache = Arc::downgrade(cache);
        async move {
            let mut look = tokio::time::interval(LOOK_EVERY);
            look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            loop {
                look.tick().await;
                let Some(cache) = cache.upgrade() else { return };
                let looked = tokio::task::spawn_blocking(move || cache.look()).await;
                if let Err(error) = looked {
                    tracing::error!("the look at the layer cache ended: {error}");
                }
            }
        }
    }

    /// Evicts what is too much.
    pub fn look(&self) {
        self.looks.fetch_add(1, Ordering::Relaxed);
        let files: Vec<Arc<LayerFile>> = {
            let mut copies = self.copies.lock();
            copies.retain(|copy| copy.strong_count() > 0);
            copies.iter().filter_map(Weak::upgrade).collect()
        };
        let resident: Vec<&Arc<LayerFile>> =
            files.iter().filter(|file| file.is_resident()).collect();
        let copies: Vec<Copy> = resident.iter().map(|file| file.copy()).collect();
        let total: u64 = copies.iter().map(|copy| copy.bytes).sum();
        METRICS
            .resident
            .set(i64::try_from(total).unwrap_or(i64::MAX));
        let limit = match nix::sys::statvfs::statvfs(&self.directory) {
            Ok(disk) => {
                let block = disk.fragment_size();
                let (free, size) = (disk.blocks_available() * block, disk.blocks() * block);
                limit(self.wanted, total, free, size)
            }
            Err(error) => {
                tracing::warn!(directory = %self.directory.display(), "cannot see how full the disk is: {error}");
                self.wanted
            }
        };
        self.room.store(room(limit, total), Ordering::Relaxed);
        for at in plan_eviction(&copies, limit) {
            match resident[at].evict() {
                Ok(()) => METRICS.evicted.inc(),
                Err(error) => {
                    tracing::warn!(layer = %resident[at].name(), "cannot evict: {error:#}")
                }
            }
        }
    }
}

struct Metrics {
    resident: IntGauge,
    evicted: IntCounter,
    fetched: IntCounter,
}

static METRICS: std::sync::LazyLock<Metrics> = std::sync::LazyLock::new(|| {
    // Names are constants, so that a failure can only be a programming error.
    let registered = "metric registered once";
    Metrics {
        resident: register_int_gauge!(
            "weir_pageserver_cached_layer_bytes",
            "Bytes of layers copied to local disk"
        )
        .expect(registered),
        evicted: register_int_counter!(
            "weir_pageserver_layers_evicted_total",
            "Layers whose local copy was removed because the disk was needed"
        )
        .expect(registered),
        fetched: register_int_counter!(
            "weir_pageserver_layers_fetched_total",
            "Layers fetched from object storage"
        )
        .expect(registered),
    }
});

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_longest_unused_go_until_a_tenth_is_free() {
        let copy = |bytes, used| Copy { bytes, used };
        let copies = [copy(40, 3), copy(30, 1), copy(30, 2), copy(10, 9)];
        assert_eq!(plan_eviction(&copies, 110), [] as [usize; 0]);
        assert_eq!(plan_eviction(&copies, 100), [1]);
        assert_eq!(plan_eviction(&copies, 60), [1, 2]);
        assert_eq!(plan_eviction(&copies, 0), [1, 2, 0, 3]);
    }

    #[test]
    fn what_fits_is_never_evicted_again() {
        assert_eq!(room(100, 0), 90);
        assert_eq!(room(100, 95), 0);
        let cache = DiskCache::new(Path::new("/"), 100);
        cache.room.store(room(100, 50), Ordering::Relaxed);
        assert!(cache.take_room(30));
        assert!(!cache.take_room(30));
        assert!(cache.take_room(10));
    }

    #[test]
    fn a_full_disk_counts_more_than_the_limit() {
        assert_eq!(limit(1000, 0, 10_000, 20_000), 1000);
        assert_eq!(limit(1000, 500, 700, 20_000), 200);
        assert_eq!(limit(1000, 500, 100, 20_000), 0);
    }

    proptest! {
        /// What is left fits, nothing that was used later goes while something used earlier stays, and no more
        /// goes than needed.
        #[test]
        fn evictions_fit_and_are_least(
            sizes in prop::collection::vec((1_u64..100, 0_u64..50), 0..40),
            limit in 0_u64..2000,
        ) {
            let copies: Vec<Copy> = sizes.iter().map(|(bytes, used)| Copy { bytes: *bytes, used: *used }).collect();
            let gone = plan_eviction(&copies, limit);
            let total: u64 = copies.iter().map(|copy| copy.bytes).sum();
            let freed: u64 = gone.iter().map(|at| copies[*at].bytes).sum();
            prop_assert!(total - freed <= limit);
            let newest_gone = gone.iter().map(|at| copies[*at].used).max();
            let stays = (0..copies.len()).filter(|at| !gone.contains(at));
            for at in stays {
                prop_assert!(newest_gone.is_none_or(|used| used <= copies[at].used));
            }
            if let Some(last) = gone.last() {
                prop_assert!(total - freed + copies[*last].bytes > limit - limit / HEADROOM);
            }
        }
    }
}
