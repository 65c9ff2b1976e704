//! Image generation by chain length.
//!
//! Every delta is counted at ingest. A page whose chain reaches its threshold gets an image in the
//! background: the page as of the last ingested record, put into the open layer, flushed with everything
//! else. This is always on; the compute's full-page-writes state only picks the threshold, or the tenant has
//! storage weigh reads against writes (`layers::ImageRule`). When ingest comes
//! in faster than images can be made, it waits for the image of a page whose chain has reached a multiple of
//! the threshold, so that no chain grows much beyond that multiple. While WAL waits to be ingested, a page gets its
//! image only shortly before that: what is written over and over would else get several where one does, and they would
//! take the processor from ingest. Once it has caught up, all that is due is made. A crash loses
//! the images still in memory; ingesting the same WAL again counts the same deltas and makes them anew.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use layers::{ChainCounts, ImageRule, ImageTask, LONG, Put};
use pg_types::{BLCKSZ, Key, Lsn, RelTag};
use tokio::sync::Notify;

use super::Timeline;
use super::lock_order::{CHAIN_COUNTS, IMAGES_DUE, Ranked, URGENT_PAGE};
use super::noted::NotedReads;
use super::reads::{decode_floor, decode_u32};
use crate::api::{ChainBar, Chains, ImagePolicy};
use crate::error::Result;
use crate::metrics::{CHAIN_BARS, ImageReason};
use crate::redo::Page;

/// Pages planned at once, the longest chains there are: to find them costs a look at all that is due.
const PLAN: usize = 1024;
/// Pages made between two looks at what ingest waits for.
const BATCH: usize = 64;
/// Between batches: pages that are written all the time get one image for more deltas, and ingest gets the
/// processor.
const PAUSE: Duration = Duration::from_millis(5);
/// How often a change of the threshold is noticed while nothing is ingested.
const TICK: Duration = Duration::from_millis(500);
const RETRY: Duration = Duration::from_secs(1);
/// Chains of this many thresholds make ingest wait.
const OVERLONG: u32 = 4;
/// Longest wait for one image. When none is made in this time, ingest goes on without waiting until one is
/// again: what keeps images from being made must not keep WAL from being ingested.
const LONGEST_WAIT: Duration = Duration::from_secs(2);

#[derive(Default)]
pub struct ImageWork {
    counts: Ranked<CHAIN_COUNTS, ChainCounts>,
    /// What `counts` has not been told of: reads must not wait for it.
    reads: NotedReads,
    wanted: Notify,
    /// The same, when ingest waits.
    awaited: Notify,
    /// Whether WAL waits to be ingested.
    catching_up: AtomicBool,
    /// Whether a page that gets its image now was counted since the last records were published.
    is_due: AtomicBool,
    /// Last record when a page first became due, while any is.
    due_since: Ranked<IMAGES_DUE, Option<Lsn>>,
    /// The page that ingest waits for: it comes first.
    urgent: Ranked<URGENT_PAGE, Option<Key>>,
    /// Whether a wait was in vain since the last images were made.
    stalled: AtomicBool,
    /// Told after each batch of images.
    made: Notify,
}

