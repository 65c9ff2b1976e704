//! Redo faces bytes it did not write: whatever a record or a page holds, it answers or refuses, and never
//! panics. And the kinds of records that need luck to come by in a workload do what they should.

use pg_types::bytes_le::{at_u16, at_u32};
use pg_types::page::{self, item_id};
use pg_types::wal::{RecordHeader, info, rmgr};
use pg_types::{BLCKSZ, ForkNumber, Key, Lsn, RelTag, SlruKind};
use proptest::prelude::*;
use wal_decode::{BlockRef, DecodedRecord, PageDelta};
use wal_redo::masking::{self, PageClass, Rules};
use wal_redo::{Page, RedoError, apply, redo_record};

const REL: RelTag = RelTag {
    spc: 1663,
    db: 5,
    rel: 16384,
    fork: ForkNumber::Main,
};

fn block(id: u8, blkno: u32, data: &[u8]) -> BlockRef<'_> {
    BlockRef {
        id,
        rel: REL,
        blkno,
        will_init: false,
        image: None,
        data,
    }
}

fn record<'a>(
    rmid: u8,
    info: u8,
    blocks: impl IntoIterator<Item = BlockRef<'a>>,
    main_data: &'a [u8],
) -> DecodedRecord<'a> {
    DecodedRecord {
        start_lsn: Lsn(1000),
        end_lsn: Lsn(2000),
        prev_lsn: Lsn(900),
        xid: 777,
        rmid,
        info,
        top_level_xid: None,
        origin: None,
        blocks: blocks.into_iter().collect(),
        main_data,
        raw: &[],
    }
}

fn empty(special: usize) -> Page {
    let mut page = [0; BLCKSZ];
    page::init(&mut page, special);
    page
}

fn insert(page: &mut Page, offnum: u16) {
    let body = [&offnum.to_le_bytes()[..], &[0]].concat();
    let tuple = [1, 0, 0x02, 0x08, 24, 0, 42, 0, 0, 0];
    let rec = record(rmgr::HEAP, info::heap::INSERT, [block(0, 7, &tuple)], &body);
    redo_record(&rec, REL, 7, page).unwrap();
}

/// A heap page with some tuples, or a B-tree leaf with some, or noise.
fn pages() -> impl Strategy<Value = Box<Page>> {
    let noise = || prop::collection::vec(any::<u8>(), BLCKSZ);
    prop_oneof![
        (0u16..20).prop_map(|count| {
            let mut page = empty(0);
            (1..=count).for_each(|number| insert(&mut page, number));
            Box::new(page)
        }),
        (1u16..20, any::<bool>()).prop_map(|(count, rightmost)| {
            let mut page = empty(16);
            if !rightmost {
                page[8176 + 4] = 1;
            }
            for number in 1..=count {
                let body = number.to_le_bytes();
                let tuple = [0, 0, 0, 3, number as u8, 0, 16, 0, 1, 2, 3, 4, 5, 6, 7, 8];
                let leaf = info::btree::INSERT_LEAF;
                let rec = record(rmgr::BTREE, leaf, [block(0, 7, &tuple)], &body);
                redo_record(&rec, REL, 7, &mut page).unwrap();
            }
            Box::new(page)
        }),
        noise().prop_map(|bytes| Box::new(bytes.try_into().unwrap())),
        // A header that is right with line pointers and tuples that are not.
        noise().prop_map(|bytes| {
            let mut page: Page = bytes.try_into().unwrap();
            let header = empty(16);
            page[..24].copy_from_slice(&header[..24]);
            page::set_lower(&mut page, 24 + 4 * 30);
            page::set_upper(&mut page, 4000);
            Box::new(page)
        }),
    ]
}

/// Mostly small numbers, so that counts and line pointers are often right.
fn bytes(longest: usize) -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![3 => Just(0u8), 3 => 1u8..6, 1 => any::<u8>()];
    prop::collection::vec(byte, 0..longest)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, ..ProptestConfig::default() })]

    #[test]
    fn redo_never_panics(
        mut page in pages(),
        rmid in prop_oneof![Just(rmgr::HEAP), Just(rmgr::HEAP2), Just(rmgr::BTREE), Just(rmgr::SEQ), any::<u8>()],
        info in any::<u8>(),
        main_data in bytes(48),
        data in prop::collection::vec(bytes(64), 1..6),
        target in 0u32..5,
    ) {
        let blocks = data.iter().enumerate().map(|(id, data)| block(id as u8, id as u32, data));
        let rec = record(rmid, info, blocks, &main_data);
        if let Err(error) = redo_record(&rec, REL, target, &mut page) {
            prop_assert!(error.to_string().contains("16384"), "{error}");
        }
        for class in [PageClass::Heap, PageClass::Btree, PageClass::Sequence, PageClass::of_page(&page, REL.fork)] {
            let mut copy = *page;
            let _ = masking::mask(&mut copy, target, class, Rules::Postgres);
        }
    }

    #[test]
    fn deltas_never_panic(
        mut page in pages(),
        bytes in bytes(64),
        numbers in prop::collection::vec(any::<u32>(), 0..4),
        blkno in any::<u32>(),
        kind in 0usize..4,
    ) {
        let slru = Key::slru_block(SlruKind::ALL[kind], blkno);
        let map = Key::rel_block(REL.with_fork(ForkNumber::VisibilityMap), blkno);
        let pairs: Vec<(u32, u32)> = numbers.iter().map(|n| (*n, *n)).collect();
        let deltas = [
            PageDelta::Record { end_lsn: Lsn(8), will_init: false, record: bytes.into() },
            PageDelta::VisibilityMapClear { heap_blknos: numbers.clone(), flags: 3 },
            PageDelta::VisibilityMapTruncate { heap_blocks: blkno },
            PageDelta::ClogSetStatus { xids: numbers.clone(), status: 0xFF },
            PageDelta::MultixactOffset { entries: pairs },
            PageDelta::MultixactMembers { first: blkno, members: vec![(1, 2); 9] },
            PageDelta::CommitTimestamp { xids: numbers, timestamp: -1, origin: 1 },
        ];
        for delta in &deltas {
            for key in [slru, map, Key::rel_block(REL, blkno), Key::timeline_state()] {
                let _ = apply(delta, key, &mut page);
            }
        }
    }
}

