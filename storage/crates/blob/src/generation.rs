//! Generations: the right of one pageserver to write to a timeline.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A pageserver's right to write to a timeline. Higher fences lower.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Generation(pub u32);

impl Generation {
    /// The form used in object names.
    pub(crate) fn suffix(self) -> String {
        format!("{:08x}", self.0)
    }

    pub(crate) fn from_suffix(text: &str) -> Option<Generation> {
        let valid = text.len() == 8 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        valid
            .then(|| u32::from_str_radix(text, 16).ok().map(Generation))
            .flatten()
    }
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}
