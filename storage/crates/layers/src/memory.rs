//! The open layer: versions in memory, on their way to a level-0 delta layer.
//!
//! Invariants: versions of a key are kept in `(lsn, seq)` order; once frozen nothing changes. One writer
//! (ingest), plus image generation, and many readers at once; the lock inside is held for one lookup or
//! one batch of insertions. A reader that asks for LSNs up to the last ingested record never sees a record half put.
//!
//! Pages, nearly all there is, are found by hash and put in order only when the layer is written, or when somebody
//! scans them, which nothing does often; a tree of them would cost ingest more than everything else here. Metadata is
//! little, is scanned, and has a tree.
//!
//! A crash loses the layer; its content is ingested again from the WAL past the disk-consistent LSN.

use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;

use bytes::Bytes;
use foldhash::fast::RandomState;
use parking_lot::RwLock;
use pg_types::{Key, KeyRange, Lsn};
use smallvec::SmallVec;

use crate::desc::LayerDesc;
use crate::error::LayerError;
use crate::read::VersionSource;
use crate::value::{LsnRange, Value, Version, Window};
use crate::writer::{LayerWriter, WriterOptions};

/// What one version costs beside its payload: its slot, and its share of its key's.
const VERSION_OVERHEAD: u64 = 80;

type Versions = SmallVec<[Version; 1]>;

#[derive(Default)]
struct Inner {
    /// Each key's place in `entries`.
    pages: HashMap<Key, usize, RandomState>,
    metadata: BTreeMap<Key, usize>,
    entries: Vec<Versions>,
    lsns: Option<LsnRange>,
    versions: u64,
    bytes: u64,
    frozen: bool,
}

/// See the module head. Shared as `Arc<MemoryLayer>`; every method takes `&self`.
#[derive(Default)]
pub struct MemoryLayer {
    inner: RwLock<Inner>,
}

impl MemoryLayer {
    pub fn new() -> MemoryLayer {
        MemoryLayer::default()
    }

    /// Adds a value from the WAL; the bytes by which the layer grew. Several at one `(key, lsn)` keep the order in
    /// which they are put.
    pub fn put(&self, key: Key, lsn: Lsn, value: Value) -> Result<u64, LayerError> {
        self.inner.write().insert(key, lsn, value, None)
    }

    /// Adds all values of one record, or of several, under one lock; the bytes by which the layer grew.
    pub fn put_batch(
        &self,
        values: impl IntoIterator<Item = (Key, Lsn, Value)>,
    ) -> Result<u64, LayerError> {
        let mut inner = self.inner.write();
        let mut put = |(key, lsn, value)| inner.insert(key, lsn, value, None);
        values.into_iter().try_fold(0, |sum, it| Ok(sum + put(it)?))
    }

    /// Adds an image that the storage made from everything at or before `lsn`: it stands above all other
    /// versions at that LSN. `lsn` may be older than what is already here. The bytes by which the layer grew.
    pub fn put_image(&self, key: Key, lsn: Lsn, page: Bytes) -> Result<u64, LayerError> {
        self.inner
            .write()
            .insert(key, lsn, Value::Image(page), Some(Version::GENERATED))
    }

    /// From here on every put is refused. To be called between records.
    pub fn freeze(&self) {
        self.inner.write().frozen = true;
    }

    pub fn is_frozen(&self) -> bool {
        self.inner.read().frozen
    }

    /// Bytes of memory the layer holds, roughly; what a flush threshold should look at.
    pub fn bytes(&self) -> u64 {
        self.inner.read().bytes
    }

    /// Number of versions.
    pub fn versions(&self) -> u64 {
        self.inner.read().versions
    }

    pub fn is_empty(&self) -> bool {
        self.versions() == 0
    }

    /// Writes the layer out as a level-0 delta layer. Freeze it first.
    pub fn write_delta_layer(
        &self,
        options: &WriterOptions,
    ) -> Result<(LayerDesc, Bytes), LayerError> {
        let inner = self.inner.read();
        let mut writer = LayerWriter::delta(Vec::new(), 0, options.clone())?;
        for (key, versions) in inner.in_order(&KeyRange::all()) {
            for version in versions {
                writer.push(&key, version)?;
            }
        }
        let (desc, file) = writer.finish()?;
        Ok((desc, Bytes::from(file)))
    }

