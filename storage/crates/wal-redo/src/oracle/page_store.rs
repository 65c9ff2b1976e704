//! The pages of a whole cluster, in memory, as the oracle has redone them.

use std::collections::BTreeMap;

use bytes::Bytes;
use pg_types::slru::{segment_of, truncation_removes};
use pg_types::{BLCKSZ, ForkNumber, Key, KeyKind, RelTag, SlruKind};
use wal_decode::MetaChange;

use crate::Page;

/// A file that is kept whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SmallFile {
    /// `pg_filenode.map` of this tablespace and database.
    RelMap {
        /// The tablespace's oid; the global one's for the map of shared relations.
        spc: u32,
        /// The database's oid, 0 for the map of shared relations.
        db: u32,
    },
    /// State of the prepared transaction.
    TwoPhase {
        /// The transaction's id, without its epoch.
        xid: u32,
    },
}

#[derive(Default)]
pub(super) struct PageStore {
    pages: BTreeMap<Key, Box<Page>>,
    small: BTreeMap<SmallFile, Bytes>,
}

impl PageStore {
    pub(super) fn get(&self, key: Key) -> Option<&Page> {
        self.pages.get(&key).map(|page| &**page)
    }

    pub(super) fn get_mut(&mut self, key: Key) -> Option<&mut Page> {
        self.pages.get_mut(&key).map(|page| &mut **page)
    }

    pub(super) fn put(&mut self, key: Key, page: Page) {
        match self.pages.get_mut(&key) {
            Some(slot) => **slot = page,
            None => {
                self.pages.insert(key, Box::new(page));
            }
        }
    }

    pub(super) fn remove(&mut self, key: Key) {
        self.pages.remove(&key);
    }

    pub(super) fn small_file(&self, file: SmallFile) -> Option<&[u8]> {
        self.small.get(&file).map(|content| &content[..])
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = Key> + '_ {
        self.pages.keys().copied()
    }

    fn remove_range(&mut self, from: Key, to: Key) {
        let gone: Vec<Key> = self.pages.range(from..=to).map(|(key, _)| *key).collect();
        for key in gone {
            self.pages.remove(&key);
        }
    }

    /// What records do to whole relations, databases and SLRU segments, as far as pages go.
    pub(super) fn apply_meta(&mut self, change: &MetaChange) {
        match change {
            MetaChange::CreateRel(rel) => self.cut(*rel, 0),
            MetaChange::TruncateRel { rel, blocks } => self.cut(*rel, *blocks),
            MetaChange::DropRels(rels) => {
                for rel in rels {
                    for fork in ForkNumber::ALL {
                        self.cut(rel.with_fork(fork), 0);
                    }
                }
            }
            MetaChange::CopyDatabase { source, target } => {
                let (from, to) = database(*source);
                let copies: Vec<_> = self
                    .pages
                    .range(from..=to)
                    .map(|(key, page)| {
                        let key = Key {
                            a: target.0,
                            b: target.1,
                            ..*key
                        };
                        (key, page.clone())
                    })
                    .collect();
                self.pages.extend(copies);
            }
            MetaChange::CreateDatabase { spc, db } | MetaChange::DropDatabase { spc, db } => {
                let (from, to) = database((*spc, *db));
                self.remove_range(from, to);
            }
            // A directory; what lies in it comes and goes with relations and databases.
            MetaChange::CreateTablespace { .. } | MetaChange::DropTablespace { .. } => {}
            MetaChange::SlruExtend { kind, pageno } => {
                self.put(Key::slru_block(*kind, *pageno), [0; BLCKSZ]);
            }
            MetaChange::SlruTruncate { kind, cutoff_page } => {
                self.remove_segments(*kind, |segment| {
                    truncation_removes(*kind, segment, *cutoff_page)
                });
            }
            MetaChange::SlruDropSegments { kind, first, last } => {
                self.remove_segments(*kind, |segment| (*first..=*last).contains(&segment));
            }
            MetaChange::RelMap { spc, db, content } => {
                let file = SmallFile::RelMap { spc: *spc, db: *db };
                self.small.insert(file, content.clone());
            }
            MetaChange::TwoPhaseCreate { xid, content } => {
                let file = SmallFile::TwoPhase { xid: *xid };
                self.small.insert(file, content.clone());
            }
            MetaChange::TwoPhaseRemove { xid } => {
                self.small.remove(&SmallFile::TwoPhase { xid: *xid });
            }
        }
    }

    fn cut(&mut self, rel: RelTag, blocks: u32) {
        self.remove_range(Key::rel_block(rel, blocks), Key::rel_block(rel, u32::MAX));
    }

    fn remove_segments(&mut self, kind: SlruKind, gone: impl Fn(u32) -> bool) {
        self.pages.retain(|key, _| {
            key.kind != KeyKind::SlruBlock || key.slru() != Some(kind) || !gone(segment_of(key.e))
        });
    }
}

/// First and last possible page of a database in one tablespace.
fn database((spc, db): (u32, u32)) -> (Key, Key) {
    let rel = |rel, fork| RelTag { spc, db, rel, fork };
    (
        Key::rel_block(rel(0, ForkNumber::Main), 0),
        Key::rel_block(rel(u32::MAX, ForkNumber::Init), u32::MAX),
    )
}
