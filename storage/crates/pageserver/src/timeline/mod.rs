//! One branch: its progress, its terms, and everything that is done with its versions.
//!
//! Invariants:
//! - `last_record_lsn` moves only after every version of the record is in the store, and never back; a read at or
//!   below it is answered the same for ever.
//! - Only committed WAL moves `last_record_lsn`, so no read ever shows what a later term could truncate.
//! - All WAL ingested is of one log: no WAL is taken from a safekeeper whose log was written by other terms
//!   (`terms`).
//! - `max_term` never falls: it is stored before a bundle is served with a new term, so that a compute fenced once
//!   stays fenced after a restart.
//! - `remote_consistent_lsn` is what the uploaded index names; the WAL behind it may be trimmed.
//!
//! A timeline is made of parts, each of which owns its state and knows only parts named before it here: `Identity`,
//! `Position`, `Terms`, `Images`, `Reads`, `Backpressure`, `LayerStack`, `Compaction`, `Retention`, `Safekeepers`, `Ingest`. No part knows [`Timeline`],
//! which opens them and hands requests on; only `Lineage` knows the timelines above. `lock_order` says which lock may be taken under
//! which.
//!
//! A crash leaves the index and the layers it names. Opening the timeline again reads the state at the index's LSN
//! and ingests on from there.

mod backpressure;
mod bundle;
mod compaction;
mod detach;
mod digest;
mod history;
mod identity;
mod images;
mod ingest;
mod layer_stack;
mod lineage;
mod lock_order;
mod noted;
mod position;
mod progress;
mod reads;
mod report;
mod retention;
mod safekeepers;
mod size;
mod tasks;
mod terms;
mod two_phase;
mod waiting;

use std::sync::{Arc, Weak};

use parking_lot::RwLock;
use pg_types::{Lsn, TenantId, TimelineId};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use wal_decode::TimelineState;

use self::backpressure::Backpressure;
use self::compaction::Compaction;
use self::identity::Identity;
use self::images::Images;
use self::ingest::Ingest;
use self::layer_stack::LayerStack;
use self::lineage::Lineage;
use self::position::Position;
use self::reads::Reads;
use self::retention::Retention;
pub use self::retention::START_HOLD_SECONDS;
#[cfg(test)]
pub(crate) use self::retention::tests::Machine;
use self::safekeepers::Safekeepers;
use self::terms::Terms;
use crate::api::Chains;
use crate::clock::Clock;
use crate::config::TenantConfig;
use crate::error::Result;
use crate::memory::{self, MemoryBudget};
use crate::metrics::TimelineMetrics;
use crate::timeline_index::{Manifest, TimelineIndex};
use crate::version_store::VersionStore;

pub use history::{decode_state, encode_state};
pub use ingest::{DeltaWriter, EncodedValue};
pub(crate) use reads::{LONG_LIST, decode_u32};

/// The settings of a tenant, shared with all its timelines.
pub type SharedConfig = Arc<RwLock<Arc<TenantConfig>>>;

/// One branch of a tenant: its parts, its ancestors, and its requests.
pub struct Timeline {
    identity: Arc<Identity>,
    position: Arc<Position>,
    lineage: Lineage,
    store: Arc<VersionStore>,
    ingest: Arc<Ingest>,
    index: Arc<TimelineIndex>,
    terms: Arc<Terms>,
    images: Arc<Images>,
    reads: Arc<Reads>,
    layers: Arc<LayerStack>,
    compaction: Arc<Compaction>,
    detaching: detach::DetachWork,
    clock: Arc<Clock>,
    retention: Retention,
    safekeepers: Arc<Safekeepers>,
    cancel: CancellationToken,
    tasks: TaskTracker,
    /// Where what no request waits for is run.
    background: Handle,
}

/// What a timeline is opened from.
pub(crate) struct OpenTimeline {
    /// The tenant whose timeline it is.
    pub tenant: TenantId,
    /// The timeline's id.
    pub id: TimelineId,
    /// The tenant's settings.
    pub config: SharedConfig,
    /// The timeline it is a branch of, and the LSN up to which it reads that one.
    pub ancestor: Option<(Arc<Timeline>, Lsn)>,
    /// The versions, with the layers that the index names.
    pub store: Arc<VersionStore>,
    /// The index, taken over or just made by this process.
    pub index: TimelineIndex,
    /// The state at the index's LSN, from which ingest goes on.
    pub state: TimelineState,
    /// The memory that all timelines share.
    pub memory: Arc<MemoryBudget>,
    /// The clock by which history is cut and leases end.
    pub clock: Arc<Clock>,
    /// See `crate::background`.
    pub background: Handle,
}

