//! On-disk structs of Postgres 15, laid out as its x86-64 and AArch64 builds write them.
//!
//! A test boots a real cluster and compares every field with what `pg_controldata` prints.

mod control;

use serde::{Deserialize, Serialize};

pub use control::{
    CONTROL_BYTES, CONTROL_CRC_OFFSET, CONTROL_FILE_BYTES, ClusterParameters, ControlFile,
    ControlFileError, DbState, WalLevel,
};

use crate::Lsn;
use crate::bytes_le::{at_i64, at_u32, at_u64, put_i64, put_u32, put_u64};
use crate::facts::{RecordLayouts, VersionFacts};

/// The numbers of Postgres 15, from which 17 and 18 differ as their modules say.
pub const FACTS: VersionFacts = VersionFacts {
    number: 15,
    wal_page_magic: 0xD110,
    control_version: 1300,
    catalog_version: 202_209_061,
    checkpoint_bytes: CHECKPOINT_BYTES,
    control_crc_offset: CONTROL_CRC_OFFSET,
    relmap_bytes: 512,
    min_server_version: 150_018,
    newest_server_version: 150_020,
    page_layout_version: 4,
    records: RecordLayouts {
        prune_and_freeze: false,
        slru_page_number_bytes: 4,
        dropped_stats_bytes: 12,
        gist_delete_numbers_at: 6,
        hash_vacuum_count_bytes: 4,
        spgist_redirects_at: 8,
        hash_squeeze_may_only_name: false,
        checkpoint_redo: false,
    },
};

/// Flags of an image in a record (`bimg_info`); Postgres 14 and earlier number them differently.
pub mod image {
    /// The middle of the page was zero and left out.
    pub const HAS_HOLE: u8 = 0x01;
    /// Redo must restore the image.
    pub const APPLY: u8 = 0x02;
    /// The image is compressed with pglz (`xlogrecord.h: BKPIMAGE_COMPRESS_PGLZ`).
    pub const COMPRESS_PGLZ: u8 = 0x04;
    /// The image is compressed with LZ4 (`xlogrecord.h: BKPIMAGE_COMPRESS_LZ4`).
    pub const COMPRESS_LZ4: u8 = 0x08;
    /// The image is compressed with Zstandard (`xlogrecord.h: BKPIMAGE_COMPRESS_ZSTD`).
    pub const COMPRESS_ZSTD: u8 = 0x10;
    /// Any of these set: the image is compressed (`xlogrecord.h: BKPIMAGE_COMPRESSED`).
    pub const COMPRESS_MASK: u8 = COMPRESS_PGLZ | COMPRESS_LZ4 | COMPRESS_ZSTD;
}

/// Bytes of [`CheckPoint`].
pub const CHECKPOINT_BYTES: usize = 88;

/// The body of a checkpoint record and the copy of it in `pg_control`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CheckPoint {
    /// Where redo would begin; the record's own start for a shutdown checkpoint.
    pub redo: Lsn,
    /// Postgres's own timeline number at the checkpoint (`pg_control.h: ThisTimeLineID`).
    pub this_tli: u32,
    /// The number before it where the record begins a new one, else the same (`PrevTimeLineID`).
    pub prev_tli: u32,
    /// Whether `full_page_writes` was on (`fullPageWrites`).
    pub full_page_writes: bool,
    /// Next transaction id, epoch in the high half.
    pub next_xid: u64,
    /// Next oid to be given out (`nextOid`).
    pub next_oid: u32,
    /// Next multixact id to be given out (`nextMulti`).
    pub next_multi: u32,
    /// Number of the next multixact member to be given out (`nextMultiOffset`).
    pub next_multi_offset: u32,
    /// Lowest `datfrozenxid` of all databases (`oldestXid`).
    pub oldest_xid: u32,
    /// Oid of a database that has it (`oldestXidDB`).
    pub oldest_xid_db: u32,
    /// Lowest `datminmxid` of all databases (`oldestMulti`).
    pub oldest_multi: u32,
    /// Oid of a database that has it (`oldestMultiDB`).
    pub oldest_multi_db: u32,
    /// Seconds since the Unix epoch.
    pub time: i64,
    /// Oldest transaction with a commit timestamp (`oldestCommitTsXid`); 0 if there is none.
    pub oldest_commit_ts_xid: u32,
    /// Newest transaction with a commit timestamp (`newestCommitTsXid`); 0 if there is none.
    pub newest_commit_ts_xid: u32,
    /// 0 in a shutdown checkpoint.
    pub oldest_active_xid: u32,
}

impl CheckPoint {
    /// `None` when there are fewer than [`CHECKPOINT_BYTES`] bytes.
    pub fn parse(bytes: &[u8]) -> Option<CheckPoint> {
        let b = bytes.get(..CHECKPOINT_BYTES)?;
        Some(CheckPoint {
            redo: Lsn(at_u64(b, 0)),
            this_tli: at_u32(b, 8),
            prev_tli: at_u32(b, 12),
            full_page_writes: b[16] != 0,
            next_xid: at_u64(b, 24),
            next_oid: at_u32(b, 32),
            next_multi: at_u32(b, 36),
            next_multi_offset: at_u32(b, 40),
            oldest_xid: at_u32(b, 44),
            oldest_xid_db: at_u32(b, 48),
            oldest_multi: at_u32(b, 52),
            oldest_multi_db: at_u32(b, 56),
            time: at_i64(b, 64),
            oldest_commit_ts_xid: at_u32(b, 72),
            newest_commit_ts_xid: at_u32(b, 76),
            oldest_active_xid: at_u32(b, 80),
        })
    }

    /// The struct with zeroes for padding, so with 0 for the `wal_level` that later majors keep in it.
    pub fn to_bytes(&self) -> [u8; CHECKPOINT_BYTES] {
        let mut b = [0; CHECKPOINT_BYTES];
        put_u64(&mut b, 0, self.redo.0);
        put_u32(&mut b, 8, self.this_tli);
        put_u32(&mut b, 12, self.prev_tli);
        b[16] = u8::from(self.full_page_writes);
        put_u64(&mut b, 24, self.next_xid);
        put_u32(&mut b, 32, self.next_oid);
        put_u32(&mut b, 36, self.next_multi);
        put_u32(&mut b, 40, self.next_multi_offset);
        put_u32(&mut b, 44, self.oldest_xid);
        put_u32(&mut b, 48, self.oldest_xid_db);
        put_u32(&mut b, 52, self.oldest_multi);
        put_u32(&mut b, 56, self.oldest_multi_db);
        put_i64(&mut b, 64, self.time);
        put_u32(&mut b, 72, self.oldest_commit_ts_xid);
        put_u32(&mut b, 76, self.newest_commit_ts_xid);
        put_u32(&mut b, 80, self.oldest_active_xid);
        b
    }
}
