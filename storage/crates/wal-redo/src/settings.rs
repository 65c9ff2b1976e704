//! Settings of a cluster that redo depends on.

use pg_types::PgMajor;

/// What redo has to know about a cluster beyond the record and the page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClusterSettings {
    /// The version that wrote the records; 15 by default.
    pub major: PgMajor,
    /// Hint bits are WAL-logged (`wal_log_hints`, or data checksums). Only then does setting a heap page
    /// all-visible move the page's LSN.
    pub hint_bits_logged: bool,
}
