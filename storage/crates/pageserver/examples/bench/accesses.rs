//! Which pages storage is asked for while WAL comes in: the misses of a compute whose buffers are small.
//!
//! The compute is simulated: every page that a record changes, and every page that a query looks up, is found in its
//! buffers (least recently used goes first) or read from storage. Now and then it is suspended and starts again with
//! empty buffers. All of it follows from the WAL and a seed, so that every arm is asked for the same pages at the
//! same positions.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use anyhow::Result;
use pg_types::{ForkNumber, Lsn, RelTag};

use crate::records;

pub type Page = (RelTag, u32);

#[derive(Clone, Debug, clap::Args)]
pub struct Shape {
    /// The WAL is taken in in so many steps; what a step misses is read at its beginning.
    #[arg(long, default_value_t = 48)]
    steps: usize,
    /// Pages the simulated compute's buffers hold.
    #[arg(long, default_value_t = 4096)]
    buffers: usize,
    /// Starts of the compute with empty buffers, evenly over the steps.
    #[arg(long, default_value_t = 6)]
    starts: usize,
    /// File number of the table in the `postgres` database that queries look at.
    #[arg(long)]
    relation: Option<u32>,
    /// Pages of the table that queries look up, over all steps: one half evenly over the table, the other half where
    /// the WAL writes, as often as it writes there.
    #[arg(long, default_value_t = 0)]
    lookups: usize,
    /// Scans of the whole table, evenly over the steps.
    #[arg(long, default_value_t = 0)]
    scans: usize,
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// One step: what is read first, then the WAL that comes in.
#[derive(Debug, Default)]
pub struct Step {
    pub misses: Vec<Page>,
    /// A table to be read from its first to its last page.
    pub scan: Option<RelTag>,
    pub upto: Lsn,
}

/// One record: the pages it refers to, and whether it makes them from nothing.
struct Touch {
    end: Lsn,
    blocks: Vec<(Page, bool)>,
}

pub fn schedule(shape: &Shape, pg_wal: &Path, from: Lsn, upto: Lsn) -> Result<Vec<Step>> {
    let records = touches(pg_wal, from, upto)?;
    let table = shape.relation.map(|rel| RelTag {
        spc: pg_types::rel::DEFAULT_TABLESPACE,
        db: 5,
        rel,
        fork: ForkNumber::Main,
    });
    let written: Vec<u32> = records
        .iter()
        .flat_map(|record| &record.blocks)
        .filter(|((rel, _), _)| Some(*rel) == table)
        .map(|((_, block), _)| *block)
        .collect();
    let blocks = written.iter().max().map_or(0, |last| last + 1);
    let mut random = Random(shape.seed);
    let mut buffers = Buffers::new(shape.buffers);
    let mut steps = Vec::new();
    let mut next = 0;
    for number in 0..shape.steps {
        let mut step = Step {
            upto: from + (upto.0 - from.0) * (number as u64 + 1) / shape.steps as u64,
            ..Step::default()
        };
        if number > 0 && is_turn(number, shape.starts, shape.steps) {
            buffers = Buffers::new(shape.buffers);
        }
        let begun = next;
        while next < records.len() && (records[next].end <= step.upto || next == begun) {
            for (page, is_new) in &records[next].blocks {
                if !buffers.touch(*page) && !is_new {
                    step.misses.push(*page);
                }
            }
            next += 1;
        }
        // A stretch ends where a record does.
        step.upto = records[next - 1].end;
        if number + 1 == shape.steps {
            step.upto = upto;
        }
        if let Some(table) = table {
            for _ in 0..shape.lookups / shape.steps {
                let block = match random.below(2) {
                    0 => random.below(u64::from(blocks)) as u32,
                    _ => written[random.below(written.len() as u64) as usize],
                };
                if !buffers.touch((table, block)) {
                    step.misses.push((table, block));
                }
            }
            step.scan = is_turn(number + 1, shape.scans, shape.steps).then_some(table);
        }
        steps.push(step);
    }
    Ok(steps)
}

/// Whether the `number`th of so many steps is one of `times` turns, evenly over them.
fn is_turn(number: usize, times: usize, steps: usize) -> bool {
    number * times / steps != number.saturating_sub(1) * times / steps
}

fn touches(pg_wal: &Path, from: Lsn, upto: Lsn) -> Result<Vec<Touch>> {
    let mut touches = Vec::new();
    records::each(pg_wal, from, upto, |record| {
        let block = |block: &wal_decode::BlockRef<'_>| ((block.rel, block.blkno), block.will_init);
        touches.push(Touch {
            end: record.end_lsn,
            blocks: record.blocks.iter().map(block).collect(),
        });
    })?;
    Ok(touches)
}

/// A compute's buffers.
struct Buffers {
    size: usize,
    now: u64,
    used: HashMap<Page, u64>,
    by_use: BTreeMap<u64, Page>,
}

impl Buffers {
    fn new(size: usize) -> Buffers {
        Buffers {
            size,
            now: 0,
            used: HashMap::new(),
            by_use: BTreeMap::new(),
        }
    }

    /// Whether the page was there; it is now.
    fn touch(&mut self, page: Page) -> bool {
        self.now += 1;
        let before = self.used.insert(page, self.now);
        if let Some(before) = before {
            self.by_use.remove(&before);
        }
        self.by_use.insert(self.now, page);
        if self.used.len() > self.size
            && let Some((_, oldest)) = self.by_use.pop_first()
        {
            self.used.remove(&oldest);
        }
        before.is_some()
    }
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % end.max(1)
    }
}