impl ImageWork {
    /// Counts what some records put, `rule` being what holds behind them. Whether a page's chain is so long
    /// now that ingest has to wait for its image.
    pub(super) fn ingested<'a>(
        &self,
        values: impl IntoIterator<Item = (Key, Lsn, Put<'a>)>,
        rule: ImageRule,
    ) -> bool {
        let mut counts = self.counts.lock();
        counts.set_rule(rule);
        self.reads.tell(&mut counts);
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

    /// What was counted up to here can be read: it is time to make images of pages that are due.
    pub(super) fn published(&self, lsn: Lsn) {
        if self.counts.lock().due() > 0 {
            self.due_since.lock().get_or_insert(lsn);
        }
        if self.is_due.swap(false, Ordering::Relaxed) {
            self.wanted.notify_one();
        }
    }

    /// Whether more WAL than what has come is waiting to be ingested.
    pub(super) fn set_catching_up(&self, catching_up: bool) {
        if self.catching_up.swap(catching_up, Ordering::Relaxed) && !catching_up {
            self.wanted.notify_one();
        }
    }

    /// A read shows how long a chain really is, whatever was known from counting.
    pub(super) fn note_reads(&self, pages: &[(Key, u32)], rule: ImageRule, at: Lsn) {
        let is_time = match rule {
            ImageRule::Fixed(threshold) => {
                let long = pages.iter().filter(|(_, length)| *length >= threshold);
                let mut long = long.copied().peekable();
                if long.peek().is_none() {
                    return;
                }
                let mut counts = self.counts.lock();
                counts.read(at, long);
                counts.set_rule(rule);
                counts.due() > 0
            }
            ImageRule::Adaptive { .. } => self.reads.note(pages, at),
        };
        if is_time {
            self.wanted.notify_one();
        }
    }

    pub(super) fn note_hot_read(&self) {
        self.reads.note_without_replay();
    }
}

impl Timeline {
    /// Learns the chain lengths left by earlier runs and by ancestors, from the key tables of delta layers.
    pub(super) async fn load_chain_counts(&self) -> Result<()> {
        let mut counts = ChainCounts::default();
        counts.set_rule(self.image_rule());
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
        tracing::debug!(
            tenant = %self.tenant(), timeline = %self.id(), pages = counts.pages(), due = counts.due(),
            "loaded chain lengths"
        );
        *self.images.counts.lock() = counts;
        self.images.wanted.notify_one();
        Ok(())
    }

    /// The background task.
    pub(super) async fn image_task(self: Arc<Timeline>) {
        loop {
            let wanted = async {
                tokio::select! {
                    () = self.images.wanted.notified() => {}
                    () = self.images.awaited.notified() => {}
                }
            };
            let _ = tokio::time::timeout(TICK, wanted).await;
            if let Err(error) = self.make_due_images().await {
                tracing::error!(tenant = %self.tenant(), timeline = %self.id(), "cannot make page images: {error}");
                tokio::time::sleep(RETRY).await;
            }
        }
    }

    /// Called by ingest after whatever it publishes: waits while a page it wrote has a chain that is far too long.
    pub(super) async fn pace_images(&self) {
        let images = &self.images;
        let Some(key) = *images.urgent.lock() else {
            return;
        };
        let shortened = async {
            loop {
                let made = images.made.notified();
                tokio::pin!(made);
                made.as_mut().enable();
                {
                    let counts = images.counts.lock();
                    if counts.get(&key) < counts.threshold().saturating_mul(OVERLONG) {
                        return;
                    }
                }
                images.awaited.notify_one();
                made.await;
            }
        };
        if !images.stalled.load(Ordering::Relaxed)
            && tokio::time::timeout(LONGEST_WAIT, shortened).await.is_err()
        {
            images.stalled.store(true, Ordering::Relaxed);
            tracing::warn!(
                tenant = %self.tenant(), timeline = %self.id(), %key,
                "no image was made in {} s: chains grow until images are made again", LONGEST_WAIT.as_secs()
            );
        }
        *images.urgent.lock() = None;
    }

    async fn make_due_images(&self) -> Result<()> {
        let mut planned = VecDeque::new();
        loop {
            let rule = self.image_rule();
            // Before ingest has caught up the others wait.
            let only_long = self.images.catching_up.load(Ordering::Relaxed);
            let (tasks, due, is_awaited) = self.next_tasks(&mut planned, rule, only_long);
            self.identity
                .metrics
                .images_pending
                .set(i64::try_from(due).unwrap_or(i64::MAX));
            if due == 0 {
                *self.images.due_since.lock() = None;
                self.identity.metrics.image_lag.set(0);
                return Ok(());
            }
            let at = self.last_record_lsn();
            let since = *self.images.due_since.lock().get_or_insert(at);
            self.identity
                .metrics
                .image_lag
                .set(i64::try_from(at.0.saturating_sub(since.0)).unwrap_or(i64::MAX));
            if tasks.is_empty() {
                return Ok(());
            }
            self.make_images(&tasks, rule, at).await?;
            if !only_long {
                // Whoever became due during this batch has waited at most since its beginning.
                *self.images.due_since.lock() = Some(at);
            }
            self.images.stalled.store(false, Ordering::Relaxed);
            self.images.made.notify_waiters();
            if !is_awaited {
                // Not when ingest waits meanwhile.
                let _ = tokio::time::timeout(PAUSE, self.images.awaited.notified()).await;
            }
        }
    }

