//! Where the time of ingest goes: the same WAL through its stages, one more each time, on one thread.
//!
//! What a stage costs is what a pass with it takes longer than the pass before. Passes take turns, and the fastest of
//! each counts: noise only ever adds. What is not here is what ingest does once for many records (publishing them),
//! what goes on beside it (images, uploads), and asking storage.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use layers::{ChainCounts, MemoryLayer, WriterOptions};
use pageserver::config::TenantConfig;
use pageserver::timeline::{DeltaWriter, EncodedValue};
use pg_types::{Key, Lsn, PgMajor, WAL_SEGMENT_BYTES};
use serde_json::{Value, json};
use wal_decode::{InterpretError, MetaChange, PageStep, Sink, TimelineState};
use wal_decode::{WalStreamDecoder, decode, interpret_into};

/// As much as comes from a safekeeper at once.
const PIECE: usize = 128 << 10;
const STAGES: [&str; 6] = ["split", "decode", "interpret", "count", "put", "write"];

#[derive(clap::Args)]
pub struct Arguments {
    #[arg(long)]
    wal: PathBuf,
    /// A record boundary.
    #[arg(long)]
    from: Lsn,
    #[arg(long)]
    upto: Lsn,
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// zstd level of the layers that the last stage writes, instead of the pageserver's own.
    #[arg(long, allow_negative_numbers = true)]
    compression: Option<i32>,
    /// The same of a block's bytes before compression.
    #[arg(long)]
    block_bytes: Option<usize>,
}

/// Nanoseconds a record, by stage.
pub fn run(arguments: Arguments) -> Result<Value> {
    let (from, upto) = (arguments.from, arguments.upto);
    let wal = read(&arguments.wal, from, upto)?;
    let defaults = WriterOptions::level_0();
    let options = WriterOptions {
        compression: arguments.compression.unwrap_or(defaults.compression),
        block_bytes: arguments.block_bytes.unwrap_or(defaults.block_bytes),
    };
    let mut fastest = [Duration::MAX; STAGES.len()];
    let (mut records, mut layer_bytes) = (0, 0);
    for _ in 0..arguments.rounds {
        for (stage, fastest) in fastest.iter_mut().enumerate() {
            let begun = Instant::now();
            (records, layer_bytes) = pass(from, &wal, stage, &options)?;
            *fastest = begun.elapsed().min(*fastest);
        }
    }
    ensure!(records > 0, "there is no record from {from} to {upto}");
    let mut before = Duration::ZERO;
    let mut stages = json!({});
    for (name, taken) in STAGES.iter().zip(fastest) {
        let more = taken.saturating_sub(before);
        stages[*name] = json!((more.as_nanos() as f64 / records as f64).round());
        before = taken.max(before);
    }
    Ok(json!({
        "records": records, "wal_bytes": wal.len(), "layer_bytes": layer_bytes, "ns_per_record": stages,
    }))
}

fn read(pg_wal: &Path, from: Lsn, upto: Lsn) -> Result<Vec<u8>> {
    let mut wal = Vec::new();
    let mut at = from;
    while at < upto {
        let segment = std::fs::read(pg_wal.join(at.segment_file_name(WAL_SEGMENT_BYTES)))?;
        let first = at.segment_offset(WAL_SEGMENT_BYTES) as usize;
        let length = (segment.len() - first).min((upto.0 - at.0) as usize);
        wal.extend_from_slice(&segment[first..first + length]);
        at = at + length as u64;
    }
    Ok(wal)
}

/// Gathers the versions of one piece.
struct ChangeCollector {
    writer: DeltaWriter,
    values: Vec<(Key, Lsn, EncodedValue)>,
    lsn: Lsn,
    failed: bool,
}

impl Sink for ChangeCollector {
    type Error = InterpretError;

    fn meta(&mut self, _: MetaChange) -> Result<(), InterpretError> {
        Ok(())
    }

    fn page(&mut self, key: Key, step: PageStep<'_, '_>) -> Result<(), InterpretError> {
        match self.writer.encode(&key, &step) {
            Ok(value) => self.values.push((key, self.lsn, value)),
            Err(_) => self.failed = true,
        }
        Ok(())
    }
}

/// All stages up to this one; the number of records, and the bytes of the layers written.
fn pass(from: Lsn, wal: &[u8], last: usize, options: &WriterOptions) -> Result<(u64, u64)> {
    let config = TenantConfig::default();
    let mut decoder = WalStreamDecoder::new(from, PgMajor::V15);
    let mut state = TimelineState::start_of_nothing(PgMajor::V15);
    let mut counts = ChainCounts::new(u32::MAX);
    let mut layer = MemoryLayer::new();
    let mut collector = ChangeCollector {
        writer: DeltaWriter::default(),
        values: Vec::new(),
        lsn: from,
        failed: false,
    };
    let (mut records, mut written) = (0, 0);
    let mut at = from;
    for piece in wal.chunks(PIECE) {
        let mut found = decoder.feed(at, piece)?;
        at = at + piece.len() as u64;
        while let Some(record) = found.next_record()? {
            records += 1;
            if last < 1 {
                continue;
            }
            let decoded = decode(record.start_lsn, record.end_lsn, record.bytes)?;
            if last < 2 {
                continue;
            }
            collector.lsn = record.end_lsn;
            interpret_into(&decoded, &state, &mut collector)?;
            state.observe(&decoded)?;
        }
        let values = (collector.values.iter())
            .map(|(key, lsn, encoded)| (*key, *lsn, collector.writer.lend(encoded)));
        if last >= 3 {
            for (key, lsn, value) in values.clone() {
                counts.ingested(&key, lsn, value);
            }
        }
        if last >= 4 {
            layer.put_batch(values)?;
        }
        collector.values.clear();
        collector.writer.clear();
        if layer.bytes() >= config.checkpoint_distance_bytes {
            written += flush(std::mem::take(&mut layer), last, options)?;
        }
    }
    ensure!(!collector.failed, "a page image in the WAL is damaged");
    if !layer.is_empty() {
        written += flush(layer, last, options)?;
    }
    Ok((records, written))
}

fn flush(layer: MemoryLayer, last: usize, options: &WriterOptions) -> Result<u64> {
    layer.freeze();
    if last < 5 {
        return Ok(0);
    }
    let (desc, _) = layer.write_delta_layer(options)?;
    Ok(desc.size)
}
