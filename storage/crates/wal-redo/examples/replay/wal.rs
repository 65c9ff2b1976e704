//! All of a stretch of WAL: what each step of replaying it takes.

use std::fs::File;
use std::io;
use std::num::NonZeroUsize;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use mapped_file::MappedFile;
use pg_types::{ForkNumber, Key, Lsn, PgMajor, WAL_SEGMENT_BYTES};
use serde_json::{Value, json};
use wal_decode::parallel::{WalSource, fold};
use wal_decode::{
    MetaChange, PageStep, RawRecord, Sink, WalError, WalStats, WalStreamDecoder, decode_for,
    interpret_into, summarize,
};
use wal_redo::ClusterSettings;

use crate::gather::{Gathered, ReplayRecord};
use crate::pages::Pages;
use crate::{Start, cpu_ns, files};

/// Bytes handed to the decoder at once.
const PIECE: usize = 1 << 20;

/// The WAL's bytes from a record boundary on.
pub struct Stretch {
    from: Lsn,
    bytes: Vec<u8>,
}

impl Stretch {
    pub fn read(pg_wal: &Path, from: Lsn) -> Result<Stretch> {
        let mut bytes = Vec::new();
        for (start, path) in files::wal_segments(pg_wal)? {
            if start + WAL_SEGMENT_BYTES > from {
                let segment = std::fs::read(path)?;
                let skip = from.checked_sub(start).unwrap_or(0) as usize;
                bytes.extend_from_slice(&segment[skip..]);
            }
        }
        Ok(Stretch { from, bytes })
    }

