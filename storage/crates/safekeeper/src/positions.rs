//! Positions of a log that decide what of it is offloaded.

use pg_types::Lsn;

/// Where a log begins and ends, and up to where the object store has it as pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Positions {
    /// The first byte that is here.
    pub oldest: Lsn,
    /// What is before is durable as pages.
    pub horizon: Lsn,
    /// Commit LSN of the log: a record boundary, fsynced here.
    pub commit: Lsn,
}
