//! The open layer, the frozen ones, and their way to the object store.
//!
//! Versions are put into the open layer and published under one lock, the append lock, under which the open layer is
//! frozen as well. A memory layer is frozen between records, written as a level-0 delta layer, uploaded, and only
//! then named by the index together with the LSN it reaches. Only that write of the index moves
//! `remote_consistent_lsn`, so safekeepers trim WAL only when no restart needs it any more. A crash before that write
//! leaves at most an object that no index names; ingesting the same WAL again makes the same versions.
//!
//! This part owns the append lock and the flush. It moves `Position`, tells `Images` and `Backpressure` what has
//! happened, and has `Terms` say whose WAL a flushed layer holds. `Compaction` knows this part, and not the other way
//! round.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use blob::{PutPayload, RemoteLayer};
use futures::StreamExt;
use futures::stream::FuturesOrdered;
use layers::{LayerDesc, PersistentLayer as _, Pieces, Put, WriterOptions};
use pg_types::{Key, Lsn};
use tokio::sync::Notify;
use wal_decode::TimelineState;

use super::backpressure::{Backpressure, MAX_FROZEN};
use super::identity::Identity;
use super::images::Images;
use super::lock_order::{APPEND, DIRTY_SINCE, FROZEN_UPTO, Ranked, RankedGuard};
use super::position::Position;
use super::report::kind_name;
use super::terms::Terms;
use crate::error::Result;
use crate::large_records::Turn;
use crate::memory::{Member, MemoryBudget, Usage};
use crate::schedule::Scheduled;
use crate::timeline_index::TimelineIndex;
use crate::version_store::{Frozen, VersionStore};

const RETRY: Duration = Duration::from_secs(1);

/// A frozen layer as a file in memory.
struct Written {
    frozen: Frozen,
    desc: LayerDesc,
    pieces: Pieces,
    content: PutPayload,
    started: Instant,
}

/// A frozen layer that is uploaded and that the index names.
struct Uploaded {
    frozen: Frozen,
    pieces: Pieces,
    remote: RemoteLayer,
    started: Instant,
}

/// The open layer and the frozen ones, and the task that flushes them.
pub(super) struct LayerStack {
    identity: Arc<Identity>,
    position: Arc<Position>,
    store: Arc<VersionStore>,
    index: Arc<TimelineIndex>,
    terms: Arc<Terms>,
    images: Arc<Images>,
    backpressure: Arc<Backpressure>,
    memory: Arc<MemoryBudget>,
    /// Held while a record is appended and while the open layer is frozen.
    append: Ranked<APPEND, ()>,
    /// Wakes the flush task.
    wanted: Notify,
    /// One flush at a time.
    running: tokio::sync::Mutex<()>,
    /// When something was first put into the open layer, as far as the task has seen.
    dirty_since: Ranked<DIRTY_SINCE, Option<Instant>>,
    /// The last record in a frozen layer.
    frozen_upto: Ranked<FROZEN_UPTO, Lsn>,
    /// Tells compaction that there may be history to merge.
    settling_wanted: Notify,
}

/// The parts that this one knows.
pub(super) struct Parts {
    pub identity: Arc<Identity>,
    pub position: Arc<Position>,
    pub store: Arc<VersionStore>,
    pub index: Arc<TimelineIndex>,
    pub terms: Arc<Terms>,
    pub images: Arc<Images>,
    pub backpressure: Arc<Backpressure>,
    pub memory: Arc<MemoryBudget>,
}

impl LayerStack {
    pub fn new(parts: Parts) -> LayerStack {
        LayerStack {
            identity: parts.identity,
            position: parts.position,
            store: parts.store,
            index: parts.index,
            terms: parts.terms,
            images: parts.images,
            backpressure: parts.backpressure,
            memory: parts.memory,
            append: Ranked::new(()),
            wanted: Notify::new(),
            running: tokio::sync::Mutex::new(()),
            dirty_since: Ranked::default(),
            frozen_upto: Ranked::default(),
            settling_wanted: Notify::new(),
        }
    }

