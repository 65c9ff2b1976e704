//! Records as they are kept: packed for a page, unpacked for its redo.

use bytes::{Bytes, BytesMut};
use pg_types::wal::RECORD_HEADER_BYTES;
use pg_types::{ForkNumber, Key, Lsn, RelTag, SlruKind};
use proptest::collection::vec;
use proptest::prelude::*;
use wal_decode::packed::PACKED;
use wal_decode::{PageDelta, WrongPage, pack, packed_operation, unlink, unpack};

/// Where a record has the address of the first block it refers to.
const ADDRESS: usize = RECORD_HEADER_BYTES + 4;

fn page() -> Key {
    let rel = RelTag {
        spc: 1663,
        db: 5,
        rel: 16_384,
        fork: ForkNumber::Main,
    };
    Key::rel_block(rel, 77)
}

/// A record whose length is right and whose padding is zero; with the page's address where there is room for it, if
/// `own`. What is behind the header is anything: packing does not read it.
fn record(bytes: &[u8], own: bool) -> Vec<u8> {
    let mut record = bytes.to_vec();
    let length = record.len() as u32;
    record[..4].copy_from_slice(&length.to_le_bytes());
    record[18..20].fill(0);
    if own && record.len() >= ADDRESS + 16 {
        let Key { a, b, c, e, .. } = page();
        for (at, part) in [a, b, c, e].into_iter().enumerate() {
            record[ADDRESS + 4 * at..][..4].copy_from_slice(&part.to_le_bytes());
        }
    }
    record
}

fn packed(record: &[u8], will_init: bool) -> Option<Bytes> {
    let mut out = BytesMut::from(&b"before"[..]);
    let done = pack(&mut out, &page(), will_init, record);
    assert_eq!(&out.split_to(6)[..], b"before", "what was there stays");
    assert_eq!(done, !out.is_empty(), "all of it or nothing");
    done.then(|| out.freeze())
}

proptest! {
    /// Promise: what is read is the record that was kept, without its link and checksum, whatever is in it.
    #[test]
    fn a_record_comes_back_unlinked(
        bytes in vec(any::<u8>(), RECORD_HEADER_BYTES..300),
        own: bool,
        will_init: bool,
        left in vec(any::<u8>(), 0..50),
    ) {
        let mut record = record(&bytes, own);
        let packed = packed(&record, will_init).expect("a whole record is packed");
        prop_assert_eq!(packed_operation(&packed), Some((record[17], record[16])));
        let mut found = left;
        prop_assert_eq!(unpack(&page(), &packed, &mut found), Ok(true));
        unlink(&mut record);
        prop_assert_eq!(&found, &record);
        if own && record.len() >= ADDRESS + 16 {
            prop_assert_eq!(packed.len(), record.len() - 32, "frame and address are left out");
        }
    }

    /// Promise: a record that would come back as another one is not packed.
    #[test]
    fn what_is_no_whole_record_is_not_packed(bytes in vec(any::<u8>(), 0..80), at in 0_usize..20, change in 1_u8..) {
        if bytes.len() < RECORD_HEADER_BYTES {
            prop_assert_eq!(packed(&bytes, false), None);
        } else {
            let mut wrong = record(&bytes, true);
            let framed = !(4..18).contains(&at);
            wrong[at] ^= change;
            prop_assert_eq!(packed(&wrong, false).is_none(), framed);
        }
    }

    /// Promise: no bytes make unpacking panic, and what it takes is what packing would have made.
    #[test]
    fn any_bytes_are_unpacked_or_refused(tag in prop_oneof![Just(PACKED), Just(PACKED + 2), any::<u8>()], rest in vec(any::<u8>(), 0..100)) {
        let bytes = [&[tag][..], &rest].concat();
        let mut found = Vec::new();
        if unpack(&page(), &bytes, &mut found) == Ok(true) {
            let again = packed(&found, tag & 1 != 0).expect("a whole record");
            let mut twice = Vec::new();
            prop_assert_eq!(unpack(&page(), &again, &mut twice), Ok(true));
            prop_assert_eq!(found, twice);
        }
    }
}

/// Promise: what is kept in the form of before is not taken for a packed record.
#[test]
fn deltas_of_other_kinds_are_not_unpacked() {
    let others = [
        PageDelta::Record {
            end_lsn: Lsn(0x0123_4567),
            will_init: true,
            record: record(&[3; 60], true).into(),
        },
        PageDelta::VisibilityMapClear {
            heap_blknos: vec![1, 2, 3, 4, 5, 6, 7, 8],
            flags: 3,
        },
        PageDelta::VisibilityMapTruncate { heap_blocks: 1 },
        PageDelta::ClogSetStatus {
            xids: vec![7; 20],
            status: 1,
        },
        PageDelta::MultixactOffset {
            entries: vec![(1, 2); 20],
        },
        PageDelta::MultixactMembers {
            first: 4,
            members: vec![(1, 2); 20],
        },
        PageDelta::CommitTimestamp {
            xids: vec![9; 20],
            timestamp: 5,
            origin: 1,
        },
    ];
    for delta in others {
        let bytes = postcard::to_stdvec(&delta).expect("encode");
        let unpacked = unpack(&page(), &bytes, &mut Vec::new());
        assert_eq!(unpacked, Ok(false), "{delta:?}");
        assert_eq!(packed_operation(&bytes), None, "{delta:?}");
    }
}

/// Promise: a record that is found under another page's key is refused, not redone there.
#[test]
fn a_record_under_a_wrong_key_is_refused() {
    let packed = packed(&record(&[3; 60], true), false).expect("packed");
    let own = page();
    let wrong = [
        Key::slru_block(SlruKind::Clog, own.e),
        Key {
            e: own.e + 1,
            ..own
        },
        Key {
            c: own.c + 1,
            ..own
        },
        Key {
            b: own.b + 1,
            ..own
        },
        Key {
            a: own.a + 1,
            ..own
        },
    ];
    for key in wrong {
        let unpacked = unpack(&key, &packed, &mut Vec::new());
        assert_eq!(unpacked, Err(WrongPage), "{key}");
    }
    let blocks = (0..100_000).map(|e| Key { e, ..own });
    let taken = blocks.filter(|key| unpack(key, &packed, &mut Vec::new()) == Ok(true));
    assert!(
        taken.count() < 100_000 / 200,
        "one in 256 is not told apart"
    );
}
