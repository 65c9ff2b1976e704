//! Handles of layer files: a layer is opened when it is first read, and fetched to the local disk when it is not
//! there.
//!
//! The object store is the truth. When the object store is a local directory, layers are read in place, new layers
//! from memory for a while (`recent`). Otherwise a copy of the layer is kept in the timeline's cache directory
//! (`layer_cache`) for as long as there is room (`disk`). A crash leaves whole copies, which are used again, and staging files, which the
//! next start removes.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use anyhow::{Context, Result};
use blob::{BlobError, LocalLayerFile, RemoteLayer, TimelineStore};
use bytes::Bytes;
use layers::{
    BlockCache, BlockSource, LayerDesc, LayerError, LayerName, LayerReader, PersistentLayer,
    Pieces, VersionSource,
};
use parking_lot::RwLock;
use pg_types::Key;

use crate::eviction::{Copy, Looks};

/// An open layer file: it can be read even when the file is removed.
pub type Reader = Arc<LayerReader<LayerBytes>>;

/// What was written to a layer's file, as long as it is in memory.
type Written = Arc<RwLock<Option<Pieces>>>;

/// A layer's file, and what was written to it.
pub struct LayerBytes {
    file: LocalLayerFile,
    written: Written,
}

impl BlockSource for LayerBytes {
    fn read_at(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        match &*self.written.read() {
            Some(written) => written.read_at(offset, len),
            None => self.file.read_at(offset, len),
        }
    }

    fn size(&self) -> u64 {
        self.file.size()
    }
}

/// Where a layer's file is.
pub(crate) struct Place {
    /// The timeline whose layer it is.
    pub store: TimelineStore,
    pub path: PathBuf,
    /// Whether `path` is a copy, not the object itself.
    pub is_copy: bool,
}

/// One layer of a timeline: its place in the object store, and its open reader once it was needed.
pub struct LayerFile {
    remote: RemoteLayer,
    name: LayerName,
    place: Place,
    resident: AtomicBool,
    used: AtomicU64,
    blocks: Arc<BlockCache>,
    looks: Arc<Looks>,
    reader: RwLock<Option<Reader>>,
    written: Written,
    /// One download of a layer at a time: a read that waited for this lock finds the file on disk.
    fetching: tokio::sync::Mutex<()>,
}

impl LayerFile {
    /// A handle of the layer at a place.
    pub(crate) fn new(
        remote: RemoteLayer,
        place: Place,
        blocks: Arc<BlockCache>,
        looks: Arc<Looks>,
    ) -> LayerFile {
        LayerFile {
            name: remote.desc.name(),
            resident: AtomicBool::new(!place.is_copy || place.path.exists()),
            used: AtomicU64::new(looks.now()),
            remote,
            place,
            blocks,
            looks,
            reader: RwLock::new(None),
            written: Written::default(),
            fetching: tokio::sync::Mutex::default(),
        }
    }

    /// Until [`LayerFile::let_go_of_memory`] it is read from what was written to it.
    pub(crate) fn keep_in_memory(&self, written: Pieces) {
        *self.written.write() = Some(written);
    }

    /// Makes sure a copy is there: `fetch` brings the file, and says where to.
    pub(crate) async fn fetched(
        &self,
        fetch: impl Future<Output = Result<PathBuf, BlobError>>,
    ) -> Result<()> {
        if self.place.is_copy && self.is_resident() && self.place.path.exists() {
            return Ok(());
        }
        let _one_at_a_time = self.fetching.lock().await;
        let path = fetch.await;
        let path = path.with_context(|| format!("fetch layer {}", self.name))?;
        anyhow::ensure!(
            path.exists(),
            "layer {} is missing from the object store at {}",
            self.name,
            path.display()
        );
        self.resident.store(true, Ordering::Relaxed);
        Ok(())
    }

    pub fn remote(&self) -> &RemoteLayer {
        &self.remote
    }

    pub fn name(&self) -> &LayerName {
        &self.name
    }

    /// Whether it can be read without fetching it, as far as is known.
    pub fn is_resident(&self) -> bool {
        self.resident.load(Ordering::Relaxed)
    }

    pub(crate) fn copy(&self) -> Copy {
        Copy {
            bytes: self.remote.desc.size,
            used: self.used.load(Ordering::Relaxed),
        }
    }