/// Tuple header of line pointer 1.
fn first_tuple(page: &Page) -> &[u8] {
    let id = item_id(page, 1).unwrap();
    page::item(page, &id).unwrap()
}

fn delete(page: &mut Page, flags: u8) {
    let body = [&555u32.to_le_bytes()[..], &1u16.to_le_bytes(), &[0, flags]].concat();
    let rec = record(rmgr::HEAP, info::heap::DELETE, [block(0, 7, &[])], &body);
    redo_record(&rec, REL, 7, page).unwrap();
}

/// Promise: a speculative insertion that lost is undone by making it never inserted.
#[test]
fn a_speculative_insertion_taken_back_has_no_inserter() {
    let mut page = empty(0);
    insert(&mut page, 1);
    assert_eq!(at_u32(first_tuple(&page), 0), 777);
    delete(&mut page, 0x08);
    assert_eq!(
        (at_u32(first_tuple(&page), 0), at_u32(first_tuple(&page), 4)),
        (0, 0)
    );
    assert_eq!((page::lsn(&page), page::prune_xid(&page)), (Lsn(2000), 777));
}

/// Promise: a row that moved to another partition says so, and is not taken for the newest version.
#[test]
fn a_row_moved_to_another_partition_points_nowhere() {
    let mut page = empty(0);
    insert(&mut page, 1);
    delete(&mut page, 0x10);
    let tuple = first_tuple(&page);
    assert_eq!((at_u32(tuple, 12), at_u16(tuple, 16)), (u32::MAX, 0xFFFD));
    assert_eq!(at_u32(tuple, 4), 555);
}

/// Promise: an error names record, page and LSN.
#[test]
fn an_error_says_what_and_where() {
    let mut page = empty(0);
    let rec = record(
        rmgr::HEAP,
        info::heap::INPLACE,
        [block(0, 7, &[1])],
        &[3, 0],
    );
    let error = redo_record(&rec, REL, 7, &mut page).unwrap_err();
    assert!(matches!(
        error,
        RedoError::Record {
            end_lsn: Lsn(2000),
            rmid: rmgr::HEAP,
            ..
        }
    ));
    assert_eq!(
        error.to_string(),
        "cannot redo the Heap record (op 0x70) that ends at 0/7D0 on rel 1663/5/16384 block 7: \
         it refers to line pointer 3, the page has 0"
    );
    let unknown = record(rmgr::GIN, 0, [block(0, 7, &[])], &[]);
    assert!(redo_record(&unknown, REL, 7, &mut page).is_err());
    assert!(
        redo_record(&rec, REL, 8, &mut page).is_err(),
        "no such block"
    );
}

/// Promise: a record is never applied twice, nor behind a later one, without an error that says so.
#[test]
fn a_record_that_the_page_has_already_is_refused() {
    let body = [&1_u16.to_le_bytes()[..], &[0]].concat();
    let header = RecordHeader {
        total_len: 0,
        xid: 777,
        prev: Lsn(0),
        info: info::heap::INSERT,
        rmid: rmgr::HEAP,
        crc: 0,
    };
    let tuple = [1, 0, 0x02, 0x08, 24, 0, 42, 0, 0, 0];
    let mut bytes = header.to_bytes().to_vec();
    // Block 0 with data, its relation and number; then the main data.
    bytes.extend_from_slice(&[0, 0x20, tuple.len() as u8, 0]);
    for word in [REL.spc, REL.db, REL.rel, 7] {
        bytes.extend_from_slice(&word.to_le_bytes());
    }
    bytes.extend_from_slice(&[255, body.len() as u8]);
    bytes.extend_from_slice(&tuple);
    bytes.extend_from_slice(&body);
    let length = bytes.len() as u32;
    bytes[..4].copy_from_slice(&length.to_le_bytes());
    let delta = |end_lsn| PageDelta::Record {
        end_lsn: Lsn(end_lsn),
        will_init: false,
        record: bytes.clone().into(),
    };
    let mut page = empty(0);
    let key = Key::rel_block(REL, 7);
    apply(&delta(2000), key, &mut page).unwrap();
    assert_eq!(page::lsn(&page), Lsn(2000));
    for again in [2000, 1992] {
        let error = apply(&delta(again), key, &mut page)
            .unwrap_err()
            .to_string();
        assert!(error.contains("the page has LSN 0/7D0"), "{error}");
    }
}
