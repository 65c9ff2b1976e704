//! The read path: from memory layers and layer files to the chain that makes one page, or the newest
//! values of a range of keys.
//!
//! Invariant: the answer depends only on the set of versions, never on which layer holds them
//! (invariant 1 of the crate). Layers are visited newest first only to be able to stop early: once a
//! version that starts the chain is known, a layer whose newest LSN is older cannot matter.
//!
//! A branch reads on in its ancestor: [`ChainCollector::descend`] and [`RangeScan::descend`] continue the
//! same read below the branch point. Of two versions with the same `(lsn, seq)` the first met counts, so
//! what a branch writes at exactly its branch LSN hides the ancestor's version there.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::Bytes;
use pg_types::{Key, KeyRange, Lsn};

use crate::error::LayerError;
use crate::map::LayerMap;
use crate::memory::MemoryLayer;
use crate::value::{LsnRange, Value, Version, Window};
use crate::versions::{PersistentLayer, VersionSource};

/// One timeline's own versions: its memory layers in any order (newest first is quickest), and its layer files.
pub struct View<'a, L> {
    /// The open layer, and the frozen ones that are in no file yet.
    pub memory: &'a [Arc<MemoryLayer>],
    /// Layer files, as of the moment the read began.
    pub map: &'a LayerMap<L>,
}

/// Where a chain starts, if not with a delta.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Base {
    /// A complete page.
    Image(Bytes),
    /// A page of zeroes.
    Zero,
    /// A complete metadata value.
    Meta(Bytes),
    /// The key does not exist.
    Tombstone,
}

/// One step of a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChainDelta {
    /// LSN of the version that the step makes.
    pub lsn: Lsn,
    /// The step, in an encoding that only the caller's redo knows.
    pub bytes: Bytes,
    /// Initialises the page; only ever true of the first delta of a chain.
    pub starts_chain: bool,
}

/// What a read of one key found: a base and the deltas above it, oldest first.
///
/// Without a base and without a first delta that starts the chain, the chain goes on below the window:
/// in the ancestor, if there is one ([`Chain::is_complete`]).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chain {
    /// The LSN of the start, and the start; `None` where a delta starts the chain, or where its start was not found.
    pub base: Option<(Lsn, Base)>,
    /// The steps above the base, oldest first.
    pub deltas: Vec<ChainDelta>,
}

impl Chain {
    /// Nothing older is needed to make the value.
    pub fn is_complete(&self) -> bool {
        self.base.is_some() || self.deltas.first().is_some_and(|delta| delta.starts_chain)
    }

    /// No version at all is visible.
    pub fn is_empty(&self) -> bool {
        self.base.is_none() && self.deltas.is_empty()
    }

    /// LSN of the newest version.
    pub fn lsn(&self) -> Option<Lsn> {
        self.deltas
            .last()
            .map(|delta| delta.lsn)
            .or(self.base.as_ref().map(|(lsn, _)| *lsn))
    }

    /// The metadata value; `None` when there is none or a tombstone.
    pub fn meta(&self) -> Option<&Bytes> {
        match &self.base {
            Some((_, Base::Meta(bytes))) => Some(bytes),
            _ => None,
        }
    }
}

/// A read of one key that can go on through ancestors.
///
/// ```ignore
/// let mut read = ChainCollector::new(key, Window { floor, upto: lsn });
/// read.visit(&timeline.view())?;
/// while !read.is_complete() {
///     let Some((ancestor, branch_lsn)) = timeline.ancestor() else { break };
///     if !read.descend(branch_lsn) { break }
///     read.visit(&ancestor.view())?;
/// }
/// let chain = read.finish();
/// ```
pub struct ChainCollector {
    key: Key,
    window: Window,
    found: Vec<Version>,
    /// The newest version known to start the chain.
    start: Option<(Lsn, u16)>,
    files_visited: u32,
}

impl ChainCollector {
    /// A read of the versions of `key` in the window, which has found nothing yet.
    pub fn new(key: Key, window: Window) -> ChainCollector {
        ChainCollector {
            key,
            window,
            found: Vec::new(),
            start: None,
            files_visited: 0,
        }
    }