    /// Whether a version of the key lies in the window.
    pub fn has(&self, key: &Key, window: Window) -> bool {
        let inner = self.inner.read();
        !slice(inner.versions_of(key), window).is_empty()
    }

    /// The largest LSN at or before `upto` at which anything changed.
    pub fn newest_lsn(&self, upto: Lsn) -> Option<Lsn> {
        let inner = self.inner.read();
        match inner.lsns {
            Some(lsns) if lsns.last <= upto => Some(lsns.last),
            Some(lsns) if lsns.first <= upto => {
                let newest = |versions: &Versions| {
                    let end = versions.partition_point(|version| version.lsn <= upto);
                    end.checked_sub(1).map(|at| versions[at].lsn)
                };
                inner.entries.iter().filter_map(newest).max()
            }
            _ => None,
        }
    }
}

impl Inner {
    /// The key's versions, oldest first.
    #[inline]
    fn versions_of(&self, key: &Key) -> &[Version] {
        let place = match key.is_page() {
            true => self.pages.get(key),
            false => self.metadata.get(key),
        };
        place.map_or(&[], |place| &self.entries[*place])
    }

    /// The keys of a range that have versions, with these, in key order.
    fn in_order(&self, range: &KeyRange) -> impl Iterator<Item = (Key, &[Version])> {
        let mut pages = Vec::new();
        if range.first.is_page() {
            let found = self.pages.iter().filter(|(key, _)| range.contains(key));
            pages.extend(found.map(|(key, place)| (*key, *place)));
            pages.sort_unstable_by_key(|(key, _)| *key);
        }
        // Pages come before everything else.
        let metadata =
            (range.first <= range.last).then(|| self.metadata.range(range.first..=range.last));
        let metadata = metadata
            .into_iter()
            .flatten()
            .map(|(key, place)| (*key, *place));
        let all = pages.into_iter().chain(metadata);
        all.map(|(key, place)| (key, &*self.entries[place]))
    }

    fn insert(
        &mut self,
        key: Key,
        lsn: Lsn,
        value: Value,
        seq: Option<u16>,
    ) -> Result<u64, LayerError> {
        if self.frozen {
            return Err(LayerError::Frozen);
        }
        let size = value.payload().len() as u64 + VERSION_OVERHEAD;
        let next = self.entries.len();
        let place = match key.is_page() {
            true => *self.pages.entry(key).or_insert(next),
            false => *self.metadata.entry(key).or_insert(next),
        };
        if place == next {
            self.entries.push(Versions::new());
        }
        let versions = &mut self.entries[place];
        // Nearly always it is the key's newest.
        let is_newest = versions.last().is_none_or(|last| last.lsn < lsn);
        let seq = match seq {
            Some(seq) => seq,
            None if is_newest => 0,
            None => next_seq(versions, lsn),
        };
        let version = Version { lsn, seq, value };
        let at = match is_newest {
            true => versions.len(),
            false => versions.partition_point(|other| other.order() < version.order()),
        };
        if let Some(same) = versions
            .get_mut(at)
            .filter(|other| other.order() == version.order())
        {
            // Only a generated image can come twice; both show the same page.
            *same = version;
            return Ok(0);
        }
        versions.insert(at, version);
        self.versions += 1;
        self.bytes += size;
        self.lsns = Some(match self.lsns {
            None => LsnRange {
                first: lsn,
                last: lsn,
            },
            Some(lsns) => LsnRange {
                first: lsns.first.min(lsn),
                last: lsns.last.max(lsn),
            },
        });
        Ok(size)
    }
}

/// One past the highest `seq` the WAL has put at this LSN.
fn next_seq(versions: &[Version], lsn: Lsn) -> u16 {
    let end =
        versions.partition_point(|version| (version.lsn, version.seq) < (lsn, Version::GENERATED));
    match end.checked_sub(1).map(|at| &versions[at]) {
        Some(last) if last.lsn == lsn => last.seq + 1,
        _ => 0,
    }
}

/// The versions inside the window, oldest first.
fn slice(versions: &[Version], window: Window) -> &[Version] {
    let start = versions.partition_point(|version| version.lsn <= window.floor);
    let end = versions.partition_point(|version| version.lsn <= window.upto);
    versions.get(start..end).unwrap_or(&[])
}

impl VersionSource for MemoryLayer {
    fn lsns(&self) -> Option<LsnRange> {
        self.inner.read().lsns
    }

