//! One bound on the memory that the versions of all timelines take before the object store has them in layer files.
//!
//! Up to a quarter of the limit, the budget does nothing. Beyond a quarter, the largest open layers of all timelines
//! are flushed before they are large or old enough for a flush of their own. Beyond half, a timeline that holds more
//! than its share of the other half waits with ingesting until flushes have made room; a timeline that holds less
//! ingests on, so that a tenant's bulk load never stalls its small neighbours. The timelines below their share can
//! together grow by at most half the limit, so the sum stays below the limit, give or take what is ingested until the
//! budget looks again: a hundredth of the limit, or what one flush gives back. Each timeline's account is updated at
//! every append, from the moment its store is opened, so that the sum is exact and costs nothing while memory is
//! plenty.
//!
//! A layer that has been written counts with its size in the file, until the object store has it ([`Uploads`]). A
//! timeline whose uploads make no progress thereby comes over its share and waits with ingesting; the other timelines
//! ingest on.
//!
//! The budget also gives out turns at flushes and merges, which take much memory or processor time. Neither holds its
//! turn while it uploads to the object store.
//!
//! Nothing here is stored. A crash loses only the accounts, which belong to memory that the crash loses as well.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use blob::PutPayload;
use bytes::Bytes;
use parking_lot::{Condvar, Mutex};
use prometheus::{IntCounter, IntGauge, register_int_counter, register_int_gauge};
use tokio::sync::{Notify, Semaphore, SemaphorePermit};

use crate::large_records::LargeRecords;

/// While memory is short, the accounts of all timelines are looked at each time the sum has grown by this share of
/// the limit, and each time some memory was given back.
const LOOK_SHARE: u64 = 128;
/// Longest time between two looks: without a report from any timeline, an allowance is lifted and the gauge updated
/// after this time.
const IDLE_LOOK: Duration = Duration::from_millis(500);
/// Memory that layers gave back is kept for the next ones, for so long, while all of it is no more than this share of
/// the limit: in a bulk load the next one has begun by then.
const SPARE_SHARE: u64 = 2;
const SPARE_FOR: Duration = Duration::from_secs(10);
/// An open layer smaller than this is not worth a flush of its own.
const SMALLEST_FLUSH: u64 = 1 << 20;
/// Memory layers being written, compressed, at once: each takes its output's size in memory.
const FLUSHES_AT_ONCE: usize = 2;
/// Compactions of one sort at once: each takes a processor, and a few outputs' size in memory.
const COMPACTIONS_AT_ONCE: usize = 1;
/// Bytes of layers merged at once, at most, so that a compaction's time stays bounded.
pub const MAX_MERGED_BYTES: u64 = 512 << 20;
/// At most so many bytes are merged by compactions of one sort that run or whose outputs are not stored yet. It is
/// twice the largest merge: when the object store takes no layer of one timeline, another timeline can still merge.
const UNSTORED_MERGED_BYTES: u64 = 2 * MAX_MERGED_BYTES;

/// What one timeline holds, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// The layer that ingest appends to.
    pub open: u64,
    /// Frozen layers, on their way to a file.
    pub frozen: u64,
    /// Layers written, on their way to the object store.
    pub uploading: u64,
}

impl Usage {
    fn total(self) -> u64 {
        self.open + self.frozen + self.uploading
    }
}

/// What to do about the memory of all timelines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Timelines, by their place in the usages, whose open layer is to be flushed, largest first.
    pub flush: Vec<usize>,
    /// A timeline with more bytes than this waits with ingesting; `u64::MAX` when no timeline has to wait.
    pub allowance: u64,
}

