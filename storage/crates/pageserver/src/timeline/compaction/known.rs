//! What a merge is told of all that lies beside its inputs: truncations, and which entries of relations that are gone
//! hide nothing any more.
//!
//! A relation fork that is dropped leaves two small entries: a tombstone at its size, and a floor, which has one event for
//! the drop. A truncated fork has a floor as well, and so do a dropped database, a prepared transaction that has ended,
//! and a segment of an SLRU that was removed have tombstones. Without more, a timeline would keep all of them for ever.
//!
//! Invariant: an entry goes only when it hides nothing.
//! - A tombstone hides the older versions of its key. It goes once the timeline and its ancestors have none.
//! - A floor hides versions of pages. It goes once the timeline and its ancestors have none that it hides.
//!
//! So no read at any LSN finds anything else without the entry, and neither does ingest when the relation's number is used
//! again or a late record is about it. What must stay readable needs no regard of its own: where a branch point, a
//! lease, the start of a compute or the history window keeps an older version, the entry stays with it.
//!
//! The other half of the invariant is that nothing which was hidden comes back:
//! - *Ingest* puts versions behind the last record only, also after a crash, and an entry goes only at or before the
//!   horizon, up to which the stored index has everything.
//! - *An image* that is made of a page as it was before the entry may be put afterwards: entries behind the record as of
//!   which images are being made stay (`Images::oldest_in_making`). Images that are begun later see the entry's effect.
//! - *A crash* brings back layers that the stored index names. A map without the inputs of a merge is not seen by anybody
//!   before their removal is queued for the index, and changes of the index are stored in their order
//!   (`VersionStore::replace_files`). What goes because the inputs are gone is therefore never stored without that. A
//!   crash may leave outputs beside inputs: then the inputs have entries and hidden versions alike.
//! - *A merge that fails* takes its outputs out of the index again, because the index would bring them back
//!   (`Compaction::merge`).
//! - *A detach* copies layers of its ancestors as they were at one moment. From before that until the branch reads its
//!   copies, no entry of the ancestors or of the branch goes (`Compaction::hold_entries`).
//! - *A kept value* from before the entry is not carried over it (`VersionStore::gone_upto`).
//!
//! Right before a merge takes effect all this is checked again, against the layers of that moment, in release builds
//! too. A merge that has let an entry go which hides something fails, and nothing of it is used.
//!
//! The newest entry at or before the horizon may be all that tells that a record ends there: entries behind the newest
//! state before the horizon stay (`Timeline::boundary`). An entry also stays where
//! a layer that has to be asked is not on the local disk; a later merge asks again.

use std::collections::HashSet;
use std::sync::Arc;

use anyhow::{Context, ensure};
use layers::{Facts, LayerError, Value, Version};
use pg_types::{Key, KeyKind, KeyRange, Lsn, RelTag};
use tokio::runtime::Handle;

use crate::floor::RelFloor;
use crate::metrics::ENTRIES;
use crate::timeline::reads::decode_floor;
use crate::version_store::{Beside, VersionStore};

/// Entries that one merge lets go at most, so that what is remembered of them until it takes effect stays small.
const MOST_DROPPED: usize = 1 << 17;

/// What a merge is told. Pages come in order, so that one relation's truncations are read once.
pub(super) struct Known {
    store: Arc<VersionStore>,
    horizon: Lsn,
    runtime: Handle,
    floor: Option<(RelTag, RelFloor)>,
    entries: Option<Entries>,
}

/// Decides which entries go.
pub(super) struct Entries {
    beside: Beside,
    /// Later ones stay.
    upto: Lsn,
    /// Forks of which the merge leaves a version of a page that is hidden as of the horizon.
    hidden: HashSet<RelTag>,
    dropped: Vec<Entry>,
}

/// An entry that a merge has left out.
struct Entry {
    key: Key,
    lsn: Lsn,
    /// `None` of a tombstone.
    floor: Option<RelFloor>,
}

/// The entries that a merge has left out.
#[derive(Default)]
pub(super) struct Dropped(Vec<Entry>);

impl Entries {
    /// Of a merge that leaves everything of later LSNs than `upto`, and which sees `beside` beside its inputs.
    pub(super) fn new(beside: Beside, upto: Lsn) -> Entries {
        Entries {
            beside,
            upto,
            hidden: HashSet::new(),
            dropped: Vec::new(),
        }
    }

