//! The upload queue of one timeline.
//!
//! Invariants: layers are uploaded side by side from the moment they are queued. All other operations take effect in
//! the order in which they were queued, and of several index changes in a row one index is written. An index is
//! written only when every layer queued before it is durable; a layer that the index drops is deleted only after
//! that. The queue retries for ever and never reports as durable what is not.
//!
//! A crash loses the queue. The layers queued are made again from the WAL, which the safekeepers keep until the
//! durable index has passed it.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use layers::{LayerDesc, LayerName};
use object_store::PutPayload;
use pg_types::Lsn;
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::error::BlobError;
use crate::generation::Generation;
use crate::index::{IndexPart, RemoteLayer};
use crate::timeline::TimelineStore;

mod remote;

use remote::Remote;

/// How the queue works.
#[derive(Clone, Debug)]
pub struct QueueOptions {
    /// Layers uploaded at the same time.
    pub parallel: usize,
    /// Bytes of layers that may wait; a layer beyond that makes its producer wait.
    pub backlog_bytes: usize,
    /// Pause after the first failure of an operation; doubled after each further one, up to the longest. Each is cut
    /// short by up to half at random, so that not all timelines come back at the same moment.
    pub first_pause: Duration,
    /// No pause is longer than this.
    pub longest_pause: Duration,
    /// After so long without anything to upload, the queue checks whether another process has taken the timeline
    /// over.
    pub idle_look: Duration,
}

impl Default for QueueOptions {
    fn default() -> QueueOptions {
        QueueOptions {
            parallel: 4,
            backlog_bytes: 512 << 20,
            first_pause: Duration::from_millis(100),
            longest_pause: Duration::from_secs(30),
            idle_look: Duration::from_secs(600),
        }
    }
}

/// A change to the index. Layers queued before it are named by the index from then on.
#[derive(Clone, Debug, Default)]
pub struct IndexChange {
    /// Layers to drop from the index, and then from the store; not those queued since the last change.
    pub remove: Vec<LayerName>,
    /// Where the index reaches now; `None` leaves that as it is, and so does an LSN below the index's.
    pub disk_consistent_lsn: Option<Lsn>,
    /// Replaces what the pageserver keeps about the timeline; `None` leaves that as it is.
    pub metadata: Option<serde_json::Value>,
    /// Layers to name that are durable already.
    pub add: Vec<RemoteLayer>,
    /// From now on the timeline has no ancestor.
    pub detach: bool,
}

/// What the queue has done and has to do.
#[derive(Clone, Debug, Default)]
pub struct UploadStatus {
    /// The last durable index written by this queue, or the one it started from.
    pub disk_consistent_lsn: Lsn,
    /// Operations that the queue has taken up and not finished; 0 while it is idle.
    pub queued_operations: usize,
    /// Layers uploaded since the queue was started.
    pub uploaded_layers: u64,
    /// Bytes of those layers.
    pub uploaded_bytes: u64,
    /// Indexes written since the queue was started.
    pub index_writes: u64,
    /// Failed attempts that were, or will be, repeated since the queue was started.
    pub retries: u64,
    /// Why the last attempt failed; empty again after a success.
    pub last_error: Option<String>,
    /// Since when no attempt has succeeded.
    pub failing_since: Option<Instant>,
    /// Set once the queue has given up for good: another generation owns the timeline.
    pub stopped: Option<String>,
}

enum Operation {
    Layer {
        layer: RemoteLayer,
        uploading: Uploading,
    },
    Index(IndexChange),
    Barrier(oneshot::Sender<Arc<IndexPart>>),
}

/// An upload under way, given up when dropped.
struct Uploading(JoinHandle<Result<(), BlobError>>);

impl Uploading {
    async fn finished(mut self) -> Result<(), BlobError> {
        match (&mut self.0).await {
            Ok(result) => result,
            Err(error) => Err(BlobError::Stopped(format!("an upload ended: {error}"))),
        }
    }
}