    /// Gathers from one timeline. On an error (a layer that is not resident, say) the read is left as it
    /// was before or with some versions more: repeating the visit is right.
    pub fn visit<L: PersistentLayer>(&mut self, view: &View<'_, L>) -> Result<(), LayerError> {
        for layer in view.memory {
            self.visit_source(&**layer)?;
        }
        for layer in view.map.candidates(&self.key, self.wanted()) {
            if self
                .start
                .is_some_and(|(lsn, _)| layer.desc().lsns.last < lsn)
            {
                break;
            }
            let source = layer.open()?;
            self.files_visited += 1;
            self.visit_source(&*source)?;
        }
        Ok(())
    }

    /// Gathers from one source.
    pub fn visit_source(&mut self, source: &dyn VersionSource) -> Result<(), LayerError> {
        let (key, wanted) = (self.key, self.wanted());
        source.newest_first(&key, wanted, &mut |version| self.take(version))
    }

    /// Takes a version; breaks when nothing older in the same source matters.
    pub(crate) fn take(&mut self, version: Version) -> ControlFlow<()> {
        let order = version.order();
        let starts = version.value.starts_chain();
        self.found.push(version);
        if starts {
            self.start = self.start.max(Some(order));
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }

    pub(crate) fn key(&self) -> Key {
        self.key
    }

    /// Whether a layer with these LSNs can hold anything that is still missing.
    pub(crate) fn wants(&self, lsns: &LsnRange) -> bool {
        let is_hidden = self.start.is_some_and(|(lsn, _)| lsns.last < lsn);
        !is_hidden && !self.window.is_empty() && self.window.overlaps(lsns)
    }

    /// The window without what the known start of the chain hides.
    pub(crate) fn wanted(&self) -> Window {
        let below_start = self
            .start
            .map_or(Lsn::INVALID, |(lsn, _)| Lsn(lsn.0.saturating_sub(1)));
        Window {
            floor: self.window.floor.max(below_start),
            upto: self.window.upto,
        }
    }

    /// Whether a version that starts the chain was found, so that no ancestor has to be visited.
    pub fn is_complete(&self) -> bool {
        self.start.is_some()
    }

    /// Lowers the window to an ancestor's branch LSN. False when nothing can be visible there: the read is
    /// complete, or the floor is at or above the branch point.
    pub fn descend(&mut self, branch_lsn: Lsn) -> bool {
        self.window.upto = self.window.upto.min(branch_lsn);
        !self.is_complete() && !self.window.is_empty()
    }

    /// Layer files looked into so far.
    pub fn files_visited(&self) -> u32 {
        self.files_visited
    }

    /// The chain of what was found. A version that was met twice counts once, and what the start hides is left out.
    pub fn finish(mut self) -> Chain {
        // Stable: of equal versions the first met stays.
        self.found.sort_by_key(|version| version.order());
        self.found.dedup_by_key(|version| version.order());
        let start = self.start.map_or(0, |start| {
            self.found
                .partition_point(|version| version.order() < start)
        });
        let mut chain = Chain::default();
        for version in self.found.drain(start..) {
            match version.value {
                Value::Delta {
                    bytes,
                    starts_chain,
                } => {
                    chain.deltas.push(ChainDelta {
                        lsn: version.lsn,
                        bytes,
                        starts_chain,
                    });
                }
                Value::Image(bytes) => chain.base = Some((version.lsn, Base::Image(bytes))),
                Value::Zero => chain.base = Some((version.lsn, Base::Zero)),
                Value::Meta(bytes) => chain.base = Some((version.lsn, Base::Meta(bytes))),
                Value::Tombstone => chain.base = Some((version.lsn, Base::Tombstone)),
            }
        }
        chain
    }
}

/// Reads one key from one timeline: [`ChainCollector`] without ancestors.
pub fn collect<L: PersistentLayer>(
    view: &View<'_, L>,
    key: Key,
    window: Window,
) -> Result<Chain, LayerError> {
    let mut read = ChainCollector::new(key, window);
    read.visit(view)?;
    Ok(read.finish())
}

/// A scan for the newest value of every key of a range, which can go on through ancestors.
pub struct RangeScan {
    keys: KeyRange,
    window: Window,
    found: BTreeMap<Key, Version>,
}

impl RangeScan {
    /// A scan of these keys as of `lsn`, which has found nothing yet.
    pub fn new(keys: KeyRange, lsn: Lsn) -> RangeScan {
        RangeScan {
            keys,
            window: Window::upto(lsn),
            found: BTreeMap::new(),
        }
    }

