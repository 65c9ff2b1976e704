//! Chain lengths: how many deltas each page has gathered since its last image, and which pages are due for a new one.
//!
//! Invariant: a page's count is at least the length of the chain a read of its newest version would walk, as long as
//! every put is reported; after a restart it may be higher (never lower), which makes an image early and nothing
//! worse. Fed at ingest, corrected by reads, rebuilt from the key tables of delta layers.
//!
//! [`ImageRule`] says when a page is due: at a fixed length, or at one that depends on the timeline's reads and
//! writes ([`Weigher`]). What was learned of a page's reads is kept beside its count, for at most [`IDLE_PAGES`]
//! pages without a chain. Nothing is stored; a crash loses it.
//!
//! A report of a page takes the same time however many pages there are. What does not is noted, and done when the
//! caller says so ([`ChainCounts::catch_up`]); meanwhile some pages are not due that should be, or the other way
//! round.

mod behind;
mod lengths;
mod rule;

use std::collections::{HashMap, HashSet};

use foldhash::fast::RandomState;
use pg_types::{Key, Lsn};

pub use self::rule::ImageRule;
use crate::format::KeyStat;
use crate::value::{LsnRange, Put, ValueRef};
use crate::weigh::{Habits, Policy, Weigher};

/// Counts from here on share one slot of the histogram.
const HISTOGRAM_SLOTS: usize = 4096;
/// Pages without a chain whose habits are kept; more of them, and everything that was learned counts half when the
/// caller has [`ChainCounts::catch_up`] done.
const IDLE_PAGES: usize = 1 << 17;

/// Among so many pages the longest chains are looked for: a few milliseconds. A page that is not among them is once
/// others have got their images.
const PLANNED_AMONG: usize = 1 << 16;

/// A chain of so many thresholds is long: its page comes before all that are merely due.
pub const LONG: u32 = 3;

/// Packed, so that with its key it takes 48 bytes of the table, which is large and read at random.
#[repr(C, packed(4))]
#[derive(Clone, Copy, Debug)]
struct Count {
    deltas: u32,
    /// No counted delta is older than this.
    first: Lsn,
    /// No counted delta is newer than this.
    last: Lsn,
    habits: Habits,
}

impl Count {
    const NONE: Count = Count {
        deltas: 0,
        first: Lsn::INVALID,
        last: Lsn::INVALID,
        habits: Habits {
            deltas: 0,
            reads: 0,
        },
    };

    /// After an image, or another start: what is known of the page's reads and writes stays.
    fn without_chain(self) -> Count {
        Count {
            habits: self.habits,
            ..Count::NONE
        }
    }
}

/// One page that should get an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageTask {
    /// The page.
    pub key: Key,
    /// The page's chain length when the plan was made.
    pub deltas: u32,
}

/// The chain length of every page. Only pages ([`Key::is_page`]) are counted.
#[derive(Clone, Debug)]
pub struct ChainCounts {
    counts: HashMap<Key, Count, RandomState>,
    /// Keys with at least as many deltas as their threshold.
    due: HashSet<Key, RandomState>,
    /// Due keys whose chains are long ([`LONG`]): few, and looked for often while many are due.
    long: HashSet<Key, RandomState>,
    /// The longest chain of a page that is not due.
    threshold: u32,
    /// The weigher of the adaptive rule; `None` under the fixed rule.
    weigher: Option<Box<Weigher>>,
    /// Number of pages by chain length, from 1 on.
    histogram: Vec<u64>,
    /// Pages with at least one delta; of the others in `counts` only habits are known.
    chained: usize,
    /// Whether all pages are to be looked at: another policy holds, or too much is remembered.
    look_is_due: bool,
}

impl Default for ChainCounts {
    fn default() -> ChainCounts {
        ChainCounts::new(u32::MAX)
    }
}

impl ChainCounts {
    /// `threshold`: the chain length at which a page is due.
    pub fn new(threshold: u32) -> ChainCounts {
        ChainCounts {
            counts: HashMap::default(),
            due: HashSet::default(),
            long: HashSet::default(),
            threshold: threshold.max(1),
            weigher: None,
            histogram: vec![0; HISTOGRAM_SLOTS + 1],
            chained: 0,
            look_is_due: false,
        }
    }

    /// The chain length at which any page is due, however often it is read.
    pub fn threshold(&self) -> u32 {
        self.threshold
    }

    /// What the adaptive rule does now.
    pub fn policy(&self) -> Option<Policy> {
        self.weigher.as_ref().map(|weigher| weigher.policy())
    }

    /// Changes the threshold; pages that are over the new one become due at once.
    pub fn set_threshold(&mut self, threshold: u32) {
        self.set_rule(ImageRule::Fixed(threshold));
    }

