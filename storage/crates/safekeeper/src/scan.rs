//! Following one log record by record: which ranges are whole, and what lies between them.
//!
//! A fault does not end the scan. The next record is looked for behind it: where the damaged record would end if its
//! length is right, else at the next page that says where a record begins. What follows is proven again from there.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use pg_types::wal::{
    LONG_PAGE_HEADER_BYTES, WalPageHeader, XLP_FIRST_IS_CONTRECORD, page_header_bytes, record_end,
};
use pg_types::{Lsn, PgMajor, WAL_SEGMENT_BYTES, XLOG_BLCKSZ};
use serde::Serialize;
use wal_decode::{WalError, WalStreamDecoder};

use crate::segments;

/// Read at once.
pub const CHUNK_BYTES: usize = 256 << 10;
/// How often the end of a log is looked at again while it moves, before it is left at that.
const LOOKS: u32 = 5;

/// Bytes of a log by their position.
pub trait Wal {
    /// The first segment that exists at or behind this number.
    fn segment_from(&self, number: u64) -> Option<u64>;

    /// Fills `buffer` from `at` on, to the end of the segment at most, and gives the length. What a file is too short
    /// for is zero, as a safekeeper takes it. `NotFound` when there is no such segment.
    fn read(&mut self, at: Lsn, buffer: &mut [u8]) -> io::Result<usize>;
}

/// Records end to end, each with the right checksum and the right link to the one before.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Proven {
    /// Record boundary at which the first record begins.
    pub from: Lsn,
    /// End of the last record, exclusive.
    pub to: Lsn,
    /// Number of records.
    pub records: u64,
    /// Bytes of padding and page headers in it, which are under no checksum.
    pub uncovered: u64,
}

/// A range in which nothing is proven.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Fault {
    /// End of the last whole record before the range, or where the scan began.
    pub from: Lsn,
    /// Where the next whole record begins, or up to where the member had said that it holds everything.
    pub to: Lsn,
    /// For people: what the record at `from`, or its file, is like.
    pub why: String,
}

/// What follows the last whole record.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum Tail {
    /// Zeroes only.
    Clean,
    /// Bytes up to `to` that are no whole record: one broke off. The next start sets them aside and goes on before them.
    Torn {
        /// End of the last whole record.
        from: Lsn,
        /// Behind the last byte that is not zero.
        to: Lsn,
        /// For people: why there is no whole record at `from`.
        why: String,
    },
    /// A safekeeper was writing meanwhile.
    Moving,
}

/// What following a log has found.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Scan {
    /// Ranges of whole records, in order.
    pub proven: Vec<Proven>,
    /// Ranges in which WAL is missing or damaged, in order; the torn end of a log is none of them.
    pub faults: Vec<Fault>,
    /// What the log ends with.
    pub tail: Tail,
    /// Where a start of the safekeeper would find the log's end: behind the last record that follows the stored commit
    /// LSN without a fault. The first fault when that one lies below.
    pub end: Lsn,
}

impl Scan {
    /// Whether all of `[from, to)` is proven in one piece.
    pub fn covers(&self, from: Lsn, to: Lsn) -> bool {
        from >= to
            || self
                .proven
                .iter()
                .any(|proven| proven.from <= from && proven.to >= to)
    }
}

/// What a scan needs besides the bytes.
pub struct Means<'a> {
    /// The major version of Postgres that wrote the WAL.
    pub major: PgMajor,
    /// WAL of another system is refused when this is known.
    pub system_identifier: Option<u64>,
    /// Called with the number of bytes after each read.
    pub progress: &'a mut dyn FnMut(u64),
    /// Waits a moment, for a writer to go on.
    pub pause: &'a dyn Fn(),
}

enum Stop {
    NoSegment(Lsn),
    Unreadable(Lsn, io::Error),
    Bad(WalError),
}

impl Stop {
    fn why(&self) -> String {
        let file = |at: &Lsn| segments::name_of(at.0 / WAL_SEGMENT_BYTES);
        match self {
            Stop::NoSegment(at) => format!("there is no file {}", file(at)),
            Stop::Unreadable(at, error) => format!("{} cannot be read at {at}: {error}", file(at)),
            Stop::Bad(error) => error.to_string(),
        }
    }
}

/// Whole records from a position on, and why there are no more.
struct Run {
    from: Lsn,
    to: Lsn,
    records: u64,
    covered: u64,
    last_record: Option<Lsn>,
    stop: Stop,
}

struct Scanner<'a, 'm> {
    wal: &'a mut dyn Wal,
    means: &'a mut Means<'m>,
    buffer: Vec<u8>,
    scan: Scan,
}

