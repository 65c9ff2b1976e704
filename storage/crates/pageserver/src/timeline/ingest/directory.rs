//! The directory of a timeline as ingest knows it: sizes of relations and of SLRU segments, without asking storage.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use pg_types::slru::segment_of;
use pg_types::{Key, RelTag, SLRU_PAGES_PER_SEGMENT, SlruKind};

pub type Sizes = HashMap<RelTag, Option<u32>, RandomState>;
pub type Segments = HashMap<(SlruKind, u32), u32, RandomState>;

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

    pub fn update(&mut self, update: DirectoryUpdate) {
        self.sizes.extend(update.sizes);
        self.segments.extend(update.segments);
    }
}
