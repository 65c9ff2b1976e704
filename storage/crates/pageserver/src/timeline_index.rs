//! The timeline's index in the object store, and every change to it.
//!
//! The index (`blob`) names the timeline's layers and the LSN that they reach; the pageserver's own facts are the
//! index's metadata. Every change goes through the upload queue, so that the index never names a layer that is not
//! durable. A crash leaves the index as it was before a change or as it is after it.

use anyhow::Context;
use blob::{
    Generation, IndexChange, IndexPart, QueueOptions, RemoteLayer, Store, TimelineStore,
    UploadQueue, UploadStatus,
};
use bytes::Bytes;
use layers::LayerDesc;
use parking_lot::Mutex;
use pg_types::{Lsn, TenantId, Term, TimelineId};

use crate::error::{Error, Result};
use crate::term_history::Ingested;

mod facts;
mod named;
mod start;

pub use facts::{
    AncestorPoint, AuxFiles, Inheritance, Lease, Manifest, Metadata, StartPoint, Trouble,
};

/// One timeline's index, for the process that holds the newest generation of it.
///
/// A change waits as long as the object store takes nothing. It fails once uploads have stopped for good
/// ([`TimelineIndex::trouble`]): another process has taken the timeline over, say.
pub struct TimelineIndex {
    store: Store,
    remote: TimelineStore,
    queue: UploadQueue,
    metadata: Mutex<Metadata>,
    /// The term that the durable index holds; `metadata` has a new one already while it is being stored.
    durable_term: Mutex<Term>,
    consistent_lsn: Mutex<Lsn>,
    horizon: Mutex<Lsn>,
}

impl TimelineIndex {
    /// Takes the timeline over from the process that wrote its index before. Returns the newest index, or `None` when
    /// the timeline does not exist or was being deleted, in which case its deletion is finished. Fails when the
    /// object store does, or when the index or its metadata is damaged.
    pub async fn take_over(
        store: Store,
        tenant: TenantId,
        timeline: TimelineId,
    ) -> anyhow::Result<Option<(TimelineIndex, IndexPart)>> {
        let remote = store.timeline(tenant, timeline);
        if remote.load().await.context("load the index")? == blob::Loaded::Absent {
            return Ok(None);
        }
        let (generation, loaded) = remote.attach().await.context("take the timeline over")?;
        let index = match loaded {
            blob::Loaded::Index(index) => *index,
            blob::Loaded::Absent => return Ok(None),
            blob::Loaded::Deleting => {
                remote
                    .delete_all()
                    .await
                    .context("finish deleting the timeline")?;
                return Ok(None);
            }
        };
        crash::point!("attach.index-put");
        let orphans = remote
            .remove_orphans(&index, generation)
            .await
            .context("remove layers that no index names")?;
        if orphans > 0 {
            tracing::info!(%tenant, %timeline, orphans, "removed layers that a crash left half written or without an index");
        }
        let metadata: Metadata = serde_json::from_value(index.metadata.clone())
            .context("decode the index's metadata")?;
        let consistent_lsn = Mutex::new(index.disk_consistent_lsn);
        let queue = UploadQueue::start(
            remote.clone(),
            index.clone(),
            generation,
            QueueOptions::default(),
        );
        let timeline_index = TimelineIndex {
            store,
            remote,
            queue,
            durable_term: Mutex::new(metadata.max_term),
            horizon: Mutex::new(metadata.horizon),
            metadata: Mutex::new(metadata),
            consistent_lsn,
        };
        Ok(Some((timeline_index, index)))
    }

    /// Makes the index of a new timeline with its first layers; durable on return. Fails with `Conflict` when the
    /// object store has that timeline already: the pageserver that serves it would lose it. Fails, too, when the
    /// object store can't be read or does not take the claim of a generation, and when another process claims the
    /// timeline meanwhile.
    pub async fn create(
        store: Store,
        tenant: TenantId,
        timeline: TimelineId,
        manifest: Manifest,
        layers: Vec<(LayerDesc, Bytes)>,
    ) -> anyhow::Result<(TimelineIndex, Vec<RemoteLayer>)> {
        let remote = store.timeline(tenant, timeline);
        refuse_existing(&remote).await?;
        // An id that was used before: what is left of that timeline is none of this one's.
        let buried = remote.remove_tombstone().await;
        buried.context("remove the tombstone of an earlier timeline of this id")?;
        let generation = remote
            .claim_generation()
            .await
            .context("claim a generation")?;
        crash::point!("create.claimed");
        // A process with an earlier claim can no longer write an index, so whether the timeline exists is now
        // certain.
        refuse_existing(&remote).await?;
        let ancestor = manifest.ancestor.map(|point| blob::Ancestor {
            timeline: point.timeline_id,
            lsn: point.lsn,
        });
        let start_lsn = manifest.start_lsn;
        let metadata = Metadata {
            manifest,
            max_term: Term(0),
            aux: None,
            horizon: Lsn::INVALID,
            leases: Vec::new(),
            start: None,
            detached_from: None,
            ingested: Some(Ingested::default()),
        };
        let index = IndexPart {
            metadata: serde_json::to_value(&metadata)?,
            disk_consistent_lsn: start_lsn,
            ..IndexPart::empty(tenant, timeline, ancestor)
        };
        let queue = UploadQueue::start(remote.clone(), index, generation, QueueOptions::default());
        let mut uploaded = Vec::with_capacity(layers.len());
        for (desc, bytes) in layers {
            uploaded.push(queue.upload(desc, bytes).await?);
        }
        crash::point!("create.layers-queued");
        queue.commit(IndexChange {
            disk_consistent_lsn: Some(start_lsn),
            ..IndexChange::default()
        })?;
        queue.flush().await.context("store the index")?;
        crash::point!("create.indexed");
        let metadata = Mutex::new(metadata);
        let index = TimelineIndex {
            store,
            remote,
            queue,
            metadata,
            durable_term: Mutex::new(Term(0)),
            consistent_lsn: Mutex::new(start_lsn),
            horizon: Mutex::new(Lsn::INVALID),
        };
        Ok((index, uploaded))
    }