/// Which open layers to flush, and how much each timeline may hold, so that all stay below `limit` bytes; the module
/// head has the rules. `opening`: bytes of timelines that are not among the usages yet; together they count as one
/// more timeline.
pub fn plan(usages: &[Usage], opening: u64, limit: u64) -> Plan {
    let total: u64 = opening + usages.iter().map(|usage| usage.total()).sum::<u64>();
    let sharers = usages.len() as u64 + u64::from(opening > 0);
    let allowance = if total > limit / 2 {
        limit / 2 / sharers.max(1)
    } else {
        u64::MAX
    };
    let mut flush = Vec::new();
    if total > limit / 4 {
        let mut open: u64 = usages.iter().map(|usage| usage.open).sum();
        let mut largest: Vec<usize> = (0..usages.len()).collect();
        largest.sort_by_key(|at| std::cmp::Reverse(usages[*at].open));
        for at in largest {
            // A timeline whose ingest waits for memory is flushed at once: its open layer would else be flushed only
            // when it is old enough.
            let waits = usages[at].open > 0 && usages[at].total() > allowance;
            let large = usages[at].open >= SMALLEST_FLUSH && open > limit / 8;
            if waits || large {
                open -= usages[at].open;
                flush.push(at);
            }
        }
    }
    Plan { flush, allowance }
}

/// A timeline, as the budget sees it.
pub trait Member: Send + Sync {
    /// What the timeline holds now.
    fn usage(&self) -> Usage;
    /// Has the open layer written although it is neither large nor old: memory is short.
    fn flush_early(&self);
}

/// What one timeline holds in memory, bytes. Exact: the store reports every version it puts into memory and every
/// layer it takes out.
pub struct Account {
    budget: Arc<MemoryBudget>,
    held: AtomicU64,
    added: AtomicU64,
    uploads: Uploads,
}

/// Layers of one timeline that have been written and not yet been stored.
#[derive(Clone)]
pub struct Uploads {
    budget: Arc<MemoryBudget>,
    bytes: Arc<AtomicU64>,
}

/// The bytes of one layer being uploaded; they count until the last slice of them is dropped.
struct Uploading {
    content: Bytes,
    of: Uploads,
}

impl Uploads {
    /// A layer to be uploaded: each piece counts until its last copy is dropped.
    pub fn counted(&self, pieces: impl IntoIterator<Item = Bytes>) -> PutPayload {
        let counted = |content: Bytes| {
            let length = content.len() as u64;
            self.bytes.fetch_add(length, Ordering::Relaxed);
            self.budget.add(length);
            let of = self.clone();
            Bytes::from_owner(Uploading { content, of })
        };
        pieces.into_iter().map(counted).collect()
    }
}

impl AsRef<[u8]> for Uploading {
    fn as_ref(&self) -> &[u8] {
        &self.content
    }
}

impl Drop for Uploading {
    fn drop(&mut self) {
        let length = self.content.len() as u64;
        self.of.bytes.fetch_sub(length, Ordering::Relaxed);
        self.of.budget.remove(length);
    }
}

impl Account {
    /// Counts versions that were put into memory.
    pub fn add(&self, bytes: u64) {
        self.added.fetch_add(bytes, Ordering::Relaxed);
        self.held.fetch_add(bytes, Ordering::Relaxed);
        self.budget.add(bytes);
    }

    /// Takes off versions that have left memory, at most what was added.
    pub fn remove(&self, bytes: u64) {
        self.held.fetch_sub(bytes, Ordering::Relaxed);
        self.budget.remove(bytes);
    }

    /// Bytes in memory now.
    pub fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    /// Counts the layers on their way to the object store.
    pub fn uploads(&self) -> &Uploads {
        &self.uploads
    }

    /// Bytes of layers that the object store does not have yet.
    pub fn uploading(&self) -> u64 {
        self.uploads.bytes.load(Ordering::Relaxed)
    }

    /// Bytes ever put there.
    pub fn added(&self) -> u64 {
        self.added.load(Ordering::Relaxed)
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.remove(self.held());
    }
}

