//! Decodes WAL on several processors, with the result that decoding it record by record on one would have.
//!
//! The first page header of a segment says how many bytes are left of the record that crosses into the segment, and
//! so where the segment's first own record begins. Segments are therefore decoded at the same time, each from its
//! first record to the first of the next, and then joined: a part counts only if it begins where the one before ended
//! and its first record links to the last before. A part that does not is decoded again from where the part before it
//! ended. So records, the end and its error are those of one [`WalStreamDecoder`] over everything, whatever the
//! bytes.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use pg_types::wal::{LONG_PAGE_HEADER_BYTES, WalPageHeader, next_record_start, record_end};
use pg_types::{Lsn, PgMajor, WAL_SEGMENT_BYTES};

use crate::error::WalError;
use crate::stream::{RawRecord, WalStreamDecoder};

/// Bytes read at once: few calls, and they are still in the processor's own cache when they are decoded.
const PIECE: usize = 256 << 10;

/// Where the bytes of a stretch of WAL come from, for several readers at once.
pub trait WalSource: Sync {
    /// Why bytes could not be had. Also the error of what [`fold`] calls with each record, which may find it
    /// malformed.
    type Error: From<WalError> + Send;

    /// The WAL from `from` on, as much as is to be had in one go: in `buffer`, or where it lies anyway. At most as
    /// long as `buffer`, which is never empty; empty only behind the end.
    fn read<'b>(&'b self, from: Lsn, buffer: &'b mut [u8]) -> Result<&'b [u8], Self::Error>;
}

/// What was made of a stretch of WAL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Folded<A> {
    /// In WAL order.
    pub parts: Vec<A>,
    /// End of the last record.
    pub boundary: Lsn,
    /// Why no record follows; `None` where the bytes ended.
    pub end: Option<WalError>,
}

/// Gives every record from `from` on, the end of a record or (equally) where the next one begins, to `add`, with what
/// was made of those before it of the same part; parts begin as `A::default()`. Uses so many threads.
///
/// # Errors
///
/// The first in WAL order of the source and of `add`. Where records end, and why, is no error: [`Folded::end`].
pub fn fold<S: WalSource, A: Default + Send>(
    source: &S,
    from: Lsn,
    major: PgMajor,
    threads: NonZeroUsize,
    add: impl Fn(&mut A, RawRecord<'_>) -> Result<(), S::Error> + Sync,
) -> Result<Folded<A>, S::Error> {
    let parts = Parts {
        source,
        major,
        from,
        add,
    };
    let ahead = if threads.get() > 1 {
        parts.ahead(threads)
    } else {
        BTreeMap::new()
    };
    parts.join(ahead)
}

/// Where a part begins, and where the record before it began, when known.
#[derive(Clone, Copy)]
struct Begin {
    at: Lsn,
    prev: Option<Lsn>,
}

impl Begin {
    /// Whether a part that begins so, by its own first record, is the one expected.
    fn continues(self, expected: Begin) -> bool {
        self.at == expected.at && (expected.prev.is_none() || self.prev == expected.prev)
    }
}

enum Outcome<E> {
    /// Up to where a later segment's first record begins.
    Whole,
    /// There is no more.
    End(Option<WalError>),
    Failed(E),
}

struct Part<A, E> {
    begin: Begin,
    made: A,
    boundary: Lsn,
    last_record: Option<Lsn>,
    outcome: Outcome<E>,
}

struct Parts<'s, S, F> {
    source: &'s S,
    major: PgMajor,
    from: Lsn,
    add: F,
}

