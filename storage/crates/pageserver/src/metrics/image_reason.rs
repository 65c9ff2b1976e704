//! Why storage makes an image of a page.

/// Why an image was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageReason {
    /// The chain reached the threshold that holds while Postgres logs page images.
    Threshold,
    /// The chain reached the threshold of image generation pushdown.
    Pushdown,
    /// Adaptive mode: for the reads there are, below the bound.
    Read,
    /// Adaptive mode: the chain reached the bound.
    Bound,
}

impl ImageReason {
    pub(super) fn label(self) -> &'static str {
        match self {
            ImageReason::Threshold => "threshold",
            ImageReason::Pushdown => "pushdown",
            ImageReason::Read => "read",
            ImageReason::Bound => "bound",
        }
    }

    pub(super) const ALL: [ImageReason; 4] = [
        ImageReason::Threshold,
        ImageReason::Pushdown,
        ImageReason::Read,
        ImageReason::Bound,
    ];
}
