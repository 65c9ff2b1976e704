//! Which pages a stretch of WAL changes, and how often.

use std::collections::HashMap;
use std::path::Path;

use anyhow::Result;
use pg_types::{Lsn, PgMajor, RelTag, WAL_SEGMENT_BYTES};
use wal_decode::{WalStreamDecoder, decode};

pub type Touched = HashMap<(RelTag, u32), u32>;

pub fn read(pg_wal: &Path, from: Lsn, upto: Lsn) -> Result<Touched> {
    let mut decoder = WalStreamDecoder::new(from, PgMajor::V15);
    let mut touched = Touched::new();
    let mut at = from;
    while at < upto {
        let segment = std::fs::read(pg_wal.join(at.segment_file_name(WAL_SEGMENT_BYTES)))?;
        let first = at.segment_offset(WAL_SEGMENT_BYTES) as usize;
        let length = (segment.len() - first).min((upto.0 - at.0) as usize);
        let mut records = decoder.feed(at, &segment[first..first + length])?;
        at = at + length as u64;
        while let Some(record) = records.next_record()? {
            let record = decode(record.start_lsn, record.end_lsn, record.bytes)?;
            for block in &record.blocks {
                *touched.entry((block.rel, block.blkno)).or_default() += 1;
            }
        }
    }
    Ok(touched)
}
