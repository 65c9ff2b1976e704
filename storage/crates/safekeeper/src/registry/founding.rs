//! How a log begins.

use consensus::{Configuration, MemberId};
use pg_types::DiskId;

/// A safekeeper that a log is founded on, by its number and its disk.
pub type Founder = (u64, DiskId);

/// How a log begins.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Founding {
    /// A log that names no members until a compute writes them down. Older control planes ask for this.
    Unlisted,
    /// With these members.
    On(Vec<Founder>),
    /// Beside members that have it already.
    Learner,
}

/// A log is founded on the first incarnation that each disk is given of it.
pub(super) fn configuration(founders: &[Founder]) -> Result<Configuration, consensus::ChangeError> {
    let first = |(node, disk): &Founder| MemberId {
        node: *node,
        disk: *disk,
        incarnation: 1,
    };
    Configuration::founding(&founders.iter().map(first).collect::<Vec<_>>())
}
