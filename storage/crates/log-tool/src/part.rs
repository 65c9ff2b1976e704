//! The part that a safekeeper's directory has in a log.

use serde::Serialize;

/// What a directory is to the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// A member that counts for majorities.
    Voter,
    /// A member that receives WAL and has no vote.
    Learner,
    /// The newest configuration does not name it.
    None,
}
