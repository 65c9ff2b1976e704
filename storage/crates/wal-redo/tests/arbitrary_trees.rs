//! Redo of GiST, SP-GiST, BRIN and generic records faces bytes it did not write: whatever a record or a page
//! holds, it answers or refuses, and never panics.

use pg_types::bytes_le::{put_u16, put_u32};
use pg_types::page;
use pg_types::wal::rmgr;
use pg_types::{BLCKSZ, ForkNumber, Lsn, RelTag};
use proptest::prelude::*;
use wal_decode::{BlockRef, DecodedRecord};
use wal_redo::masking::{self, PageClass, Rules};
use wal_redo::{Page, redo_record};

const REL: RelTag = RelTag {
    spc: 1663,
    db: 5,
    rel: 16384,
    fork: ForkNumber::Main,
};

/// A page with this much special space and page id, and tuples of 16 bytes whose first word is one of
/// `words`: SP-GiST takes it for a tuple's state and size.
fn page_of(special: usize, id: u16, words: &[u32]) -> Box<Page> {
    let mut page = Box::new([0; BLCKSZ]);
    page::init(&mut *page, special);
    put_u16(&mut *page, BLCKSZ - 2, id);
    let mut upper = page::upper(&*page);
    for (i, word) in words.iter().enumerate() {
        upper -= 16;
        put_u32(&mut *page, upper, *word);
        put_u16(&mut *page, upper + 6, 16);
        page::set_lower(&mut *page, (24 + 4 * (i + 1)) as u16);
        let item = page::ItemId::normal(upper as u16, 16);
        page::set_item_id(&mut *page, i as u16 + 1, item).unwrap();
    }
    page::set_upper(&mut *page, upper as u16);
    page
}

fn pages() -> impl Strategy<Value = Box<Page>> {
    let kind = prop_oneof![
        Just((16, 0xFF81)),
        Just((8, 0xFF82)),
        Just((8, 0xF091)),
        Just((8, 0xF092)),
        Just((8, 0xF093)),
    ];
    let word = prop_oneof![
        Just(16 << 2),
        Just(16 << 2 | 1),
        Just(16 << 2 | 2),
        Just(16 << 2 | 3),
        // An inner tuple with two nodes.
        Just(2 << 3),
        any::<u32>(),
    ];
    let damage = prop::collection::vec((0usize..BLCKSZ, any::<u8>()), 0..3);
    (kind, prop::collection::vec(word, 0..40), damage).prop_map(|((special, id), words, damage)| {
        let mut page = page_of(special, id, &words);
        for (at, byte) in damage {
            page[at % 100] = byte;
            page[BLCKSZ - 1 - at % 32] = byte;
        }
        page
    })
}

/// Mostly small numbers, so that counts and line pointers are often right.
fn bytes(longest: usize) -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![3 => Just(0u8), 3 => 1u8..6, 1 => Just(16u8), 1 => Just(64u8), 1 => any::<u8>()];
    prop::collection::vec(byte, 0..longest)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6000, ..ProptestConfig::default() })]

    #[test]
    fn redo_of_trees_and_ranges_never_panics(
        mut page in pages(),
        rmid in prop_oneof![Just(rmgr::GIST), Just(rmgr::SPGIST), Just(rmgr::BRIN), Just(rmgr::GENERIC)],
        op in 0u8..16,
        main_data in bytes(120),
        data in prop::collection::vec(bytes(64), 1..6),
        target in 0u32..5,
    ) {
        let blocks = data.iter().enumerate().map(|(id, data)| BlockRef {
            id: id as u8,
            rel: REL,
            blkno: id as u32,
            will_init: false,
            image: None,
            data,
        });
        let record = DecodedRecord {
            start_lsn: Lsn(1000),
            end_lsn: Lsn(2000),
            prev_lsn: Lsn(900),
            xid: 777,
            rmid,
            info: op << 4,
            top_level_xid: None,
            origin: None,
            blocks: blocks.collect(),
            main_data: &main_data,
            raw: &[],
        };
        match redo_record(&record, REL, target, &mut page) {
            Ok(()) => prop_assert_eq!(page::lsn(&*page), Lsn(2000)),
            Err(error) => {
                let text = error.to_string();
                prop_assert!(text.contains("16384") && text.contains("0/7D0"), "{}", text);
            }
        }
        let classes = [PageClass::Gist, PageClass::SpGist, PageClass::Brin, PageClass::Generic];
        for class in classes.into_iter().chain([PageClass::of_page(&page, REL.fork)]) {
            for rules in [Rules::Postgres, Rules::Tight] {
                let mut copy = *page;
                let _ = masking::mask(&mut copy, target, class, rules);
            }
        }
    }
}
