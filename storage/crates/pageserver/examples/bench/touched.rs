//! Which pages a stretch of WAL changes, and how often.

use std::collections::HashMap;
use std::path::Path;

use anyhow::Result;
use pg_types::{Lsn, RelTag};

use crate::records;

pub type Touched = HashMap<(RelTag, u32), u32>;

pub fn read(pg_wal: &Path, from: Lsn, upto: Lsn) -> Result<Touched> {
    let mut touched = Touched::new();
    records::each(pg_wal, from, upto, |record| {
        for block in &record.blocks {
            *touched.entry((block.rel, block.blkno)).or_default() += 1;
        }
    })?;
    Ok(touched)
}
