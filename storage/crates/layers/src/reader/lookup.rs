//! Finding versions in a layer file: by key, by keys, by range.

use std::ops::ControlFlow;

use bytes::Bytes;
use pg_types::{Key, KeyRange, Lsn};

use super::LayerReader;
use crate::error::LayerError;
use crate::source::BlockSource;
use crate::value::{LsnRange, Value, Version, Window};
use crate::versions::VersionSource;

impl<S: BlockSource> LayerReader<S> {
    /// Number of blocks whose first version is at or before `(key, lsn)`.
    fn blocks_up_to(&self, key: &Key, lsn: Lsn) -> Result<usize, LayerError> {
        let (mut low, mut high) = (0, self.block_count());
        while low < high {
            let middle = low + (high - low) / 2;
            let entry = self.index_entry(middle)?;
            if (entry.key, entry.lsn) <= (*key, lsn) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }

    fn may_hold(&self, keys: &KeyRange, window: Window) -> bool {
        let visible = !window.is_empty() && window.overlaps(&self.footer.lsns);
        visible && self.footer.keys.overlaps(keys)
    }

    fn may_hold_key(&self, key: &Key, window: Window) -> bool {
        !window.is_empty() && window.overlaps(&self.footer.lsns) && self.may_contain(key)
    }

    /// The versions of one key in the blocks before number `end`, newest first.
    fn newest_first_below(
        &self,
        end: usize,
        key: &Key,
        window: Window,
        visit: &mut dyn FnMut(Version) -> ControlFlow<()>,
    ) -> Result<(), LayerError> {
        let mut number = end;
        while number > 0 {
            number -= 1;
            let entry = self.index_entry(number)?;
            let flow = self
                .block(number, &entry)?
                .newest_first(key, window, &mut |version| visit(detached(version)))
                .map_err(self.corrupt_block(number))?;
            if flow.is_break() {
                break;
            }
            // Older versions lie in the block before only if this one starts inside the key's versions.
            if entry.key != *key || entry.lsn <= window.floor {
                break;
            }
        }
        Ok(())
    }

    /// `newest_first_below` of several keys, `here` their places in `keys`, that all have their newest version in the
    /// block before number `end`.
    fn newest_first_in(
        &self,
        end: usize,
        keys: &[(Key, Window)],
        here: &[usize],
        visit: &mut dyn FnMut(usize, Version) -> ControlFlow<()>,
    ) -> Result<(), LayerError> {
        let (Some((first, others)), Some(number)) = (here.split_first(), end.checked_sub(1)) else {
            return Ok(());
        };
        // Only the first can have older versions in blocks before.
        let (key, window) = &keys[*first];
        self.newest_first_below(end, key, *window, &mut |version| visit(*first, version))?;
        let Some(last) = others.last().map(|at| &keys[*at]) else {
            return Ok(());
        };
        let entry = self.index_entry(number)?;
        let mut found: Vec<(usize, Version)> = Vec::new();
        // The key the walk has come to, as a place in `others`.
        let at = std::cell::Cell::new(0);
        let wanted = |key: &Key, lsn: Lsn| {
            if (key, lsn) > (&last.0, last.1.upto) {
                return ControlFlow::Break(());
            }
            while others.get(at.get()).is_some_and(|at| keys[*at].0 < *key) {
                at.set(at.get() + 1);
            }
            let is_wanted =
                |(wanted, window): &(Key, Window)| wanted == key && window.contains(lsn);
            ControlFlow::Continue(others.get(at.get()).is_some_and(|at| is_wanted(&keys[*at])))
        };
        let behind = (&keys[others[0]].0, keys[others[0]].1.floor);
        let _ = self.walk(number, &entry, Some(behind), wanted, |_, version| {
            found.push((others[at.get()], version));
            ControlFlow::Continue(())
        })?;
        let mut ended = None;
        for (place, version) in found.into_iter().rev() {
            if ended != Some(place) && visit(place, detached(version)).is_break() {
                ended = Some(place);
            }
        }
        Ok(())
    }
}

/// Copies metadata out of its block: it is kept for later reads, and must not pin a whole block. A page's deltas are
/// gone once they are applied.
fn detached(mut version: Version) -> Version {
    if let Value::Meta(bytes) = &mut version.value {
        *bytes = Bytes::copy_from_slice(bytes);
    }
    version
}

impl<S: BlockSource> VersionSource for LayerReader<S> {
    fn lsns(&self) -> Option<LsnRange> {
        Some(self.footer.lsns)
    }

