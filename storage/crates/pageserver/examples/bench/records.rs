//! The records of a stretch of WAL, from a `pg_wal` directory.

use std::path::Path;

use anyhow::Result;
use pg_types::{Lsn, PgMajor, WAL_SEGMENT_BYTES};
use wal_decode::{DecodedRecord, WalStreamDecoder, decode};

/// Each record between two record boundaries, in order.
pub fn each(
    pg_wal: &Path,
    from: Lsn,
    upto: Lsn,
    mut see: impl FnMut(&DecodedRecord<'_>),
) -> Result<()> {
    let mut decoder = WalStreamDecoder::new(from, PgMajor::V15);
    let mut at = from;
    while at < upto {
        let segment = std::fs::read(pg_wal.join(at.segment_file_name(WAL_SEGMENT_BYTES)))?;
        let first = at.segment_offset(WAL_SEGMENT_BYTES) as usize;
        let length = (segment.len() - first).min((upto.0 - at.0) as usize);
        let mut records = decoder.feed(at, &segment[first..first + length])?;
        at = at + length as u64;
        while let Some(record) = records.next_record()? {
            see(&decode(record.start_lsn, record.end_lsn, record.bytes)?);
        }
    }
    Ok(())
}
