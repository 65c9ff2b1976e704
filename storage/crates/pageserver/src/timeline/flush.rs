//! From memory to the object store.
//!
//! A memory layer is frozen between records, written as a level-0 delta layer, uploaded, and only then
//! named by the index together with the LSN it reaches. Only that moves `remote_consistent_lsn`, so WAL is
//! trimmed only when it is not needed any more. A crash in between leaves at most an object that no index
//! names; ingesting the same WAL again makes the same versions.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use blob::{PutPayload, RemoteLayer};
use futures::StreamExt;
use futures::stream::FuturesOrdered;
use layers::{LayerDesc, Pieces, WriterOptions};
use pg_types::{Key, Lsn};
use tokio::sync::Notify;

use super::Timeline;
use super::backpressure::MAX_FROZEN;
use super::lock_order::{DIRTY_SINCE, FROZEN_UPTO, Ranked};
use crate::error::Result;
use crate::memory::{Member, Usage};
use crate::store::Frozen;

/// How often the age of what is in memory is looked at.
const TICK: Duration = Duration::from_millis(250);
const RETRY: Duration = Duration::from_secs(1);

/// A frozen layer as a file in memory.
struct Written {
    frozen: Frozen,
    desc: LayerDesc,
    pieces: Pieces,
    content: PutPayload,
    started: Instant,
}

/// The same once the index names it.
struct Uploaded {
    frozen: Frozen,
    pieces: Pieces,
    remote: RemoteLayer,
    started: Instant,
}

#[derive(Default)]
pub struct FlushWork {
    /// Wakes the flush task.
    wanted: Notify,
    /// One flush at a time.
    running: tokio::sync::Mutex<()>,
    /// When something was first put into the open layer, as far as the task has seen.
    dirty_since: Ranked<DIRTY_SINCE, Option<Instant>>,
    /// The last record in a frozen layer.
    frozen_upto: Ranked<FROZEN_UPTO, Lsn>,
}

impl Timeline {
    /// Called by ingest after whatever it publishes: waits for what lags far behind (`backpressure`), and freezes the
    /// open layer when it is large enough.
    pub(crate) async fn pace_ingest(&self) -> Result<()> {
        self.backpressure.pace().await;
        if self.store.open_bytes() < self.config().checkpoint_distance_bytes {
            return Ok(());
        }
        self.backpressure.wait_to_freeze().await;
        self.freeze()?;
        self.flush.wanted.notify_one();
        Ok(())
    }

    /// Freezes what is in memory, with the exact state at the last record in it.
    fn freeze(&self) -> Result<()> {
        let _appending = self.append.lock();
        let state = self.state();
        let lsn = state.last_record_lsn;
        let mut frozen_upto = self.flush.frozen_upto.lock();
        if lsn > *frozen_upto && lsn > self.remote_consistent_lsn() {
            let value = layers::Value::Meta(super::history::encode_state(&state)?);
            self.store
                .append([(Key::timeline_state(), lsn, (&value).into())])?;
        }
        self.store.freeze(lsn, state.prev_record_lsn);
        *frozen_upto = lsn;
        *self.flush.dirty_since.lock() = None;
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
        let _one_at_a_time = self.flush.running.lock().await;
        let mut uploads = FuturesOrdered::new();
        let mut writing = None;
        loop {
            if writing.is_none() && uploads.len() < MAX_FROZEN {
                // Those before it are being uploaded: they stay until `replace_frozen` below.
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
        // Not while it is uploaded: a store that refuses one timeline's layer must not stop all others.
        let _one_of_few = self.memory.flush_permit().await;
        let written = tokio::task::spawn_blocking(write)
            .await
            .context("flush task")?;
        let (desc, pieces) = written.context("write a delta layer")?;
        let content = self.store.uploads().counted(pieces.iter());
        // An upload that hangs is when somebody looks at what is in memory.
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
        let reached = self.index.reach(frozen.upto, self.ingested());
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
        let consistent = self.remote_consistent_lsn();
        self.identity
            .metrics
            .set_consistent_lsns(consistent, consistent);
        self.report_layers();
        self.compaction_wanted();
        self.identity.metrics.flushed_bytes.inc_by(size);
        self.identity
            .metrics
            .flush_seconds
            .observe(started.elapsed().as_secs_f64());
        tracing::info!(
            tenant = %self.tenant(), timeline = %self.id(), upto = %frozen.upto, bytes = size, "flushed a memory layer"
        );
    }

    /// Whether memory holds something that the time limit says must go.
    fn is_overdue(&self) -> bool {
        let dirty =
            self.store.open_bytes() > 0 || self.last_record_lsn() > self.remote_consistent_lsn();
        let mut since = self.flush.dirty_since.lock();
        if !dirty {
            *since = None;
            return false;
        }
        since.get_or_insert_with(Instant::now).elapsed() >= self.config().checkpoint_timeout()
    }

    /// The background task: flushes what ingest froze, and what has been in memory for too long.
    pub(super) async fn flush_task(self: Arc<Timeline>) {
        loop {
            let _ = tokio::time::timeout(TICK, self.flush.wanted.notified()).await;
            let result = if self.is_overdue() {
                self.checkpoint().await
            } else {
                self.flush_frozen().await
            };
            self.report_memory();
            if let Err(error) = result {
                tracing::error!(
                    tenant = %self.tenant(), timeline = %self.id(), "cannot flush, ingest will pause: {error}"
                );
                tokio::time::sleep(RETRY).await;
            }
        }
    }
}

impl Member for Timeline {
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
            Ok(()) => self.flush.wanted.notify_one(),
            Err(error) => {
                tracing::error!(
                    tenant = %self.tenant(), timeline = %self.id(), "memory is short, but cannot freeze: {error}"
                );
            }
        }
    }
}
