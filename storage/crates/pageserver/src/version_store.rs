//! The versions of one timeline: its memory layers, its layer files with their local copies, and its ancestor.
//!
//! Invariants:
//! - A reader takes a snapshot of the layers under one lock. A flush replaces a memory layer by its file, and a
//!   compaction its inputs by its outputs, in one step under the same lock, so that no reader misses a version.
//! - Every version at or before [`Frozen::upto`] is in that frozen layer, in an earlier one, or in a file.
//! - A local file is a copy of an immutable object; it appears by rename and can be deleted at any time.
//!
//! A crash loses the memory layers and nothing else; ingest makes them again from the WAL.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use anyhow::{Context, anyhow};
use blob::RemoteLayer;
use bytes::Bytes;
use layers::{
    Chain, ChainCounts, ChainsCollector, LayerError, LayerMap, LayerName, MemoryLayer,
    PersistentLayer, Pieces, Put, RangeScan, Value, View, Window,
};
use parking_lot::RwLock;
use pg_types::{Key, KeyRange, Lsn};

use crate::error::Result;
use crate::eviction::NEVER_USED;
use crate::layer_cache::LayerCache;
use crate::layer_file::LayerFile;
use crate::memory::{Account, Uploads};
use crate::page_cache::PageCache;

mod merging;

pub(crate) use merging::Beside;

/// Reads of more keys than this leave the async workers.
pub(crate) const INLINE_KEYS: usize = 4;
/// How often one read may find a layer missing locally, fetch it and start over.
const MAX_FETCHES: usize = 10_000;

/// Why a read can't be done now.
pub(crate) enum Obstacle {
    /// These layers are not on local disk.
    Missing(Vec<LayerName>),
    Error(LayerError),
}

impl From<LayerError> for Obstacle {
    fn from(error: LayerError) -> Obstacle {
        match error {
            LayerError::NotResident(name) => Obstacle::Missing(vec![name]),
            error => Obstacle::Error(error),
        }
    }
}

/// What was done so far for a read that has to be repeated.
#[derive(Default)]
pub(crate) struct ReadRetry {
    attempts: usize,
    /// Layers found damaged before.
    damaged: HashSet<String>,
}

/// A memory layer on its way to a file.
#[derive(Clone)]
pub struct Frozen {
    pub layer: Arc<MemoryLayer>,
    /// Last record whose versions are all in this layer or an earlier one.
    pub upto: Lsn,
}

struct Stack {
    open: Arc<MemoryLayer>,
    /// Oldest first.
    frozen: Vec<Frozen>,
    map: Arc<LayerMap<LayerFile>>,
    /// Under the same lock: what a detached branch read there is in its own files from one moment to the next.
    ancestor: Option<(Arc<VersionStore>, Lsn)>,
}

/// The versions of one timeline, in memory and in layer files.
pub struct VersionStore {
    cache: Arc<LayerCache>,
    stack: RwLock<Stack>,
    /// What the memory layers take.
    account: Account,
    /// Values made for earlier reads, this store's under its number.
    kept: Arc<PageCache>,
    number: u64,
    /// See [`VersionStore::gone_upto`].
    gone: AtomicU64,
}

/// The layers as of one moment.
struct Snapshot {
    memory: Vec<Arc<MemoryLayer>>,
    map: Arc<LayerMap<LayerFile>>,
}

impl Snapshot {
    fn view(&self) -> View<'_, LayerFile> {
        View {
            memory: &self.memory,
            map: &self.map,
        }
    }
}