    /// Hands out every record; returns how many there were and the end of the last.
    pub fn for_each(
        &self,
        mut each: impl FnMut(RawRecord<'_>) -> Result<()>,
    ) -> Result<(u64, Lsn)> {
        let mut decoder = WalStreamDecoder::new(self.from, PgMajor::V15);
        let mut count = 0;
        for piece in self.bytes.chunks(PIECE) {
            let mut records = decoder.feed(decoder.fed_to(), piece)?;
            loop {
                match records.next_record() {
                    Ok(Some(record)) => {
                        count += 1;
                        each(record)?;
                    }
                    Ok(None) => break,
                    // The end of what was written: zeroes, or what a recycled segment held before.
                    Err(
                        WalError::Zero { .. }
                        | WalError::PageHeader { .. }
                        | WalError::Record { .. }
                        | WalError::Checksum { .. },
                    ) => return Ok((count, records.boundary())),
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok((count, decoder.boundary()))
    }
}

/// Runs `work` and returns its result with the CPU time it took, in seconds.
fn timed<T>(work: impl FnOnce() -> Result<T>) -> Result<(T, f64)> {
    let begun = cpu_ns();
    let result = work()?;
    Ok((result, (cpu_ns() - begun) as f64 / 1e9))
}

/// WAL that is gathered before it goes to its pages, as in a pageserver's open layer.
const LAYER_BYTES: u64 = 256 << 20;

/// Replays what it is given. Redo of a page needs only what came before on that page, so that records are kept for
/// groups of pages and applied group by group, in WAL order each: that makes the same pages, and each page is in the
/// processor's cache meanwhile.
struct Replay {
    pages: Pages,
    gathered: Gathered,
    applied: u64,
    /// CPU time that applying took, in nanoseconds.
    redo_ns: u64,
}

impl Replay {
    /// Brings all pages up to the last record.
    fn flush(&mut self) -> Result<()> {
        let begun = cpu_ns();
        let (pages, applied) = (&mut self.pages, &mut self.applied);
        self.gathered.drain(|kept| {
            *applied += 1;
            let page = pages.slot(kept.slot);
            decode_for(kept.end_lsn, kept.end_lsn, kept.record, |record| {
                let block = record.block(kept.block).context("a block that was there")?;
                let key = Key::rel_block(block.rel, block.blkno);
                let step = PageStep::Redo { record, block };
                Ok(wal_redo::apply_step(SETTINGS, step, key, page)?)
            })?
        })?;
        self.redo_ns += cpu_ns() - begun;
        Ok(())
    }
}

const SETTINGS: ClusterSettings = ClusterSettings {
    major: PgMajor::V15,
    hint_bits_logged: false,
};

impl Sink for Replay {
    type Error = anyhow::Error;

    fn meta(&mut self, change: MetaChange) -> Result<()> {
        // What exists changes: first everything before.
        self.flush()?;
        self.pages.apply(&change);
        Ok(())
    }

    fn page(&mut self, key: Key, step: PageStep<'_, '_>) -> Result<()> {
        let slot = self.pages.number(key);
        let (record, block) = match step {
            PageStep::Image { record, block } | PageStep::Redo { record, block }
                if block.rel.fork == ForkNumber::Main =>
            {
                (record, block)
            }
            // Few pages, all of whose changes come this way.
            _ => {
                wal_redo::apply_step(SETTINGS, step, key, self.pages.slot(slot))?;
                self.applied += 1;
                return Ok(());
            }
        };
        let kept = ReplayRecord {
            slot,
            block: block.id,
            end_lsn: record.end_lsn,
            record: record.raw,
        };
        if !self.gathered.keep(&kept) {
            // Too long to be kept: first everything before.
            self.flush()?;
            wal_redo::apply_step(SETTINGS, step, key, self.pages.slot(slot))?;
            self.applied += 1;
        }
        Ok(())
    }
}

/// Has changes found and takes no more notice of them.
struct Found(u64);

impl Sink for Found {
    type Error = anyhow::Error;

    fn meta(&mut self, change: MetaChange) -> Result<()> {
        std::hint::black_box(change);
        Ok(())
    }

    fn page(&mut self, key: Key, step: PageStep<'_, '_>) -> Result<()> {
        std::hint::black_box((key, step));
        self.0 += 1;
        Ok(())
    }
}

/// Passes that each do one step more; a step's own time is the difference.
pub fn replay(pg_wal: &Path, start: &Start) -> Result<Value> {
    let stretch = Stretch::read(pg_wal, start.from)?;
    let ((records, end), framing) = timed(|| stretch.for_each(|_| Ok(())))?;
    let (_, decoding) = timed(|| {
        stretch.for_each(|raw| {
            decode_for(raw.start_lsn, raw.end_lsn, raw.bytes, |record| {
                std::hint::black_box(record);
            })?;
            Ok(())
        })
    })?;
    let (_, interpreting) = timed(|| follow(&stretch, start, &mut Found(0), |_, _| Ok(())))?;
    let mut replay = Replay {
        pages: Pages::load(start)?,
        gathered: Gathered::new(2 * LAYER_BYTES as usize),
        applied: 0,
        redo_ns: 0,
    };
    let (_, all) = timed(|| {
        let mut flush_at = start.from + LAYER_BYTES;
        follow(&stretch, start, &mut replay, |end, replay| {
            if end >= flush_at {
                flush_at = end + LAYER_BYTES;
                replay.flush()?;
            }
            Ok(())
        })?;
        replay.flush()
    })?;
    let redo = replay.redo_ns as f64 / 1e9;
    Ok(json!({
        "records": records,
        "bytes": end.0 - start.from.0,
        "end": end.to_string(),
        "changes": replay.applied,
        "pages_touched": replay.pages.touched(),
        "seconds": all,
        "steps": {
            "framing_and_checksum": framing,
            "decode": decoding - framing,
            "interpret": interpreting - decoding,
            "gather_by_page": all - redo - interpreting,
            "redo": redo,
        },
    }))
}

/// Hands every change to `sink`, and after each record where it ended to `then`.
fn follow<S: Sink<Error = anyhow::Error>>(
    stretch: &Stretch,
    start: &Start,
    sink: &mut S,
    mut then: impl FnMut(Lsn, &mut S) -> Result<()>,
) -> Result<()> {
    let mut state = start.state;
    stretch.for_each(|raw| {
        decode_for(raw.start_lsn, raw.end_lsn, raw.bytes, |record| {
            interpret_into(record, &state, sink)?;
            state.observe(record)?;
            then(raw.end_lsn, sink)
        })?
    })?;
    Ok(())
}

/// Segment files, each with the LSN it starts at.
struct Segments<F>(Vec<(Lsn, F)>);

impl<F> Segments<F> {
    /// The one that holds `lsn`, and where in it; behind the last one's end an offset behind its end.
    fn holding(&self, lsn: Lsn) -> Option<(&F, u64)> {
        let behind = self.0.partition_point(|(start, _)| *start <= lsn);
        let (start, file) = &self.0[behind.checked_sub(1)?];
        Some((file, lsn.0 - start.0))
    }
}

/// Read piece by piece.
impl WalSource for Segments<File> {
    type Error = anyhow::Error;

    fn read<'b>(&'b self, from: Lsn, buffer: &'b mut [u8]) -> Result<&'b [u8]> {
        let Some((file, at)) = self.holding(from) else {
            return Ok(&[]);
        };
        let length = file.read_at(buffer, at)?;
        Ok(&buffer[..length])
    }
}

/// Decoded where they lie.
impl WalSource for Segments<MappedFile> {
    type Error = anyhow::Error;

    fn read<'b>(&'b self, from: Lsn, buffer: &'b mut [u8]) -> Result<&'b [u8]> {
        let Some((map, at)) = self.holding(from) else {
            return Ok(&[]);
        };
        let rest = map.get(at as usize..).unwrap_or_default();
        Ok(&rest[..rest.len().min(buffer.len())])
    }
}

/// How segment files are read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Reading {
    /// A copy of each piece; the least for files in pages of 4 KB, where every page of a mapping is a fault.
    Pieces,
    /// Mapped, without a copy: the least for files in huge pages.
    Mapped,
}

/// What `pg_waldump --stats` does: read the files, check every record, parse its headers, count.
pub fn stats(pg_wal: &Path, from: Lsn, threads: NonZeroUsize, reading: Reading) -> Result<Value> {
    let segments = files::wal_segments(pg_wal)?;
    match reading {
        Reading::Pieces => count(&opened(segments, |path| File::open(path))?, from, threads),
        // The server that wrote them has ended.
        Reading::Mapped => count(&opened(segments, MappedFile::of_finished)?, from, threads),
    }
}

fn opened<F>(
    segments: Vec<(Lsn, PathBuf)>,
    open: impl Fn(&Path) -> io::Result<F>,
) -> Result<Segments<F>> {
    let one = |(start, path): (Lsn, PathBuf)| {
        let file = open(&path).with_context(|| format!("open {}", path.display()))?;
        Ok((start, file))
    };
    Ok(Segments(
        segments.into_iter().map(one).collect::<Result<_>>()?,
    ))
}

fn count(
    source: &impl WalSource<Error = anyhow::Error>,
    from: Lsn,
    threads: NonZeroUsize,
) -> Result<Value> {
    let counted = fold(
        source,
        from,
        PgMajor::V15,
        threads,
        |stats: &mut WalStats, raw| {
            stats.add(&summarize(raw.start_lsn, raw.bytes)?);
            Ok(())
        },
    )?;
    // Behind what was written come zeroes, or what a segment held before it was reused.
    if let Some(error) = counted.end
        && !matches!(error, WalError::Zero { .. } | WalError::PageHeader { .. })
    {
        return Err(error.into());
    }
    let mut stats = WalStats::default();
    counted.parts.iter().for_each(|part| stats.merge(part));
    let total = stats.total();
    Ok(json!({
        "records": total.records,
        "record_bytes": total.rest_bytes + total.image_bytes,
        "image_bytes": total.image_bytes,
        "end": counted.boundary.to_string(),
        "threads": threads,
    }))
}
