//! What Postgres 18 writes otherwise than 17. What is not named here is as in [`crate::v17`].
//!
//! - WAL page magic, control version and catalog version.
//! - `pg_control` says whether `char` is signed, one byte behind the version of the checksums: the checksum of the file
//!   stands four bytes later.
//! - Statistics of dropped objects have 64-bit ids in commits, aborts and prepared transactions.
//! - `Heap/INPLACE` carries cache invalidations behind what redo reads.
//! - initdb turns data checksums on by default; Weir's clusters have them off.

use crate::facts::{RecordLayouts, VersionFacts};

/// The numbers of Postgres 18.
pub const FACTS: VersionFacts = VersionFacts {
    number: 18,
    wal_page_magic: 0xD118,
    control_version: 1800,
    catalog_version: 202_506_291,
    control_crc_offset: 292,
    min_server_version: 180_004,
    newest_server_version: 180_006,
    records: RecordLayouts {
        dropped_stats_bytes: 16,
        ..crate::v17::FACTS.records
    },
    ..crate::v17::FACTS
};
