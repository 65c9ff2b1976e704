//! Layer files that replace others, and what a merge sees of all that it does not merge.
//!
//! Invariants:
//! - A map without the inputs of a merge is seen by nobody before the index has been told, so that nothing that was
//!   worked out from the new map is stored before the inputs are out of the stored index. A crash never brings back an
//!   input beside something that relies on its being gone.
//! - [`VersionStore::gone_upto`] says of an entry that was dropped, because it hid nothing any more, no later than the map
//!   does. A value that was kept from before the entry is not carried over it (`page_cache`).

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use blob::RemoteLayer;
use layers::{LayerError, LayerName, LsnRange, VersionSource, Window};
use pg_types::{Key, KeyRange, Lsn};

use super::{Snapshot, VersionStore};

/// Versions of a range that are looked at in one layer before the look is given up: those of a relation that was
/// dropped and is used again, say, or of one that was cut and has grown since.
const LOOKED_AT: usize = 256;

impl VersionStore {
    /// Puts the outputs of a merge in the place of its inputs, and calls `then`, in one step. `gone` is the LSN of the
    /// newest entry that the merge dropped because it hides nothing ([`Lsn::INVALID`]: none).
    pub fn replace_files<T>(
        &self,
        add: Vec<RemoteLayer>,
        remove: &[LayerName],
        gone: Lsn,
        then: impl FnOnce() -> T,
    ) -> T {
        let files = add
            .into_iter()
            .map(|layer| self.cache.file(layer))
            .collect();
        self.gone.fetch_max(gone.0, Ordering::AcqRel);
        let mut stack = self.stack.write();
        stack.map = Arc::new(stack.map.with(files, remove));
        then()
    }

    /// Adds files that hold all that is read of the ancestors, and reads there no more, in one step.
    pub fn leave_ancestors(&self, add: Vec<RemoteLayer>) {
        let files = add.into_iter().map(|layer| self.cache.file(layer));
        let files = files.collect();
        self.gone.fetch_max(self.gone_upto().0, Ordering::AcqRel);
        let mut stack = self.stack.write();
        stack.map = Arc::new(stack.map.with(files, &[]));
        stack.ancestor = None;
    }

    /// Entries that hid older versions may be missing up to here, because those versions are gone. What a read before
    /// this LSN found does not hold behind it merely because nothing newer is found.
    pub(crate) fn gone_upto(&self) -> Lsn {
        // First: a branch that leaves its ancestors takes over what they say.
        let ancestor = self.ancestor();
        let above = ancestor.map(|(store, branch_lsn)| store.gone_upto().min(branch_lsn));
        self.gone_here().max(above.unwrap_or_default())
    }

    /// The same without the ancestors.
    pub(crate) fn gone_here(&self) -> Lsn {
        Lsn(self.gone.load(Ordering::Acquire))
    }

    /// All that there is here as of now at or before `upto`, save what lies in these layer files of this timeline.
    pub(crate) fn beside(&self, inputs: HashSet<LayerName>, upto: Lsn) -> Beside {
        let mut window = Window::upto(upto);
        let mut lineage = self.snapshots();
        for (snapshot, read_upto) in &mut lineage {
            window.upto = window.upto.min(*read_upto);
            *read_upto = window.upto;
            // Nearly always all of it is later, and must not stay in memory for as long as a merge takes.
            let may_have = |lsns: LsnRange| window.overlaps(&lsns);
            snapshot
                .memory
                .retain(|layer| layer.lsns().is_some_and(may_have));
        }
        Beside { lineage, inputs }
    }
}

/// The versions of a timeline and its ancestors up to some LSN, as of one moment, save those in the inputs of a merge.
pub(crate) struct Beside {
    /// Each with the LSN up to which its versions count.
    lineage: Vec<(Snapshot, Lsn)>,
    inputs: HashSet<LayerName>,
}

impl Beside {
    /// Whether there is no version of the key at or before `upto`. Fails when a layer that may have one is not on the
    /// local disk, or can't be read.
    pub fn lacks(&self, key: &Key, upto: Lsn) -> Result<bool, LayerError> {
        let keys = KeyRange {
            first: *key,
            last: *key,
        };
        self.all(&keys, upto, |source, window| {
            let mut lacks = true;
            source.newest_first(key, window, &mut |_| {
                lacks = false;
                ControlFlow::Break(())
            })?;
            Ok(lacks)
        })
    }

    /// Whether there is no version of these keys at or before `upto` that is `wanted`; false, too, where that takes a
    /// look at very many versions. Fails as `lacks` does.
    pub fn has_none(
        &self,
        keys: &KeyRange,
        upto: Lsn,
        wanted: impl Fn(&Key, Lsn) -> bool,
    ) -> Result<bool, LayerError> {
        self.all(keys, upto, |source, window| {
            let (mut none, mut looked_at) = (true, 0);
            // All LSNs, so that versions behind the window count as looked at.
            source.scan(keys, Window::upto(Lsn::MAX), &mut |key, version| {
                looked_at += 1;
                let is_found = window.contains(version.lsn) && wanted(&key, version.lsn);
                none = !is_found && looked_at <= LOOKED_AT;
                match none {
                    true => ControlFlow::Continue(()),
                    false => ControlFlow::Break(()),
                }
            })?;
            Ok(none)
        })
    }

    /// Whether something holds of every layer that may have versions of these keys at or before `upto`.
    fn all(
        &self,
        keys: &KeyRange,
        upto: Lsn,
        holds: impl Fn(&dyn VersionSource, Window) -> Result<bool, LayerError>,
    ) -> Result<bool, LayerError> {
        for (depth, (snapshot, read_upto)) in self.lineage.iter().enumerate() {
            let window = Window::upto(upto.min(*read_upto));
            for layer in &snapshot.memory {
                let may_have = layer.lsns().is_some_and(|lsns| window.overlaps(&lsns));
                if may_have && !holds(&**layer, window)? {
                    return Ok(false);
                }
            }
            for file in snapshot.map.overlapping(keys, window) {
                let is_input = depth == 0 && self.inputs.contains(file.name());
                if !is_input && !holds(&*file.opened()?, window)? {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }
}
