//! What it costs to look at WAL, record by record: `cargo run --release -p wal-decode --example wal_cost --
//! SEGMENT...`
//!
//! The segments must follow each other, from a cluster's first one on. Each way is timed over all of them a number of
//! times, interleaved, and the fastest time is told: noise only ever adds.

use std::error::Error;
use std::hint::black_box;
use std::time::{Duration, Instant};

use pg_types::{Lsn, PgMajor, WAL_SEGMENT_BYTES};
use wal_decode::{WalByRelation, WalStats, WalStreamDecoder, decode};

const ROUNDS: usize = 15;
/// As much as a walsender sends at once.
const PIECE: usize = 128 << 10;

fn main() -> Result<(), Box<dyn Error>> {
    let paths: Vec<_> = std::env::args().skip(1).collect();
    let first = paths.first().ok_or("name the segments to read")?;
    let name = first.rsplit('/').next().unwrap_or(first);
    let number = |range| u64::from_str_radix(&name[range], 16);
    let start = Lsn((number(8..16)? << 32) + number(16..24)? * WAL_SEGMENT_BYTES);
    let mut wal = Vec::new();
    for path in &paths {
        wal.extend(std::fs::read(path)?);
    }
    let (mut without, mut with) = (Duration::MAX, Duration::MAX);
    let mut records = 0;
    for _ in 0..ROUNDS {
        let (taken, counted) = pass(start, &wal, None)?;
        without = without.min(taken);
        let mut relations = WalByRelation::default();
        with = with.min(pass(start, &wal, Some(&mut relations))?.0);
        records = counted;
        black_box(&relations);
    }
    let each = |taken: Duration| taken.as_nanos() as f64 / records as f64;
    println!(
        "{records} records: {:.1} ns a record decoded and counted by resource manager, {:.1} ns by relation too",
        each(without),
        each(with)
    );
    Ok(())
}

/// Ends with the first thing that is not a record: the last segment is seldom full.
fn pass(
    start: Lsn,
    wal: &[u8],
    mut relations: Option<&mut WalByRelation>,
) -> Result<(Duration, u64), Box<dyn Error>> {
    let mut decoder = WalStreamDecoder::new(start, PgMajor::V15);
    let mut stats = WalStats::default();
    let began = Instant::now();
    let mut at = start;
    'pieces: for piece in wal.chunks(PIECE) {
        let Ok(mut records) = decoder.feed(at, piece) else {
            break;
        };
        at = at + piece.len() as u64;
        loop {
            match records.next_record() {
                Ok(Some(record)) => {
                    let decoded = decode(record.start_lsn, record.end_lsn, record.bytes)?;
                    stats.add(&decoded.summary());
                    if let Some(relations) = &mut relations {
                        relations.add(&decoded);
                    }
                }
                Ok(None) => break,
                Err(_) => break 'pieces,
            }
        }
    }
    Ok((began.elapsed(), stats.total().records))
}