    /// Changes the rule; pages that are due by the new one are so at once. The adaptive rule begins to learn anew
    /// when it was not in force, or its bound was another.
    pub fn set_rule(&mut self, rule: ImageRule) {
        if self.has_rule(rule) {
            return;
        }
        let (threshold, is_adaptive) = rule.parts();
        self.threshold = threshold;
        self.weigher = is_adaptive.then(|| Box::new(Weigher::new(threshold)));
        self.counts.retain(|_, count| count.deltas > 0);
        for count in self.counts.values_mut() {
            count.habits = Habits {
                deltas: count.deltas,
                reads: 0,
            };
        }
        self.find_due();
    }

    /// Whether `rule` is what counts already: to set another one costs a look at all pages.
    pub fn has_rule(&self, rule: ImageRule) -> bool {
        rule.parts() == (self.threshold, self.weigher.is_some())
    }

    fn is_long(&self, count: &Count) -> bool {
        count.deltas >= self.threshold.saturating_mul(LONG)
    }

    fn is_due(&self, count: &Count) -> bool {
        let threshold = match &self.weigher {
            None => self.threshold,
            Some(weigher) => weigher.threshold(count.habits),
        };
        count.deltas >= threshold
    }

    /// A value was put, or is about to be. Call for every value; what is not a page is ignored. The page's chain
    /// length from here on.
    pub fn ingested<'a>(&mut self, key: &Key, lsn: Lsn, value: impl Into<Put<'a>>) -> u32 {
        let value = value.into().as_ref();
        if let Some(weigher) = &mut self.weigher {
            weigher.wrote(value.payload().len());
        }
        if !key.is_page() {
            return 0;
        }
        let ValueRef::Delta { starts_chain, .. } = value else {
            let mut count = Count::NONE;
            count.habits.reads = self.counts.get(key).map_or(0, |old| old.habits.reads);
            self.set(*key, count);
            return 0;
        };
        let first = Count {
            deltas: 1,
            first: lsn,
            last: lsn,
            habits: Habits {
                deltas: 1,
                reads: 0,
            },
        };
        let (before, now) = match self.counts.get_mut(key) {
            Some(count) => {
                let before = *count;
                if starts_chain {
                    *count = first;
                    count.habits.reads = before.habits.reads;
                } else {
                    if before.deltas == 0 {
                        count.first = lsn;
                    }
                    count.deltas = before.deltas.saturating_add(1);
                    count.habits.deltas = before.habits.deltas.saturating_add(1);
                    count.last = lsn.max(count.last);
                }
                (before, *count)
            }
            None => {
                self.counts.insert(*key, first);
                (Count::NONE, first)
            }
        };
        self.moved(key, &before, &now);
        if let Some(weigher) = &mut self.weigher {
            weigher.delta(now.habits);
            self.weigh();
        }
        now.deltas
    }

    /// One request read the newest version of these pages, at `lsn`, and replayed so many deltas for each. Pages of
    /// which that was no news to a fixed rule may be left out there.
    pub fn read(&mut self, lsn: Lsn, pages: impl IntoIterator<Item = (Key, u32)>) {
        let mut request = Vec::new();
        for (key, replayed) in pages {
            self.observed(&key, lsn, replayed);
            if self.weigher.is_none() {
                continue;
            }
            let Some(count) = self.counts.get(&key).copied() else {
                request.push((Habits::default(), None));
                continue;
            };
            // Less than the whole chain: what an earlier read made was at hand.
            let part = (replayed < count.deltas).then_some(replayed);
            request.push((count.habits, part));
            if count.habits.deltas > 0 && part.is_none_or(|replayed| replayed > 0) {
                let mut count = count;
                count.habits.reads = count.habits.reads.saturating_add(1);
                self.set(key, count);
            }
        }
        if let Some(weigher) = &mut self.weigher {
            weigher.request(&request);
            self.weigh();
        }
    }

    /// So many requests for one page each were answered without replay, with the page an earlier read had made.
    pub fn read_without_replay(&mut self, requests: u64) {
        if let Some(weigher) = &mut self.weigher {
            weigher.requests_without_replay(requests);
            self.weigh();
        }
    }

    /// The storage put an image of the page at `lsn`, made from a chain of `covered` deltas. Deltas that
    /// came after `lsn` stay counted.
    pub fn image_made(&mut self, key: &Key, lsn: Lsn, covered: u32) {
        let Some(count) = self.counts.get(key).copied() else {
            return;
        };
        let Count { first, last, .. } = count;
        if last <= lsn {
            self.set(*key, count.without_chain());
        } else if first <= lsn {
            self.set(
                *key,
                Count {
                    deltas: count.deltas.saturating_sub(covered).max(1),
                    first: lsn + 1,
                    ..count
                },
            );
        }
    }

    /// A read of the newest version, at `lsn`, walked `length` deltas: the count is at least that.
    pub fn observed(&mut self, key: &Key, lsn: Lsn, length: u32) {
        let count = self.counts.get(key).copied();
        if key.is_page() && length > count.map_or(0, |count| count.deltas) {
            let count = count.unwrap_or(Count::NONE);
            self.set(
                *key,
                Count {
                    deltas: length,
                    first: Lsn::INVALID,
                    last: lsn.max(count.last),
                    habits: Habits {
                        deltas: length.max(count.habits.deltas),
                        ..count.habits
                    },
                },
            );
        }
    }

    /// The page can't be read as of `at`: its relation was gone, or it is broken. What came later stays counted.
    pub fn forget(&mut self, key: &Key, at: Lsn) {
        let last = self.counts.get(key).map(|count| count.last);
        if last.is_some_and(|last| last <= at) {
            self.set(*key, Count::NONE);
        }
    }

    fn set(&mut self, key: Key, count: Count) {
        let is_known = self.weigher.is_some() && count.habits != Habits::default();
        let old = if count.deltas > 0 || is_known {
            self.counts.insert(key, count)
        } else {
            self.counts.remove(&key)
        };
        self.moved(&key, &old.unwrap_or(Count::NONE), &count);
    }

    /// A chain's length has changed, or what is known of its page.
    fn moved(&mut self, key: &Key, before: &Count, now: &Count) {
        if before.deltas > 0 {
            self.histogram[slot(before.deltas)] -= 1;
            self.chained -= 1;
        }
        if now.deltas > 0 {
            self.histogram[slot(now.deltas)] += 1;
            self.chained += 1;
        }
        match (self.is_due(before), self.is_due(now)) {
            (false, true) => {
                self.due.insert(*key);
            }
            (true, false) => {
                self.due.remove(key);
            }
            _ => {}
        }
        match (self.is_long(before), self.is_long(now)) {
            (false, true) => {
                self.long.insert(*key);
            }
            (true, false) => {
                self.long.remove(key);
            }
            _ => {}
        }
    }

    /// Adds what a delta layer's key table says. Call for a timeline's layers from the oldest (by first
    /// LSN) to the newest, before anything is ingested; only an image the storage made may be in another layer than
    /// the rest of its key at its LSN. `upto` is [`Lsn::MAX`], or the branch LSN when an
    /// ancestor's layers are loaded for a branch.
    pub fn load(&mut self, lsns: LsnRange, stats: &[KeyStat], upto: Lsn) {
        if lsns.first > upto {
            return;
        }
        for stat in stats.iter().filter(|stat| stat.key.is_page()) {
            let held = self.counts.get(&stat.key).copied().unwrap_or(Count::NONE);
            let both = |deltas: u32| Count {
                deltas: held.deltas.saturating_add(deltas),
                first: if held.deltas > 0 {
                    held.first
                } else {
                    lsns.first
                },
                last: held.last.max(stat.last_lsn).min(upto),
                habits: Habits::default(),
            };
            let count = if stat.last_lsn > upto {
                // Some of it is past the branch point; which part is not known without reading it.
                both(stat.total_deltas)
            } else if stat.start_lsn.is_valid() && stat.start_lsn >= { held.last } {
                Count {
                    deltas: stat.deltas,
                    first: stat.start_lsn,
                    last: stat.last_lsn,
                    habits: Habits::default(),
                }
            } else {
                both(stat.deltas)
            };
            let mut count = count;
            count.habits.deltas = count.deltas;
            self.set(stat.key, count);
        }
    }

    /// At most `budget` of the pages at or over their threshold, or of those with long chains only, the longest
    /// first; of [`PLANNED_AMONG`] such pages if there are more.
    pub fn plan(&self, budget: usize, only_long: bool) -> Vec<ImageTask> {
        let among = if only_long { &self.long } else { &self.due };
        let task = |key: &Key| ImageTask {
            key: *key,
            deltas: self.get(key),
        };
        let among = among.iter().take(PLANNED_AMONG);
        let mut tasks: Vec<ImageTask> = among.map(task).collect();
        let longest_first = |task: &ImageTask| (std::cmp::Reverse(task.deltas), task.key);
        if tasks.len() > budget && budget > 0 {
            tasks.select_nth_unstable_by_key(budget - 1, longest_first);
        }
        tasks.truncate(budget);
        tasks.sort_unstable_by_key(longest_first);
        tasks
    }

    /// Whether a page of an earlier plan would be in one made now.
    pub fn is_still_due(&self, key: &Key, only_long: bool) -> bool {
        let among = if only_long { &self.long } else { &self.due };
        among.contains(key)
    }

    /// Pages at or over the threshold.
    pub fn due(&self) -> usize {
        self.due.len()
    }

    /// Deltas counted of a page since its last image; 0 for a page without any, and for a key that is no page.
    pub fn get(&self, key: &Key) -> u32 {
        self.counts.get(key).map_or(0, |count| count.deltas)
    }
}

fn slot(deltas: u32) -> usize {
    (deltas as usize).min(HISTOGRAM_SLOTS)
}

#[cfg(test)]
mod tests;
