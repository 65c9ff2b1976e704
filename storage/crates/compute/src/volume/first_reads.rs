//! Which pages of the system catalogs a run reads first, and bringing those that the run before has read first.
//!
//! Postgres begins each session with the same few hundred pages of its catalogs, and after a start none of them is here.
//! One after the other they are most of what a first session waits for; asked for together, while Postgres is still
//! being started, they are here when it reads them. A block that comes this way obeys the rules of [`super::ahead`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use pg_types::{BLCKSZ, RELSEG_BLOCKS, RelTag};

use super::Volume;
use super::names::{self, RelFile};
use super::tree::{Content, Node};

/// Pages that are noted, and pages that are brought, at most: 8 MiB.
pub const MOST: usize = 1024;
/// Relations of users have numbers from here on, as those have of a catalog that was rewritten.
const FIRST_OF_USERS: u32 = 16_384;

/// The pages that were read first.
#[derive(Debug)]
pub struct FirstReads {
    noting: AtomicBool,
    pages: Mutex<BTreeSet<(RelTag, u32)>>,
}

impl Default for FirstReads {
    fn default() -> FirstReads {
        FirstReads {
            noting: AtomicBool::new(true),
            pages: Mutex::default(),
        }
    }
}

impl FirstReads {
    /// Notes that bytes of a file are read, while pages are noted. Files of users' relations, and of what is no relation,
    /// count nothing.
    pub(super) fn note(&self, node: &Node, offset: u64, length: u64) {
        let Content::File {
            relation: Some((rel, first_block)),
            ..
        } = &node.content
        else {
            return;
        };
        if rel.rel >= FIRST_OF_USERS || !self.noting.load(Ordering::Relaxed) {
            return;
        }
        let page = BLCKSZ as u64;
        let mut pages = self.pages.lock();
        for block in offset / page..offset.saturating_add(length).div_ceil(page) {
            if pages.len() >= MOST {
                return self.end();
            }
            if let Ok(block) = u32::try_from(block) {
                pages.insert((*rel, first_block.saturating_add(block)));
            }
        }
    }

    /// Notes no more.
    pub fn end(&self) {
        self.noting.store(false, Ordering::Relaxed);
    }

    /// What was noted so far, in order.
    pub fn pages(&self) -> Vec<(RelTag, u32)> {
        self.pages.lock().iter().copied().collect()
    }
}

impl Volume {
    /// The pages of catalogs that were read first.
    pub fn first_reads(&self) -> &FirstReads {
        &self.first_reads
    }

