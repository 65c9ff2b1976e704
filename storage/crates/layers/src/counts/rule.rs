//! When a page is due for an image.

/// When a page is due for an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageRule {
    /// At so many deltas.
    Fixed(u32),
    /// When that is cheapest for the reads and writes there are, at `bound` deltas at the latest.
    Adaptive {
        /// Deltas at which a page gets an image however it is read.
        bound: u32,
    },
}

impl ImageRule {
    /// The length from which a page always gets an image, and whether reads are weighed against writes below it.
    pub(super) fn parts(self) -> (u32, bool) {
        let (ImageRule::Fixed(threshold) | ImageRule::Adaptive { bound: threshold }) = self;
        (threshold.max(1), matches!(self, ImageRule::Adaptive { .. }))
    }
}