impl Timeline {
    pub(crate) fn open(parts: OpenTimeline) -> Arc<Timeline> {
        let (clock, store, index) = (parts.clock, parts.store, Arc::new(parts.index));
        let identity = Identity::new(parts.tenant, parts.id, index.manifest(), parts.config);
        let identity = Arc::new(identity);
        let position = Arc::new(Position::new(identity.clone(), parts.state));
        let terms = Arc::new(Terms::new(
            identity.clone(),
            position.clone(),
            index.clone(),
        ));
        let images = Arc::new(Images::new(
            identity.clone(),
            position.clone(),
            store.clone(),
        ));
        let reads = Arc::new(Reads::new(identity.clone(), store.clone(), images.clone()));
        let backpressure = Arc::new(Backpressure::new(
            identity.clone(),
            store.clone(),
            images.clone(),
            parts.memory.clone(),
        ));
        let (layers, compaction) = Timeline::open_layers(layer_stack::Parts {
            identity: identity.clone(),
            position: position.clone(),
            store: store.clone(),
            index: index.clone(),
            terms: terms.clone(),
            images: images.clone(),
            backpressure,
            memory: parts.memory,
        });
        let retention = Retention::new(
            identity.clone(),
            position.clone(),
            index.clone(),
            layers.clone(),
            compaction.clone(),
            clock.clone(),
        );
        // Its compute may run, and could not say so while no pageserver did.
        retention.hold_start();
        let safekeepers = Arc::new(Safekeepers::new(
            identity.clone(),
            position.clone(),
            index.clone(),
            clock.clone(),
        ));
        let ingest = Arc::new(Ingest::new(ingest::Parts {
            identity: identity.clone(),
            position: position.clone(),
            index: index.clone(),
            terms: terms.clone(),
            images: images.clone(),
            reads: reads.clone(),
            layers: layers.clone(),
            safekeepers: safekeepers.clone(),
        }));
        Arc::new(Timeline {
            identity,
            position,
            lineage: Lineage::new(parts.ancestor),
            store,
            ingest,
            index,
            terms,
            reads,
            images,
            layers,
            compaction,
            detaching: detach::DetachWork::default(),
            clock,
            retention,
            safekeepers,
            cancel: CancellationToken::new(),
            tasks: TaskTracker::new(),
            background: parts.background,
        })
    }

    fn open_layers(parts: layer_stack::Parts) -> (Arc<LayerStack>, Arc<Compaction>) {
        let (identity, index, store) = (
            parts.identity.clone(),
            parts.index.clone(),
            parts.store.clone(),
        );
        let (backpressure, memory) = (parts.backpressure.clone(), parts.memory.clone());
        let images = parts.images.clone();
        let layers = Arc::new(LayerStack::new(parts));
        layers.report_layers();
        let member: Weak<dyn memory::Member> = Arc::downgrade(&layers) as _;
        memory.join(member);
        let below = layers.clone();
        let compaction =
            Compaction::new(identity, index, store, memory, backpressure, images, below);
        (layers, Arc::new(compaction))
    }

    /// The tenant whose timeline it is.
    pub fn tenant(&self) -> TenantId {
        self.identity.tenant
    }

    /// The timeline's id, unique within the tenant.
    pub fn id(&self) -> TimelineId {
        self.identity.id
    }

    /// The timeline's series of metrics.
    pub fn metrics(&self) -> &TimelineMetrics {
        &self.identity.metrics
    }

    /// What the timeline was made as. Its list of safekeepers and its ancestor may have changed since:
    /// [`Timeline::safekeepers`] and [`Timeline::ancestor`] have those of now.
    pub fn manifest(&self) -> &Manifest {
        &self.identity.manifest
    }

    /// Major version of Postgres, such as 15.
    pub fn pg_version(&self) -> u32 {
        self.identity.manifest.pg_version
    }

    /// What can be read of the timeline at an LSN that the caller has waited for.
    pub fn reads(&self) -> &Reads {
        &self.reads
    }

    /// The safekeepers from which the timeline gets its WAL.
    pub fn safekeepers(&self) -> &Safekeepers {
        &self.safekeepers
    }

    pub(crate) fn store(&self) -> &Arc<VersionStore> {
        &self.store
    }

    /// The timeline of which this is a branch, and the LSN up to which the branch reads it; none once the branch was
    /// detached.
    pub fn ancestor(&self) -> Option<(Arc<Timeline>, Lsn)> {
        self.lineage.parent()
    }

    /// The tenant's settings as of now.
    pub fn config(&self) -> Arc<TenantConfig> {
        self.identity.config()
    }

    /// End of the last ingested record: the newest LSN that can be read.
    pub fn last_record_lsn(&self) -> Lsn {
        self.position.last_record_lsn()
    }

    /// The state as of the last record.
    pub fn state(&self) -> TimelineState {
        self.position.state()
    }

    /// The LSN up to which the object store has everything.
    pub fn remote_consistent_lsn(&self) -> Lsn {
        self.index.consistent_lsn()
    }

    /// The chain length at which any page gets an image now.
    pub fn image_threshold(&self) -> u32 {
        self.config().threshold(self.position.full_page_writes())
    }

    /// How long the chains of deltas are, as `GET .../chains` shows it.
    pub fn chains(&self) -> Chains {
        self.images.chains()
    }

    /// Writes everything ingested so far to the object store. Returns once the index that names it is durable, for
    /// which it waits as long as the object store takes nothing. Fails when a layer can't be written and when another
    /// process has taken the timeline over.
    pub async fn checkpoint(&self) -> Result<()> {
        self.layers.checkpoint().await
    }

    pub(crate) async fn delete_objects(&self) -> Result<()> {
        self.index.delete().await
    }
}
