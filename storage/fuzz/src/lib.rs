//! What the fuzz targets do with their bytes.
//!
//! A seed of a redo target is the page as it was (8 KiB) and then a record as storage keeps it; the program
//! `seeds` of `wal-redo` writes them from real WAL. The targets change both and ask for nothing but that redo
//! answers or refuses: a panic, an overflow or an access out of bounds is the finding.

#![forbid(unsafe_code)]

mod encrypted;
mod frames;
mod http;
mod layer;
mod protocol;

pub use encrypted::encrypted;
pub use frames::frames;
pub use http::sql_over_http;
pub use layer::layer;
pub use protocol::{addresses, messages, origin, scram_messages, startup};

use bytes::{Bytes, BytesMut};
use pg_types::wal::{RECORD_HEADER_BYTES, rmgr};
use pg_types::{BLCKSZ, ForkNumber, Key, Lsn, PgMajor, RelTag, SlruKind};
use wal_decode::{
    DecodedRecord, PageDelta, TimelineState, WalStreamDecoder, decode, interpret, pack,
    restore_image, strip_images, summarize, unpack,
};
use wal_redo::masking::{self, PageClass, Rules};
use wal_redo::{ClusterSettings, Page, apply, redo_record_with};

const END: Lsn = Lsn(0x0100_0000);

/// Makes the bytes a record of this resource manager with a length that is right; what else is wrong in the
/// header is for decoding to find.
fn record_of(rmid: u8, bytes: &[u8]) -> Option<Vec<u8>> {
    if bytes.len() < RECORD_HEADER_BYTES {
        return None;
    }
    let mut record = bytes.to_vec();
    record[17] = rmid;
    let length = record.len() as u32;
    record[..4].copy_from_slice(&length.to_le_bytes());
    Some(record)
}

/// Redo of each block of a record of one resource manager, and the masks on what comes out.
pub fn redo(rmid: u8, data: &[u8]) {
    let Some((page, bytes)) = data.split_at_checked(BLCKSZ) else {
        return;
    };
    let (Ok(page), Some(bytes)) = (Page::try_from(page), record_of(rmid, bytes)) else {
        return;
    };
    let Ok(rec) = decode(END, END, &bytes) else {
        return;
    };
    // The layouts of one version on the records of another are as good as any damage.
    for (major, hint_bits_logged) in PgMajor::ALL
        .into_iter()
        .flat_map(|major| [(major, false), (major, true)])
    {
        let settings = ClusterSettings {
            major,
            hint_bits_logged,
        };
        for block in &rec.blocks {
            let mut copy = page;
            let _ = redo_record_with(settings, &rec, block.rel, block.blkno, &mut copy);
            let class = PageClass::of_record(rmid, block.rel.fork);
            let mut masked = copy;
            let _ = masking::mask(&mut masked, block.blkno, class, Rules::Postgres);
            let class = PageClass::of_page(&copy, block.rel.fork);
            let _ = masking::mask(&mut copy, block.blkno, class, Rules::Tight);
        }
    }
}

/// The stream decoder in pieces, then everything that is made of a record before it reaches a page.
pub fn decode_any(data: &[u8]) {
    let Some((&first, wal)) = data.split_first() else {
        return;
    };
    let start = Lsn(0x0100_0000 + u64::from(first & 0x7F) * 8);
    let mut stream = WalStreamDecoder::new(start, PgMajor::V15);
    let piece = 1 + usize::from(first) * 16;
    'all: for bytes in wal.chunks(piece) {
        let Ok(mut records) = stream.feed(stream.fed_to(), bytes) else {
            break;
        };
        loop {
            match records.next_record() {
                Ok(Some(raw)) => one(raw.bytes),
                Ok(None) => break,
                Err(_) => break 'all,
            }
        }
    }
    if let Some(bytes) = record_of(wal.get(17).copied().unwrap_or(0), wal) {
        one(&bytes);
    }
    kept(wal);
}

/// Bytes taken for a record as layers keep it: what they are unpacked to is a whole record, and packs to the same.
fn kept(bytes: &[u8]) {
    let rel = RelTag {
        spc: 1663,
        db: 5,
        rel: 16_384,
        fork: ForkNumber::Main,
    };
    let key = Key::rel_block(rel, 77);
    let (mut record, mut again, mut packed) = (Vec::new(), Vec::new(), BytesMut::new());
    if unpack(&key, bytes, &mut record) == Ok(true) {
        assert!(pack(&mut packed, &key, false, &record));
        assert_eq!(unpack(&key, &packed, &mut again), Ok(true));
        assert_eq!(record, again);
        one(&record);
    }
}

fn one(bytes: &[u8]) {
    let (decoded, summary) = (decode(END, END, bytes), summarize(END, bytes));
    assert_eq!(
        decoded.as_ref().map(DecodedRecord::summary),
        summary.as_ref().copied()
    );
    let Ok(rec) = decoded else {
        return;
    };
    for major in PgMajor::ALL {
        let mut state = TimelineState::start_of_nothing(major);
        let _ = interpret(&rec, &state);
        let _ = state.observe(&rec);
    }
    for block in &rec.blocks {
        if let Some(image) = &block.image {
            let _ = restore_image(image);
        }
        let kept = strip_images(&rec, block.id);
        let again = decode(END, END, &kept).expect("what storage keeps decodes");
        assert_eq!(again.main_data, rec.main_data);
    }
}

/// Side effects of records on pages they do not name.
pub fn deltas(data: &[u8]) {
    let Some((page, rest)) = data.split_at_checked(BLCKSZ) else {
        return;
    };
    let (Ok(page), Some((&kind, rest))) = (Page::try_from(page), rest.split_first()) else {
        return;
    };
    let words: Vec<u32> = rest
        .chunks_exact(4)
        .map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]))
        .collect();
    let block = words.first().copied().unwrap_or(0);
    let pairs: Vec<(u32, u32)> = words
        .iter()
        .map(|word| (*word, word.rotate_left(9)))
        .collect();
    let members = pairs.iter().map(|(a, b)| (*a, *b as u8)).collect();
    let all = [
        PageDelta::VisibilityMapClear {
            heap_blknos: words.clone(),
            flags: kind,
        },
        PageDelta::VisibilityMapTruncate { heap_blocks: block },
        PageDelta::ClogSetStatus {
            xids: words.clone(),
            status: kind,
        },
        PageDelta::MultixactOffset { entries: pairs },
        PageDelta::MultixactMembers {
            first: block,
            members,
        },
        PageDelta::CommitTimestamp {
            xids: words,
            timestamp: i64::from(block),
            origin: u16::from(kind),
        },
        PageDelta::Record {
            end_lsn: END,
            will_init: kind & 1 != 0,
            record: Bytes::copy_from_slice(rest),
        },
    ];
    let rel = RelTag {
        spc: 1663,
        db: 5,
        rel: 16384,
        fork: ForkNumber::VisibilityMap,
    };
    let mut keys = vec![Key::rel_block(rel, block), Key::timeline_state()];
    keys.extend(SlruKind::ALL.map(|slru| Key::slru_block(slru, block)));
    for delta in &all {
        for key in &keys {
            let mut copy = page;
            let _ = apply(delta, *key, &mut copy);
        }
    }
}

/// Resource managers with a target each.
pub mod managers {
    pub use super::rmgr::*;
}
