//! Keeps the bytes of newly written layers in memory for a while: new layers are read most, and a file that was
//! written past the kernel's page cache would have to come from the disk for its first read.
//!
//! The bytes kept are bounded over all timelines; the oldest layer's bytes go first. A layer that is merged or
//! deleted gives up its bytes with it. A layer whose bytes have gone is read from its file, which holds the same
//! bytes. A crash loses only these copies.

use std::collections::VecDeque;
use std::sync::{Arc, LazyLock, Weak};

use parking_lot::Mutex;
use prometheus::{IntGauge, register_int_gauge};

use crate::layer_file::LayerFile;

/// The layers whose bytes are in memory, over all timelines.
pub struct RecentLayers {
    /// Bytes of all of them, at most.
    limit: u64,
    /// Oldest first.
    layers: Mutex<VecDeque<Weak<LayerFile>>>,
}

impl RecentLayers {
    pub fn new(limit: u64) -> RecentLayers {
        RecentLayers {
            limit,
            layers: Mutex::default(),
        }
    }

    /// Adds a layer whose bytes are in memory. When the sum exceeds the limit, the oldest layers give up their bytes.
    pub(crate) fn add(&self, layer: &Arc<LayerFile>) {
        let mut layers = self.layers.lock();
        layers.push_back(Arc::downgrade(layer));
        layers.retain(|layer| layer.strong_count() > 0);
        let there = layers.iter().filter_map(Weak::upgrade);
        let mut sum: u64 = there.map(|it| it.bytes_in_memory()).sum();
        while sum > self.limit
            && let Some(oldest) = layers.pop_front()
        {
            sum -= oldest.upgrade().map_or(0, |it| it.let_go_of_memory());
        }
        BYTES.set(i64::try_from(sum).unwrap_or(i64::MAX));
    }
}

static BYTES: LazyLock<IntGauge> = LazyLock::new(|| {
    let gauge = register_int_gauge!(
        "weir_pageserver_recent_layer_bytes",
        "Bytes of new layers that are still in memory for reads"
    );
    // The name is a constant, so that a failure can only be a programming error.
    gauge.expect("metric registered once")
});

#[cfg(test)]
mod tests {
    use std::path::Path;

    use blob::{Generation, PutPayload, RemoteLayer};
    use layers::{BlockCache, MemoryLayer, Value, WriterOptions};
    use pg_types::{Key, Lsn, TenantId, TimelineId};

    use super::*;
    use crate::disk::DiskCache;
    use crate::layer_cache::LayerCache;

    fn cache(root: &Path, limit: u64) -> (LayerCache, blob::TimelineStore) {
        let objects = blob::Store::local(&root.join("objects")).expect("store");
        let remote = objects.timeline(TenantId([1; 16]), TimelineId([2; 16]));
        let cache = LayerCache::new(
            root.join("copies"),
            Arc::new(BlockCache::new(0)),
            DiskCache::new(root, 1 << 30),
            Arc::new(RecentLayers::new(limit)),
            remote.clone(),
        );
        (cache, remote)
    }

    /// Stores a layer, and spoils the file: a read from the file finds it damaged.
    async fn spoiled(cache: &LayerCache, remote: &blob::TimelineStore, lsn: u64) -> Arc<LayerFile> {
        let memory = MemoryLayer::new();
        let value = Value::Meta(vec![7; 1000].into());
        memory.put(Key::aux(1), Lsn(lsn), value).expect("put");
        memory.freeze();
        let written = memory.write_delta_layer(&WriterOptions::level_0());
        let (desc, pieces) = written.expect("write");
        let generation = Generation(1);
        let layer = RemoteLayer { desc, generation };
        let content = PutPayload::from_iter(pieces.iter());
        remote.put_layer(&layer, content).await.expect("put");
        let path = remote.local_layer_path(&layer).expect("a local store");
        let damaged = vec![0; std::fs::metadata(&path).expect("file").len() as usize];
        std::fs::write(&path, damaged).expect("damage");
        cache.new_file(layer, pieces)
    }

    fn is_read_from_memory(file: &LayerFile) -> bool {
        file.reader().is_ok_and(|reader| reader.verify().is_ok())
    }

    /// Promise: new layers are read from memory, the newest of them that fit; the others from their files, also where
    /// they were opened before. A layer that is gone makes room.
    #[tokio::test]
    async fn the_newest_layers_are_read_from_memory() {
        let root = tempfile::tempdir().expect("directory");
        let (measuring, remote) = cache(root.path(), 0);
        let one = spoiled(&measuring, &remote, 8).await;
        assert!(!is_read_from_memory(&one), "none may be kept");

        let size = one.remote().desc.size;
        let (cache, remote) = cache(root.path(), 2 * size);
        let first = spoiled(&cache, &remote, 16).await;
        let opened = first.reader().expect("reader");
        opened.verify().expect("from memory");
        let second = spoiled(&cache, &remote, 24).await;
        let third = spoiled(&cache, &remote, 32).await;
        assert!(opened.verify().is_err(), "its file is damaged");
        let kept = |files: [&Arc<LayerFile>; 3]| files.map(|file| file.bytes_in_memory() > 0);
        assert_eq!(kept([&first, &second, &third]), [false, true, true]);
        assert!(is_read_from_memory(&second) && is_read_from_memory(&third));

        drop(third);
        let fourth = spoiled(&cache, &remote, 40).await;
        assert_eq!(kept([&first, &second, &fourth]), [false, true, true]);
    }

    /// Promise: a layer of which copies are read is not kept, however small; the copy counts as the disk's.
    #[tokio::test]
    async fn what_is_read_from_copies_is_not_kept() {
        let root = tempfile::tempdir().expect("directory");
        let (_, remote) = cache(root.path(), 0);
        let directory = format!("mount://{}", root.path().join("objects").display());
        let mounted = blob::Store::from_address(&directory).expect("store");
        let copies = LayerCache::new(
            root.path().join("copies"),
            Arc::new(BlockCache::new(0)),
            DiskCache::new(root.path(), 1 << 30),
            Arc::new(RecentLayers::new(1 << 30)),
            mounted.timeline(TenantId([1; 16]), TimelineId([2; 16])),
        );
        let file = spoiled(&copies, &remote, 8).await;
        assert_eq!(file.bytes_in_memory(), 0);
    }
}
