//! Histogram of chain lengths, with the bars that metrics and the `/chains` endpoint share.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::api::ChainBar;
use crate::metrics::CHAIN_BARS;

/// Counts per bar; the last is open.
#[derive(Default)]
pub struct ChainHistogram {
    counts: [AtomicU64; CHAIN_BARS.len() + 1],
}

impl ChainHistogram {
    /// Counts one chain, in the first bar that reaches its length.
    pub fn observe(&self, chain_length: u32) {
        let bar = CHAIN_BARS.partition_point(|up_to| *up_to < chain_length);
        self.counts[bar].fetch_add(1, Ordering::Relaxed);
    }

    /// All bars, also empty ones, in ascending order; the counts of different bars may be of slightly different
    /// moments.
    pub fn bars(&self) -> Vec<ChainBar> {
        let upper_ends = CHAIN_BARS.iter().copied().map(Some).chain([None]);
        let counted = upper_ends.zip(&self.counts);
        counted
            .map(|(up_to, count)| ChainBar {
                up_to,
                count: count.load(Ordering::Relaxed),
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_length_counts_in_the_first_bar_that_reaches_it() {
        let histogram = ChainHistogram::default();
        for length in [0, 1, 3, 4, 5000] {
            histogram.observe(length);
        }
        let counted: Vec<_> = histogram
            .bars()
            .into_iter()
            .filter(|bar| bar.count > 0)
            .collect();
        let expected = [(Some(0), 1), (Some(1), 1), (Some(4), 2), (None, 1)];
        assert_eq!(
            counted,
            expected.map(|(up_to, count)| ChainBar { up_to, count })
        );
    }
}