/// Shared by all timelines of the process.
pub struct MemoryBudget {
    limit: u64,
    /// Bytes in all accounts, and on their way to the object store.
    total: AtomicU64,
    /// Notified when the total passes what is free for the asking, and beyond that whenever it has changed.
    pressed: Notify,
    members: Mutex<Vec<Weak<dyn Member>>>,
    allowance: AtomicU64,
    eased: Notify,
    flushes: Semaphore,
    l0: Merges,
    settling: Merges,
    /// Turns at holding large WAL records, which no account counts.
    pub large_records: LargeRecords,
    /// Compactions of level 0 that run or wait for their turn.
    l0_pending: Mutex<usize>,
    l0_done: Condvar,
    used: IntGauge,
    waits: IntCounter,
}

impl MemoryBudget {
    /// `limit`: bytes of versions in memory, over all timelines.
    pub fn new(limit: u64) -> Arc<MemoryBudget> {
        layers::keep_spare((limit / SPARE_SHARE) as usize);
        Arc::new(MemoryBudget {
            limit,
            total: AtomicU64::new(0),
            pressed: Notify::new(),
            members: Mutex::default(),
            allowance: AtomicU64::new(u64::MAX),
            eased: Notify::new(),
            flushes: Semaphore::new(FLUSHES_AT_ONCE),
            l0: Merges::default(),
            settling: Merges::default(),
            large_records: LargeRecords::default(),
            l0_pending: Mutex::new(0),
            l0_done: Condvar::new(),
            used: METRICS.0.clone(),
            waits: METRICS.1.clone(),
        })
    }

    /// A new timeline's account.
    pub fn account(self: &Arc<MemoryBudget>) -> Account {
        Account {
            budget: self.clone(),
            held: AtomicU64::new(0),
            added: AtomicU64::new(0),
            uploads: Uploads {
                budget: self.clone(),
                bytes: Arc::default(),
            },
        }
    }

    /// Counts a timeline in until it is dropped.
    pub fn join(&self, member: Weak<dyn Member>) {
        let mut members = self.members.lock();
        members.retain(|other| other.strong_count() > 0);
        members.push(member);
    }

    fn add(&self, bytes: u64) {
        let before = self.total.fetch_add(bytes, Ordering::Relaxed);
        let (free, step) = (self.limit / 4, (self.limit / LOOK_SHARE).max(1));
        if before + bytes > free && (before <= free || before / step != (before + bytes) / step) {
            self.pressed.notify_one();
        }
    }

    fn remove(&self, bytes: u64) {
        let before = self.total.fetch_sub(bytes, Ordering::Relaxed);
        if bytes > 0 && before > self.limit / 4 {
            self.pressed.notify_one();
        }
    }

    /// Keeps all timelines within the budget, for as long as the budget exists. Sleeps while memory is plenty.
    pub fn share(budget: &Arc<MemoryBudget>) -> impl Future<Output = ()> + Send + use<> {
        let budget = Arc::downgrade(budget);
        async move {
            loop {
                let Some(budget) = budget.upgrade() else {
                    return;
                };
                budget.rebalance();
                layers::give_back_spare(Instant::now(), SPARE_FOR);
                budget
                    .used
                    .set(i64::try_from(budget.total.load(Ordering::Relaxed)).unwrap_or(i64::MAX));
                // Not for ever: a budget that is gone is noticed.
                let _ = tokio::time::timeout(IDLE_LOOK, budget.pressed.notified()).await;
            }
        }
    }

    /// Reads what all timelines hold and carries out the [`plan`] for it. Returns whether memory is short.
    fn rebalance(&self) -> bool {
        let was_short = self.allowance.load(Ordering::Relaxed) != u64::MAX;
        if self.total.load(Ordering::Relaxed) <= self.limit / 4 && !was_short {
            return false;
        }
        let members: Vec<Arc<dyn Member>> = self
            .members
            .lock()
            .iter()
            .filter_map(Weak::upgrade)
            .collect();
        let usages: Vec<Usage> = members.iter().map(|member| member.usage()).collect();
        let counted: u64 = usages.iter().map(|usage| usage.total()).sum();
        let opening = self.total.load(Ordering::Relaxed).saturating_sub(counted);
        let Plan { flush, allowance } = plan(&usages, opening, self.limit);
        self.allowance.store(allowance, Ordering::Relaxed);
        if allowance != u64::MAX || was_short {
            self.eased.notify_waiters();
        }
        for at in flush {
            members[at].flush_early();
        }
        true
    }