    /// Gathers from one timeline. After an error, start a new scan.
    pub fn visit<L: PersistentLayer>(&mut self, view: &View<'_, L>) -> Result<(), LayerError> {
        for layer in view.memory {
            self.visit_source(&**layer)?;
        }
        for layer in view.map.overlapping(&self.keys, self.window) {
            self.visit_source(&*layer.open()?)?;
        }
        Ok(())
    }

    /// Gathers from one source. After an error, start a new scan.
    pub fn visit_source(&mut self, source: &dyn VersionSource) -> Result<(), LayerError> {
        let found = &mut self.found;
        source.scan_newest(&self.keys, self.window, &mut |key, version| {
            match found.entry(key) {
                std::collections::btree_map::Entry::Vacant(slot) => {
                    slot.insert(version);
                }
                std::collections::btree_map::Entry::Occupied(mut slot) => {
                    if slot.get().order() < version.order() {
                        slot.insert(version);
                    }
                }
            }
            ControlFlow::Continue(())
        })
    }

    /// Lowers the window to an ancestor's branch LSN.
    pub fn descend(&mut self, branch_lsn: Lsn) {
        self.window.upto = self.window.upto.min(branch_lsn);
    }

    /// Keys that exist, with their newest value, in key order.
    pub fn finish(self) -> impl Iterator<Item = (Key, Lsn, Value)> {
        let exists = |(key, version): (Key, Version)| {
            (version.value != Value::Tombstone).then_some((key, version.lsn, version.value))
        };
        self.found.into_iter().filter_map(exists)
    }
}

/// All versions of one key inside the window, oldest first, whether hidden by a newer start or not.
/// The caller bounds the window: the result is as large as the history.
pub fn history<L: PersistentLayer>(
    view: &View<'_, L>,
    key: Key,
    window: Window,
) -> Result<Vec<Version>, LayerError> {
    let mut found = Vec::new();
    let mut gather = |source: &dyn VersionSource| {
        source.newest_first(&key, window, &mut |version| {
            found.push(version);
            ControlFlow::Continue(())
        })
    };
    view.memory.iter().try_for_each(|layer| gather(&**layer))?;
    view.map
        .candidates(&key, window)
        .into_iter()
        .try_for_each(|layer| gather(&*layer.open()?))?;
    found.sort_by_key(Version::order);
    found.dedup_by_key(|version| version.order());
    Ok(found)
}

/// The newest LSN at or before `upto` at which any key of this timeline changed: a record boundary.
/// Cheap unless `upto` falls inside a layer file's LSN range; that file is then read whole.
pub fn newest_lsn<L: PersistentLayer>(
    view: &View<'_, L>,
    upto: Lsn,
) -> Result<Option<Lsn>, LayerError> {
    let mut newest = view
        .memory
        .iter()
        .filter_map(|layer| layer.newest_lsn(upto))
        .max();
    let all = KeyRange {
        first: Key::min_of(pg_types::KeyKind::ALL[0]),
        last: Key::max_of(pg_types::KeyKind::ALL[pg_types::KeyKind::ALL.len() - 1]),
    };
    for layer in view.map.overlapping(&all, Window::upto(upto)) {
        let lsns = layer.desc().lsns;
        if lsns.last <= upto {
            newest = newest.max(Some(lsns.last));
        } else {
            layer.open()?.scan(
                &all,
                Window {
                    floor: newest.unwrap_or_default(),
                    upto,
                },
                &mut |_, version| {
                    newest = newest.max(Some(version.lsn));
                    ControlFlow::Continue(())
                },
            )?;
        }
    }
    Ok(newest)
}
