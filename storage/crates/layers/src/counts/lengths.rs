//! Figures about chain lengths over all pages.

use super::ChainCounts;

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
}