impl<S: WalSource, F> Parts<'_, S, F> {
    fn segment(&self, number: u64) -> Lsn {
        let first = self.from.0 - self.from.0 % WAL_SEGMENT_BYTES;
        Lsn(first.saturating_add(number.saturating_mul(WAL_SEGMENT_BYTES)))
    }

    /// Decodes every segment as far as that can be done without those before.
    fn ahead<A: Default + Send>(&self, threads: NonZeroUsize) -> BTreeMap<u64, Part<A, S::Error>>
    where
        F: Fn(&mut A, RawRecord<'_>) -> Result<(), S::Error> + Sync,
    {
        let (next, last) = (AtomicU64::new(0), AtomicU64::new(u64::MAX));
        let found = Mutex::new(BTreeMap::new());
        let work = || {
            let mut buffer = vec![0; PIECE];
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number > last.load(Ordering::Relaxed) {
                    return;
                }
                let at = match self.first_record(number) {
                    FirstRecord::At(at) => at,
                    FirstRecord::Later => continue,
                    FirstRecord::Unknown => return,
                };
                let part = self.part(Begin { at, prev: None }, &mut buffer);
                if !matches!(part.outcome, Outcome::Whole) {
                    last.fetch_min(number, Ordering::Relaxed);
                }
                let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
                found.insert(number, part);
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..threads.get() {
                scope.spawn(work);
            }
        });
        found.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts the parts behind each other, and decodes what is missing or does not fit.
    fn join<A: Default + Send>(
        &self,
        mut ahead: BTreeMap<u64, Part<A, S::Error>>,
    ) -> Result<Folded<A>, S::Error>
    where
        F: Fn(&mut A, RawRecord<'_>) -> Result<(), S::Error> + Sync,
    {
        let mut begin = Begin {
            at: self.from,
            prev: None,
        };
        let (mut parts, mut boundary) = (Vec::new(), self.from);
        loop {
            let number = (begin.at.0 - self.segment(0).0) / WAL_SEGMENT_BYTES;
            let part = match ahead.remove(&number) {
                Some(part) if part.begin.continues(begin) => part,
                _ => self.part(begin, &mut vec![0; PIECE]),
            };
            parts.push(part.made);
            // A part without a record leaves the boundary before the page header that it begins behind.
            if part.boundary > begin.at {
                boundary = part.boundary;
            }
            let end = match part.outcome {
                Outcome::Whole => {
                    begin = Begin {
                        at: next_record_start(boundary),
                        prev: part.last_record,
                    };
                    continue;
                }
                Outcome::End(end) => end,
                Outcome::Failed(error) => return Err(error),
            };
            return Ok(Folded {
                parts,
                boundary,
                end,
            });
        }
    }

    /// Where the first record that begins in a segment does, by the segment's own first page header.
    fn first_record(&self, number: u64) -> FirstRecord {
        if number == 0 {
            return FirstRecord::At(self.from);
        }
        let segment = self.segment(number);
        match self.behind_crossing(segment) {
            Some(at) if at.0 - segment.0 < WAL_SEGMENT_BYTES => FirstRecord::At(at),
            Some(_) => FirstRecord::Later,
            None => FirstRecord::Unknown,
        }
    }

    /// Where the record ends, and the next one begins, that crosses into the segment; `None` if that cannot be known.
    fn behind_crossing(&self, segment: Lsn) -> Option<Lsn> {
        let (mut bytes, mut buffer) = ([0; LONG_PAGE_HEADER_BYTES], [0; LONG_PAGE_HEADER_BYTES]);
        let mut filled = 0;
        while filled < bytes.len() {
            let rest = &mut bytes[filled..];
            let at = segment + filled as u64;
            let found = self.source.read(at, &mut buffer[..rest.len()]).ok()?;
            if found.is_empty() {
                return None;
            }
            rest[..found.len()].copy_from_slice(found);
            filled += found.len();
        }
        let header = WalPageHeader::parse(&bytes)?;
        let is_its_own = header.page_addr == segment
            && header.magic == self.major.facts().wal_page_magic
            && header.long.is_some();
        let behind_header = segment + LONG_PAGE_HEADER_BYTES as u64;
        is_its_own.then(|| next_record_start(record_end(behind_header, u64::from(header.rem_len))))
    }

    /// Decodes up to the first record of a later segment, or to the end of everything.
    fn part<A: Default>(&self, begin: Begin, buffer: &mut [u8]) -> Part<A, S::Error>
    where
        F: Fn(&mut A, RawRecord<'_>) -> Result<(), S::Error>,
    {
        let mut decoder = WalStreamDecoder::new(begin.at, self.major);
        if let Some(prev) = begin.prev {
            decoder = decoder.with_prev_record(prev);
        }
        let mut part = Part {
            begin,
            made: A::default(),
            boundary: begin.at,
            last_record: begin.prev,
            outcome: Outcome::End(None),
        };
        part.outcome = self
            .decode(&mut decoder, &mut part, buffer)
            .unwrap_or_else(Outcome::Failed);
        part.boundary = decoder.boundary();
        part.last_record = decoder.last_record();
        part
    }

    fn decode<A>(
        &self,
        decoder: &mut WalStreamDecoder,
        part: &mut Part<A, S::Error>,
        buffer: &mut [u8],
    ) -> Result<Outcome<S::Error>, S::Error>
    where
        F: Fn(&mut A, RawRecord<'_>) -> Result<(), S::Error>,
    {
        let begin = part.begin.at.0;
        let segment_end =
            Lsn((begin - begin % WAL_SEGMENT_BYTES).saturating_add(WAL_SEGMENT_BYTES));
        // Where to end, known once the next segment is reached.
        let (mut until, mut is_last) = (segment_end, false);
        loop {
            let at = decoder.fed_to();
            if at == segment_end && !is_last {
                match self.behind_crossing(segment_end) {
                    Some(behind) => (until, is_last) = (behind, true),
                    // All that follows, so that the decoder may say what is wrong with it.
                    None => (until, is_last) = (Lsn(u64::MAX), true),
                }
            }
            if at == until {
                return Ok(Outcome::Whole);
            }
            let most =
                usize::try_from(until.0 - at.0).map_or(buffer.len(), |most| most.min(buffer.len()));
            let wal = self.source.read(at, &mut buffer[..most])?;
            if wal.is_empty() {
                return Ok(Outcome::End(None));
            }
            let mut records = match decoder.feed(at, wal) {
                Ok(records) => records,
                Err(error) => return Ok(Outcome::End(Some(error))),
            };
            loop {
                match records.next_record() {
                    Ok(Some(record)) => {
                        if part.begin.prev.is_none() {
                            part.begin.prev = record.header().map(|header| header.prev);
                        }
                        (self.add)(&mut part.made, record)?;
                    }
                    Ok(None) => break,
                    Err(error) => return Ok(Outcome::End(Some(error))),
                }
            }
        }
    }
}

enum FirstRecord {
    At(Lsn),
    /// A record goes through all of this segment.
    Later,
    /// The segment's header is none, or the segment is not there.
    Unknown,
}
