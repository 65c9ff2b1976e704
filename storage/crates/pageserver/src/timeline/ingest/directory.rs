//! The directory of a timeline as ingest knows it: sizes of relations and of SLRU segments, without asking storage.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use pg_types::slru::segment_of;
use pg_types::{Key, RelTag, SLRU_PAGES_PER_SEGMENT, SlruKind};

pub type Sizes = HashMap<RelTag, Option<u32>, RandomState>;
pub type Segments = HashMap<(SlruKind, u32), u32, RandomState>;

/// How many forks of relations are remembered at most, and how many segments.
const MOST: usize = 1 << 16;
/// Among so many, and among so many for each one that exists, those that do not exist are remembered too. A relation
/// has up to four forks, and of most it is often asked whether there is a second one. A relation that is dropped stays
/// known as one that does not exist: those of a user who creates and drops all day would fill memory.
const FEW: usize = 1 << 12;
const FOR_EACH: usize = 8;

/// The directory of a timeline as of its last ingested record.
#[derive(Default)]
pub struct Directory {
    /// `None`: the fork is known not to exist.
    pub(super) sizes: Sizes,
    /// Pages in a segment, 0 when it does not exist.
    pub(super) segments: Segments,
    /// Forks beyond which those that do not exist are forgotten, if more than [`FEW`].
    enough: usize,
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

    /// Forgets forks that do not exist, if there are many for those that do, and what it takes to know of no more
    /// than [`MOST`] forks and segments. Only while nothing is gathered that is not published: storage is asked for
    /// what is not known.
    pub(super) fn bound(&mut self) {
        self.bound_to(FEW, MOST);
    }

    fn bound_to(&mut self, few: usize, most: usize) {
        if self.sizes.len() > self.enough.max(few) {
            self.sizes.retain(|_, size| size.is_some());
            // Else nearly all of it would be gone through again for each piece of WAL.
            if self.sizes.len() > most / 2 {
                self.sizes = Sizes::default();
            }
            self.enough = (FOR_EACH * self.sizes.len()).clamp(few, most);
            self.sizes.shrink_to(self.enough);
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
        directory.bound_to(11, 64);
        assert_eq!(directory.sizes.len(), 11, "as many as may be");
        directory.bound_to(10, 64);
        assert_eq!(directory.sizes.len(), 1);
        assert!(directory.has(&Key::rel_block(rel(1), 6)));
    }

    /// Promise: memory follows what exists, however much has come and gone.
    #[test]
    fn relations_that_come_and_go_all_day_take_no_more_than_a_few() {
        let mut directory = Directory::default();
        let most = (1..1000).map(|number| (rel(number), Some(1)));
        directory.sizes.extend(most);
        for number in 1000..200_000 {
            directory.sizes.insert(rel(number), None);
            directory.bound();
            assert!(directory.sizes.len() <= FOR_EACH * 1000);
        }
        assert!(directory.sizes.capacity() <= 2 * FOR_EACH * 1000);
        assert!((1..1000).all(|number| directory.has(&Key::rel_block(rel(number), 0))));
        // Those that are there go, too.
        directory.sizes.values_mut().for_each(|size| *size = None);
        for number in 200_000..220_000 {
            directory.sizes.insert(rel(number), None);
            directory.bound();
        }
        assert!(directory.sizes.len() <= FEW && directory.sizes.capacity() <= 2 * FEW);
    }

    /// Promise: of relations that exist it is not asked again and again whether they have a map.
    #[test]
    fn forks_that_relations_never_had_stay_known() {
        let mut directory = Directory::default();
        let exist = 2 * FEW as u32;
        for number in 0..exist {
            directory.sizes.insert(rel(number), Some(1));
        }
        directory.bound();
        let mut forgotten = 0;
        for round in 0..8 {
            for number in 0..exist {
                for fork in [ForkNumber::VisibilityMap, ForkNumber::Fsm] {
                    let fork = rel(number).with_fork(fork);
                    forgotten += usize::from(directory.sizes.insert(fork, None).is_none());
                }
                directory.bound();
            }
            assert_eq!(forgotten, 2 * exist as usize, "round {round}");
        }
    }

    #[test]
    fn too_many_that_are_there_are_asked_for_again() {
        let mut directory = Directory::default();
        for number in 0..9 {
            directory.sizes.insert(rel(number), Some(1));
            directory.segments.insert((SlruKind::Clog, number), 1);
        }
        directory.bound_to(8, 8);
        assert!(directory.sizes.is_empty() && directory.segments.is_empty());
    }
}