    /// Waits until a timeline that holds `held()` bytes may ingest on. Costs one load while memory is plenty.
    pub async fn wait_for_room(&self, held: impl Fn() -> u64) {
        if self.allowance.load(Ordering::Relaxed) == u64::MAX {
            return;
        }
        let mut waited = false;
        loop {
            let eased = self.eased.notified();
            if held() <= self.allowance.load(Ordering::Relaxed) {
                return;
            }
            if !std::mem::replace(&mut waited, true) {
                self.waits.inc();
            }
            eased.await;
        }
    }

    /// A permit to write a layer; at most [`FLUSHES_AT_ONCE`] are given at the same time.
    pub async fn flush_permit(&self) -> impl Drop + use<'_> {
        self.flushes
            .acquire()
            .await
            .expect("the semaphore is never closed")
    }

    /// Room for the outputs of a merge of `bytes` bytes to this level. The caller asks for the room before the turn
    /// and keeps it until the object store has the outputs.
    pub async fn merge_room(&self, level: u8, bytes: u64) -> SemaphorePermit<'_> {
        let wanted = bytes.min(UNSTORED_MERGED_BYTES) as u32;
        let room = &self.merges(level).room;
        room.acquire_many(wanted)
            .await
            .expect("the semaphore is never closed")
    }

    /// A turn at merging layers to this level. From the moment that a turn at level 1 is asked for, merges to level 2
    /// give way.
    pub async fn merge_turn(&self, level: u8) -> MergeTurn<'_> {
        let is_l0 = level <= 1;
        *self.l0_pending.lock() += usize::from(is_l0);
        let mut turn = MergeTurn {
            budget: self,
            is_l0,
            permit: None,
        };
        turn.permit = self.merges(level).turns.acquire().await.ok();
        turn
    }

    fn merges(&self, level: u8) -> &Merges {
        if level <= 1 { &self.l0 } else { &self.settling }
    }

    /// Blocks the thread while any timeline's level 0 is being compacted or waits for a turn at it.
    pub fn give_way_to_l0(&self) {
        let mut pending = self.l0_pending.lock();
        while *pending > 0 {
            self.l0_done.wait(&mut pending);
        }
    }
}

/// The limits of compactions of one sort: level 0 to level 1, or history to level 2.
struct Merges {
    turns: Semaphore,
    /// A permit a byte.
    room: Semaphore,
}

impl Default for Merges {
    fn default() -> Merges {
        Merges {
            turns: Semaphore::new(COMPACTIONS_AT_ONCE),
            room: Semaphore::new(UNSTORED_MERGED_BYTES as usize),
        }
    }
}

/// The right to merge layers, until it is dropped; [`MemoryBudget::merge_turn`] gives it.
pub struct MergeTurn<'a> {
    budget: &'a MemoryBudget,
    is_l0: bool,
    permit: Option<SemaphorePermit<'a>>,
}

impl Drop for MergeTurn<'_> {
    fn drop(&mut self) {
        drop(self.permit.take());
        if self.is_l0 {
            *self.budget.l0_pending.lock() -= 1;
            self.budget.l0_done.notify_all();
        }
    }
}

static METRICS: std::sync::LazyLock<(IntGauge, IntCounter)> = std::sync::LazyLock::new(|| {
    let used = register_int_gauge!(
        "weir_pageserver_memory_layers_bytes",
        "Bytes in layers not yet stored, over all timelines"
    );
    let waits = register_int_counter!(
        "weir_pageserver_memory_waits_total",
        "Times that a timeline's ingest waited for memory"
    );
    // Names are constants, so that a failure can only be a programming error.
    (
        used.expect("metric registered once"),
        waits.expect("metric registered once"),
    )
});

#[cfg(test)]
mod tests;