    fn newest_first(
        &self,
        key: &Key,
        window: Window,
        visit: &mut dyn FnMut(Version) -> ControlFlow<()>,
    ) -> Result<(), LayerError> {
        let inner = self.inner.read();
        let versions = slice(inner.versions_of(key), window);
        for version in versions.iter().rev() {
            if visit(version.clone()).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn newest_first_of(
        &self,
        keys: &[(Key, Window)],
        visit: &mut dyn FnMut(usize, Version) -> ControlFlow<()>,
    ) -> Result<(), LayerError> {
        let inner = self.inner.read();
        for (at, (key, window)) in keys.iter().enumerate() {
            let visible = slice(inner.versions_of(key), *window);
            for version in visible.iter().rev() {
                if visit(at, version.clone()).is_break() {
                    break;
                }
            }
        }
        Ok(())
    }

    fn scan(
        &self,
        keys: &KeyRange,
        window: Window,
        visit: &mut dyn FnMut(Key, Version) -> ControlFlow<()>,
    ) -> Result<(), LayerError> {
        let inner = self.inner.read();
        for (key, versions) in inner.in_order(keys) {
            for version in slice(versions, window) {
                if visit(key, version.clone()).is_break() {
                    return Ok(());
                }
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
        let inner = self.inner.read();
        for (key, versions) in inner.in_order(keys) {
            if let Some(version) = slice(versions, window).last()
                && visit(key, version.clone()).is_break()
            {
                break;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delta(byte: u8) -> Value {
        Value::Delta {
            bytes: Bytes::copy_from_slice(&[byte]),
            starts_chain: false,
        }
    }

    fn newest_first(layer: &MemoryLayer, key: &Key, window: Window) -> Vec<(u64, u16)> {
        let mut seen = Vec::new();
        layer
            .newest_first(key, window, &mut |version| {
                seen.push((version.lsn.0, version.seq));
                ControlFlow::Continue(())
            })
            .unwrap();
        seen
    }

    #[test]
    fn values_at_one_lsn_keep_their_order_and_a_generated_image_stands_above_them() {
        let layer = MemoryLayer::new();
        let key = Key::aux(1);
        layer.put(key, Lsn(10), delta(1)).unwrap();
        layer.put(key, Lsn(20), delta(2)).unwrap();
        layer
            .put_image(key, Lsn(10), Bytes::from_static(b"page"))
            .unwrap();
        layer.put(key, Lsn(20), delta(3)).unwrap();
        layer
            .put_image(key, Lsn(10), Bytes::from_static(b"page"))
            .unwrap();
        assert_eq!(
            newest_first(&layer, &key, Window::upto(Lsn(20))),
            [(20, 1), (20, 0), (10, Version::GENERATED), (10, 0)]
        );
        assert_eq!(
            newest_first(
                &layer,
                &key,
                Window {
                    floor: Lsn(10),
                    upto: Lsn(20)
                }
            ),
            [(20, 1), (20, 0)]
        );
        assert_eq!(
            newest_first(
                &layer,
                &key,
                Window {
                    floor: Lsn(30),
                    upto: Lsn(20)
                }
            ),
            []
        );
        assert_eq!(layer.versions(), 4);
    }

    #[test]
    fn a_frozen_layer_refuses_puts() {
        let layer = MemoryLayer::new();
        layer.put(Key::aux(1), Lsn(10), delta(1)).unwrap();
        layer.freeze();
        assert!(matches!(
            layer.put(Key::aux(1), Lsn(11), delta(1)),
            Err(LayerError::Frozen)
        ));
        assert!(matches!(
            layer.put_image(Key::aux(1), Lsn(10), Bytes::new()),
            Err(LayerError::Frozen)
        ));
        assert_eq!(layer.versions(), 1);
    }

    #[test]
    fn the_newest_lsn_is_found_inside_the_layer() {
        let layer = MemoryLayer::new();
        for lsn in [10, 20, 30] {
            layer.put(Key::aux(lsn as u32), Lsn(lsn), delta(0)).unwrap();
        }
        assert_eq!(layer.newest_lsn(Lsn(9)), None);
        assert_eq!(layer.newest_lsn(Lsn(29)), Some(Lsn(20)));
        assert_eq!(layer.newest_lsn(Lsn(99)), Some(Lsn(30)));
    }
}
