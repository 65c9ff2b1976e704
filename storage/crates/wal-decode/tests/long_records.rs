//! Records as long as a server can write them, read in bounded memory.

use pg_types::wal::{
    RECORD_HEADER_BYTES, RecordHeader, WalPageHeader, XLR_BLOCK_ID_DATA_LONG, record_end, rmgr,
};
use pg_types::{Lsn, PgMajor, WAL_SEGMENT_BYTES, XLOG_BLCKSZ};
use wal_decode::synth::{WalWriter, plain_record};
use wal_decode::{MESSAGE_KEPT, WalError, WalStats, WalStreamDecoder, decode};

const V15: PgMajor = PgMajor::V15;
const SYSTEM: u64 = 0x6789_ABCD_0123_4567;
const START: Lsn = Lsn(WAL_SEGMENT_BYTES);
/// Bytes fed at once, as a safekeeper sends them.
const PIECE: usize = 1 << 20;

/// A record with main data of so many equal bytes, made while it is read: it is longer than memory should be.
struct LongRecord {
    head: Vec<u8>,
    left: u64,
    total: u64,
    byte: u8,
    at: Lsn,
}

impl LongRecord {
    fn new(rmid: u8, main_data: u32, byte: u8) -> LongRecord {
        let mut head = vec![XLR_BLOCK_ID_DATA_LONG];
        head.extend_from_slice(&main_data.to_le_bytes());
        let mut crc = crc32c::crc32c(&head);
        let some = vec![byte; PIECE];
        let mut left = main_data as usize;
        while left > 0 {
            let now = left.min(PIECE);
            crc = crc32c::crc32c_append(crc, &some[..now]);
            left -= now;
        }
        let total = (RECORD_HEADER_BYTES + head.len()) as u64 + u64::from(main_data);
        let mut header = RecordHeader {
            total_len: u32::try_from(total).expect("a length"),
            xid: 7,
            prev: Lsn(START.0 - 64),
            info: 0,
            rmid,
            crc: 0,
        };
        header.crc = crc32c::crc32c_append(crc, &header.to_bytes()[..RECORD_HEADER_BYTES - 4]);
        let mut all = header.to_bytes().to_vec();
        all.extend_from_slice(&head);
        LongRecord {
            head: all,
            left: u64::from(main_data),
            total,
            byte,
            at: START,
        }
    }

    /// The next pages of WAL; empty behind the record.
    fn pages(&mut self) -> (Lsn, Vec<u8>) {
        let (from, mut wal) = (self.at, Vec::with_capacity(PIECE));
        while wal.len() < PIECE && self.left + self.head.len() as u64 > 0 {
            let missing = self.left + self.head.len() as u64;
            let rem_len = if missing == self.total {
                0
            } else {
                missing as u32
            };
            let begin = wal.len();
            WalPageHeader::new(V15, self.at, 1, rem_len, SYSTEM).write_to(&mut wal);
            wal.append(&mut self.head);
            let room = XLOG_BLCKSZ as usize - (wal.len() - begin);
            let now = self.left.min(room as u64) as usize;
            wal.resize(wal.len() + now, self.byte);
            self.left -= now as u64;
            wal.resize((wal.len() - begin).next_multiple_of(8) + begin, 0);
            self.at = self.at + (wal.len() - begin) as u64;
        }
        (from, wal)
    }
}

/// Promise: a logical message of any length that a record can have passes in memory of a few pages, is counted with
/// all its bytes, and its end is found; Postgres 15 writes messages of up to 2 GiB.
#[test]
fn a_message_of_gigabytes_passes_in_little_memory() {
    let decoder = WalStreamDecoder::new(START, V15).with_system_identifier(SYSTEM);
    counted_in_little_memory(decoder, rmgr::LOGICALMSG, (3 << 30) - 12_345);
}

/// Promise: for statistics, so does the record of a transaction.
#[test]
fn a_transaction_of_any_length_is_counted_in_little_memory() {
    let decoder = WalStreamDecoder::new(START, V15).with_system_identifier(SYSTEM);
    counted_in_little_memory(decoder.for_statistics(), rmgr::XACT, (96 << 20) + 5);
}

fn counted_in_little_memory(mut decoder: WalStreamDecoder, rmid: u8, main_data: u32) {
    let mut wal = LongRecord::new(rmid, main_data, b'x');
    let total = wal.total;
    let mut stats = WalStats::default();
    let mut end = Lsn::INVALID;
    loop {
        let (at, pages) = wal.pages();
        if pages.is_empty() {
            break;
        }
        let mut records = decoder.feed(at, &pages).expect("in order");
        while let Some(record) = records.next_record().expect("a whole record") {
            assert_eq!(record.bytes.len(), MESSAGE_KEPT);
            let decoded = decode(record.start_lsn, record.end_lsn, record.bytes).expect("readable");
            assert_eq!(u64::from(decoded.total_len()), total);
            assert!(decoded.main_data.iter().all(|byte| *byte == b'x'));
            stats.add(&decoded.summary());
            end = record.end_lsn;
        }
        drop(records);
        assert!(
            decoder.held_bytes() <= 2 * MESSAGE_KEPT,
            "{}",
            decoder.held_bytes()
        );
        assert!(decoder.bytes_awaited() <= MESSAGE_KEPT);
    }
    assert_eq!(end, record_end(START + 40, total));
    assert_eq!(decoder.boundary(), end);
    assert_eq!(stats.total().rest_bytes, total);
}

