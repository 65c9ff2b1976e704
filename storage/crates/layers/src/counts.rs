//! Chain lengths: how many deltas each page has gathered since its last image, and which pages are due for
//! a new one.
//!
//! Invariant: a page's count is at least the length of the chain a read of its newest version would walk,
//! as long as every put is reported; after a restart it may be higher (never lower), which makes an image
//! early and nothing worse. Fed at ingest, corrected by reads, rebuilt from the key tables of delta layers.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use foldhash::fast::RandomState;
use pg_types::{Key, Lsn};

use crate::format::KeyStat;
use crate::value::{LsnRange, Value};

/// Counts from here on share one slot of the histogram.
const HISTOGRAM_SLOTS: usize = 4096;

#[derive(Clone, Copy, Debug)]
struct Count {
    deltas: u32,
    /// No counted delta is older than this.
    first: Lsn,
    /// No counted delta is newer than this.
    last: Lsn,
}

impl Count {
    const NONE: Count = Count {
        deltas: 0,
        first: Lsn::INVALID,
        last: Lsn::INVALID,
    };
}

/// One page that should get an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageTask {
    pub key: Key,
    /// Its chain length when the plan was made.
    pub deltas: u32,
}

/// See the module head. Only pages ([`Key::is_page`]) are counted.
#[derive(Clone, Debug)]
pub struct ChainCounts {
    counts: HashMap<Key, Count, RandomState>,
    /// Keys with at least `threshold` deltas.
    due: HashSet<Key, RandomState>,
    threshold: u32,
    /// Number of pages by chain length, from 1 on.
    histogram: Vec<u64>,
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
            threshold: threshold.max(1),
            histogram: vec![0; HISTOGRAM_SLOTS + 1],
        }
    }

    pub fn threshold(&self) -> u32 {
        self.threshold
    }

    /// Changes the threshold; pages that are over the new one become due at once.
    pub fn set_threshold(&mut self, threshold: u32) {
        let threshold = threshold.max(1);
        if threshold == self.threshold {
            return;
        }
        self.threshold = threshold;
        let over = |(key, count): (&Key, &Count)| (count.deltas >= threshold).then_some(*key);
        self.due = self.counts.iter().filter_map(over).collect();
    }

    /// A value was put, or is about to be. Call for every value; what is not a page is ignored. The page's chain length
    /// from here on.
    pub fn ingested(&mut self, key: &Key, lsn: Lsn, value: &Value) -> u32 {
        if !key.is_page() {
            return 0;
        }
        let Value::Delta { starts_chain, .. } = value else {
            self.set(*key, Count::NONE);
            return 0;
        };
        let first = Count {
            deltas: 1,
            first: lsn,
            last: lsn,
        };
        let (before, now) = match self.counts.entry(*key) {
            Entry::Occupied(mut held) => {
                let count = held.get_mut();
                let before = count.deltas;
                if *starts_chain {
                    *count = first;
                } else {
                    count.deltas = before.saturating_add(1);
                    count.last = lsn.max(count.last);
                }
                (before, count.deltas)
            }
            Entry::Vacant(slot) => {
                slot.insert(first);
                (0, 1)
            }
        };
        self.moved(key, before, now);
        now
    }

    /// The storage put an image of the page at `lsn`, made from a chain of `covered` deltas. Deltas that
    /// came after `lsn` stay counted.
    pub fn image_made(&mut self, key: &Key, lsn: Lsn, covered: u32) {
        let Some(count) = self.counts.get(key).copied() else {
            return;
        };
        if count.last <= lsn {
            self.set(*key, Count::NONE);
        } else if count.first <= lsn {
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
            let count = count.unwrap_or(Count {
                deltas: 0,
                first: Lsn::INVALID,
                last: lsn,
            });
            self.set(
                *key,
                Count {
                    deltas: length,
                    first: Lsn::INVALID,
                    last: lsn.max(count.last),
                },
            );
        }
    }

    /// The page can't be read as of `at`: its relation was gone, or it is broken. What came later stays counted.
    pub fn forget(&mut self, key: &Key, at: Lsn) {
        if self.counts.get(key).is_some_and(|count| count.last <= at) {
            self.set(*key, Count::NONE);
        }
    }

    fn set(&mut self, key: Key, count: Count) {
        let old = if count.deltas == 0 {
            self.counts.remove(&key)
        } else {
            self.counts.insert(key, count)
        };
        self.moved(&key, old.map_or(0, |old| old.deltas), count.deltas);
    }

    /// A chain's length has changed.
    fn moved(&mut self, key: &Key, before: u32, now: u32) {
        if before > 0 {
            self.histogram[slot(before)] -= 1;
        }
        if now > 0 {
            self.histogram[slot(now)] += 1;
        }
        match (before >= self.threshold, now >= self.threshold) {
            (false, true) => {
                self.due.insert(*key);
            }
            (true, false) => {
                self.due.remove(key);
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
            };
            let count = if stat.last_lsn > upto {
                // Some of it is past the branch point; which part is not known without reading it.
                both(stat.total_deltas)
            } else if stat.start_lsn.is_valid() && stat.start_lsn >= held.last {
                Count {
                    deltas: stat.deltas,
                    first: stat.start_lsn,
                    last: stat.last_lsn,
                }
            } else {
                both(stat.deltas)
            };
            self.set(stat.key, count);
        }
    }

    /// At most `budget` pages at or over the threshold that have at least `least` deltas, longest chains first.
    pub fn plan(&self, budget: usize, least: u32) -> Vec<ImageTask> {
        let task = |key: &Key| {
            let count = self.counts.get(key).filter(|count| count.deltas >= least)?;
            Some(ImageTask {
                key: *key,
                deltas: count.deltas,
            })
        };
        let mut tasks: Vec<ImageTask> = self.due.iter().filter_map(task).collect();
        let longest_first = |task: &ImageTask| (std::cmp::Reverse(task.deltas), task.key);
        if tasks.len() > budget && budget > 0 {
            tasks.select_nth_unstable_by_key(budget - 1, longest_first);
        }
        tasks.truncate(budget);
        tasks.sort_unstable_by_key(longest_first);
        tasks
    }

    /// Pages at or over the threshold.
    pub fn due(&self) -> usize {
        self.due.len()
    }

    /// Pages with at least one delta.
    pub fn pages(&self) -> usize {
        self.counts.len()
    }

    pub fn get(&self, key: &Key) -> u32 {
        self.counts.get(key).map_or(0, |count| count.deltas)
    }

    /// `(chain length, pages)` for every length that occurs; the last slot stands for all longer ones.
    pub fn histogram(&self) -> impl Iterator<Item = (u32, u64)> + '_ {
        self.histogram
            .iter()
            .enumerate()
            .filter(|(_, pages)| **pages > 0)
            .map(|(length, pages)| (length as u32, *pages))
    }

    /// The chain length that `fraction` (0..=1) of the pages with a chain do not exceed; 0 without any.
    pub fn percentile(&self, fraction: f64) -> u32 {
        let wanted = (self.counts.len() as f64 * fraction).ceil() as u64;
        let mut seen = 0;
        let reached = self.histogram().find(|(_, pages)| {
            seen += pages;
            seen >= wanted
        });
        reached.map_or(0, |(length, _)| length)
    }

    pub fn max(&self) -> u32 {
        self.histogram().last().map_or(0, |(length, _)| length)
    }
}

