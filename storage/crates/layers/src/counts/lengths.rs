//! Figures about all pages, and which pages there are.

use std::collections::HashSet;

use pg_types::{Key, RelTag};

use super::{ChainCounts, Count};

impl ChainCounts {
    /// Pages with at least one delta.
    pub fn pages(&self) -> usize {
        self.chained
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
        let wanted = (self.chained as f64 * fraction).ceil() as u64;
        let mut seen = 0;
        let reached = self.histogram().find(|(_, pages)| {
            seen += pages;
            seen >= wanted
        });
        reached.map_or(0, |(length, _)| length)
    }

    /// Length of the longest chain, 0 without any. Lengths past the histogram's last slot count as that slot.
    pub fn max(&self) -> u32 {
        self.histogram().last().map_or(0, |(length, _)| length)
    }

    /// The relation forks that have pages here, each once, in no order.
    pub fn relations(&self) -> Vec<RelTag> {
        let forks: HashSet<RelTag> = self.counts.keys().filter_map(Key::rel).collect();
        forks.into_iter().collect()
    }

    /// Forgets all pages but those of which `is_there` holds.
    pub fn retain(&mut self, is_there: impl Fn(&Key) -> bool) {
        let gone = self.counts.keys().filter(|key| !is_there(key));
        let gone: Vec<Key> = gone.copied().collect();
        for key in gone {
            self.set(key, Count::NONE);
        }
    }
}