    /// The next batch from what is planned, which is planned anew when nothing is left of it; the number of pages due;
    /// whether the batch has the page that ingest waits for, which comes first.
    fn next_tasks(
        &self,
        planned: &mut VecDeque<ImageTask>,
        rule: ImageRule,
        only_long: bool,
    ) -> (Vec<ImageTask>, usize, bool) {
        let urgent = *self.images.urgent.lock();
        let mut counts = self.images.counts.lock();
        counts.set_rule(rule);
        self.images.reads.tell(&mut counts);
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

    /// Makes images of these pages as of `at`, which is ingested.
    async fn make_images(&self, tasks: &[ImageTask], rule: ImageRule, at: Lsn) -> Result<()> {
        let full_page_writes = self.position.full_page_writes();
        let reason = |deltas: u32| match rule {
            ImageRule::Fixed(_) if full_page_writes => ImageReason::Threshold,
            ImageRule::Fixed(_) => ImageReason::Pushdown,
            ImageRule::Adaptive { bound } if deltas < bound => ImageReason::Read,
            ImageRule::Adaptive { .. } => ImageReason::Bound,
        };
        let keys: Vec<Key> = tasks.iter().map(|task| task.key).collect();
        let mut wanted = Vec::with_capacity(tasks.len());
        for (key, floor) in keys.iter().zip(self.visible_floors(&keys, at).await?) {
            match floor {
                Some(floor) => wanted.push((*key, floor)),
                None => self.images.counts.lock().forget(key, at),
            }
        }
        let pages = self.store.pages_anew(&wanted, at).await?;
        crash::point!("images.made");
        for ((key, _), page) in wanted.into_iter().zip(pages) {
            match page {
                Ok(page) => self.put_image(key, at, &page, reason(page.chain_length))?,
                Err(error) => {
                    // Reads of this page fail as well and say so; the other pages still get their images.
                    tracing::error!(tenant = %self.tenant(), timeline = %self.id(), %key, %at, "no image: {error}");
                    self.images.counts.lock().forget(&key, Lsn::MAX);
                }
            }
        }
        Ok(())
    }

    fn put_image(&self, key: Key, at: Lsn, page: &Page, reason: ImageReason) -> Result<()> {
        let made = page.chain_length;
        if made > 0 {
            let bytes = if page.bytes.is_empty() {
                Bytes::from(vec![0; BLCKSZ])
            } else {
                page.bytes.clone()
            };
            self.store.append_image(key, at, bytes)?;
            crash::point!("images.appended");
            self.identity.metrics.observe_image(reason, BLCKSZ);
        }
        self.images.counts.lock().image_made(&key, at, made);
        Ok(())
    }

    /// The floor of each page's versions; `None` when the page does not exist.
    async fn visible_floors(&self, keys: &[Key], at: Lsn) -> Result<Vec<Option<Lsn>>> {
        let mut rels: Vec<RelTag> = keys.iter().filter_map(Key::rel).collect();
        rels.sort_unstable();
        rels.dedup();
        let directory: Vec<Key> = rels
            .iter()
            .flat_map(|rel| [Key::rel_size(*rel), Key::rel_floor(*rel)])
            .collect();
        let values = self.values(&directory, at).await?;
        let mut known = HashMap::with_capacity(rels.len());
        for (rel, value) in rels.into_iter().zip(values.chunks_exact(2)) {
            let blocks = value[0].as_ref().map(decode_u32).transpose()?;
            known.insert(rel, (blocks, decode_floor(value[1].as_ref())?));
        }
        let floor_of = |key: &Key| match key.rel() {
            None => Some(Lsn::INVALID),
            Some(rel) => {
                let (blocks, floor) = known.get(&rel)?;
                blocks.filter(|blocks| key.e < *blocks)?;
                Some(floor.of_block(key.e))
            }
        };
        Ok(keys.iter().map(floor_of).collect())
    }

    /// What `/chains` shows.
    pub fn chains(&self) -> Chains {
        let mut counts = self.images.counts.lock();
        self.images.reads.tell(&mut counts);
        if counts.due() > 0 {
            self.images.wanted.notify_one();
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
        let config = self.config();
        Chains {
            mode: config.image_mode,
            threshold: self.image_threshold(),
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