impl VersionStore {
    pub fn new(
        cache: Arc<LayerCache>,
        layers: Vec<RemoteLayer>,
        ancestor: Option<(Arc<VersionStore>, Lsn)>,
        account: Account,
        kept: Arc<PageCache>,
    ) -> VersionStore {
        let files = layers.into_iter().map(|layer| {
            let file = cache.file(layer);
            file.set_used(NEVER_USED);
            file
        });
        // Copies are looked for on disk.
        let files = stalls::off_worker(|| files.collect());
        let stack = Stack {
            open: Arc::new(MemoryLayer::new()),
            frozen: Vec::new(),
            map: Arc::new(LayerMap::new(files)),
            ancestor,
        };
        VersionStore {
            cache,
            stack: RwLock::new(stack),
            account,
            number: kept.register(),
            kept,
            gone: AtomicU64::new(0),
        }
    }

    pub(crate) fn kept(&self) -> &PageCache {
        &self.kept
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    pub fn cache(&self) -> &Arc<LayerCache> {
        &self.cache
    }

    pub fn ancestor(&self) -> Option<(Arc<VersionStore>, Lsn)> {
        self.stack.read().ancestor.clone()
    }

    pub fn map(&self) -> Arc<LayerMap<LayerFile>> {
        self.stack.read().map.clone()
    }

    /// Appends the versions of whole records.
    pub fn append<'a>(&self, values: impl IntoIterator<Item = (Key, Lsn, Put<'a>)>) -> Result<()> {
        let open = self.stack.read().open.clone();
        let added = open.put_batch(values);
        self.account.add(added.context("append to the open layer")?);
        Ok(())
    }

    /// Adds an image made by the storage from everything at or before `lsn`.
    pub fn append_image(&self, key: Key, lsn: Lsn, page: Bytes) -> Result<()> {
        loop {
            let open = self.stack.read().open.clone();
            match open.put_image(key, lsn, page.clone()) {
                Ok(added) => {
                    self.account.add(added);
                    return Ok(());
                }
                // It was frozen meanwhile: there is a new one.
                Err(LayerError::Frozen) => continue,
                Err(error) => return Err(anyhow!(error).context("append an image").into()),
            }
        }
    }

    pub fn open_bytes(&self) -> u64 {
        self.stack.read().open.bytes()
    }

    /// Whether the open layer has so many bytes, or as many keys as a file should have.
    pub fn open_is_full(&self, bytes: u64) -> bool {
        let open = self.stack.read().open.clone();
        open.bytes() >= bytes || open.keys() >= layers::MANY_KEYS
    }

    /// Bytes in all memory layers.
    pub fn memory_bytes(&self) -> u64 {
        self.account.held()
    }

    /// Counts layers that are to be uploaded.
    pub fn uploads(&self) -> &Uploads {
        self.account.uploads()
    }

    /// Bytes of layers that the object store does not have yet.
    pub fn uploading_bytes(&self) -> u64 {
        self.account.uploading()
    }

    /// Bytes ever put into memory layers.
    pub fn bytes_added(&self) -> u64 {
        self.account.added()
    }

    pub fn frozen_count(&self) -> usize {
        self.stack.read().frozen.len()
    }

    /// Freezes the open layer if it holds anything. The caller makes sure that no record is being appended,
    /// and that `upto` is the last one that was.
    pub fn freeze(&self, upto: Lsn) {
        let mut stack = self.stack.write();
        if stack.open.is_empty() {
            return;
        }
        let layer = std::mem::replace(&mut stack.open, Arc::new(MemoryLayer::new()));
        layer.freeze();
        stack.frozen.push(Frozen { layer, upto });
    }

    /// The frozen layers, oldest first.
    pub fn frozen(&self) -> Vec<Frozen> {
        self.stack.read().frozen.clone()
    }

    /// Puts a file in the place of the frozen layer it was written from.
    pub fn replace_frozen(&self, frozen: &Frozen, layer: RemoteLayer, written: Pieces) {
        let file = self.cache.new_file(layer, written);
        let mut stack = self.stack.write();
        stack.map = Arc::new(stack.map.with(vec![file], &[]));
        stack
            .frozen
            .retain(|other| !Arc::ptr_eq(&other.layer, &frozen.layer));
        drop(stack);
        self.account.remove(frozen.layer.bytes());
    }

    /// Whether no version of the key lies behind `known` and up to `at`, as far as memory alone can tell: false may
    /// also mean that a layer file has to be asked.
    pub(crate) fn is_unchanged(&self, key: Key, known: Lsn, at: Lsn) -> bool {
        let window = Window {
            floor: known,
            upto: at,
        };
        let stack = self.stack.read();
        if stack.ancestor.as_ref().is_some_and(|(_, lsn)| known < *lsn) {
            return false;
        }
        let frozen = stack.frozen.iter().map(|frozen| &frozen.layer);
        let mut files = stack.map.candidates(&key, window).into_iter();
        !frozen
            .chain([&stack.open])
            .any(|layer| layer.has(&key, window))
            && files.all(|file| file.surely_lacks(&key))
    }

    fn snapshot(&self) -> Snapshot {
        self.snapshot_and_ancestor().0
    }

    fn snapshot_and_ancestor(&self) -> (Snapshot, Option<(Arc<VersionStore>, Lsn)>) {
        let stack = self.stack.read();
        // Newest first: what starts a page's chain there hides all older versions.
        let frozen = stack.frozen.iter().rev().map(|frozen| &frozen.layer);
        let memory = [&stack.open].into_iter().chain(frozen).cloned().collect();
        let snapshot = Snapshot {
            memory,
            map: stack.map.clone(),
        };
        (snapshot, stack.ancestor.clone())
    }

    /// This timeline and its ancestors, each with the LSN up to which a read at `at` sees it.
    fn snapshots(&self) -> Vec<(Snapshot, Lsn)> {
        let (own, mut next) = self.snapshot_and_ancestor();
        let mut found = vec![(own, Lsn::MAX)];
        while let Some((store, branch_lsn)) = next {
            let (snapshot, further) = store.snapshot_and_ancestor();
            found.push((snapshot, branch_lsn));
            next = further;
        }
        found
    }

    /// The chains of several keys as of `at`, in one pass over the layers; versions at or below a key's floor are not
    /// visible.
    pub async fn chains(&self, keys: &[(Key, Lsn)], at: Lsn) -> Result<Vec<Chain>> {
        let read = || self.try_chains(keys, at);
        self.with_resident_layers(|| match keys.len() <= INLINE_KEYS {
            true => read(),
            false => stalls::off_worker(read),
        })
        .await
    }

    /// `chains` as far as it can be done without waiting.
    pub(crate) fn try_chains(&self, keys: &[(Key, Lsn)], at: Lsn) -> Result<Vec<Chain>, Obstacle> {
        let mut read = ChainsCollector::new(keys, at);
        for (depth, (snapshot, upto)) in self.snapshots().iter().enumerate() {
            if depth > 0 && !read.descend(*upto) {
                break;
            }
            read.visit(&snapshot.view())?;
        }
        read.finish().map_err(Obstacle::Missing)
    }

    /// The newest values of all existing keys of a range as of `at`, in key order.
    pub async fn scan(&self, range: KeyRange, at: Lsn) -> Result<Vec<(Key, Lsn, Value)>> {
        let read = || {
            let mut scan = RangeScan::new(range, at);
            for (depth, (snapshot, upto)) in self.snapshots().iter().enumerate() {
                if depth > 0 {
                    scan.descend(*upto);
                }
                scan.visit(&snapshot.view())?;
            }
            Ok::<_, LayerError>(scan.finish().collect())
        };
        self.with_resident_layers(|| stalls::off_worker(read)).await
    }

    /// The newest LSN at or before `upto` at which anything of this timeline (not its ancestors) changed.
    pub async fn newest_lsn(&self, upto: Lsn) -> Result<Option<Lsn>> {
        let read = || layers::newest_lsn(&self.snapshot().view(), upto);
        self.with_resident_layers(|| stalls::off_worker(read)).await
    }

    /// Adds the chain lengths that the delta layers know, as of `upto`, to those of older ancestors.
    pub async fn load_chain_counts(&self, counts: ChainCounts, upto: Lsn) -> Result<ChainCounts> {
        let mut counts = counts;
        let map = self.map();
        let mut files: Vec<&Arc<LayerFile>> = map
            .iter()
            .filter(|file| file.desc().kind == layers::LayerKind::Delta)
            .collect();
        files.sort_by_key(|file| file.desc().lsns.first);
        for file in files
            .into_iter()
            .filter(|file| file.desc().lsns.first <= upto)
        {
            if file.opened().is_err() {
                self.cache.fetch(file).await?;
            }
            let load = || {
                let stats = file.opened()?.key_stats()?;
                counts.load(file.desc().lsns, &stats, upto);
                Ok::<_, LayerError>(())
            };
            stalls::off_worker(load).map_err(|error| anyhow!(error))?;
        }
        Ok(counts)
    }

    /// Repeats a read until every layer it needs is in the local cache.
    async fn with_resident_layers<T, E: Into<Obstacle>>(
        &self,
        mut read: impl FnMut() -> Result<T, E>,
    ) -> Result<T> {
        let mut retry = ReadRetry::default();
        loop {
            match read() {
                Ok(result) => return Ok(result),
                Err(error) => self.mend(error.into(), &mut retry).await?,
            }
        }
    }

    /// Takes away what stopped a read, so that it can be repeated; an error when that can't be done.
    pub(crate) async fn mend(&self, obstacle: Obstacle, retry: &mut ReadRetry) -> Result<()> {
        retry.attempts += 1;
        if retry.attempts > MAX_FETCHES {
            let why =
                "layers keep vanishing from the local cache; is its disk full or being cleaned?";
            let what = match obstacle {
                Obstacle::Missing(names) => format!("fetch {}", names[0]),
                Obstacle::Error(found) => found.to_string(),
            };
            let error = anyhow!(std::io::Error::other(why)).context(what);
            return Err(error.into());
        }
        match obstacle {
            Obstacle::Missing(names) => {
                // All at once; few are really fetched at the same time (`disk`).
                let fetches: Vec<_> = names.iter().map(|name| self.fetch(name)).collect();
                futures::future::try_join_all(fetches).await.map(drop)
            }
            Obstacle::Error(LayerError::Corrupt { layer, reason })
                if self.distrust(&layer, &mut retry.damaged)? =>
            {
                let what = "the local copy is damaged and is fetched again";
                tracing::warn!(layer, reason, "{what}");
                Ok(())
            }
            Obstacle::Error(error) => Err(anyhow!(error).into()),
        }
    }

    /// Whether a damaged layer can be had whole, from the object store, for another attempt.
    fn distrust(&self, layer: &str, before: &mut HashSet<String>) -> Result<bool> {
        let Some((_, file)) = self.find(&LayerName(layer.to_owned())) else {
            return Ok(false);
        };
        Ok(file.distrust()? && before.insert(layer.to_owned()))
    }

    /// A layer of this timeline or an ancestor, and the cache it is fetched to.
    fn find(&self, name: &LayerName) -> Option<(Arc<LayerCache>, Arc<LayerFile>)> {
        if let Some(file) = self.map().get(name) {
            return Some((self.cache.clone(), file.clone()));
        }
        self.ancestor()?.0.find(name)
    }

    /// Brings a layer of this timeline or an ancestor into the local cache. A layer that no map names any
    /// more was compacted away since the read began; the read just starts over.
    async fn fetch(&self, name: &LayerName) -> Result<()> {
        match self.find(name) {
            Some((cache, file)) => Ok(cache.fetch(&file).await?),
            None => Ok(()),
        }
    }
}

impl Drop for VersionStore {
    fn drop(&mut self) {
        self.kept.forget(self.number);
    }
}
