//! Image generation by chain length.
//!
//! Every delta is counted at ingest. A page whose chain reaches its threshold gets an image in the background: the
//! page as of the last ingested record, put into the open layer, flushed with everything else. Image generation is
//! always on; the compute's full-page-writes state only picks the threshold, unless the tenant has storage weigh
//! reads against writes (`layers::ImageRule`). When WAL is ingested faster than images can be made, ingest waits for
//! the image of a page whose chain has reached a multiple of the threshold, so that no chain grows much beyond that
//! multiple. While WAL waits to be ingested, a page gets its image only shortly before its chain reaches that
//! multiple: a page that is written over and over would else get several images where one is enough, and making them
//! would take the processor from ingest. Once ingest has caught up, all due images are made. A crash loses the images
//! still in memory; ingesting the same WAL again counts the same deltas and makes the images anew.
//!
//! This part owns the chains' lengths. It knows `Identity`, `Position` and the store; `Backpressure` has ingest wait
//! for it.

mod make;

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use layers::{ChainCounts, ImageRule, ImageTask, LONG, Put};
use pg_types::{Key, Lsn, RelTag, SLRU_PAGES_PER_SEGMENT, SlruKind};
use tokio::sync::Notify;

use super::identity::Identity;
use super::lock_order::{
    CHAIN_COUNTS, IMAGES_DUE, IMAGES_MAKING, Ranked, RankedGuard, URGENT_PAGE,
};
use super::noted::NotedReads;
use super::position::Position;
use crate::api::{ChainBar, Chains, ImagePolicy};
use crate::chain_histogram::ChainHistogram;
use crate::error::Result;
use crate::metrics::CHAIN_BARS;
use crate::schedule::Scheduled;
use crate::version_store::VersionStore;

/// Chains of this many thresholds make ingest wait for an image.
pub(super) const OVERLONG: u32 = 4;
/// Blocks whose chains are forgotten before others get a turn.
const FORGOTTEN_AT_ONCE: u32 = 1 << 14;
/// Reads this close to the newest LSN count as reads of the newest version, bytes of WAL.
const RECENT_BYTES: u64 = 1 << 20;
/// Pages planned at once, the longest chains there are: to find them costs a look at very many that are due.
const PLAN: usize = 1024;
/// Pages made between two looks at what ingest waits for.
const BATCH: usize = 64;
/// Between batches: pages that are written all the time get one image for more deltas, and ingest gets the
/// processor.
const PAUSE: Duration = Duration::from_millis(5);
const RETRY: Duration = Duration::from_secs(1);

/// The lengths of all pages' chains, and the task that makes images of long ones.
pub(super) struct Images {
    identity: Arc<Identity>,
    position: Arc<Position>,
    store: Arc<VersionStore>,
    /// Reads by the deltas they applied, in `CHAIN_BARS`.
    chain_reads: ChainHistogram,
    counts: Ranked<CHAIN_COUNTS, ChainCounts>,
    /// Reads not reported to `counts` yet, so that reads need not wait for the lock of `counts`.
    reads: NotedReads,
    wanted: Notify,
    /// Wakes the task that makes images when ingest waits for one.
    awaited: Notify,
    /// Whether WAL waits to be ingested.
    catching_up: AtomicBool,
    /// Whether a page that gets its image now was counted since the last records were published.
    is_due: AtomicBool,
    /// Last record when a page first became due, while any is.
    due_since: Ranked<IMAGES_DUE, Option<Lsn>>,
    /// The page that ingest waits for: it comes first.
    urgent: Ranked<URGENT_PAGE, Option<Key>>,
    /// As of which record images are being made: they are put there although later records may be ingested by then.
    making: Ranked<IMAGES_MAKING, Option<Lsn>>,
    /// Whether a wait was in vain since the last images were made.
    stalled: AtomicBool,
    /// Notified after each batch of images.
    made: Notify,
}