/// Follows a log from the record boundary `from` on; without one, from the first record that is found. `promised` is
/// the commit LSN that the member has stored: up to there, every byte must be there.
pub fn scan(wal: &mut dyn Wal, from: Option<Lsn>, promised: Lsn, means: &mut Means<'_>) -> Scan {
    let mut scanner = Scanner {
        wal,
        means,
        buffer: vec![0; CHUNK_BYTES],
        scan: Scan {
            proven: Vec::new(),
            faults: Vec::new(),
            tail: Tail::Clean,
            end: promised,
        },
    };
    let first = match from {
        Some(from) => Some(scanner.run(from, None)),
        None => scanner.first_record(),
    };
    if let Some(first) = first {
        scanner.follow(first, promised);
    }
    let mut scan = scanner.scan;
    let holds_promised = |proven: &&Proven| proven.from <= promised && proven.to >= promised;
    scan.end = match (scan.proven.iter().find(holds_promised), scan.faults.first()) {
        (Some(proven), _) => proven.to,
        (None, Some(fault)) => fault.from.min(promised),
        (None, None) => promised,
    };
    scan
}

impl Scanner<'_, '_> {
    fn follow(&mut self, first: Run, promised: Lsn) {
        let mut run = first;
        let mut moved = 0;
        loop {
            self.push(&run);
            let (gap, why) = (run.to, run.stop.why());
            if self.first_byte_behind(gap).is_none() {
                self.lacks(gap, promised, why);
                return;
            }
            // Below the commit LSN nothing moves any more.
            if gap >= promised {
                if moved == LOOKS {
                    self.scan.tail = Tail::Moving;
                    return;
                }
                if let Some(more) = self.read_again(&run) {
                    moved += 1;
                    run = more;
                    continue;
                }
            }
            let Some(next) = self.resume(&run) else {
                if gap < promised {
                    self.lacks(gap, promised, why);
                } else {
                    let to = self.last_byte_behind(gap);
                    self.scan.tail = Tail::Torn { from: gap, to, why };
                }
                return;
            };
            self.scan.faults.push(Fault {
                from: gap,
                to: next.from,
                why,
            });
            run = next;
        }
    }

    fn push(&mut self, run: &Run) {
        if run.to <= run.from {
            return;
        }
        let uncovered = (run.to.0 - run.from.0).saturating_sub(run.covered);
        match self.scan.proven.last_mut() {
            Some(last) if last.to == run.from => {
                last.to = run.to;
                last.records += run.records;
                last.uncovered += uncovered;
            }
            _ => self.scan.proven.push(Proven {
                from: run.from,
                to: run.to,
                records: run.records,
                uncovered,
            }),
        }
    }

    fn lacks(&mut self, gap: Lsn, promised: Lsn, why: String) {
        if gap < promised {
            self.scan.faults.push(Fault {
                from: gap,
                to: promised,
                why,
            });
        }
    }

