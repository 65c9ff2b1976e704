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

use crate::eviction::{Copy, Looks, limit, plan_eviction, room};
use crate::layer_file::LayerFile;

/// How often the disk is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Layers fetched at the same time, over all timelines.
const FETCHES_AT_ONCE: usize = 16;
/// Shared by all timelines of the process.
pub struct DiskCache {
    directory: PathBuf,
    wanted: u64,
    looks: Arc<Looks>,
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
            looks: Arc::default(),
            room: AtomicU64::new(0),
            fetches: Semaphore::new(FETCHES_AT_ONCE),
            copies: Mutex::default(),
        })
    }

    /// The clock of the looks, by which files say when they were last read.
    pub(crate) fn looks(&self) -> &Arc<Looks> {
        &self.looks
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
                let looked = tokio::task::spawn_blocking(move || cache.evict_surplus()).await;
                if let Err(error) = looked {
                    tracing::error!("the look at the layer cache ended: {error}");
                }
            }
        }
    }

    /// Evicts what is too much.
    pub fn evict_surplus(&self) {
        self.looks.advance();
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
    use super::*;

    /// Promise: a fetch that would push something out is not begun.
    #[test]
    fn room_is_taken_once() {
        let cache = DiskCache::new(Path::new("/"), 100);
        cache.room.store(50, Ordering::Relaxed);
        assert!(cache.take_room(30));
        assert!(!cache.take_room(30));
        assert!(cache.take_room(20));
    }
}
