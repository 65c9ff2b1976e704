//! The objects of one timeline: generation claims, indexes, layers, and the mark of a deletion.

use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use object_store::path::Path as ObjectPath;
use object_store::{ObjectMeta, PutMode};
use pg_types::{TenantId, TimelineId};

use crate::error::BlobError;
use crate::generation::Generation;
use crate::index::{IndexPart, RemoteLayer};
use crate::store::Store;

/// Deletions in flight at once.
const PARALLEL_DELETES: usize = 8;
/// How often a claim is repeated that failed, and the first pause before it; each further one is twice as long.
const CLAIM_RETRIES: u32 = 3;
const CLAIM_PAUSE: Duration = Duration::from_millis(50);

/// How often a folder is listed before it is believed to be empty. Directories are listed name by name: an object
/// that was replaced meanwhile can be missing together with the one that replaced it.
const LOOKS: u32 = 3;

/// In which a pageserver's objects of a timeline are, those first by which the others are found.
const FOLDERS: [&str; 3] = ["index", "layers", "generation"];
/// The folder of a timeline's finished WAL, which safekeepers put there.
pub(crate) const WAL_FOLDER: &str = "wal";
/// The mark of a deletion that is under way.
pub(crate) const MARK: &str = "deleted";

/// What object storage holds of a timeline.
#[derive(Clone, PartialEq, Debug)]
pub enum Loaded {
    /// Neither an index nor the mark of a deletion: never stored, or deleted to the end.
    Absent,
    /// The index of the highest generation.
    Index(Box<IndexPart>),
    /// A deletion was begun: call [`TimelineStore::delete_all`] to finish it.
    Deleting,
}

/// A handle; cloning it is cheap.
#[derive(Clone, Debug)]
pub struct TimelineStore {
    pub(crate) store: Store,
    tenant: TenantId,
    timeline: TimelineId,
}

impl Store {
    /// The objects of one timeline, which need not exist. Nothing is sent to the store.
    pub fn timeline(&self, tenant: TenantId, timeline: TimelineId) -> TimelineStore {
        TimelineStore::new(self.clone(), tenant, timeline)
    }
}

impl TimelineStore {
    pub(crate) fn new(store: Store, tenant: TenantId, timeline: TimelineId) -> TimelineStore {
        TimelineStore {
            store,
            tenant,
            timeline,
        }
    }

    /// The tenant that the timeline belongs to.
    pub fn tenant(&self) -> TenantId {
        self.tenant
    }

    /// The timeline.
    pub fn timeline(&self) -> TimelineId {
        self.timeline
    }

    pub(crate) fn path(&self, rest: &str) -> ObjectPath {
        ObjectPath::from(format!("{}/{}/{rest}", self.tenant, self.timeline))
    }

    pub(crate) fn layer_path(&self, layer: &RemoteLayer) -> ObjectPath {
        self.path(&format!("layers/{}", layer.object_name()))
    }

    pub(crate) async fn list(&self, folder: &str) -> Result<Vec<ObjectMeta>, BlobError> {
        let prefix = self.path(folder);
        match self.store.objects.list(Some(&prefix)).try_collect().await {
            Ok(found) => Ok(found),
            Err(object_store::Error::NotFound { .. }) => Ok(Vec::new()),
            Err(error) => Err(error.into()),
        }
    }

    // ---- generations

    /// The highest generation anyone has claimed or written an index under.
    pub async fn newest_generation(&self) -> Result<Option<Generation>, BlobError> {
        let (claims, indexes) = futures::try_join!(self.claims(), self.indexes())?;
        Ok(claims.into_iter().chain(indexes).max())
    }

    fn claim_path(&self, generation: Generation) -> ObjectPath {
        self.path(&format!("generation/{}", generation.suffix()))
    }

    async fn claims(&self) -> Result<Vec<Generation>, BlobError> {
        let claims = self.list("generation").await?;
        let generation = |meta: &ObjectMeta| Generation::from_suffix(meta.location.filename()?);
        Ok(claims.iter().filter_map(generation).collect())
    }

