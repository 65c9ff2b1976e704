//! A cache of decompressed blocks, shared by all readers of a process.
//!
//! The cache is bounded by bytes. A block that was asked for more than once is kept before a block that was asked for
//! once: a scan over more than fits passes through without pushing out the blocks that are read all the time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use quick_cache::Weighter;
use quick_cache::sync::Cache;

use crate::block::Block;

/// Reader id and block number.
type Slot = (u64, u32);

/// What an entry costs beside the block.
const ENTRY_OVERHEAD: u64 = 64;
/// For the first size of the cache's tables.
const TYPICAL_BLOCK_BYTES: usize = 16 << 10;

#[derive(Clone)]
struct BlockBytes;

impl Weighter<Slot, Arc<Block>> for BlockBytes {
    fn weight(&self, _: &Slot, block: &Arc<Block>) -> u64 {
        block.memory_bytes() as u64 + ENTRY_OVERHEAD
    }
}

/// Decompressed blocks of layer files, for the next read. Shared as `Arc<BlockCache>`.
pub struct BlockCache {
    blocks: Cache<Slot, Arc<Block>, BlockBytes>,
    next_reader: AtomicU64,
    hits: AtomicU64,
    misses: AtomicU64,
}

impl BlockCache {
    /// A cache of at most about `bytes` bytes of blocks; of 0 bytes, it keeps nothing.
    pub fn new(bytes: usize) -> BlockCache {
        let items = (bytes / TYPICAL_BLOCK_BYTES).max(16);
        BlockCache {
            blocks: Cache::with_weighter(items, bytes as u64, BlockBytes),
            next_reader: AtomicU64::new(0),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
        }
    }

    /// Hits and misses since the start.
    pub fn counters(&self) -> (u64, u64) {
        (
            self.hits.load(Ordering::Relaxed),
            self.misses.load(Ordering::Relaxed),
        )
    }

    /// Bytes it holds.
    pub fn bytes(&self) -> u64 {
        self.blocks.weight()
    }

    pub(crate) fn register(&self) -> u64 {
        self.next_reader.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn get(&self, slot: Slot) -> Option<Arc<Block>> {
        let found = self.blocks.get(&slot);
        let counter = if found.is_some() {
            &self.hits
        } else {
            &self.misses
        };
        counter.fetch_add(1, Ordering::Relaxed);
        found
    }

    /// A block that is too large to be worth keeping is not kept.
    pub(crate) fn insert(&self, slot: Slot, block: Arc<Block>) {
        self.blocks.insert(slot, block);
    }

    /// Drops every block of a reader that goes away.
    pub(crate) fn forget(&self, reader: u64) {
        self.blocks.retain(|slot, _| slot.0 != reader);
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    const FITS: u32 = 512;

    fn block() -> Arc<Block> {
        Arc::new(Block::new(Bytes::from(vec![0; 16 << 10])))
    }

    fn bytes_that_fit() -> u64 {
        u64::from(FITS) * (block().memory_bytes() as u64 + ENTRY_OVERHEAD)
    }

    fn cache() -> BlockCache {
        BlockCache::new(bytes_that_fit() as usize)
    }

    fn read(cache: &BlockCache, slot: Slot) -> bool {
        let found = cache.get(slot).is_some();
        if !found {
            cache.insert(slot, block());
        }
        found
    }

    #[test]
    fn it_stays_within_its_bytes_and_forgets_a_reader() {
        let cache = cache();
        for number in 0..4 * FITS {
            read(&cache, (1, number));
            read(&cache, (2, number % 8));
        }
        assert!(cache.bytes() <= bytes_that_fit());
        cache.forget(1);
        assert!((0..4 * FITS).all(|number| cache.get((1, number)).is_none()));
        assert!((0..8).any(|number| cache.get((2, number)).is_some()));
    }

    /// Promise: a scan over many times what fits leaves the blocks that are read all the time where they are.
    #[test]
    fn a_scan_does_not_push_out_what_is_read_all_the_time() {
        let cache = cache();
        let hot = FITS / 2;
        for _ in 0..4 {
            (0..hot).for_each(|number| {
                read(&cache, (1, number));
            });
        }
        for number in 0..20 * FITS {
            read(&cache, (2, number));
        }
        let kept = (0..hot).filter(|number| read(&cache, (1, *number))).count();
        assert!(
            kept >= hot as usize * 9 / 10,
            "{kept} of {hot} blocks are left"
        );
    }

    #[test]
    fn a_cache_without_memory_keeps_nothing() {
        let cache = BlockCache::new(0);
        assert!(!read(&cache, (1, 1)) && !read(&cache, (1, 1)));
    }
}