impl Drop for Uploading {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Uploads the layers and index changes of one timeline under one generation. Dropping the queue abandons what is
/// queued, as a crash would.
pub struct UploadQueue {
    generation: Generation,
    operations: mpsc::UnboundedSender<Operation>,
    /// Bytes that may still be queued.
    room: Arc<Semaphore>,
    /// Layers that may still be uploaded at the same time.
    parallel: Arc<Semaphore>,
    backlog_bytes: usize,
    status: watch::Receiver<UploadStatus>,
    remote: Arc<Remote>,
    worker: JoinHandle<()>,
}

impl UploadQueue {
    /// Starts the queue. `index` is the newest durable index, or an empty one for a new timeline;
    /// `generation` was claimed by this process. Nothing is written before the first change.
    pub fn start(
        timeline: TimelineStore,
        index: IndexPart,
        generation: Generation,
        options: QueueOptions,
    ) -> UploadQueue {
        let (operations, queued) = mpsc::unbounded_channel();
        let backlog_bytes = options
            .backlog_bytes
            .clamp(1, Semaphore::MAX_PERMITS.min(u32::MAX as usize));
        let room = Arc::new(Semaphore::new(backlog_bytes));
        let first = UploadStatus {
            disk_consistent_lsn: index.disk_consistent_lsn,
            ..UploadStatus::default()
        };
        let (status, watched) = watch::channel(first);
        let index = Arc::new(IndexPart {
            generation,
            ..index
        });
        let parallel = Arc::new(Semaphore::new(options.parallel.max(1)));
        let remote = Arc::new(Remote {
            timeline,
            options,
            status,
        });
        let worker = Worker {
            remote: remote.clone(),
            index,
            older_indexes: true,
        };
        let worker = stalls::spawn("upload queue", worker.run(queued));
        UploadQueue {
            generation,
            operations,
            room,
            parallel,
            backlog_bytes,
            status: watched,
            remote,
            worker,
        }
    }

    /// The generation under which the queue writes.
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// The remote name a layer uploaded through this queue has.
    pub fn remote(&self, desc: LayerDesc) -> RemoteLayer {
        RemoteLayer {
            desc,
            generation: self.generation,
        }
    }

    /// Queues a layer, whose upload begins at once, beside the other uploads, so that the caller can write its next
    /// layer meanwhile. Waits only while too many bytes are queued. Fails once the queue has stopped.
    pub async fn upload(
        &self,
        desc: LayerDesc,
        content: impl Into<PutPayload>,
    ) -> Result<RemoteLayer, BlobError> {
        let (layer, content) = (self.remote(desc), content.into());
        let wanted = content.content_length().min(self.backlog_bytes) as u32;
        let room = self
            .room
            .clone()
            .acquire_many_owned(wanted)
            .await
            .map_err(|_| self.stopped())?;
        let (remote, parallel) = (self.remote.clone(), self.parallel.clone());
        let uploaded = layer.clone();
        let upload = async move {
            let _one_of_few = parallel.acquire_owned().await;
            remote.upload(&uploaded, content, room).await
        };
        let queued = Operation::Layer {
            layer: layer.clone(),
            uploading: Uploading(stalls::spawn("upload", upload)),
        };
        self.operations.send(queued).map_err(|_| self.stopped())?;
        Ok(layer)
    }

    /// Queues a change of the index, which also names the layers queued so far.
    pub fn commit(&self, change: IndexChange) -> Result<(), BlobError> {
        self.operations
            .send(Operation::Index(change))
            .map_err(|_| self.stopped())
    }

    /// Waits until everything queued before this call is durable; the index that is then in force.
    pub fn flush(
        &self,
    ) -> impl Future<Output = Result<Arc<IndexPart>, BlobError>> + Send + use<'_> {
        let (done, reached) = oneshot::channel();
        let queued = self.operations.send(Operation::Barrier(done));
        async move {
            queued.map_err(|_| self.stopped())?;
            if let Ok(index) = reached.await {
                return Ok(index);
            }
            // The wait above ends a moment before the reason is stored; once the queue takes no more operations, the
            // reason is there.
            self.operations.closed().await;
            Err(self.stopped())
        }
    }

    /// For metrics, and to follow the durable LSN (what safekeepers may trim).
    pub fn status(&self) -> watch::Receiver<UploadStatus> {
        self.status.clone()
    }

    /// Stops at once. What is queued is not uploaded; call [`UploadQueue::flush`] first if it should be.
    pub async fn stop(mut self) {
        self.worker.abort();
        let _ = (&mut self.worker).await;
    }

    /// Stops a queue that is shared: after this returns the queue begins no operation, and refuses what is queued
    /// later.
    pub async fn end(&self) {
        self.worker.abort();
        self.operations.closed().await;
    }

    fn stopped(&self) -> BlobError {
        let reason = self.status.borrow().stopped.clone();
        BlobError::Stopped(reason.unwrap_or_else(|| "the queue was shut down".to_owned()))
    }
}

impl Drop for UploadQueue {
    fn drop(&mut self) {
        self.worker.abort();
    }
}

struct Worker {
    remote: Arc<Remote>,
    /// The index as of the last operation carried out; durable unless a change to it is under way.
    index: Arc<IndexPart>,
    /// Indexes of earlier generations may still be there.
    older_indexes: bool,
}