    /// Whether a read of it may have to fetch it: it is no file of a local object store.
    pub(crate) fn is_copy(&self) -> bool {
        self.place.is_copy
    }

    /// The layer's name in the object store.
    pub(crate) fn object_name(&self) -> String {
        self.remote.object_name()
    }

    pub(crate) fn bytes_in_memory(&self) -> u64 {
        self.written.read().as_ref().map_or(0, Pieces::size)
    }

    /// From here on it is read from its file. Returns how many bytes were in memory.
    pub(crate) fn let_go_of_memory(&self) -> u64 {
        let written = self.written.write().take();
        written.map_or(0, |it| it.size())
    }

    /// Takes back what is known of its last read, or puts in what an earlier process knew of it.
    pub(crate) fn set_used(&self, look: u64) {
        self.used.store(look, Ordering::Relaxed);
    }

    /// The open layer, for a read that wants what is in it; `NotResident` when it is not on local disk.
    pub fn reader(&self) -> Result<Reader, LayerError> {
        self.used.store(self.looks.now(), Ordering::Relaxed);
        self.opened()
    }

    /// The layer's reader, for an access that says nothing about later reads and so does not count as a use of the
    /// layer.
    pub(crate) fn opened(&self) -> Result<Reader, LayerError> {
        // While it is being opened, which reads from disk, the lock is taken.
        if let Some(slot) = self.reader.try_read()
            && let Some(reader) = &*slot
        {
            return Ok(reader.clone());
        }
        stalls::off_worker(|| self.opened_now())
    }

    fn opened_now(&self) -> Result<Reader, LayerError> {
        let mut slot = self.reader.write();
        if let Some(reader) = &*slot {
            return Ok(reader.clone());
        }
        // A compaction may remove the file at any moment: only opening it shows whether it is there.
        let opened = self.place.store.open_layer(&self.remote, &self.place.path);
        let file = opened.map_err(|error| match error {
            BlobError::File { source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
                self.resident.store(false, Ordering::Relaxed);
                LayerError::NotResident(self.name.clone())
            }
            BlobError::Encryption { source, .. } if !source.may_be_mended() => {
                LayerError::Corrupt {
                    layer: self.name.to_string(),
                    reason: source.to_string(),
                }
            }
            error => LayerError::Io {
                layer: self.name.to_string(),
                source: std::io::Error::other(error),
            },
        })?;
        let written = self.written.clone();
        let reader = LayerReader::open(self.name.as_str(), LayerBytes { file, written })?;
        let reader = Arc::new(reader.with_cache(self.blocks.clone()));
        *slot = Some(reader.clone());
        Ok(reader)
    }

    /// Whether the layer holds no version of the key, as far as that is known without reading the file.
    pub fn surely_lacks(&self, key: &Key) -> bool {
        // What cannot be had at once is not known.
        let reader = self.reader.try_read();
        reader.is_some_and(|slot| slot.as_ref().is_some_and(|it| !it.may_contain(key)))
    }

    /// Removes the local copy. A read that has the file open reads on.
    pub fn evict(&self) -> Result<()> {
        if !self.place.is_copy {
            return Ok(());
        }
        // A copy that is being fetched is wanted by a read and stays.
        let Ok(_not_being_fetched) = self.fetching.try_lock() else {
            return Ok(());
        };
        let removed = stalls::off_worker(|| {
            let mut slot = self.reader.write();
            *slot = None;
            self.resident.store(false, Ordering::Relaxed);
            crash::point!("evict.before-remove");
            std::fs::remove_file(&self.place.path)
        });
        crash::point!("evict.removed");
        match removed {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(error).with_context(|| format!("remove {}", self.place.path.display()))
            }
            _ => Ok(()),
        }
    }

    /// The file was found damaged: a copy goes, to be fetched again; an object is opened anew by the next read, so
    /// that a mended one is noticed. Whether a repeated read may succeed now.
    pub fn distrust(&self) -> Result<bool> {
        self.let_go_of_memory();
        *self.reader.write() = None;
        self.evict()?;
        Ok(self.place.is_copy)
    }
}

impl PersistentLayer for LayerFile {
    fn desc(&self) -> &LayerDesc {
        &self.remote.desc
    }

    fn open(&self) -> Result<Arc<dyn VersionSource + Send + Sync>, LayerError> {
        Ok(self.reader()?)
    }
}
