//! Which blocks of one file are here, and which of those were written here. Pure.

use std::ops::Range;

use pg_types::BLCKSZ;

use super::bitmap::Bitmap;

/// The blocks of one file. A block below `stored` that is not `present` is storage's; what is `written` is `present`.
#[derive(Debug)]
pub struct Blocks {
    /// Bytes.
    pub size: u64,
    /// Blocks below this are storage's until they are present.
    pub stored: u32,
    /// Blocks below `stored` that the local file has.
    pub present: Bitmap,
    /// Blocks below `stored` that were written here.
    pub written: Bitmap,
}

impl Blocks {
    /// Whether a block has to come from storage.
    pub fn is_missing(&self, block: u32) -> bool {
        block < self.stored && !self.present.contains(block)
    }

    /// Notes that a block below `stored` was written here; whether it was clean before.
    pub fn write(&mut self, block: u32) -> bool {
        assert!(
            block < self.stored,
            "only blocks that storage has are noted"
        );
        let clean = self.present.contains(block) && !self.written.contains(block);
        self.present.insert(block);
        self.written.insert(block);
        clean
    }

    /// How many blocks of a range are here as storage has them.
    pub fn clean(&self, blocks: Range<u32>) -> usize {
        self.present.count(blocks.clone()) - self.written.count(blocks)
    }

    /// Those of a range that have to come from storage.
    pub fn missing(&self, blocks: Range<u32>) -> Vec<u32> {
        (blocks.start..blocks.end.min(self.stored))
            .filter(|block| !self.present.contains(*block))
            .collect()
    }
}

/// Blocks that so many bytes take, one that is begun counted whole.
pub fn blocks_of(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(BLCKSZ as u64)).unwrap_or(u32::MAX)
}

/// The block that a byte lies in.
pub fn block_at(offset: u64) -> u32 {
    u32::try_from(offset / BLCKSZ as u64).unwrap_or(u32::MAX)
}

/// Blocks that a write at `offset` covers only in part.
pub fn partial_blocks(offset: u64, length: u64) -> impl Iterator<Item = u32> {
    let end = offset + length;
    let block = BLCKSZ as u64;
    let first = (length > 0 && !offset.is_multiple_of(block)).then(|| block_at(offset));
    let last = (length > 0 && !end.is_multiple_of(block)).then(|| block_at(end));
    first
        .into_iter()
        .chain(last.filter(|last| Some(*last) != first))
}
