//! What Postgres 17 writes otherwise than 15. What is not named here is as in [`crate::v15`].
//!
//! - WAL page magic, control version and catalog version.
//! - `CheckPoint` holds `wal_level`, an `i32` at byte 20, where 15 has padding; so does the body of
//!   `XLOG_END_OF_RECOVERY`. No byte moves.
//! - `pg_filenode.map` has room for 64 mappings (since 16).
//! - `Heap2`: pruning, vacuum's second pass and freezing are one kind of record under three numbers (0x10, 0x20, 0x30)
//!   that say on what occasion it was written; `wal_redo::heap2::v17` has its layout.
//! - SLRU page numbers in records are 64 bits wide, and files of prepared transactions are named by 64-bit ids.
//! - Records of index deletions that standbys may have to wait for say whether the index is one of a catalog (since
//!   16), which moves what follows in GiST and SP-GiST records and narrows a count in a hash record. In B-tree records
//!   it follows everything that redo reads.
//! - `Hash/SQUEEZE_PAGE` may name block 1 without changing it.
//! - `XLOG_CHECKPOINT_REDO`.
//!
//! What minors of a major write and redo otherwise is in `wal_redo::minors`.

use crate::facts::{RecordLayouts, VersionFacts};

/// The numbers of Postgres 17.
pub const FACTS: VersionFacts = VersionFacts {
    number: 17,
    wal_page_magic: 0xD116,
    control_version: 1700,
    catalog_version: 202_406_281,
    relmap_bytes: 524,
    min_server_version: 170_010,
    newest_server_version: 170_011,
    records: RecordLayouts {
        prune_and_freeze: true,
        slru_page_number_bytes: 8,
        gist_delete_numbers_at: 8,
        hash_vacuum_count_bytes: 2,
        spgist_redirects_at: 10,
        hash_squeeze_may_only_name: true,
        checkpoint_redo: true,
        ..crate::v15::FACTS.records
    },
    ..crate::v15::FACTS
};