    /// The entry, if the version is one that hides nothing; `None` of every other version.
    fn needless(&self, key: &Key, version: &Version) -> anyhow::Result<Option<Entry>> {
        if version.lsn > self.upto || self.dropped.len() >= MOST_DROPPED {
            return Ok(None);
        }
        let floor = match &version.value {
            Value::Tombstone => None,
            Value::Meta(value) if key.kind == KeyKind::RelFloor => Some(decode_floor(Some(value))?),
            _ => return Ok(None),
        };
        if floor.is_some() && key.rel().is_none_or(|rel| self.hidden.contains(&rel)) {
            return Ok(None);
        }
        let entry = Entry {
            key: *key,
            lsn: version.lsn,
            floor,
        };
        // What can't be told now stays: layers are not fetched while others wait for their turn to merge.
        let is_needless = entry.hides_nothing(&self.beside).unwrap_or(false);
        Ok(is_needless.then_some(entry))
    }
}

impl Entry {
    fn hides_nothing(&self, beside: &Beside) -> Result<bool, LayerError> {
        let Some(floor) = &self.floor else {
            return beside.lacks(&self.key, self.lsn);
        };
        let (Some(rel), Some(first)) = (self.key.rel(), floor.first_block()) else {
            return Ok(true);
        };
        let blocks = KeyRange {
            first: Key::rel_block(rel, first),
            ..KeyRange::rel_blocks(rel)
        };
        beside.has_none(&blocks, floor.newest(), |key, lsn| {
            lsn <= floor.of_block(key.e)
        })
    }
}

impl Dropped {
    /// The LSN of the newest one, [`Lsn::INVALID`] without any.
    pub(super) fn newest(&self) -> Lsn {
        self.0
            .iter()
            .map(|entry| entry.lsn)
            .max()
            .unwrap_or_default()
    }

    /// Of tombstones and of floors, how many.
    pub(super) fn counts(&self) -> [(&'static str, usize); 2] {
        let floors = self.0.iter().filter(|entry| entry.floor.is_some()).count();
        let [tombstone, floor] = ENTRIES;
        [(tombstone, self.0.len() - floors), (floor, floors)]
    }

    /// Fails when one of them hides something of what lies beside the merge's inputs by now.
    pub(super) fn check(&self, beside: &Beside) -> anyhow::Result<()> {
        for entry in &self.0 {
            // A layer that was evicted meanwhile was asked before.
            let hides_nothing = entry.hides_nothing(beside).unwrap_or(true);
            ensure!(
                hides_nothing,
                "the entry at {} of {} was taken for needless, and hides an older version by now. The merge is given up \
                 and nothing is lost; please report this",
                entry.lsn,
                entry.key
            );
        }
        Ok(())
    }
}

impl Known {
    /// For a merge as of `horizon`; without `entries`, all of them stay.
    pub(super) fn new(store: Arc<VersionStore>, horizon: Lsn, entries: Option<Entries>) -> Known {
        Known {
            store,
            horizon,
            runtime: Handle::current(),
            floor: None,
            entries,
        }
    }

    /// What the merge has left out, once it is over.
    pub(super) fn dropped(self) -> Dropped {
        Dropped(self.entries.map(|it| it.dropped).unwrap_or_default())
    }
}

impl Facts<anyhow::Error> for Known {
    fn floor(&mut self, key: &Key) -> anyhow::Result<Lsn> {
        let Some(rel) = key.rel().filter(|_| key.is_page()) else {
            return Ok(Lsn::INVALID);
        };
        if self.floor.as_ref().is_none_or(|(known, _)| *known != rel) {
            let wanted = [(Key::rel_floor(rel), Lsn::INVALID)];
            let chains = self.store.chains(&wanted, self.horizon);
            let chains = self.runtime.block_on(chains)?;
            let chain = chains.first().context("one key was asked for")?;
            self.floor = Some((rel, decode_floor(chain.meta())?));
        }
        let known = self.floor.as_ref().map(|(_, floor)| floor.of_block(key.e));
        Ok(known.unwrap_or_default())
    }

    fn is_needless(&mut self, key: &Key, version: &Version) -> anyhow::Result<bool> {
        let Some(entries) = &mut self.entries else {
            return Ok(false);
        };
        let entry = entries.needless(key, version)?;
        let is_needless = entry.is_some();
        entries.dropped.extend(entry);
        Ok(is_needless)
    }

    fn leaves_hidden(&mut self, page: &Key) {
        if let Some(entries) = &mut self.entries {
            entries.hidden.extend(page.rel());
        }
    }
}