impl Worker {
    async fn run(mut self, mut queued: mpsc::UnboundedReceiver<Operation>) {
        let mut pending = VecDeque::new();
        let mut named = Vec::new();
        loop {
            let idle = self.remote.idle_look();
            match tokio::time::timeout(idle, queued.recv()).await {
                Ok(Some(operation)) => pending.push_back(operation),
                Ok(None) => return,
                Err(_) => match self
                    .remote
                    .timeline
                    .check_fence(self.index.generation)
                    .await
                {
                    Err(error) if !error.is_transient() => return self.remote.stop(&error),
                    _ => continue,
                },
            }
            while let Ok(more) = queued.try_recv() {
                pending.push_back(more);
            }
            while !pending.is_empty() {
                self.remote
                    .status
                    .send_modify(|status| status.queued_operations = pending.len());
                if let Err(error) = self.step(&mut pending, &mut named).await {
                    return self.remote.stop(&error);
                }
            }
            self.remote
                .status
                .send_modify(|status| status.queued_operations = 0);
        }
    }

    /// Sees the layers at the head of the queue uploaded, then carries out everything up to the next layer that is
    /// still being uploaded.
    async fn step(
        &mut self,
        pending: &mut VecDeque<Operation>,
        named: &mut Vec<RemoteLayer>,
    ) -> Result<(), BlobError> {
        while let Some(Operation::Layer { .. }) = pending.front() {
            if let Some(Operation::Layer { layer, uploading }) = pending.pop_front() {
                uploading.finished().await?;
                named.push(layer);
            }
        }
        let (mut changes, mut barriers) = (Vec::new(), Vec::new());
        let ready = |operation: &mut Operation| match operation {
            Operation::Layer { uploading, .. } => uploading.0.is_finished(),
            Operation::Index(_) | Operation::Barrier(_) => true,
        };
        // A layer is named by the change queued behind it, not by an earlier one.
        let mut changed = 0;
        while let Some(operation) = pending.pop_front_if(ready) {
            match operation {
                Operation::Layer { layer, uploading } => {
                    uploading.finished().await?;
                    named.push(layer);
                }
                Operation::Index(change) => {
                    changes.push(change);
                    changed = named.len();
                }
                Operation::Barrier(done) => barriers.push(done),
            }
        }
        if !changes.is_empty() {
            self.write_index(changes, named.drain(..changed).collect())
                .await?;
        }
        for done in barriers {
            // A failed send means that the caller no longer waits for the barrier.
            let _ = done.send(self.index.clone());
        }
        Ok(())
    }

    async fn write_index(
        &mut self,
        changes: Vec<IndexChange>,
        mut added: Vec<RemoteLayer>,
    ) -> Result<(), BlobError> {
        let mut index = IndexPart::clone(&self.index);
        let mut removed = HashSet::new();
        for change in changes {
            removed.extend(change.remove);
            added.extend(change.add);
            index.ancestor.take_if(|_| change.detach);
            if let Some(lsn) = change.disk_consistent_lsn {
                index.disk_consistent_lsn = index.disk_consistent_lsn.max(lsn);
            }
            if let Some(metadata) = change.metadata {
                index.metadata = metadata;
            }
        }
        // What is put in again, as a merge that changes nothing does, is not what is to go.
        for layer in &added {
            removed.remove(&layer.desc.name());
        }
        // Layers with equal names are equal files: the one that the index names already stays, because readers may
        // have it open.
        let mut known: HashSet<LayerName> =
            index.layers.iter().map(|layer| layer.desc.name()).collect();
        let is_new = |layer: &RemoteLayer| known.insert(layer.desc.name());
        index.layers.extend(added.into_iter().filter(is_new));
        let dropped: Vec<RemoteLayer> = index
            .layers
            .extract_if(.., |layer| removed.contains(&layer.desc.name()))
            .collect();

        let remote = self.remote.clone();
        let timeline = &remote.timeline;
        crash::point!("index.before-put");
        remote.retry("index", || timeline.put_index(&index)).await?;
        crash::point!("index.put");
        remote.status.send_modify(|status| {
            status.index_writes += 1;
            status.disk_consistent_lsn = index.disk_consistent_lsn;
        });
        crash::point!("index.reported");
        let generation = index.generation;
        self.index = Arc::new(index);
        if !dropped.is_empty() {
            // The generation was still the newest after the index was written, so every later owner loads this index
            // and reads none of the dropped layers.
            let what = format!("deletion of {} layers", dropped.len());
            remote
                .retry(&what, || timeline.delete_layers(&dropped))
                .await?;
            crash::point!("drop.done");
        }
        if std::mem::take(&mut self.older_indexes)
            && let Err(error) = timeline.remove_older_indexes(generation).await
        {
            tracing::debug!(%error, "indexes of earlier generations stay behind");
        }
        crash::point!("older-indexes.removed");
        Ok(())
    }
}
