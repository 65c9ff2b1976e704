//! What takes longer the more pages there are: a look at all of them, and more memory for the tables that have them.
//!
//! Either comes about within the report of a single page, and takes tens of milliseconds once there are a million
//! pages. Ingest and reads report pages, and must not keep others waiting for that. So a look at more than [`FEW`]
//! pages is only noted, and tables that large are given memory before they need it: the caller asks whether it is
//! time ([`ChainCounts::is_behind`]), and has it done where nobody waits.

use std::collections::HashSet;

use foldhash::fast::RandomState;
use pg_types::Key;

use super::{ChainCounts, Count, IDLE_PAGES};

/// So many pages are looked at within a report: less than a millisecond.
const FEW: usize = 1 << 14;
/// For so many more pages a table has room when the caller has caught up.
const ROOM: usize = 1 << 14;

impl ChainCounts {
    /// Whether [`ChainCounts::catch_up`] has something to do. To be asked before each report of some thousand pages
    /// or fewer.
    pub fn is_behind(&self) -> bool {
        let counts = is_short(self.counts.len(), self.counts.capacity());
        let due = is_short(self.due.len(), self.due.capacity());
        self.look_is_due || counts || due
    }

    /// Looks at all pages if that is due, and takes memory for more. Takes time for all pages.
    pub fn catch_up(&mut self) {
        if std::mem::take(&mut self.look_is_due) {
            self.look_at_all();
        }
        if is_short(self.counts.len(), self.counts.capacity()) {
            self.counts.reserve(self.counts.len());
        }
        if is_short(self.due.len(), self.due.capacity()) {
            self.due.reserve(self.due.len());
        }
    }

    /// Looks whether another policy is better, now and then, and whether it is time to forget by halves.
    pub(super) fn weigh(&mut self) {
        let idle = self.idle();
        let Some(weigher) = &mut self.weigher else {
            return;
        };
        let is_other = weigher.is_time() && weigher.choose();
        if !is_other && !weigher.is_full() && idle <= IDLE_PAGES {
            return;
        }
        match self.counts.len() <= FEW {
            true => self.look_at_all(),
            false => self.look_is_due = true,
        }
    }

    /// Pages of which only habits are known.
    fn idle(&self) -> usize {
        self.counts.len() - self.chained
    }

    fn look_at_all(&mut self) {
        let is_full = self.idle() > IDLE_PAGES;
        let weigher = self.weigher.as_mut();
        if let Some(weigher) = weigher.filter(|weigher| is_full || weigher.is_full()) {
            weigher.halve();
            self.counts.retain(|_, count| {
                count.habits.reads /= 2;
                count.habits.deltas /= 2;
                count.deltas > 0 || count.habits.reads > 0
            });
        }
        self.find_due();
    }

    pub(super) fn find_due(&mut self) {
        let that = |has: &dyn Fn(&Count) -> bool| -> HashSet<Key, RandomState> {
            let has = self.counts.iter().filter(|(_, count)| has(count));
            has.map(|(key, _)| *key).collect()
        };
        let due = that(&|count| self.is_due(count));
        let long = that(&|count| self.is_long(count));
        (self.due, self.long) = (due, long);
    }
}

/// Whether a table of so many entries is large, and grows soon.
fn is_short(entries: usize, capacity: usize) -> bool {
    entries > FEW && capacity - entries < ROOM
}
