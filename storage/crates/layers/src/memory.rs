//! The open layer: versions in memory, on their way to a level-0 delta layer.
//!
//! Invariants: the versions of a key are kept in `(lsn, seq)` order; a frozen layer never changes. One writer
//! (ingest), image generation and many readers use a layer at once; the lock inside is held for one lookup or one
//! batch of insertions, of which all are there or, when memory runs out, none is. A reader that asks for LSNs up to the last ingested record never sees a part of a record.
//!
//! Nearly all keys are pages. Pages are found by hash, and put in order only when the layer is written or scanned,
//! and scans of pages are rare; keeping pages in a tree would cost ingest more than all its other work here. Metadata
//! keys are few and often scanned, so a tree has them. Versions lie in the order in which they came, each with the
//! place of the next older version of its key: reads go from the newest version to older ones, and insertions append.
//!
//! The versions that come in and go out are far more than the processor's caches hold, and waiting for one place in
//! memory after the other would be most of the work. So both insertions and lookups handle a few versions at a time
//! ([`versions`]): the memory of all of them is touched first, for which the processor waits once, then the work is
//! done.
//!
//! A crash loses the layer; ingest makes its content again from the WAL past the disk-consistent LSN.

mod arena;
mod versions;

use std::ops::ControlFlow;

use bytes::Bytes;
use parking_lot::RwLock;
use pg_types::{Key, KeyRange, Lsn};
use smallvec::SmallVec;

use crate::desc::LayerDesc;
use crate::error::LayerError;
use crate::pieces::{Pieces, Regions};
use crate::region::REGION;
use crate::value::{LsnRange, Put, Value, Version, Window};
use crate::versions::VersionSource;
use crate::writer::{LayerWriter, WriterOptions};
use arena::{Copies, Entry};
use versions::Versions;

/// A layer in memory, open or frozen. Shared as `Arc<MemoryLayer>`; every method takes `&self`.
#[derive(Default)]
pub struct MemoryLayer {
    inner: RwLock<Versions>,
}

impl MemoryLayer {
    /// An open layer without versions.
    pub fn new() -> MemoryLayer {
        MemoryLayer::default()
    }

    /// Adds a value from the WAL; the bytes by which the layer grew. Several at one `(key, lsn)` keep the order in
    /// which they are put.
    pub fn put(&self, key: Key, lsn: Lsn, value: Value) -> Result<u64, LayerError> {
        self.inner.write().put(key, lsn, (&value).into(), None)
    }

    /// Adds all values of one record, or of several, under one lock; the bytes by which the layer grew. After an error
    /// none of them is there, and they can be added again.
    pub fn put_batch<'a>(
        &self,
        values: impl IntoIterator<Item = (Key, Lsn, Put<'a>)>,
    ) -> Result<u64, LayerError> {
        self.inner.write().put_all(values)
    }

    /// Adds an image that the storage made from everything at or before `lsn`: it stands above all other
    /// versions at that LSN. `lsn` may be older than what is already here. The bytes by which the layer grew.
    pub fn put_image(&self, key: Key, lsn: Lsn, page: Bytes) -> Result<u64, LayerError> {
        let (image, seq) = (Value::Image(page), Some(Version::GENERATED));
        self.inner.write().put(key, lsn, (&image).into(), seq)
    }

    /// From here on every put is refused. To be called between records.
    pub fn freeze(&self) {
        self.inner.write().frozen = true;
    }

    /// Whether [`MemoryLayer::freeze`] was called.
    pub fn is_frozen(&self) -> bool {
        self.inner.read().frozen
    }

    /// Bytes of memory the layer holds, roughly; what a flush threshold should look at.
    pub fn bytes(&self) -> u64 {
        self.inner.read().bytes
    }

    /// Number of keys. From [`MANY_KEYS`](crate::MANY_KEYS) on the layer should be frozen: its file has room for twice
    /// as many.
    pub fn keys(&self) -> usize {
        self.inner.read().keys()
    }

    /// Number of versions.
    pub fn versions(&self) -> u64 {
        self.inner.read().count()
    }

    /// Whether there is no version, so that there is nothing to flush.
    pub fn is_empty(&self) -> bool {
        self.versions() == 0
    }

    /// Writes the layer out as a level-0 delta layer. Freeze it first.
    pub fn write_delta_layer(
        &self,
        options: &WriterOptions,
    ) -> Result<(LayerDesc, Pieces), LayerError> {
        let inner = self.inner.read();
        let file = Regions::new(inner.bytes >= REGION as u64);
        let mut writer = LayerWriter::delta(file, 0, options.clone())?;
        inner.for_each_by_key(|key, version| writer.push_ref(key, version))?;
        let (desc, file) = writer.finish()?;
        Ok((desc, file.into_pieces()))
    }

    /// Whether a version of the key lies in the window.
    pub fn has(&self, key: &Key, window: Window) -> bool {
        let inner = self.inner.read();
        inner
            .newest_first(inner.found(key), window)
            .next()
            .is_some()
    }

    /// The largest LSN at or before `upto` at which anything changed.
    pub fn newest_lsn(&self, upto: Lsn) -> Option<Lsn> {
        self.inner.read().newest_lsn(upto)
    }
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
        let mut copies = Copies::default();
        for version in inner.newest_first(inner.found(key), window) {
            let version = version?;
            if visit(version.version(&mut copies)).is_break() {
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
        let mut copies = Copies::default();
        for (at, (key, window)) in keys.iter().enumerate() {
            for version in inner.newest_first(inner.found(key), *window) {
                let version = version?;
                if visit(at, version.version(&mut copies)).is_break() {
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
        let mut copies = Copies::default();
        for (key, place) in inner.in_order(keys) {
            let newest_first = inner.newest_first(Some(place), window);
            let versions = newest_first.collect::<Result<SmallVec<[Entry<'_>; 16]>, _>>()?;
            for version in versions.into_iter().rev() {
                if visit(key, version.version(&mut copies)).is_break() {
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
        let mut copies = Copies::default();
        for (key, place) in inner.in_order(keys) {
            if let Some(version) = inner.newest_first(Some(place), window).next()
                && visit(key, version?.version(&mut copies)).is_break()
            {
                break;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
