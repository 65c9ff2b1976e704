//! Which blocks of a file are there.

use std::ops::Range;

/// A set of block numbers that grows as needed.
#[derive(Clone, Debug, Default)]
pub struct Bitmap {
    words: Vec<u64>,
}

impl Bitmap {
    /// Whether the block is in the set.
    pub fn contains(&self, block: u32) -> bool {
        self.words
            .get(block as usize / 64)
            .is_some_and(|word| word >> (block % 64) & 1 == 1)
    }

    /// Puts the block into the set.
    pub fn insert(&mut self, block: u32) {
        let index = block as usize / 64;
        if self.words.len() <= index {
            self.words.resize(index + 1, 0);
        }
        self.words[index] |= 1 << (block % 64);
    }

    /// How many lie in the range.
    pub fn count(&self, range: Range<u32>) -> usize {
        let words = range.start / 64..range.end.div_ceil(64).min(self.words.len() as u32);
        words
            .map(|index| (self.word(index) & within(index, &range)).count_ones() as usize)
            .sum()
    }

    /// Blocks `64 * index` and the 63 that follow, the first in the lowest bit.
    pub fn word(&self, index: u32) -> u64 {
        self.words.get(index as usize).copied().unwrap_or(0)
    }

    /// Takes out those of a word's blocks that are set in `bits`.
    pub fn clear(&mut self, index: u32, bits: u64) {
        if let Some(word) = self.words.get_mut(index as usize) {
            *word &= !bits;
        }
    }

    /// Takes out what lies in the range; how many that were.
    pub fn remove(&mut self, range: Range<u32>) -> usize {
        let known = u32::try_from(self.words.len() * 64).unwrap_or(u32::MAX);
        let mut removed = 0;
        let mut block = range.start;
        while block < range.end.min(known) {
            let word_end = (block - block % 64).saturating_add(64);
            let upto = range.end.min(word_end);
            let mask = (u64::MAX >> (64 - (upto - block))) << (block % 64);
            let word = &mut self.words[block as usize / 64];
            removed += (*word & mask).count_ones() as usize;
            *word &= !mask;
            block = upto;
        }
        removed
    }
}

/// The bits of a word whose blocks lie in a range.
pub fn within(index: u32, range: &Range<u32>) -> u64 {
    let first = u64::from(index) * 64;
    let from = u64::from(range.start).clamp(first, first + 64) - first;
    let to = u64::from(range.end).clamp(first, first + 64) - first;
    if from >= to {
        return 0;
    }
    (u64::MAX >> (64 - (to - from))) << from
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_bitmap_is_a_set(
            inserted in prop::collection::btree_set(0..300u32, 0..100),
            ranges in prop::collection::vec((0..400u32, 0..200u32), 0..8),
        ) {
            let mut set: BTreeSet<u32> = inserted;
            let mut bitmap = Bitmap::default();
            set.iter().for_each(|block| bitmap.insert(*block));
            for (start, length) in ranges {
                prop_assert_eq!(bitmap.count(start..start + length), set.range(start..start + length).count());
                let taken: Vec<u32> = set.range(start..start + length).copied().collect();
                prop_assert_eq!(bitmap.remove(start..start + length), taken.len());
                set.retain(|block| !taken.contains(block));
            }
            for block in 0..700 {
                prop_assert_eq!(bitmap.contains(block), set.contains(&block));
            }
        }
    }
}
