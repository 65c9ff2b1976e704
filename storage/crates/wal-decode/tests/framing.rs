//! The stream decoder finds exactly the records that were written, wherever they start and however the
//! bytes are cut, and no bytes make any parser panic.

use pg_types::v15::CheckPoint;
use pg_types::wal::{RECORD_HEADER_BYTES, info, next_record_start, record_end, rmgr};
use pg_types::{Lsn, PgMajor, WAL_SEGMENT_BYTES, XLOG_BLCKSZ};
use proptest::collection::vec;
use proptest::prelude::*;
use wal_decode::synth::{WalWriter, plain_record, shutdown_checkpoint, start_segments};
use wal_decode::{RawRecord, WalError, WalStreamDecoder, last_record_boundary};

const V15: PgMajor = PgMajor::V15;
const SYSTEM: u64 = 0x6789_ABCD_0123_4567;

/// A record that outlives its WAL.
#[derive(Clone, Debug, PartialEq, Eq)]
struct OwnedRecord {
    start_lsn: Lsn,
    end_lsn: Lsn,
    bytes: Vec<u8>,
}

impl From<RawRecord<'_>> for OwnedRecord {
    fn from(record: RawRecord<'_>) -> OwnedRecord {
        OwnedRecord {
            start_lsn: record.start_lsn,
            end_lsn: record.end_lsn,
            bytes: record.bytes.to_vec(),
        }
    }
}

/// The first record of a piece of WAL, or why there is none.
fn first(
    decoder: &mut WalStreamDecoder,
    at: Lsn,
    wal: &[u8],
) -> Result<Option<OwnedRecord>, WalError> {
    let mut records = decoder.feed(at, wal)?;
    Ok(records.next_record()?.map(OwnedRecord::from))
}

/// Records of the given body lengths, linked, from `start`, of a kind that is lent whole; a length of `None` is a switch to the next
/// segment.
fn write(start: Lsn, bodies: &[Option<usize>]) -> (Vec<OwnedRecord>, Vec<u8>) {
    let mut writer = WalWriter::new(start, V15, 1, SYSTEM);
    let mut prev = Lsn(start.0 - 8);
    let mut records = Vec::new();
    for (i, body) in bodies.iter().enumerate() {
        let bytes = match body {
            Some(length) => {
                let body: Vec<u8> = (0..*length).map(|at| (at * 7 + i) as u8).collect();
                plain_record(rmgr::XACT, 0, i as u32, prev, &body)
            }
            None => plain_record(rmgr::XLOG, info::xlog::SWITCH, 0, prev, &[]),
        };
        let (start_lsn, mut end_lsn) = writer.append(&bytes);
        if body.is_none() {
            writer.fill_segment();
            end_lsn = writer.position();
        }
        assert_eq!(
            start_lsn,
            next_record_start(
                records
                    .last()
                    .map_or(start, |last: &OwnedRecord| last.end_lsn)
            )
        );
        if body.is_some() {
            assert_eq!(end_lsn, record_end(start_lsn, bytes.len() as u64));
        }
        prev = start_lsn;
        records.push(OwnedRecord {
            start_lsn,
            end_lsn,
            bytes: bytes.to_vec(),
        });
    }
    (records, writer.bytes().to_vec())
}

/// Feeds `wal` in pieces that end at `cuts`; the records, then the error that ended it, if any.
fn read(start: Lsn, wal: &[u8], cuts: &[usize]) -> (Vec<OwnedRecord>, Option<WalError>) {
    let mut decoder = WalStreamDecoder::new(start, V15).with_system_identifier(SYSTEM);
    let mut cuts: Vec<usize> = cuts
        .iter()
        .map(|cut| cut % (wal.len() + 1))
        .chain([wal.len()])
        .collect();
    cuts.sort_unstable();
    let (mut records, mut fed) = (Vec::new(), 0);
    for cut in cuts {
        let at = start + fed as u64;
        let mut found = decoder.feed(at, &wal[fed..cut]).unwrap();
        fed = cut;
        loop {
            match found
                .next_record()
                .map(|record| record.map(OwnedRecord::from))
            {
                Ok(Some(record)) => {
                    assert_eq!(found.boundary(), record.end_lsn);
                    records.push(record);
                }
                Ok(None) => break,
                Err(error) => {
                    assert_eq!(found.next_record(), Err(error.clone()), "a fault is final");
                    drop(found);
                    let next = decoder.feed(decoder.fed_to(), &[]).map(|_| ());
                    assert_eq!(next, Err(error.clone()), "for later pieces too");
                    return (records, Some(error));
                }
            }
        }
    }
    (records, None)
}