    /// Claims the right to write, above every earlier claim. A process with an earlier claim is fenced from here on.
    pub async fn claim_generation(&self) -> Result<Generation, BlobError> {
        let mut failures = 0;
        loop {
            let newest = self.newest_generation().await?.unwrap_or_default();
            let next = Generation(newest.0 + 1);
            let path = self.claim_path(next);
            match self.store.put(&path, Bytes::new(), PutMode::Create).await {
                Ok(()) => {
                    // A number can be free again because a later claim has tidied up: then ours is void.
                    if self.newest_generation().await? == Some(next) {
                        crash::point!("attach.generation-claimed");
                        self.forget_claims_before(next).await;
                        crash::point!("attach.claims-forgotten");
                        return Ok(next);
                    }
                }
                Err(BlobError::Store(object_store::Error::AlreadyExists { .. })) => continue,
                // It is not known whether the claim was created after all. A claim that was created belongs to no
                // process, and the next attempt claims a number above it.
                Err(error) if error.is_transient() && failures < CLAIM_RETRIES => {
                    tracing::warn!(timeline = %self.timeline, %error, "a generation could not be claimed, will retry");
                    tokio::time::sleep(CLAIM_PAUSE * (1 << failures)).await;
                    failures += 1;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Deletes old claims, which no process needs any more. The last claim before `generation` stays: from it the
    /// holder of the claim before sees without listing that it is superseded. The oldest claim goes first, so that no
    /// claim outlives the one after it.
    async fn forget_claims_before(&self, generation: Generation) {
        let mut claims = self.claims().await.unwrap_or_default();
        claims.retain(|claim| claim.0 + 1 < generation.0);
        claims.sort_unstable();
        for claim in claims {
            if let Err(error) = self.store.delete(&self.claim_path(claim)).await {
                tracing::debug!(timeline = %self.timeline, claim = claim.0, %error, "an old generation claim stays behind");
                return;
            }
        }
    }

    /// Takes the timeline over: claims a generation, loads the index, and puts it under the new generation, in this
    /// order. An index that the previous owner acknowledged was checked to be under the newest claim, so it is in
    /// what is loaded. No pageserver reads an index that the previous owner still writes, so layers that only such an
    /// index names can be removed as orphans. A timeline that is being deleted is not claimed.
    pub async fn attach(&self) -> Result<(Generation, Loaded), BlobError> {
        if self.store.exists(&self.path(MARK)).await? {
            return Ok((Generation::default(), Loaded::Deleting));
        }
        let generation = self.claim_generation().await?;
        let loaded = self.load().await?;
        let Loaded::Index(index) = loaded else {
            // That there is no index is certain only while this process still owns the timeline.
            self.check_fence(generation).await?;
            return Ok((generation, loaded));
        };
        crash::point!("attach.index-loaded");
        let index = IndexPart {
            generation,
            ..*index
        };
        self.put_index(&index).await?;
        Ok((generation, Loaded::Index(Box::new(index))))
    }

    /// Whether `ours`, once claimed, may still write: fails with [`BlobError::Fenced`] when a higher
    /// generation is claimed, with [`BlobError::Deleted`] when the timeline is going or gone.
    pub async fn check_fence(&self, ours: Generation) -> Result<(), BlobError> {
        // Claims follow each other without a gap.
        let (mark, claim, next) = (
            self.path(MARK),
            self.claim_path(ours),
            self.claim_path(Generation(ours.0 + 1)),
        );
        let (is_deleted, is_claimed, is_superseded) = futures::try_join!(
            self.store.exists(&mark),
            self.store.exists(&claim),
            self.store.exists(&next)
        )?;
        if is_claimed && !is_superseded && !is_deleted {
            return Ok(());
        }
        let seen = is_superseded.then_some(Generation(ours.0 + 1));
        match self.newest_generation().await?.max(seen) {
            Some(newest) if newest > ours => Err(BlobError::Fenced { ours, newest }),
            _ => Err(BlobError::Deleted(self.timeline)),
        }
    }

    // ---- index

    async fn indexes(&self) -> Result<Vec<Generation>, BlobError> {
        let generation = |meta: &ObjectMeta| {
            Generation::from_suffix(meta.location.filename()?.strip_suffix(".json")?)
        };
        Ok(self
            .list("index")
            .await?
            .iter()
            .filter_map(generation)
            .collect())
    }

    /// Whether a pageserver has the timeline here. Its deletion takes the indexes before anything else.
    pub async fn has_index(&self) -> Result<bool, BlobError> {
        for _ in 0..LOOKS {
            if !self.indexes().await?.is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn index_path(&self, generation: Generation) -> ObjectPath {
        self.path(&format!("index/{}.json", generation.suffix()))
    }

    /// The newest index.
    pub async fn load(&self) -> Result<Loaded, BlobError> {
        if self.store.exists(&self.path(MARK)).await? {
            return Ok(Loaded::Deleting);
        }
        // A newer generation may replace the index between listing and reading it: look again.
        let mut looks = 0;
        while looks < LOOKS {
            let Some(newest) = self.indexes().await?.into_iter().max() else {
                looks += 1;
                continue;
            };
            let path = self.index_path(newest);
            if let Some(bytes) = self.store.get(&path).await? {
                return self.decoded(&path, &bytes);
            }
        }
        Ok(Loaded::Absent)
    }

    fn decoded(&self, path: &ObjectPath, bytes: &[u8]) -> Result<Loaded, BlobError> {
        let index = IndexPart::decode(path.as_ref(), bytes)?;
        if (index.tenant, index.timeline) != (self.tenant, self.timeline) {
            let reason = format!(
                "it belongs to tenant {} timeline {}",
                index.tenant, index.timeline
            );
            return Err(BlobError::Corrupt {
                path: path.to_string(),
                reason,
            });
        }
        Ok(Loaded::Index(Box::new(index)))
    }

    /// Makes this the timeline's index. Refused unless its generation is the newest claim, before the index is
    /// written and after: only then will every later owner load this index, so that it may be acknowledged and the
    /// layers that it dropped may be deleted. The layers it names must be durable: [`crate::UploadQueue`] sees to
    /// that.
    pub async fn put_index(&self, index: &IndexPart) -> Result<(), BlobError> {
        self.check_fence(index.generation).await?;
        let path = self.index_path(index.generation);
        self.store
            .put(&path, Bytes::from(index.encode()), PutMode::Overwrite)
            .await?;
        let owned = self.check_fence(index.generation).await;
        if let Err(BlobError::Deleted(_)) = owned {
            // Deleted meanwhile: it must not come back as a timeline without layers.
            self.store.delete(&path).await?;
        }
        owned
    }

    /// Removes the indexes of earlier generations, which no process reads any more.
    pub async fn remove_older_indexes(&self, generation: Generation) -> Result<(), BlobError> {
        for older in self
            .indexes()
            .await?
            .into_iter()
            .filter(|other| *other < generation)
        {
            self.store.delete(&self.index_path(older)).await?;
        }
        Ok(())
    }

    // ---- layers

    /// Where the layer lies on local disk when the store is a local directory.
    pub fn local_layer_path(&self, layer: &RemoteLayer) -> Option<PathBuf> {
        self.store.local_path(&self.layer_path(layer))
    }

    /// Deletes layers that no durable index names, side by side; fine if some are gone already. Only after
    /// [`TimelineStore::put_index`] has written the index without them, or their owner has been fenced.
    pub async fn delete_layers(&self, layers: &[RemoteLayer]) -> Result<(), BlobError> {
        let delete = |layer: RemoteLayer| async move {
            crash::point!("drop.before-first");
            self.delete_layer(&layer).await?;
            crash::point!("drop.after-first");
            Ok::<(), BlobError>(())
        };
        futures::stream::iter(layers.to_vec())
            .map(delete)
            .buffer_unordered(PARALLEL_DELETES)
            .try_collect::<Vec<()>>()
            .await?;
        Ok(())
    }

    /// Deletes a layer no durable index names; fine if it is gone already.
    pub async fn delete_layer(&self, layer: &RemoteLayer) -> Result<(), BlobError> {
        self.store.delete(&self.layer_path(layer)).await
    }

    /// Layers in the store, whether an index names them or not.
    pub async fn list_layers(&self) -> Result<Vec<RemoteLayer>, BlobError> {
        let parse = |meta: &ObjectMeta| RemoteLayer::parse(meta.location.filename()?, meta.size);
        Ok(self
            .list("layers")
            .await?
            .iter()
            .filter_map(parse)
            .collect())
    }

    /// Deletes what crashes left behind of this or earlier generations: layers that `index`, the newest durable one,
    /// does not name, and what is half written. Only while no upload is under way. Returns how many there were.
    pub async fn remove_orphans(
        &self,
        index: &IndexPart,
        ours: Generation,
    ) -> Result<usize, BlobError> {
        self.check_fence(ours).await?;
        let named: std::collections::HashSet<String> =
            index.layers.iter().map(RemoteLayer::object_name).collect();
        let orphan =
            |layer: &RemoteLayer| layer.generation <= ours && !named.contains(&layer.object_name());
        let orphans: Vec<RemoteLayer> = self
            .list_layers()
            .await?
            .into_iter()
            .filter(orphan)
            .collect();
        for layer in &orphans {
            tracing::info!(layer = %layer.object_name(), "deleting a layer that no index names");
            crash::point!("attach.before-orphans");
            self.delete_layer(layer).await?;
            crash::point!("attach.orphans-removed");
        }
        let mut half_written = 0;
        for folder in FOLDERS {
            let is_ours = move |name: &str| generation_of(name).is_some_and(|it| it <= ours);
            let path = self.path(folder);
            half_written += self.store.remove_staged(&path, is_ours).await?;
        }
        Ok(orphans.len() + half_written)
    }

    // ---- deletion

    /// Deletes the timeline; stop its [`crate::UploadQueue`] first. Once this has begun,
    /// [`TimelineStore::load`] says `Deleting` until it is done, and indexes are refused from then on. A tombstone stays
    /// ([`Store::tombstones`]).
    pub async fn delete_all(&self) -> Result<(), BlobError> {
        let mark = self.path(MARK);
        self.store
            .put(&mark, Bytes::new(), PutMode::Overwrite)
            .await?;
        crash::point!("delete.marked");
        for folder in FOLDERS.into_iter().chain([WAL_FOLDER]) {
            self.store
                .remove_staged(&self.path(folder), |_| true)
                .await?;
            let objects = self.list(folder).await?;
            let delete = |meta: ObjectMeta| async move { self.store.delete(&meta.location).await };
            futures::stream::iter(objects)
                .map(delete)
                .buffer_unordered(PARALLEL_DELETES)
                .try_collect::<Vec<()>>()
                .await?;
            crash::point!("delete.index-gone");
        }
        self.put_tombstone().await?;
        crash::point!("delete.before-unmark");
        self.store.delete(&mark).await
    }
}

/// Of an object in any of a timeline's folders.
fn generation_of(name: &str) -> Option<Generation> {
    let of_layer = RemoteLayer::parse(name, 0).map(|layer| layer.generation);
    let suffix = name.strip_suffix(".json").unwrap_or(name);
    of_layer.or_else(|| Generation::from_suffix(suffix))
}