    /// Asks storage in the background for pages that will be read soon, [`MOST`] of them at most; those of relations that
    /// are not there are left out. Waits for storage only where it has not yet said what a directory holds. Asks for
    /// nothing where nothing is to be read ahead.
    pub fn bring(&self, pages: impl IntoIterator<Item = (RelTag, u32)>) {
        let mut of_files: BTreeMap<String, Vec<u32>> = BTreeMap::new();
        for (rel, block) in pages.into_iter().take(MOST) {
            let Some(directory) = names::database_path(rel.spc, rel.db) else {
                continue;
            };
            let file = RelFile {
                rel: rel.rel,
                fork: rel.fork,
                segment: block / RELSEG_BLOCKS,
            };
            let path = format!("{directory}/{}", file.name());
            of_files
                .entry(path)
                .or_default()
                .push(block % RELSEG_BLOCKS);
        }
        for (path, blocks) in of_files {
            if let Ok(node) = self.find(&path) {
                self.ahead.ask(&node, &blocks);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    use bytes::Bytes;
    use parking_lot::Mutex;
    use pg_types::rel::{DEFAULT_TABLESPACE, GLOBAL_TABLESPACE};
    use pg_types::{ForkNumber, SlruKind};

    use super::*;
    use crate::source::{PageSource, SourceError};

    /// Database 5 with a catalog and a user's table, of ten blocks each. Remembers which blocks were asked for.
    #[derive(Default)]
    struct Storage {
        asked: Mutex<Vec<(u32, Vec<u32>)>>,
    }

    impl PageSource for Storage {
        fn databases(&self) -> Result<Vec<(u32, u32)>, SourceError> {
            Ok(vec![(DEFAULT_TABLESPACE, 5)])
        }

        fn relations(&self, spc: u32, db: u32) -> Result<Vec<(RelTag, u32)>, SourceError> {
            let own = [1259, 16_384].map(|number| (rel(number), 10));
            let shared = RelTag {
                spc: GLOBAL_TABLESPACE,
                db: 0,
                ..rel(1262)
            };
            Ok(match spc {
                GLOBAL_TABLESPACE => vec![(shared, 1)],
                _ if db == 5 => own.to_vec(),
                _ => Vec::new(),
            })
        }

        fn pages(&self, rel: RelTag, blocks: &[u32]) -> Result<Vec<Bytes>, SourceError> {
            self.asked.lock().push((rel.rel, blocks.to_vec()));
            Ok(blocks
                .iter()
                .map(|_| Bytes::from(vec![rel.rel as u8; BLCKSZ]))
                .collect())
        }

        fn slru_segments(&self, _: SlruKind) -> Result<Vec<(u32, u32)>, SourceError> {
            Ok(Vec::new())
        }

        fn slru_pages(&self, _: SlruKind, _: &[u32]) -> Result<Vec<Bytes>, SourceError> {
            Ok(Vec::new())
        }
    }

    fn rel(number: u32) -> RelTag {
        RelTag {
            spc: DEFAULT_TABLESPACE,
            db: 5,
            rel: number,
            fork: ForkNumber::Main,
        }
    }

    fn volume() -> (Volume, Arc<Storage>, tempfile::TempDir) {
        let directory = tempfile::tempdir().unwrap();
        let storage = Arc::new(Storage::default());
        let volume = Volume::new(storage.clone(), directory.path().to_owned(), 64).unwrap();
        (volume, storage, directory)
    }

    fn wait(what: impl Fn() -> bool) {
        let until = Instant::now() + Duration::from_secs(10);
        while !what() {
            assert!(Instant::now() < until, "it did not come");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    #[test]
    fn pages_of_catalogs_are_noted_and_those_of_users_are_not_nor_those_that_come_later() {
        let (volume, _, _directory) = volume();
        let page = BLCKSZ as u64;
        let read = |path: &str, block: u64, blocks: u64| {
            let node = volume.find(path).unwrap();
            volume.read(&node, block * page, blocks * page).unwrap();
        };
        read("base/5/1259", 3, 2);
        read("base/5/1259", 3, 1);
        read("base/5/16384", 0, 1);
        let noted = vec![(rel(1259), 3), (rel(1259), 4)];
        assert_eq!(volume.first_reads().pages(), noted);
        volume.first_reads().end();
        read("base/5/1259", 9, 1);
        assert_eq!(volume.first_reads().pages(), noted);
    }

    #[test]
    fn no_more_than_a_bounded_number_is_noted() {
        let (volume, _, _directory) = volume();
        let node = volume.find("base/5/1259").unwrap();
        let reads = volume.first_reads();
        reads.note(&node, 0, (2 * MOST * BLCKSZ) as u64);
        assert_eq!(reads.pages().len(), MOST);
        reads.note(&node, (4 * MOST * BLCKSZ) as u64, 1);
        assert_eq!(reads.pages().len(), MOST);
    }

    #[test]
    fn what_is_brought_is_here_when_it_is_read_and_what_is_not_there_is_passed_over() {
        let (volume, storage, _directory) = volume();
        let gone = RelTag {
            db: 77,
            ..rel(1259)
        };
        let elsewhere = RelTag {
            spc: 4000,
            ..rel(1259)
        };
        let wanted = [
            (rel(1259), 2),
            (rel(1259), 7),
            (rel(1259), 4_000_000_000),
            (rel(9999), 0),
            (gone, 0),
            (elsewhere, 0),
        ];
        volume.bring(wanted);
        let node = volume.find("base/5/1259").unwrap();
        let page = BLCKSZ as u64;
        let is_here = |block: u64| node.file().unwrap().is_local(block * page, page);
        wait(|| is_here(2) && is_here(7));
        assert!(!is_here(3));
        assert_eq!(*storage.asked.lock(), [(1259, vec![2, 7])]);
        let read = volume.read(&node, 7 * page, page).unwrap();
        assert!(read.iter().all(|byte| *byte == 1259u32 as u8));
        assert_eq!(storage.asked.lock().len(), 1);
    }

    #[test]
    fn nothing_is_brought_where_nothing_is_to_be_read_ahead() {
        let (volume, storage, _directory) = volume();
        volume.set_read_ahead(0);
        volume.bring([(rel(1259), 2)]);
        std::thread::sleep(Duration::from_millis(50));
        assert!(storage.asked.lock().is_empty());
    }

    #[test]
    fn a_page_that_is_written_before_it_comes_stays_as_it_was_written() {
        let (volume, _, _directory) = volume();
        let node = volume.find("base/5/1259").unwrap();
        volume.write(&node, 0, &[7; BLCKSZ]).unwrap();
        volume.bring([(rel(1259), 0), (rel(1259), 1)]);
        let page = BLCKSZ as u64;
        wait(|| node.file().unwrap().is_local(page, page));
        let read = volume.read(&node, 0, page).unwrap();
        assert_eq!(read, [7; BLCKSZ]);
    }
}