/// Promise: any other record is put together in memory of half as much again at most while it grows, says how much it
/// will take as soon as it has begun, and gives the memory back.
#[test]
fn a_long_record_takes_little_more_memory_than_its_length() {
    let length = (96 << 20) + 5;
    let mut wal = LongRecord::new(rmgr::XACT, length, 3);
    let total = wal.total as usize;
    let mut decoder = WalStreamDecoder::new(START, V15).with_system_identifier(SYSTEM);
    let mut found = 0;
    loop {
        let (at, pages) = wal.pages();
        if pages.is_empty() {
            break;
        }
        let mut records = decoder.feed(at, &pages).expect("in order");
        while let Some(record) = records.next_record().expect("a whole record") {
            assert_eq!(record.bytes.len(), total);
            found += 1;
        }
        drop(records);
        assert!(decoder.held_bytes() <= total, "{}", decoder.held_bytes());
        assert_eq!(decoder.bytes_awaited(), if found == 0 { total } else { 0 });
    }
    assert_eq!((found, decoder.held_bytes()), (1, 0));
}

/// Promise: messages around the length from which on they are cut are lent right, wherever the stream is cut, and
/// damage of a byte that is left out is found.
#[test]
fn messages_are_cut_at_the_length_that_is_said() {
    for length in [
        MESSAGE_KEPT - 30,
        MESSAGE_KEPT - 29,
        MESSAGE_KEPT - 28,
        MESSAGE_KEPT,
        300_000,
    ] {
        let mut writer = WalWriter::new(START, V15, 1, SYSTEM);
        let body: Vec<u8> = (0..length).map(|at| (at * 7) as u8).collect();
        let message = plain_record(rmgr::LOGICALMSG, 0, 5, Lsn(START.0 - 64), &body);
        let (start, end) = writer.append(&message);
        let (next, _) = writer.append(&plain_record(rmgr::LOGICALMSG, 0, 5, start, b"next"));
        let kept = message.len().min(MESSAGE_KEPT);
        for piece in [17, 4096, 8192, 70_001, writer.bytes().len()] {
            let mut decoder = WalStreamDecoder::new(START, V15).with_system_identifier(SYSTEM);
            let (mut at, mut found) = (START, Vec::new());
            for wal in writer.bytes().chunks(piece) {
                let mut records = decoder.feed(at, wal).expect("in order");
                while let Some(record) = records.next_record().expect("whole") {
                    decode(record.start_lsn, record.end_lsn, record.bytes).expect("readable");
                    found.push((record.start_lsn, record.end_lsn, record.bytes.to_vec()));
                }
                at = at + wal.len() as u64;
            }
            assert_eq!((found[0].0, found[0].1, found[1].0), (start, end, next));
            assert!(
                found[0].2 == message[..kept],
                "{length} in pieces of {piece}"
            );
        }
        let mut damaged = writer.bytes().to_vec();
        let last = (end.0 - START.0) as usize - 9;
        damaged[last] ^= 1;
        let mut decoder = WalStreamDecoder::new(START, V15);
        let mut records = decoder.feed(START, &damaged).expect("in order");
        let error = records.next_record().expect_err("damaged");
        assert!(
            matches!(error, WalError::Checksum { lsn, .. } if lsn == start),
            "{error}"
        );
    }
}

/// Promise: for borders, a record of any kind and length passes in memory of a few pages, its end is found, the next
/// record's link is checked, and damage of any of its bytes is found.
#[test]
fn borders_of_long_records_are_found_in_little_memory() {
    let length = (64 << 20) + 5;
    let borders = || {
        WalStreamDecoder::new(START, V15)
            .with_system_identifier(SYSTEM)
            .for_borders()
    };
    let follow = |damaged: Option<u64>| {
        let mut wal = LongRecord::new(rmgr::XACT, length, 3);
        let (mut decoder, mut found) = (borders(), Vec::new());
        loop {
            let (at, mut pages) = wal.pages();
            if pages.is_empty() {
                return (decoder, found, Ok(()));
            }
            let place = damaged.and_then(|lsn| lsn.checked_sub(at.0));
            if let Some(byte) = place.and_then(|place| pages.get_mut(place as usize)) {
                *byte ^= 1;
            }
            let mut records = decoder.feed(at, &pages).expect("in order");
            loop {
                match records.next_record() {
                    Ok(Some(record)) => found.push((record.end_lsn, record.bytes.len())),
                    Ok(None) => break,
                    Err(error) => {
                        drop(records);
                        return (decoder, found, Err(error));
                    }
                }
            }
            assert_eq!(records.bytes_spent(), 0);
            drop(records);
            assert!(decoder.held_bytes() <= 2 * MESSAGE_KEPT);
            assert!(decoder.bytes_awaited() <= MESSAGE_KEPT);
        }
    };
    let total = LongRecord::new(rmgr::XACT, length, 3).total;
    let end = record_end(START + 40, total);
    let (mut decoder, found, followed) = follow(None);
    assert_eq!((found, followed), (vec![(end, MESSAGE_KEPT)], Ok(())));
    assert_eq!(
        (decoder.boundary(), decoder.last_record()),
        (end, Some(START + 40))
    );

    let mut next = WalWriter::new(decoder.fed_to(), V15, 1, SYSTEM);
    next.append(&plain_record(rmgr::XACT, 0, 5, START, b"of another record"));
    let mut records = decoder
        .feed(decoder.fed_to(), next.bytes())
        .expect("in order");
    let wrong = records.next_record().expect_err("another link");
    assert!(wrong.to_string().contains("it follows a record"), "{wrong}");

    for byte in [2 * XLOG_BLCKSZ + 100, (32 << 20) + 100, end.0 - START.0 - 9] {
        let (decoder, found, followed) = follow(Some(START.0 + byte));
        assert!(
            matches!(followed, Err(WalError::Checksum { lsn, .. }) if lsn == START + 40),
            "{byte}: {followed:?}"
        );
        assert_eq!((found.len(), decoder.boundary()), (0, START));
    }
}
