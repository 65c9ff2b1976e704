//! The directory of a timeline as ingest knows it: sizes of relations and of SLRU segments, without asking storage.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use pg_types::slru::segment_of;
use pg_types::{Key, RelTag, SLRU_PAGES_PER_SEGMENT, SlruKind};

pub type Sizes = HashMap<RelTag, Option<u32>, RandomState>;
pub type Segments = HashMap<(SlruKind, u32), u32, RandomState>;

/// How many relations are remembered, and how many segments. A fork that was looked for in vain stays known as one
/// that does not exist: those of a user who creates and drops all day would fill memory.
const MOST: usize = 1 << 16;

/// The directory of a timeline as of its last ingested record.
#[derive(Default)]
pub struct Directory {
    /// `None`: the fork is known not to exist.
    pub(super) sizes: Sizes,
    /// Pages in a segment, 0 when it does not exist.
    pub(super) segments: Segments,
}

/// Directory entries to keep once the batch is stored.
pub struct DirectoryUpdate {
    /// By how many bytes all main forks together have grown.
    pub growth: i64,
    pub sizes: Sizes,
    pub segments: Segments,
}

impl Directory {
    /// Whether the page is known to be within its relation or segment.
    #[inline]
    pub(super) fn has(&self, key: &Key) -> bool {
        if let Some(rel) = key.rel() {
            let size = self.sizes.get(&rel).copied().flatten();
            return size.is_some_and(|blocks| key.e < blocks);
        }
        let Some(kind) = key.slru() else { return true };
        let pages = self.segments.get(&(kind, segment_of(key.e)));
        pages.is_some_and(|pages| key.e % SLRU_PAGES_PER_SEGMENT < *pages)
    }

    /// Forgets what it takes to know of no more than [`MOST`] relations and segments: those that do not exist first. Only
    /// while nothing is gathered that is not published: storage is asked for what is not known.
    pub(super) fn bound(&mut self) {
        self.bound_to(MOST);
    }

    fn bound_to(&mut self, most: usize) {
        if self.sizes.len() > most {
            self.sizes.retain(|_, size| size.is_some());
            // Else nearly all of it would be gone through again for each piece of WAL.
            if self.sizes.len() > most / 2 {
                self.sizes = Sizes::default();
            }
            self.sizes.shrink_to(most / 2);
        }
        if self.segments.len() > most {
            self.segments = Segments::default();
        }
    }

    /// Knows nothing of a fork any more: storage is asked.
    pub(super) fn forget(&mut self, rel: &RelTag) {
        self.sizes.remove(rel);
    }

    pub fn update(&mut self, update: DirectoryUpdate) {
        self.sizes.extend(update.sizes);
        self.segments.extend(update.segments);
    }
}

#[cfg(test)]
mod tests {
    use pg_types::ForkNumber;

    use super::*;

    fn rel(rel: u32) -> RelTag {
        RelTag {
            spc: 1663,
            db: 5,
            rel,
            fork: ForkNumber::Main,
        }
    }

    #[test]
    fn relations_that_are_not_there_are_forgotten_before_those_that_are() {
        let mut directory = Directory::default();
        directory.sizes.insert(rel(1), Some(7));
        for number in 2..=11 {
            directory.sizes.insert(rel(number), None);
        }
        directory.bound_to(11);
        assert_eq!(directory.sizes.len(), 11, "as many as may be");
        directory.bound_to(10);
        assert_eq!(directory.sizes.len(), 1);
        assert!(directory.has(&Key::rel_block(rel(1), 6)));
    }

    #[test]
    fn too_many_that_are_there_are_asked_for_again() {
        let mut directory = Directory::default();
        for number in 0..9 {
            directory.sizes.insert(rel(number), Some(1));
            directory.segments.insert((SlruKind::Clog, number), 1);
        }
        directory.bound_to(8);
        assert!(directory.sizes.is_empty() && directory.segments.is_empty());
    }
}
