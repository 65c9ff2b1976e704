//! Decoding segments at the same time finds the records, the end and its reason that decoding them one after the
//! other does, wherever records cross and whatever is damaged.

use std::num::NonZeroUsize;

use pg_types::wal::{info, rmgr};
use pg_types::{Lsn, PgMajor, WAL_SEGMENT_BYTES, XLOG_BLCKSZ};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use wal_decode::parallel::{Folded, WalSource, fold};
use wal_decode::synth::{WalWriter, plain_record};
use wal_decode::{RawRecord, WalError, WalStats, WalStreamDecoder, summarize};

const V15: PgMajor = PgMajor::V15;

/// Start, end and checksum of a record.
type Seen = (Lsn, Lsn, Option<u32>);

fn seen(record: &RawRecord<'_>) -> Seen {
    let header = record.header();
    (
        record.start_lsn,
        record.end_lsn,
        header.map(|header| header.crc),
    )
}

struct Wal {
    start: Lsn,
    bytes: Vec<u8>,
    /// Most bytes a read gives.
    read: usize,
}

#[derive(Debug, PartialEq)]
enum Failure {
    Wal(WalError),
    Refused(Lsn),
}

impl From<WalError> for Failure {
    fn from(error: WalError) -> Failure {
        Failure::Wal(error)
    }
}

impl WalSource for Wal {
    type Error = Failure;

    fn read<'b>(&'b self, from: Lsn, buffer: &'b mut [u8]) -> Result<&'b [u8], Failure> {
        let at = from
            .checked_sub(self.start)
            .map_or(usize::MAX, |at| at as usize);
        let rest = self.bytes.get(at..).unwrap_or_default();
        Ok(&rest[..rest.len().min(buffer.len()).min(self.read)])
    }
}

impl Wal {
    /// Linked records: of so many bytes, or, for `None`, a switch to the next segment.
    fn write(start: Lsn, bodies: &[Option<usize>]) -> Wal {
        let mut writer = WalWriter::new(start, V15, 1, 7);
        let mut prev = Lsn(start.0 - 8);
        for (i, body) in bodies.iter().enumerate() {
            let record = match body {
                Some(length) => {
                    plain_record(rmgr::LOGICALMSG, 0, i as u32, prev, &vec![i as u8; *length])
                }
                None => plain_record(rmgr::XLOG, info::xlog::SWITCH, 0, prev, &[]),
            };
            prev = writer.append(&record).0;
            if body.is_none() {
                writer.fill_segment();
            }
        }
        Wal {
            start,
            bytes: writer.bytes().to_vec(),
            read: usize::MAX,
        }
    }

    fn one_by_one(&self) -> (Vec<Seen>, Lsn, Option<WalError>) {
        let mut decoder = WalStreamDecoder::new(self.start, V15);
        let mut all = Vec::new();
        let mut records = decoder.feed(self.start, &self.bytes).unwrap();
        loop {
            match records.next_record() {
                Ok(Some(record)) => all.push(seen(&record)),
                Ok(None) => return (all, records.boundary(), None),
                Err(error) => return (all, records.boundary(), Some(error)),
            }
        }
    }

    fn at_once(&self, threads: usize) -> (Vec<Seen>, Lsn, Option<WalError>) {
        let add = |all: &mut Vec<Seen>, record: RawRecord<'_>| {
            all.push(seen(&record));
            Ok(())
        };
        let threads = NonZeroUsize::new(threads).unwrap();
        let Folded {
            parts,
            boundary,
            end,
        } = fold(self, self.start, V15, threads, add).unwrap();
        (parts.concat(), boundary, end)
    }
}

/// A start a little before a segment's end.
fn starts() -> impl Strategy<Value = Lsn> {
    (1u64..2000).prop_map(|words| {
        let lsn = WAL_SEGMENT_BYTES * 4 - words * 8;
        Lsn(lsn.max(lsn / XLOG_BLCKSZ * XLOG_BLCKSZ + 24))
    })
}