    fn newest_first(
        &self,
        key: &Key,
        window: Window,
        visit: &mut dyn FnMut(Version) -> ControlFlow<()>,
    ) -> Result<(), LayerError> {
        if !self.may_hold_key(key, window) {
            return Ok(());
        }
        let number = self.blocks_up_to(key, window.upto)?;
        self.newest_first_below(number, key, window, visit)
    }

    /// Neighbours share blocks: each block is fetched and walked once for all the keys whose newest version it holds.
    fn newest_first_of(
        &self,
        keys: &[(Key, Window)],
        visit: &mut dyn FnMut(usize, Version) -> ControlFlow<()>,
    ) -> Result<(), LayerError> {
        let mut here: Vec<usize> = Vec::new();
        let mut block = 0;
        for (at, (key, window)) in keys.iter().enumerate() {
            if !self.may_hold_key(key, *window) {
                continue;
            }
            let number = self.blocks_up_to(key, window.upto)?;
            if number != block {
                self.newest_first_in(block, keys, &here, visit)?;
                here.clear();
                block = number;
            }
            here.push(at);
        }
        self.newest_first_in(block, keys, &here, visit)
    }

    fn scan(
        &self,
        keys: &KeyRange,
        window: Window,
        visit: &mut dyn FnMut(Key, Version) -> ControlFlow<()>,
    ) -> Result<(), LayerError> {
        if !self.may_hold(keys, window) {
            return Ok(());
        }
        let first = self
            .blocks_up_to(&keys.first, Lsn::INVALID)?
            .saturating_sub(1);
        for number in first..self.block_count() {
            let entry = self.index_entry(number)?;
            if entry.key > keys.last {
                break;
            }
            let emit = |key, version| visit(key, detached(version));
            let behind = (number == first).then_some((&keys.first, Lsn::INVALID));
            if self
                .walk(number, &entry, behind, wanted_of(keys, window), emit)?
                .is_break()
            {
                break;
            }
        }
        Ok(())
    }

    fn scan_newest(
        &self,
        keys: &KeyRange,
        window: Window,
        visit: &mut dyn FnMut(Key, Version) -> ControlFlow<()>,
    ) -> Result<(), LayerError> {
        if !self.may_hold(keys, window) {
            return Ok(());
        }
        let mut held: Option<(Key, Version)> = None;
        let first = self
            .blocks_up_to(&keys.first, Lsn::INVALID)?
            .saturating_sub(1);
        for number in first..self.block_count() {
            let entry = self.index_entry(number)?;
            if entry.key > keys.last {
                break;
            }
            // A key with a long history fills whole blocks: those before the last visible one hold nothing.
            if number + 1 < self.block_count() {
                let next = self.index_entry(number + 1)?;
                if next.key == entry.key && next.lsn <= window.upto {
                    continue;
                }
            }
            let mut stopped = false;
            let walked = self.walk(
                number,
                &entry,
                None,
                wanted_of(keys, window),
                |key, version| match held.replace((key, version)) {
                    Some((older, version)) if older != key => {
                        let flow = visit(older, detached(version));
                        stopped = flow.is_break();
                        flow
                    }
                    _ => ControlFlow::Continue(()),
                },
            )?;
            if stopped {
                return Ok(());
            }
            if walked.is_break() {
                break;
            }
        }
        if let Some((key, version)) = held {
            let _ = visit(key, detached(version));
        }
        Ok(())
    }
}

/// What a scan takes of a block: it ends behind the range.
fn wanted_of(keys: &KeyRange, window: Window) -> impl Fn(&Key, Lsn) -> ControlFlow<(), bool> {
    move |key, lsn| {
        if *key > keys.last {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(*key >= keys.first && window.contains(lsn))
    }
}