/// A start near a page or a segment boundary, on any 8-byte offset outside of page headers.
fn starts() -> impl Strategy<Value = Lsn> {
    (0u64..2, -40i64..40).prop_map(|(kind, words)| {
        let boundary = if kind == 0 {
            WAL_SEGMENT_BYTES * 3 + XLOG_BLCKSZ
        } else {
            WAL_SEGMENT_BYTES * 4
        };
        let lsn = Lsn(boundary.wrapping_add_signed(words * 8));
        let page = Lsn(lsn.0 / XLOG_BLCKSZ * XLOG_BLCKSZ);
        if lsn == page {
            lsn
        } else {
            lsn.max(next_record_start(page))
        }
    })
}

fn bodies() -> impl Strategy<Value = Vec<Option<usize>>> {
    let length = prop_oneof![
        20 => (0usize..400).prop_map(Some),
        5 => (7900usize..8400).prop_map(Some),
        2 => (16000usize..70_000).prop_map(Some),
        1 => Just(None),
    ];
    vec(length, 1..30)
}

fn bodies_of_a_page_or_two() -> impl Strategy<Value = Vec<Option<usize>>> {
    let length = prop_oneof![20 => 0usize..300, 1 => 900usize..1200, 1 => 8000usize..8300];
    vec(length.prop_map(Some), 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn records_come_back_exactly_however_the_stream_is_cut(
        start in starts(), bodies in bodies(), cuts in vec(any::<usize>(), 0..20),
    ) {
        let (written, wal) = write(start, &bodies);
        let (found, error) = read(start, &wal, &cuts);
        prop_assert_eq!(error, None);
        prop_assert_eq!(found, written);
    }

    #[test]
    fn the_last_boundary_is_found_in_wal_that_breaks_off(
        start in starts(), bodies in vec((0usize..3000).prop_map(Some), 1..20), cut in any::<prop::sample::Index>(),
    ) {
        let (written, wal) = write(start, &bodies);
        let cut = cut.index(wal.len() + 1);
        let upto = start + cut as u64;
        // A record may lack its padding, but nothing else.
        let whole = written.iter().take_while(|r| record_whole(r, upto)).last();
        let expected = whole.map_or((start, None), |r| (r.end_lsn, Some(r.start_lsn)));
        prop_assert_eq!(last_record_boundary(start, &wal[..cut], V15), Ok(expected));
    }

    #[test]
    fn damage_never_yields_a_record_that_was_not_written(
        start in starts(), bodies in vec((0usize..3000).prop_map(Some), 1..20),
        at in any::<prop::sample::Index>(), flip in 1u8..,
    ) {
        let (written, mut wal) = write(start, &bodies);
        let at = at.index(wal.len());
        wal[at] ^= flip;
        let (found, _) = read(start, &wal, &[]);
        prop_assert!(written.starts_with(&found));
    }

    /// Promise: a page's records are checked together, and that shows in nothing. Byte by byte, every record is put
    /// together and checked alone.
    #[test]
    fn damage_is_found_at_the_same_record_however_the_stream_is_cut(
        start in starts(), bodies in bodies_of_a_page_or_two(),
        damage in vec((any::<prop::sample::Index>(), 1u8..), 1..4), cut in any::<usize>(),
    ) {
        let (_, mut wal) = write(start, &bodies);
        for (at, flip) in damage {
            let at = at.index(wal.len());
            wal[at] ^= flip;
        }
        let every_byte: Vec<usize> = (0..wal.len()).collect();
        let alone = read(start, &wal, &every_byte);
        prop_assert_eq!(&read(start, &wal, &[]), &alone);
        prop_assert_eq!(&read(start, &wal, &[cut]), &alone);
    }

    #[test]
    fn a_start_is_readable_at_every_offset(start in starts(), prev in 0u32..0x0200_0000) {
        let checkpoint = CheckPoint { redo: next_record_start(start), next_xid: 1234, ..CheckPoint::default() };
        let record = shutdown_checkpoint(&checkpoint, Lsn(prev.into()));
        prop_assert_eq!(record.len(), 114);
        let (from, to, files) = start_segments(&record, start, V15, 1, SYSTEM);
        prop_assert_eq!(from, next_record_start(start));
        let mut decoder = WalStreamDecoder::new(from, V15).with_system_identifier(SYSTEM);
        let mut found = None;
        for file in &files {
            let skip = from.0.saturating_sub(file.start.0) as usize;
            let mut records = decoder.feed(file.start + skip as u64, &file.head[skip..]).unwrap();
            while let Some(record) = records.next_record().unwrap() {
                prop_assert_eq!(found.replace(OwnedRecord::from(record)), None);
            }
        }
        let found = found.unwrap();
        prop_assert_eq!((found.start_lsn, found.end_lsn), (from, to));
        prop_assert_eq!(found.bytes, record);
    }
}

fn record_whole(record: &OwnedRecord, upto: Lsn) -> bool {
    // The unaligned end: at most seven bytes of padding before the aligned one.
    let padding = (8 - record.bytes.len() % 8) % 8;
    record.end_lsn.0 - padding as u64 <= upto.0
}

#[test]
fn wrong_positions_and_foreign_bytes_are_refused() {
    let start = Lsn(WAL_SEGMENT_BYTES);
    let (records, wal) = write(start, &[Some(10), Some(9000), Some(10)]);

    let mut decoder = WalStreamDecoder::new(start, V15);
    assert_eq!(
        decoder.feed(start + 8, &wal).map(|_| ()),
        Err(WalError::Gap {
            expected: start,
            found: start + 8
        })
    );

    // In a page header, and where a page continues a record.
    let decode_from = |at: Lsn| {
        let mut decoder = WalStreamDecoder::new(at, V15);
        first(&mut decoder, at, &wal[(at.0 - start.0) as usize..])
    };
    assert!(matches!(
        decode_from(start + 8),
        Err(WalError::NotABoundary { .. })
    ));
    assert!(matches!(
        decode_from(start + XLOG_BLCKSZ),
        Err(WalError::NotABoundary { .. })
    ));
    // Behind the header of the first page the first record is found all the same.
    assert_eq!(decode_from(start + 40), Ok(Some(records[0].clone())));

    let mut foreign = WalStreamDecoder::new(start, V15).with_system_identifier(SYSTEM + 1);
    assert!(matches!(
        first(&mut foreign, start, &wal),
        Err(WalError::PageHeader { .. })
    ));

    let mut unlinked =
        WalStreamDecoder::new(start, V15).with_prev_record(Lsn(WAL_SEGMENT_BYTES - 4096));
    assert!(matches!(
        first(&mut unlinked, start, &wal),
        Err(WalError::Record { .. })
    ));

    let zeroes = vec![0; 100];
    let mut empty = WalStreamDecoder::new(start + 40, V15);
    assert_eq!(
        first(&mut empty, start + 40, &zeroes),
        Err(WalError::Zero { lsn: start + 40 })
    );
}

/// Promise: records cannot be lost unseen by feeding more before all of a piece's were taken.
#[test]
fn records_left_in_a_piece_are_a_fault() {
    let start = Lsn(WAL_SEGMENT_BYTES);
    let (records, wal) = write(start, &[Some(10), Some(20)]);
    let mut decoder = WalStreamDecoder::new(start, V15);
    let taken = first(&mut decoder, start, &wal);
    assert_eq!(taken, Ok(Some(records[0].clone())));
    let again = decoder.feed(decoder.fed_to(), &[]).map(|_| ());
    let lsn = records[0].end_lsn;
    assert_eq!(again, Err(WalError::NotTaken { lsn }));
}

#[test]
fn an_overwritten_record_is_an_error() {
    let start = Lsn(WAL_SEGMENT_BYTES);
    let (_, mut wal) = write(start, &[Some(10), Some(9000)]);
    wal[XLOG_BLCKSZ as usize + 2] = 0x08;
    let (found, error) = read(start, &wal, &[]);
    assert_eq!(found.len(), 1);
    assert_eq!(
        error,
        Some(WalError::OverwrittenRecord {
            lsn: start + XLOG_BLCKSZ
        })
    );
}

#[test]
fn a_compute_that_started_without_a_known_link_is_accepted_in_mid_stream() {
    let start = Lsn(WAL_SEGMENT_BYTES);
    let mut writer = WalWriter::new(start, V15, 1, SYSTEM);
    writer.append(&plain_record(rmgr::LOGICALMSG, 0, 0, Lsn(8), b"one"));
    let checkpoint = CheckPoint {
        redo: writer.next_start(),
        ..CheckPoint::default()
    };
    writer.append(&shutdown_checkpoint(&checkpoint, Lsn::INVALID));
    let (found, error) = read(start, writer.bytes(), &[]);
    assert_eq!((found.len(), error), (2, None));
    assert_eq!(found[1].bytes.len(), RECORD_HEADER_BYTES + 90);
    assert_ne!(found[1].bytes, []);
}

/// Promise: WAL of another version is refused, and the error says whose it is.
#[test]
fn wal_of_another_version_is_refused_by_name() {
    for other in [PgMajor::V17, PgMajor::V18] {
        let start = Lsn(WAL_SEGMENT_BYTES);
        let mut writer = WalWriter::new(start, other, 1, SYSTEM);
        writer.append(&plain_record(rmgr::XLOG, info::xlog::NOOP, 0, Lsn(8), &[]));
        let (records, error) = read(start, writer.bytes(), &[]);
        assert_eq!(records, []);
        let text = error.expect("an error").to_string();
        let whose = format!("which Postgres {} writes", other.facts().number);
        assert!(
            text.contains(&whose) && text.contains("of Postgres 15"),
            "{text}"
        );
    }
}