/// Few enough of those that take a segment.
fn bodies() -> impl Strategy<Value = Vec<Option<usize>>> {
    let segment = WAL_SEGMENT_BYTES as usize;
    let small = prop_oneof![20 => 0usize..400, 4 => 7900usize..8400, 1 => 16_000usize..70_000];
    let large = prop_oneof![
        2 => Just(None),
        1 => (segment - 60_000..segment + 20_000).prop_map(Some),
        1 => (2 * segment..2 * segment + 9000).prop_map(Some),
    ];
    let some = || vec(small.clone().prop_map(Some), 1..40);
    (some(), large.clone(), some(), large, some())
        .prop_map(|(a, b, c, d, e)| [a, vec![b], c, vec![d], e].concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Promise: the same records, end and error as one decoder, for whole WAL, torn WAL, WAL with a flipped bit and
    /// WAL with the segments of an older time behind its end.
    #[test]
    fn parts_are_as_the_whole(
        start in starts(), bodies in bodies(), threads in 1usize..5, cut in any::<Index>(),
        flips in vec((any::<Index>(), 0u8..8, any::<bool>()), 1..4), read in 30usize..300_000,
    ) {
        let mut wal = Wal::write(start, &bodies);
        wal.read = read;
        prop_assert_eq!(wal.at_once(threads), wal.one_by_one());

        let whole = wal.bytes.clone();
        wal.bytes.truncate(cut.index(whole.len()));
        prop_assert_eq!(wal.at_once(threads), wal.one_by_one(), "torn");
        wal.bytes.resize(whole.len(), 0);
        prop_assert_eq!(wal.at_once(threads), wal.one_by_one(), "torn, in files of full length");

        wal.bytes = whole;
        let segments = wal.bytes.len() / WAL_SEGMENT_BYTES as usize + 1;
        for (at, bit, in_header) in flips {
            // In a segment's first page header or anywhere.
            let at = if in_header {
                let behind = (WAL_SEGMENT_BYTES - start.0 % WAL_SEGMENT_BYTES) as usize;
                behind + at.index(segments) * WAL_SEGMENT_BYTES as usize + at.index(40)
            } else {
                at.index(wal.bytes.len())
            };
            if let Some(byte) = wal.bytes.get_mut(at) {
                *byte ^= 1 << bit;
                prop_assert_eq!(wal.at_once(threads), wal.one_by_one(), "damaged at {}", at);
            }
        }
    }
}

/// Promise: a segment that fits by its position but belongs to another history does not count as what follows.
#[test]
fn a_segment_of_another_history_is_not_joined() {
    let start = Lsn(WAL_SEGMENT_BYTES * 4 - 800);
    let one = Wal::write(start, &[Some(50), None, Some(60), Some(60)]);
    let mut other = Wal::write(start, &[Some(90), Some(50), None, Some(61), Some(70)]);
    let behind = 800 + 40;
    other.bytes.truncate(behind);
    other.bytes.extend_from_slice(&one.bytes[behind..]);
    let (records, _, end) = other.one_by_one();
    assert_eq!(records.len(), 3);
    assert!(matches!(end, Some(WalError::Record { .. })), "{end:?}");
    assert_eq!(other.at_once(3), other.one_by_one());
}

/// Promise: of several failures the first in WAL order is told, and counts over parts add up.
#[test]
fn the_first_failure_is_told_and_counts_add_up() {
    let start = Lsn(WAL_SEGMENT_BYTES * 4 - 800);
    let wal = Wal::write(start, &[Some(50), None, Some(60), None, Some(70), Some(80)]);
    let threads = NonZeroUsize::new(4).unwrap();
    let third = wal.one_by_one().0[2].0;
    let refused = fold(&wal, start, V15, threads, |_: &mut (), record| {
        if record.start_lsn >= third {
            return Err(Failure::Refused(record.start_lsn));
        }
        Ok(())
    });
    assert_eq!(refused.unwrap_err(), Failure::Refused(third));

    let counted = fold(&wal, start, V15, threads, |stats: &mut WalStats, record| {
        stats.add(&summarize(record.start_lsn, record.bytes)?);
        Ok(())
    })
    .unwrap();
    assert!(counted.parts.len() > 2);
    let mut sum = WalStats::default();
    counted.parts.iter().for_each(|part| sum.merge(part));
    let total = sum.total();
    assert_eq!((total.records, sum.by_rmgr().count()), (6, 2));
    let bytes: u64 = [50u64, 60, 70, 80].iter().map(|body| 24 + 2 + body).sum();
    assert_eq!(total.rest_bytes, bytes + 2 * 24);
}
