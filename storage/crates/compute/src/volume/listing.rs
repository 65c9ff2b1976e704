//! What storage lists in a directory, and what a name there stands for.

use std::collections::HashMap;

use pg_types::{ForkNumber, RELSEG_BLOCKS, RelTag, SLRU_PAGES_PER_SEGMENT, SlruKind};

use super::names::{self, RelFile};
use super::origin::Origin;

/// What a directory's entries mean to storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirKind {
    /// Only what was made here.
    Plain,
    /// `base/`: a directory a database.
    Databases,
    /// `base/<db>/` or `global/`.
    Relations {
        /// Oid of the tablespace.
        spc: u32,
        /// Oid of the database, 0 for `global/`.
        db: u32,
    },
    /// An SLRU's directory: a file a segment.
    Slru(SlruKind),
}

impl DirKind {
    /// The kind of a directory named `name` made below one of this kind.
    pub fn of_child(self, name: &str) -> DirKind {
        match (self, names::canonical_number(name)) {
            (DirKind::Databases, Some(db)) => DirKind::Relations {
                spc: pg_types::rel::DEFAULT_TABLESPACE,
                db,
            },
            _ => DirKind::Plain,
        }
    }
}

/// What storage lists in a directory.
#[derive(Clone, Debug, Default)]
pub enum Listing {
    /// Storage has nothing there.
    #[default]
    Nothing,
    /// Oids of databases.
    Databases(Vec<u32>),
    /// By relfilenode and fork: whose blocks, and how many.
    Relations(HashMap<(u32, ForkNumber), (RelTag, u32)>),
    /// Pages by segment.
    Slru(HashMap<u32, u32>),
}

/// What a name stands for according to storage.
pub enum Stored {
    /// The directory of a database.
    Directory,
    /// A file of so many blocks, and where they come from.
    File { origin: Origin, blocks: u32 },
}

impl Listing {
    /// The relations of a database. An unlogged relation shows its init fork as main, as Postgres itself
    /// arranges it at the end of a recovery, and has no other fork.
    pub fn relations(rels: Vec<(RelTag, u32)>) -> Listing {
        let mut listing: HashMap<_, _> = rels
            .into_iter()
            .map(|(tag, blocks)| ((tag.rel, tag.fork), (tag, blocks)))
            .collect();
        let inits: Vec<(RelTag, u32)> = listing
            .values()
            .filter(|(tag, _)| tag.fork == ForkNumber::Init)
            .copied()
            .collect();
        for (init, blocks) in inits {
            listing.remove(&(init.rel, ForkNumber::Fsm));
            listing.remove(&(init.rel, ForkNumber::VisibilityMap));
            listing.insert((init.rel, ForkNumber::Main), (init, blocks));
        }
        Listing::Relations(listing)
    }

    /// What `name` stands for in a directory of this kind that storage lists so; `None` for no entry.
    pub fn find(&self, kind: DirKind, name: &str) -> Option<Stored> {
        match (self, kind) {
            (Listing::Databases(databases), _) => databases
                .contains(&names::canonical_number(name)?)
                .then_some(Stored::Directory),
            (Listing::Relations(rels), _) => {
                let file = RelFile::parse(name)?;
                let (rel, blocks) = *rels.get(&(file.rel, file.fork))?;
                let first_block = file.segment.checked_mul(RELSEG_BLOCKS)?;
                let exists = file.segment == 0 || blocks > first_block;
                exists.then(|| Stored::File {
                    origin: Origin::Relation { rel, first_block },
                    blocks: (blocks - first_block).min(RELSEG_BLOCKS),
                })
            }
            (Listing::Slru(segments), DirKind::Slru(kind)) => {
                let segment = names::parse_slru_segment(name)?;
                let pages = *segments.get(&segment)?;
                Some(Stored::File {
                    origin: Origin::Slru {
                        kind,
                        first_page: segment * SLRU_PAGES_PER_SEGMENT,
                    },
                    blocks: pages.min(SLRU_PAGES_PER_SEGMENT),
                })
            }
            _ => None,
        }
    }

    /// Every name, with whether it is a directory.
    pub fn names(&self) -> Vec<(String, bool)> {
        match self {
            Listing::Nothing => Vec::new(),
            Listing::Databases(databases) => {
                databases.iter().map(|db| (db.to_string(), true)).collect()
            }
            Listing::Relations(rels) => rels
                .iter()
                .flat_map(|(&(rel, fork), &(_, blocks))| {
                    let segments = blocks.div_ceil(RELSEG_BLOCKS).max(1);
                    (0..segments).map(move |segment| (RelFile { rel, fork, segment }.name(), false))
                })
                .collect(),
            Listing::Slru(segments) => segments
                .keys()
                .map(|segment| (names::slru_segment_name(*segment), false))
                .collect(),
        }
    }
}