    /// Nothing is published, and the position stays where it is, until what this returns is dropped.
    pub fn stand_still(&self) -> RankedGuard<'_, APPEND, ()> {
        self.append.lock()
    }

    /// Makes the versions of some records visible, which grow the logical size by so many bytes. They have been
    /// counted; `state` is the one behind the last of them.
    pub fn publish<'a>(
        &self,
        state: TimelineState,
        values: impl IntoIterator<Item = (Key, Lsn, Put<'a>)>,
        growth: i64,
    ) -> Result<()> {
        let _appending = self.append.lock();
        let lsn = state.last_record_lsn;
        self.store.append(values)?;
        self.position.move_to(state, growth);
        self.images.published(lsn);
        Ok(())
    }

    /// Appends some versions of the record that is being ingested before the rest of it. No read sees these versions
    /// until `last_record_lsn` reaches `lsn`. They may be flushed before that; after a crash, ingesting the record
    /// makes the same versions again.
    pub async fn append_ahead(&self, values: Vec<(Key, Lsn, layers::Value)>) -> Result<()> {
        {
            let _appending = self.append.lock();
            let values = || {
                values
                    .iter()
                    .map(|(key, lsn, value)| (*key, *lsn, value.into()))
            };
            self.images.ingested(values(), self.position.image_rule());
            self.store.append(values())?;
        }
        self.pace_ingest().await
    }

    /// Called by ingest after whatever it publishes: waits for what lags far behind (`backpressure`), and freezes the
    /// open layer when it is large enough.
    pub async fn pace_ingest(&self) -> Result<()> {
        self.backpressure.pace().await;
        let most = self.identity.config().checkpoint_distance_bytes;
        if !self.store.open_is_full(most) {
            return Ok(());
        }
        self.backpressure.wait_to_freeze().await;
        self.freeze()?;
        self.wanted.notify_one();
        Ok(())
    }

    /// The turn at holding a record of so many bytes, see [`LargeRecords::turn`](crate::large_records::LargeRecords).
    pub async fn large_record_turn<'a>(
        &'a self,
        bytes: usize,
        held: Option<Turn<'a>>,
    ) -> Option<Turn<'a>> {
        self.memory.large_records.turn(bytes, held).await
    }

    /// Freezes what is in memory, with the exact state at the last record in it.
    fn freeze(&self) -> Result<()> {
        let _appending = self.append.lock();
        let state = self.position.state();
        let lsn = state.last_record_lsn;
        let mut frozen_upto = self.frozen_upto.lock();
        if lsn > *frozen_upto && lsn > self.index.consistent_lsn() {
            let value = layers::Value::Meta(super::history::encode_state(&state)?);
            self.store
                .append([(Key::timeline_state(), lsn, (&value).into())])?;
        }
        self.store.freeze(lsn);
        *frozen_upto = lsn;
        *self.dirty_since.lock() = None;
        self.report_memory();
        Ok(())
    }

    /// Writes everything ingested so far to the object store.
    pub async fn checkpoint(&self) -> Result<()> {
        self.freeze()?;
        self.flush_frozen().await
    }

    /// Writes and uploads every frozen layer, oldest first. While some are uploaded, side by side, the next one is
    /// written; the index follows in their order.
    async fn flush_frozen(&self) -> Result<()> {
        let _one_at_a_time = self.running.lock().await;
        let mut uploads = FuturesOrdered::new();
        let mut writing = None;
        loop {
            if writing.is_none() && uploads.len() < MAX_FROZEN {
                // The frozen layers before this one are being uploaded and stay in the store until `replace_frozen`
                // below.
                let next = self.store.frozen().into_iter().nth(uploads.len());
                writing = next.map(|frozen| Box::pin(self.write_frozen(frozen)));
            }
            tokio::select! {
                written = async { writing.as_mut().expect("checked").await }, if writing.is_some() => {
                    writing = None;
                    uploads.push_back(self.upload_frozen(written?).await?);
                }
                Some(uploaded) = uploads.next() => self.replace_frozen(uploaded?),
                else => return Ok(()),
            }
        }
    }

    async fn write_frozen(&self, frozen: Frozen) -> Result<Written> {
        crash::point!("flush.frozen");
        let started = Instant::now();
        let layer = frozen.layer.clone();
        let write = move || layer.write_delta_layer(&WriterOptions::level_0());
        // The permit covers writing and not uploading: an object store that refuses one timeline's layer must not
        // stop the flushes of all others.
        let _one_of_few = self.memory.flush_permit().await;
        let written = tokio::task::spawn_blocking(write)
            .await
            .context("flush task")?;
        let (desc, pieces) = written.context("write a delta layer")?;
        let content = self.store.uploads().counted(pieces.iter());
        // Memory is reported before the upload: while an upload hangs, an operator wants to see what is in memory.
        self.report_memory();
        Ok(Written {
            frozen,
            desc,
            pieces,
            content,
            started,
        })
    }

    /// Begins an upload; what it returns is ready when the index names the layer.
    async fn upload_frozen(
        &self,
        written: Written,
    ) -> Result<impl Future<Output = Result<Uploaded>> + Send + use<'_>> {
        let Written {
            frozen,
            desc,
            pieces,
            content,
            started,
        } = written;
        crash::point!("flush.written");
        let remote = self.index.upload_layer(desc, content).await?;
        crash::point!("flush.queued");
        let reached = self.index.reach(frozen.upto, self.terms.ingested());
        Ok(async move {
            reached.await?;
            crash::point!("flush.indexed");
            Ok(Uploaded {
                frozen,
                pieces,
                remote,
                started,
            })
        })
    }

    /// From here on reads find the layer's versions in its file.
    fn replace_frozen(&self, uploaded: Uploaded) {
        let Uploaded {
            frozen,
            pieces,
            remote,
            started,
        } = uploaded;
        let size = remote.desc.size;
        self.store.replace_frozen(&frozen, remote, pieces);
        crash::point!("flush.replaced");
        self.backpressure.layer_flushed();
        let consistent = self.index.consistent_lsn();
        self.identity
            .metrics
            .set_consistent_lsns(consistent, consistent);
        self.report_layers();
        self.want_compaction();
        self.identity.metrics.flushed_bytes.inc_by(size);
        self.identity
            .metrics
            .flush_seconds
            .observe(started.elapsed().as_secs_f64());
        tracing::info!(
            tenant = %self.identity.tenant, timeline = %self.identity.id, upto = %frozen.upto, bytes = size, "flushed a memory layer"
        );
    }

    /// Whether memory holds something that the time limit says must go.
    fn is_overdue(&self) -> bool {
        let dirty = self.store.open_bytes() > 0
            || self.position.last_record_lsn() > self.index.consistent_lsn();
        let mut since = self.dirty_since.lock();
        if !dirty {
            *since = None;
            return false;
        }
        since.get_or_insert_with(Instant::now).elapsed()
            >= self.identity.config().checkpoint_timeout()
    }

    /// The background task: flushes what ingest froze, and what has been in memory for too long.
    pub async fn flush_task(self: Arc<LayerStack>) {
        loop {
            self.wanted.notified().await;
            let result = if self.is_overdue() {
                self.checkpoint().await
            } else {
                self.flush_frozen().await
            };
            self.report_memory();
            if let Err(error) = result {
                tracing::error!(
                    tenant = %self.identity.tenant, timeline = %self.identity.id, "cannot flush, ingest will pause: {error}"
                );
                tokio::time::sleep(RETRY).await;
            }
        }
    }

    /// There may be layers to compact, or history to merge.
    pub fn want_compaction(&self) {
        self.backpressure.want_compaction();
        self.want_settling();
    }

    /// There may be history to merge.
    pub fn want_settling(&self) {
        self.settling_wanted.notify_one();
    }

    /// Waits until there may be history to merge.
    pub async fn settling_wanted(&self) {
        self.settling_wanted.notified().await;
    }

    /// Refreshes the layer metrics.
    pub fn report_layers(&self) {
        let map = self.store.map();
        for kind in [layers::LayerKind::Delta, layers::LayerKind::Image] {
            let of_kind = || map.iter().filter(|file| file.desc().kind == kind);
            let bytes = of_kind().map(|file| file.desc().size).sum();
            self.identity
                .metrics
                .set_layers(kind_name(kind), of_kind().count(), bytes);
        }
        let level_0 = map.iter().filter(|file| file.desc().is_l0());
        self.backpressure.set_level_0_layers(level_0.count());
        self.report_memory();
    }

    /// Refreshes the metrics of what is in memory.
    pub fn report_memory(&self) {
        let gauged = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
        let (memory, uploading) = (self.store.memory_bytes(), self.store.uploading_bytes());
        self.identity.metrics.memory_bytes.set(gauged(memory));
        self.identity.metrics.uploading_bytes.set(gauged(uploading));
    }
}

impl Scheduled for LayerStack {
    /// Has flushed what is in memory for too long, and what an earlier attempt could not flush.
    fn wake_if_due(&self) {
        self.report_memory();
        if self.is_overdue() || self.store.frozen_count() > 0 {
            self.wanted.notify_one();
        }
    }
}

impl Member for LayerStack {
    fn usage(&self) -> Usage {
        let (open, all) = (self.store.open_bytes(), self.store.memory_bytes());
        Usage {
            open,
            frozen: all.saturating_sub(open),
            uploading: self.store.uploading_bytes(),
        }
    }

    fn flush_early(&self) {
        match self.freeze() {
            Ok(()) => self.wanted.notify_one(),
            Err(error) => {
                tracing::error!(
                    tenant = %self.identity.tenant, timeline = %self.identity.id, "memory is short, but cannot freeze: {error}"
                );
            }
        }
    }
}
