//! WAL as files hold it.

use std::path::Path;

use pg_types::{Lsn, PgMajor, WAL_SEGMENT_BYTES};
use wal_decode::WalStreamDecoder;

pub fn read_wal(dir: &Path, from: Lsn, to: Lsn) -> Vec<u8> {
    let mut wal = Vec::new();
    let mut at = from;
    while at < to {
        let file = dir.join(at.segment_file_name(WAL_SEGMENT_BYTES));
        let segment =
            std::fs::read(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let begin = at.segment_offset(WAL_SEGMENT_BYTES) as usize;
        let length = (to.0 - at.0).min(WAL_SEGMENT_BYTES - begin as u64) as usize;
        wal.extend_from_slice(&segment[begin..begin + length]);
        at = at + length as u64;
    }
    wal
}

/// Transactions whose commit record is whole in this WAL, and where the last record ends.
pub fn committed_xids(start: Lsn, wal: &[u8]) -> (std::collections::HashSet<u32>, Lsn) {
    use pg_types::wal::{info, rmgr};
    let mut decoder = WalStreamDecoder::new(start, PgMajor::V15);
    let mut records = decoder.feed(start, wal).expect("WAL");
    let mut xids = std::collections::HashSet::new();
    while let Some(record) = records.next_record().expect("undamaged WAL") {
        let decoded =
            wal_decode::decode(record.start_lsn, record.end_lsn, record.bytes).expect("a record");
        if decoded.rmid == rmgr::XACT && decoded.info & info::xact::OP_MASK == info::xact::COMMIT {
            xids.insert(decoded.xid);
        }
    }
    (xids, records.boundary())
}