    /// What the timeline is, with its safekeepers and ancestor of now.
    pub fn manifest(&self) -> Manifest {
        self.metadata.lock().manifest.clone()
    }

    /// The highest term that is stored, or about to be.
    pub fn max_term(&self) -> Term {
        self.metadata.lock().max_term
    }

    /// The highest term that a crash can't make this pageserver forget.
    pub fn durable_term(&self) -> Term {
        *self.durable_term.lock()
    }

    /// The terms that wrote the ingested WAL, as stored or about to be; `None` when they are not known.
    pub fn ingested(&self) -> Option<Ingested> {
        self.metadata.lock().ingested.clone()
    }

    /// Where the auxiliary files of the last suspend are; `None` when none were shipped.
    pub fn aux(&self) -> Option<AuxFiles> {
        self.metadata.lock().aux.clone()
    }

    /// Everything up to here is in layers that the durable index names.
    pub fn consistent_lsn(&self) -> Lsn {
        *self.consistent_lsn.lock()
    }

    /// Moves the consistent LSN to what the layers given before this call reach; durable once the future is ready,
    /// and with it whose WAL that is. Without what is known of that, what is stored of it stays.
    pub fn reach(
        &self,
        consistent_lsn: Lsn,
        ingested: Option<Ingested>,
    ) -> impl Future<Output = Result<()>> + Send + use<'_> {
        let reached = IndexChange {
            disk_consistent_lsn: Some(consistent_lsn),
            ..IndexChange::default()
        };
        let queued = self.queue_ingested(ingested, reached);
        let flushed = self.queue.flush();
        async move {
            queued?;
            flushed.await.context("store the index")?;
            let mut reached = self.consistent_lsn.lock();
            *reached = consistent_lsn.max(*reached);
            Ok(())
        }
    }

    /// Sees to it that whose WAL was ingested is stored, before long.
    pub fn note_ingested(&self, ingested: Ingested) -> Result<()> {
        self.queue_ingested(Some(ingested), IndexChange::default())
    }

    fn queue_ingested(&self, ingested: Option<Ingested>, mut with: IndexChange) -> Result<()> {
        // Queued under the lock, so that the order in the queue is the order of the changes.
        let mut metadata = self.metadata.lock();
        if ingested.is_some() && metadata.ingested != ingested {
            metadata.ingested = ingested;
            with.metadata = Some(serde_json::to_value(&*metadata).context("encode metadata")?);
        }
        Ok(self.queue.commit(with).context("change the index")?)
    }

    /// History before it may be gone; [`Lsn::INVALID`] while none is.
    pub fn horizon(&self) -> Lsn {
        *self.horizon.lock()
    }

    /// All leases that are stored, also those that have run out and are not forgotten yet.
    pub fn leases(&self) -> Vec<Lease> {
        self.metadata.lock().leases.clone()
    }

    /// Adds a lease, or makes the one at the same LSN longer; durable on return.
    pub async fn store_lease(&self, lease: Lease) -> Result<()> {
        self.change_metadata(|metadata| {
            let same = metadata.leases.iter_mut().find(|it| it.lsn == lease.lsn);
            match same {
                Some(known) => known.until = known.until.max(lease.until),
                None => metadata.leases.push(lease),
            }
        })
        .await
    }

    pub(crate) fn remote(&self) -> &TimelineStore {
        &self.remote
    }

    pub(crate) fn generation(&self) -> Generation {
        self.queue.generation()
    }

    /// How uploads stand, and what they have brought to the object store since the timeline was attached.
    pub fn uploads(&self) -> UploadStatus {
        self.queue.status().borrow().clone()
    }

    /// Since when nothing could be brought to the object store, and why; none while it can.
    pub fn trouble(&self) -> Option<Trouble> {
        let status = self.uploads();
        if let Some(reason) = status.stopped {
            return Some(Trouble {
                elapsed: None,
                reason,
            });
        }
        let (since, reason) = status.failing_since.zip(status.last_error)?;
        Some(Trouble {
            elapsed: Some(since.elapsed()),
            reason,
        })
    }

    /// Whether the timeline was a branch and has layers of its own for all it read of its ancestors.
    pub fn is_detached(&self) -> bool {
        self.metadata.lock().detached_from.is_some()
    }

    /// Makes the timeline its own, in one write of the index; durable on return.
    pub async fn detach(&self, inherited: Inheritance) -> Result<()> {
        let Inheritance {
            layers,
            oldest,
            leases,
        } = inherited;
        let change = IndexChange {
            add: layers,
            detach: true,
            ..IndexChange::default()
        };
        self.change_metadata_with(change, |metadata| {
            metadata.detached_from = metadata.manifest.ancestor.take();
            metadata.horizon = metadata.horizon.max(oldest);
            metadata.leases.extend(leases);
        })
        .await?;
        let mut horizon = self.horizon.lock();
        *horizon = oldest.max(*horizon);
        Ok(())
    }

    /// Stores the safekeepers from which the timeline gets its WAL; durable on return.
    pub async fn store_safekeepers(&self, safekeepers: Vec<String>) -> Result<()> {
        self.change_metadata(|metadata| metadata.manifest.safekeepers = safekeepers)
            .await
    }

    /// Stores the auxiliary files shipped at an LSN in place of earlier ones; durable on return. Fails, too, when the
    /// object store does not take the new files or does not delete the earlier ones.
    pub async fn store_aux(&self, lsn: Lsn, content: Bytes) -> Result<()> {
        let document = format!("{}/aux/{:016x}.tar", self.remote.timeline(), lsn.0);
        let tenant = self.remote.tenant();
        self.store
            .put_document(tenant, &document, content)
            .await
            .context("store auxiliary files")?;
        crash::point!("aux.document-stored");
        let before = self.aux();
        let aux = AuxFiles {
            lsn,
            document: document.clone(),
        };
        self.change_metadata(|metadata| metadata.aux = Some(aux))
            .await?;
        crash::point!("aux.indexed");
        if let Some(old) = before.filter(|old| old.document != document) {
            self.store
                .delete_document(tenant, &old.document)
                .await
                .context("delete old auxiliary files")?;
        }
        Ok(())
    }

    /// Reads auxiliary files: the tar as it was shipped. Fails when the object store can't be read or lacks it.
    pub async fn load_aux(&self, aux: &AuxFiles) -> Result<Bytes> {
        let found = self
            .store
            .get_document(self.remote.tenant(), &aux.document)
            .await
            .context("read auxiliary files")?;
        Ok(found.with_context(|| format!("auxiliary files {} are missing", aux.document))?)
    }

    async fn change_metadata(&self, change: impl FnOnce(&mut Metadata)) -> Result<()> {
        self.change_metadata_with(IndexChange::default(), change)
            .await
    }

    /// Changes the metadata together with another change of the index; durable on return.
    async fn change_metadata_with(
        &self,
        with: IndexChange,
        change: impl FnOnce(&mut Metadata),
    ) -> Result<()> {
        let (value, term) = {
            let mut metadata = self.metadata.lock();
            change(&mut metadata);
            // Queued under the lock, so that the order in the queue is the order of the changes.
            let value = serde_json::to_value(&*metadata).context("encode the index's metadata")?;
            let queued = self.queue.commit(IndexChange {
                metadata: Some(value),
                ..with
            });
            (queued, metadata.max_term)
        };
        value.context("change the index")?;
        self.queue.flush().await.context("store the index")?;
        let mut durable = self.durable_term.lock();
        *durable = term.max(*durable);
        Ok(())
    }

    async fn commit(&self, change: IndexChange) -> Result<()> {
        self.queue.commit(change).context("change the index")?;
        self.queue.flush().await.context("store the index")?;
        Ok(())
    }

    /// Removes everything the object store has of the timeline. Fails when the object store does not delete
    /// something; the deletion is finished when it is repeated, or when the timeline is opened next.
    pub async fn delete(&self) -> Result<()> {
        self.queue.end().await;
        if let Some(aux) = self.aux() {
            self.store
                .delete_document(self.remote.tenant(), &aux.document)
                .await
                .context("delete auxiliary files")?;
        }
        self.remote
            .delete_all()
            .await
            .context("delete the timeline's objects")?;
        Ok(())
    }
}

async fn refuse_existing(remote: &TimelineStore) -> anyhow::Result<()> {
    let found = remote.load().await.context("look for the timeline")?;
    if found == blob::Loaded::Absent {
        return Ok(());
    }
    let what = format!(
        "the object store has timeline {} of tenant {} already, though it is not served here; restart the pageserver \
         to take it over, or choose another id",
        remote.timeline(),
        remote.tenant()
    );
    Err(Error::Conflict(what).into())
}

#[cfg(test)]
mod tests;