impl Images {
    pub fn new(
        identity: Arc<Identity>,
        position: Arc<Position>,
        store: Arc<VersionStore>,
    ) -> Images {
        Images {
            identity,
            position,
            store,
            chain_reads: ChainHistogram::default(),
            counts: Ranked::default(),
            reads: NotedReads::default(),
            wanted: Notify::new(),
            awaited: Notify::new(),
            catching_up: AtomicBool::new(false),
            is_due: AtomicBool::new(false),
            due_since: Ranked::default(),
            urgent: Ranked::default(),
            making: Ranked::default(),
            stalled: AtomicBool::new(false),
            made: Notify::new(),
        }
    }

    /// Counts what some records put, `rule` being what holds behind them. Whether a page's chain is so long
    /// now that ingest has to wait for its image.
    pub fn ingested<'a>(
        &self,
        values: impl IntoIterator<Item = (Key, Lsn, Put<'a>)>,
        rule: ImageRule,
    ) -> bool {
        let mut counts = self.counts_by(rule);
        self.reads.pass_on(&mut counts);
        let only_long = self.catching_up.load(Ordering::Relaxed);
        let least = counts.threshold().saturating_mul(LONG);
        let overlong = counts.threshold().saturating_mul(OVERLONG);
        let mut longest = 0;
        for (key, lsn, value) in values {
            let deltas = counts.ingested(&key, lsn, value);
            if deltas >= overlong {
                *self.urgent.lock() = Some(key);
            }
            longest = longest.max(deltas);
        }
        if (only_long && longest >= least) || (!only_long && counts.due() > 0) {
            self.is_due.store(true, Ordering::Relaxed);
        }
        longest >= overlong
    }

