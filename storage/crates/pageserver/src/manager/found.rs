//! Timelines that were found in the object store, before they are open.

use blob::IndexPart;
use pg_types::TimelineId;

use crate::timeline_index::TimelineIndex;

/// A timeline that is ours by its index, and not open yet.
pub(super) struct Found {
    pub id: TimelineId,
    pub index: TimelineIndex,
    pub part: IndexPart,
}

impl Found {
    pub fn descent(&self) -> Descent {
        Descent::Known(self.part.ancestor.map(|point| point.timeline))
    }
}

/// What a timeline was branched from, as far as its index says.
pub(super) enum Descent {
    Known(Option<TimelineId>),
    /// The index can't be read.
    Unknown,
}
