//! What slows ingest down, and why: everything that ingest makes work for, and that must not fall behind without
//! bound.
//!
//! | what falls behind | what would grow | what ingest does |
//! |---|---|---|
//! | the image of a page whose chain has [`super::images::OVERLONG`] thresholds | the deltas that a read has to apply | waits for that image, up to [`LONGEST_WAIT`] |
//! | compaction of level 0 | the layers that a read has to look into | pauses for each MiB, longer the more there are, and stops at a hard limit (`layers::Brake`) |
//! | writing and uploading, over all timelines | the memory of the process | waits while the timeline holds more than its share (`memory`) |
//! | writing and uploading, of this timeline | its frozen layers | freezes no more than [`MAX_FROZEN`] |
//!
//! Invariants:
//! - Only ingest waits here, after it has published and while it holds no lock of a timeline; reads never do.
//! - Of all that can fail, only uploads stop ingest, because what is not uploaded holds memory. Where images cannot
//!   be made, ingest goes on without them; where compaction fails, ingest goes on slowly.
//!
//! The parts tell this one what they have done ([`Backpressure::layer_flushed`], [`Backpressure::level_0_compacted`],
//! `Images`), and this part wakes compaction when ingest waits for it. Nothing here is stored.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use layers::Brake;
use tokio::sync::Notify;

use super::identity::Identity;
use super::images::Images;
use crate::memory::MemoryBudget;
use crate::version_store::VersionStore;

/// Longest wait for one image. When none is made in this time, ingest goes on without waiting until one is
/// again: what keeps images from being made must not keep WAL from being ingested.
const LONGEST_WAIT: Duration = Duration::from_secs(2);
/// The brake of level 0 is applied once for each so many bytes put into memory.
const BRAKE_EVERY: u64 = 1 << 20;
/// How long ingest waits for a compaction that keeps failing before it goes on with the next MiB: level 0 must not
/// grow without bound, and WAL that is not ingested at all is an outage.
const WAIT_FOR_FAILING: Duration = Duration::from_secs(2);
/// Frozen layers that may wait for their upload before ingest pauses.
pub(super) const MAX_FROZEN: usize = 4;

/// What ingest waits for, of all the work that it makes for the other parts.
pub(super) struct Backpressure {
    identity: Arc<Identity>,
    store: Arc<VersionStore>,
    images: Arc<Images>,
    memory: Arc<MemoryBudget>,
    /// Level-0 layers as of the last change of the layer map.
    level_0_layers: AtomicUsize,
    /// Whether the last attempt to compact level 0 failed.
    compaction_fails: AtomicBool,
    /// Notified when level 0 has become smaller, or has failed to.
    level_0_changed: Notify,
    /// Tells compaction that ingest waits for it, or that there may be something to do.
    level_0_wanted: Notify,
    /// Bytes put into memory up to which the brake of level 0 has been applied.
    braked_upto: AtomicU64,
    /// Tells ingest that a frozen layer is gone.
    flushed: Notify,
}

impl Backpressure {
    pub fn new(
        identity: Arc<Identity>,
        store: Arc<VersionStore>,
        images: Arc<Images>,
        memory: Arc<MemoryBudget>,
    ) -> Backpressure {
        Backpressure {
            identity,
            store,
            images,
            memory,
            level_0_layers: AtomicUsize::new(0),
            compaction_fails: AtomicBool::new(false),
            level_0_changed: Notify::new(),
            level_0_wanted: Notify::new(),
            braked_upto: AtomicU64::new(0),
            flushed: Notify::new(),
        }
    }

    /// To be called by ingest after whatever it publishes: waits for what has fallen behind, save for frozen layers.
    pub async fn pace(&self) {
        self.wait_for_image().await;
        self.brake_for_level_0().await;
        self.memory
            .wait_for_room(|| self.store.memory_bytes() + self.store.uploading_bytes())
            .await;
    }

    /// To be called by ingest before it freezes a layer: waits while too many are frozen.
    pub async fn wait_to_freeze(&self) {
        loop {
            let flushed = self.flushed.notified();
            if self.store.frozen_count() < MAX_FROZEN {
                return;
            }
            flushed.await;
        }
    }

    async fn wait_for_image(&self) {
        let Some(key) = self.images.urgent_page() else {
            return;
        };
        if !self.images.are_stalled()
            && tokio::time::timeout(LONGEST_WAIT, self.images.shortened(key))
                .await
                .is_err()
        {
            self.images.have_stalled();
            tracing::warn!(
                tenant = %self.identity.tenant, timeline = %self.identity.id, %key,
                "no image was made in {} s: chains grow until images are made again", LONGEST_WAIT.as_secs()
            );
        }
        self.images.nothing_is_urgent();
    }

    async fn brake_for_level_0(&self) {
        let added = self.store.bytes_added();
        if added < self.braked_upto.load(Ordering::Relaxed) + BRAKE_EVERY {
            return;
        }
        self.braked_upto.store(added, Ordering::Relaxed);
        let brake = Brake::new(self.identity.config().compaction_threshold as usize);
        let delay =
            || brake.delay(self.level_0_layers.load(Ordering::Relaxed) + self.store.frozen_count());
        let started = Instant::now();
        let pause = loop {
            let changed = self.level_0_changed.notified();
            match delay() {
                Some(pause) => break pause,
                None if self.compaction_fails.load(Ordering::Relaxed) => break WAIT_FOR_FAILING,
                None => {
                    self.level_0_wanted.notify_one();
                    changed.await;
                }
            }
        };
        if !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
        let waited = started.elapsed();
        if waited > Duration::from_millis(1) {
            let braked = &self.identity.metrics.braked_ms;
            braked.inc_by(waited.as_millis() as u64);
        }
    }

    /// A frozen layer is in a file now.
    pub fn layer_flushed(&self) {
        self.flushed.notify_waiters();
    }

    /// Takes note of the number of level-0 layers.
    pub fn set_level_0_layers(&self, count: usize) {
        self.level_0_layers.store(count, Ordering::Relaxed);
        let gauge = &self.identity.metrics.l0_layers;
        gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// The layer map has changed by a compaction.
    pub fn level_0_compacted(&self) {
        self.level_0_changed.notify_waiters();
    }

    /// An attempt to compact level 0 has ended.
    pub fn compaction_ended(&self, failed: bool) {
        self.compaction_fails.store(failed, Ordering::Relaxed);
        self.level_0_changed.notify_waiters();
    }

    /// Wakes the compaction of level 0.
    pub fn want_compaction(&self) {
        self.level_0_wanted.notify_one();
    }

    /// Waits until level 0 is to be looked at.
    pub async fn compaction_wanted(&self) {
        self.level_0_wanted.notified().await;
    }
}