    /// Whole records from `from` on.
    fn run(&mut self, from: Lsn, prev: Option<Lsn>) -> Run {
        let mut decoder = WalStreamDecoder::new(from, self.means.major)
            .with_prev_record(prev.unwrap_or(Lsn::INVALID));
        if let Some(identifier) = self.means.system_identifier {
            decoder = decoder.with_system_identifier(identifier);
        }
        let mut buffer = std::mem::take(&mut self.buffer);
        let (mut at, mut records, mut covered) = (from, 0, 0);
        let stop = loop {
            let length = match self.read(at, &mut buffer) {
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    break Stop::NoSegment(at);
                }
                Err(error) => break Stop::Unreadable(at, error),
            };
            let mut take = || {
                let mut fed = decoder.feed(at, &buffer[..length])?;
                while let Some(record) = fed.next_record()? {
                    records += 1;
                    covered += record.bytes.len() as u64;
                }
                Ok(())
            };
            if let Err(error) = take() {
                break Stop::Bad(error);
            }
            (self.means.progress)(length as u64);
            at = at + length as u64;
        };
        self.buffer = buffer;
        Run {
            from,
            to: decoder.boundary(),
            records,
            covered,
            last_record: decoder.last_record().or(prev),
            stop,
        }
    }

    /// What can be read before a page that can't.
    fn read(&mut self, at: Lsn, buffer: &mut [u8]) -> io::Result<usize> {
        self.wal.read(at, buffer).or_else(|error| {
            if error.kind() == io::ErrorKind::NotFound {
                return Err(error);
            }
            let page_left = (XLOG_BLCKSZ - at.0 % XLOG_BLCKSZ) as usize;
            self.wal.read(at, &mut buffer[..page_left])
        })
    }

    /// More records where `run` ended, if a writer brings them within a moment.
    fn read_again(&mut self, run: &Run) -> Option<Run> {
        for wait in [false, true, true] {
            if wait {
                (self.means.pause)();
            }
            let again = self.run(run.to, run.last_record);
            if again.to > run.to {
                return Some(again);
            }
        }
        None
    }

    /// The first whole record behind the place where `run` had to stop.
    fn resume(&mut self, run: &Run) -> Option<Run> {
        if let Stop::Bad(WalError::Checksum { lsn, .. }) = &run.stop {
            let mut length = [0; 4];
            if self.wal.read(*lsn, &mut length).is_ok_and(|got| got == 4) {
                let length = u64::from(u32::from_le_bytes(length));
                let next = self.run(record_end(*lsn, length), Some(*lsn));
                if next.to > next.from {
                    return Some(next);
                }
            }
        }
        self.record_from_page((run.to.0 / XLOG_BLCKSZ + 1) * XLOG_BLCKSZ)
    }

    fn first_record(&mut self) -> Option<Run> {
        let first = self.wal.segment_from(0)?;
        self.record_from_page(first.checked_mul(WAL_SEGMENT_BYTES)?)
    }

    /// The first whole record that begins on this page or behind it.
    fn record_from_page(&mut self, from: u64) -> Option<Run> {
        let mut page = from;
        loop {
            let segment = page / WAL_SEGMENT_BYTES;
            let exists = self.wal.segment_from(segment)?;
            if exists != segment {
                page = exists.checked_mul(WAL_SEGMENT_BYTES)?;
            }
            if let Some(start) = self.first_start(Lsn(page)) {
                let run = self.run(start, None);
                if run.to > run.from {
                    return Some(run);
                }
            }
            page = page.checked_add(XLOG_BLCKSZ)?;
        }
    }

    /// Where the page says that the first record begins on it, if one does.
    fn first_start(&mut self, page: Lsn) -> Option<Lsn> {
        let mut bytes = [0; LONG_PAGE_HEADER_BYTES];
        self.wal.read(page, &mut bytes).ok()?;
        let header = WalPageHeader::parse(&bytes)?;
        if header.magic != self.means.major.facts().wal_page_magic || header.page_addr != page {
            return None;
        }
        if header.info & XLP_FIRST_IS_CONTRECORD == 0 {
            return Some(page);
        }
        let behind = page + page_header_bytes(page) as u64 + u64::from(header.rem_len);
        (behind.align().0 < page.0 + XLOG_BLCKSZ).then(|| behind.align())
    }

    /// The first byte from `at` on that is not zero, or can't be read.
    fn first_byte_behind(&mut self, at: Lsn) -> Option<Lsn> {
        self.pieces_behind(at, |at, piece| match piece {
            Ok(bytes) => Some(at + bytes.iter().position(|byte| *byte != 0)? as u64),
            Err(_) => Some(at),
        })
    }

    /// Behind the last byte from `at` on that is not zero.
    fn last_byte_behind(&mut self, at: Lsn) -> Lsn {
        let mut last = at;
        self.pieces_behind(at, |at, piece| {
            if let Some(place) = piece.ok()?.iter().rposition(|byte| *byte != 0) {
                last = at + place as u64 + 1;
            }
            None
        });
        last
    }

    /// Goes through all bytes from `from` on until `look` finds something.
    fn pieces_behind(
        &mut self,
        from: Lsn,
        mut look: impl FnMut(Lsn, io::Result<&[u8]>) -> Option<Lsn>,
    ) -> Option<Lsn> {
        let mut at = from;
        loop {
            let segment = at.0 / WAL_SEGMENT_BYTES;
            let exists = self.wal.segment_from(segment)?;
            if exists != segment {
                at = Lsn(exists.checked_mul(WAL_SEGMENT_BYTES)?);
            }
            let mut buffer = std::mem::take(&mut self.buffer);
            let read = self.wal.read(at, &mut buffer);
            let page_left = (XLOG_BLCKSZ - at.0 % XLOG_BLCKSZ) as usize;
            let length = *read.as_ref().unwrap_or(&page_left);
            let found = look(at, read.map(|length| &buffer[..length]));
            self.buffer = buffer;
            if found.is_some() {
                return found;
            }
            (self.means.progress)(length as u64);
            at = at + length as u64;
        }
    }
}

/// Fills `buffer` from `offset` on; what the file is too short for is zero.
pub fn read_or_zero(file: &File, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read_at(&mut buffer[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(length) => filled += length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    buffer[filled..].fill(0);
    Ok(())
}