    /// The counts as `rule` has them. What takes time for all pages leaves the async worker.
    fn counts_by(&self, rule: ImageRule) -> RankedGuard<'_, CHAIN_COUNTS, ChainCounts> {
        let mut counts = self.counts.lock();
        let is_long = !counts.has_rule(rule) || counts.is_behind();
        if is_long {
            stalls::off_worker(|| {
                counts.set_rule(rule);
                counts.catch_up();
            });
        }
        counts
    }

    /// What was counted up to here can be read: it is time to make images of pages that are due.
    pub fn published(&self, lsn: Lsn) {
        if self.counts.lock().due() > 0 {
            self.due_since.lock().get_or_insert(lsn);
        }
        if self.is_due.swap(false, Ordering::Relaxed) {
            self.wanted.notify_one();
        }
    }

    /// Whether more WAL than what has come is waiting to be ingested.
    pub fn set_catching_up(&self, catching_up: bool) {
        if self.catching_up.swap(catching_up, Ordering::Relaxed) && !catching_up {
            self.wanted.notify_one();
        }
    }

    /// One request's pages, each with the deltas that were applied: a read shows how long a chain really is, whatever
    /// was known from counting.
    pub fn note_reads(&self, pages: &[(Key, u32)], at: Lsn) {
        for (_, chain_length) in pages {
            let observed = &self.identity.metrics.chain_length;
            observed.observe(f64::from(*chain_length));
            self.chain_reads.observe(*chain_length);
        }
        // A read of the past says nothing about the chain as it is now.
        if self.position.last_record_lsn().0.saturating_sub(at.0) >= RECENT_BYTES {
            return;
        }
        let is_time = match self.position.image_rule() {
            rule @ ImageRule::Fixed(threshold) => {
                let long = pages.iter().filter(|(_, length)| *length >= threshold);
                let mut long = long.copied().peekable();
                if long.peek().is_none() {
                    return;
                }
                let mut counts = self.counts_by(rule);
                counts.read(at, long);
                counts.due() > 0
            }
            ImageRule::Adaptive { .. } => self.reads.note(pages, at),
        };
        if is_time {
            self.wanted.notify_one();
        }
    }

    /// A request for a page that was as an earlier read had made it.
    pub fn note_hot_read(&self) {
        self.identity.metrics.chain_length.observe(0.0);
        self.chain_reads.observe(0);
        self.reads.note_without_replay();
    }

    /// The page that ingest has to wait for.
    pub fn urgent_page(&self) -> Option<Key> {
        *self.urgent.lock()
    }

    /// Ingest waits for no page any more.
    pub fn nothing_is_urgent(&self) {
        *self.urgent.lock() = None;
    }

    /// Waits until a page's chain is no longer overlong, and has its image made first.
    pub async fn shortened(&self, key: Key) {
        loop {
            let made = self.made.notified();
            tokio::pin!(made);
            made.as_mut().enable();
            {
                let counts = self.counts.lock();
                if counts.get(&key) < counts.threshold().saturating_mul(OVERLONG) {
                    return;
                }
            }
            self.awaited.notify_one();
            made.await;
        }
    }

    /// Whether a wait was in vain since the last images were made.
    pub fn are_stalled(&self) -> bool {
        self.stalled.load(Ordering::Relaxed)
    }

    /// A wait was in vain.
    pub fn have_stalled(&self) {
        self.stalled.store(true, Ordering::Relaxed);
    }

    /// Forgets the chains of blocks that the record at `at` cuts off or drops: no image of them is ever made, so that
    /// nothing else would take them from memory.
    pub(super) async fn forget_blocks(&self, rel: RelTag, blocks: Range<u32>, at: Lsn) {
        for from in blocks.clone().step_by(FORGOTTEN_AT_ONCE as usize) {
            {
                let mut counts = self.counts.lock();
                for block in from..blocks.end.min(from.saturating_add(FORGOTTEN_AT_ONCE)) {
                    counts.forget(&Key::rel_block(rel, block), at);
                }
            }
            // A large relation has millions.
            tokio::task::yield_now().await;
        }
    }

    /// Forgets the chains of the pages of a segment that the record at `at` removes.
    pub(super) fn forget_segment(&self, kind: SlruKind, segno: u32, at: Lsn) {
        let mut counts = self.counts.lock();
        let first = segno.saturating_mul(SLRU_PAGES_PER_SEGMENT);
        for page in first..first.saturating_add(SLRU_PAGES_PER_SEGMENT) {
            counts.forget(&Key::slru_block(kind, page), at);
        }
    }

    /// Learns the chain lengths left by earlier runs and by ancestors, from the key tables of delta layers. Layers may
    /// still have pages that were cut off or dropped, which nothing would ever take from memory: they are left out.
    pub async fn load_chain_counts(&self) -> Result<()> {
        let mut counts = ChainCounts::default();
        counts.set_rule(self.position.image_rule());
        let mut lineage = vec![(self.store.clone(), Lsn::MAX)];
        let mut next = self.store.ancestor();
        let mut upto = Lsn::MAX;
        while let Some((store, branch_lsn)) = next {
            upto = upto.min(branch_lsn);
            next = store.ancestor();
            lineage.push((store, upto));
        }
        for (store, upto) in lineage.into_iter().rev() {
            counts = store.load_chain_counts(counts, upto).await?;
        }
        let rels = stalls::off_worker(|| counts.relations());
        let sizes = self.sizes_of(rels).await?;
        let is_there = |key: &Key| {
            let blocks = key.rel().map(|rel| sizes.get(&rel).copied().flatten());
            blocks.is_none_or(|blocks| blocks.is_some_and(|blocks| key.e < blocks))
        };
        stalls::off_worker(|| counts.retain(is_there));
        tracing::debug!(
            tenant = %self.identity.tenant, timeline = %self.identity.id, pages = counts.pages(), due = counts.due(),
            "loaded chain lengths"
        );
        *self.counts.lock() = counts;
        self.wanted.notify_one();
        Ok(())
    }

    /// The background task.
    pub async fn image_task(self: Arc<Images>) {
        loop {
            tokio::select! {
                () = self.wanted.notified() => {}
                () = self.awaited.notified() => {}
            }
            if let Err(error) = self.make_due_images().await {
                tracing::error!(tenant = %self.identity.tenant, timeline = %self.identity.id, "cannot make page images: {error}");
                tokio::time::sleep(RETRY).await;
            }
        }
    }

    async fn make_due_images(&self) -> Result<()> {
        let mut planned = VecDeque::new();
        loop {
            let rule = self.position.image_rule();
            // Before ingest has caught up the others wait.
            let only_long = self.catching_up.load(Ordering::Relaxed);
            let (tasks, due, is_awaited) = self.next_tasks(&mut planned, rule, only_long);
            self.identity
                .metrics
                .images_pending
                .set(i64::try_from(due).unwrap_or(i64::MAX));
            if due == 0 {
                *self.due_since.lock() = None;
                self.identity.metrics.image_lag.set(0);
                return Ok(());
            }
            let making = self.begin_making();
            let at = making.at;
            let since = *self.due_since.lock().get_or_insert(at);
            self.identity
                .metrics
                .image_lag
                .set(i64::try_from(at.0.saturating_sub(since.0)).unwrap_or(i64::MAX));
            if tasks.is_empty() {
                return Ok(());
            }
            self.make_images(&tasks, rule, at).await?;
            drop(making);
            if !only_long {
                // A page that became due during this batch has waited at most since the batch began.
                *self.due_since.lock() = Some(at);
            }
            self.stalled.store(false, Ordering::Relaxed);
            self.made.notify_waiters();
            if !is_awaited {
                // Not when ingest waits meanwhile.
                let _ = tokio::time::timeout(PAUSE, self.awaited.notified()).await;
            }
        }
    }

    /// The next batch from what is planned, which is planned anew when nothing is left of it; the number of pages
    /// due; whether the batch has the page that ingest waits for, which comes first.
    fn next_tasks(
        &self,
        planned: &mut VecDeque<ImageTask>,
        rule: ImageRule,
        only_long: bool,
    ) -> (Vec<ImageTask>, usize, bool) {
        let urgent = *self.urgent.lock();
        let mut counts = self.counts_by(rule);
        self.reads.pass_on(&mut counts);
        let mut tasks = Vec::with_capacity(BATCH);
        // Nothing may be left of what was planned before.
        for _ in 0..2 {
            if planned.is_empty() {
                let mut plan = counts.plan(PLAN, only_long);
                // Neighbours share blocks of layers.
                plan.sort_unstable_by_key(|task| task.key);
                *planned = plan.into();
            }
            while tasks.len() < BATCH
                && let Some(task) = planned.pop_front()
            {
                if counts.is_still_due(&task.key, only_long) {
                    tasks.push(task);
                }
            }
            if !tasks.is_empty() {
                break;
            }
        }
        let awaited = urgent
            .map(|key| ImageTask {
                key,
                deltas: counts.get(&key),
            })
            .filter(|task| task.deltas >= counts.threshold());
        if let Some(task) = awaited {
            tasks.retain(|other| other.key != task.key);
            tasks.insert(0, task);
        }
        (tasks, counts.due(), awaited.is_some())
    }

    /// What `/chains` shows.
    pub fn chains(&self) -> Chains {
        let mut counts = self.counts.lock();
        self.reads.pass_on(&mut counts);
        if counts.due() > 0 {
            self.wanted.notify_one();
        }
        let mut pages: Vec<ChainBar> = CHAIN_BARS
            .iter()
            .copied()
            .map(Some)
            .chain([None])
            .map(|up_to| ChainBar { up_to, count: 0 })
            .collect();
        for (length, count) in counts.histogram() {
            pages[CHAIN_BARS.partition_point(|up_to| *up_to < length)].count += count;
        }
        let config = self.identity.config();
        Chains {
            mode: config.image_mode,
            threshold: config.threshold(self.position.full_page_writes()),
            policy: counts.policy().map(|policy| ImagePolicy {
                chain: policy.chain,
                deltas_per_read: policy.deltas_per_read,
            }),
            pages,
            longest: counts.max(),
            pending_images: counts.due(),
            reads: self.chain_reads.bars(),
        }
    }
}

impl Scheduled for Images {
    /// Has images made that are due by a change of the settings, or by reads of which too few came to tell of them.
    fn wake_if_due(&self) {
        let rule = self.position.image_rule();
        let is_due = {
            let mut counts = self.counts.lock();
            let is_changed = !counts.has_rule(rule);
            if !is_changed {
                self.reads.pass_on(&mut counts);
            }
            is_changed || counts.due() > 0
        };
        // What is due no more is to be forgotten as well.
        if is_due || self.due_since.lock().is_some() {
            self.wanted.notify_one();
        }
    }
}