fn slot(deltas: u32) -> usize {
    (deltas as usize).min(HISTOGRAM_SLOTS)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use pg_types::{ForkNumber, RelTag};

    use super::*;

    fn page(number: u32) -> Key {
        let rel = RelTag {
            spc: 1663,
            db: 5,
            rel: 16384,
            fork: ForkNumber::Main,
        };
        Key::rel_block(rel, number)
    }

    fn delta() -> Value {
        Value::Delta {
            bytes: Bytes::new(),
            starts_chain: false,
        }
    }

    fn counts(lengths: &[u32]) -> ChainCounts {
        let mut counts = ChainCounts::new(3);
        for (number, length) in lengths.iter().enumerate() {
            for lsn in 1..=*length {
                counts.ingested(&page(number as u32), Lsn(lsn.into()), &delta());
            }
        }
        counts
    }

    #[test]
    fn the_longest_chains_at_or_over_the_threshold_are_planned_within_the_budget() {
        let mut counts = counts(&[1, 5, 3, 2, 9, 4]);
        let planned = |counts: &ChainCounts, budget| -> Vec<u32> {
            let tasks = counts.plan(budget, 0).into_iter();
            tasks.map(|task| task.key.e).collect()
        };
        let at_least_five = counts.plan(10, 5).into_iter().map(|task| task.key.e);
        assert_eq!(at_least_five.collect::<Vec<_>>(), [4, 1]);
        assert_eq!(planned(&counts, 10), [4, 1, 5, 2]);
        assert_eq!(planned(&counts, 2), [4, 1]);
        assert!(planned(&counts, 0).is_empty());
        counts.set_threshold(5);
        assert_eq!((planned(&counts, 10), counts.due()), (vec![4, 1], 2));
        counts.set_threshold(1);
        assert_eq!(counts.due(), 6);
    }

    #[test]
    fn an_image_takes_off_what_it_covers_and_keeps_what_came_after() {
        let mut counts = counts(&[10]);
        counts.image_made(&page(0), Lsn(8), 8);
        assert_eq!(counts.get(&page(0)), 2);
        counts.image_made(&page(0), Lsn(5), 5);
        assert_eq!(
            counts.get(&page(0)),
            2,
            "an older image covers nothing that is still counted"
        );
        counts.image_made(&page(0), Lsn(10), 2);
        assert_eq!((counts.get(&page(0)), counts.pages()), (0, 0));
        counts.ingested(&page(0), Lsn(20), &delta());
        counts.image_made(&page(0), Lsn(15), 3);
        assert_eq!(
            counts.get(&page(0)),
            1,
            "an image from before the page's new start"
        );
    }

    #[test]
    fn a_start_from_the_wal_resets_and_an_initialising_delta_counts_as_one() {
        let mut counts = counts(&[7, 7, 7]);
        counts.ingested(&page(0), Lsn(100), &Value::Image(Bytes::new()));
        counts.ingested(&page(1), Lsn(100), &Value::Zero);
        let init = Value::Delta {
            bytes: Bytes::new(),
            starts_chain: true,
        };
        counts.ingested(&page(2), Lsn(100), &init);
        assert_eq!([0, 1, 2].map(|n| counts.get(&page(n))), [0, 0, 1]);
        assert_eq!(counts.due(), 0);
    }

    #[test]
    fn a_page_that_was_gone_keeps_what_was_put_since() {
        let mut counts = counts(&[7, 7]);
        for number in [0, 1] {
            counts.forget(&page(number), Lsn(6 + u64::from(number)));
        }
        assert_eq!([0, 1].map(|n| counts.get(&page(n))), [7, 0]);
        assert_eq!(counts.due(), 1);
    }

    #[test]
    fn the_histogram_follows_every_change() {
        let mut counts = counts(&[1, 1, 2, 10]);
        assert_eq!(
            counts.histogram().collect::<Vec<_>>(),
            [(1, 2), (2, 1), (10, 1)]
        );
        assert_eq!(
            (
                counts.percentile(0.5),
                counts.percentile(0.99),
                counts.max()
            ),
            (1, 10, 10)
        );
        counts.observed(&page(0), Lsn(1), 6);
        counts.observed(&page(3), Lsn(10), 6);
        counts.forget(&page(1), Lsn(1));
        assert_eq!(
            counts.histogram().collect::<Vec<_>>(),
            [(2, 1), (6, 1), (10, 1)]
        );
        assert_eq!(
            (
                ChainCounts::default().percentile(0.99),
                ChainCounts::default().max()
            ),
            (0, 0)
        );
    }
}
