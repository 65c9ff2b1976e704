//! Records as they are kept for one page: without what the value's key, version and length say already.
//!
//! Of the record of a small change half is address and frame: its length, the link to the record before, a checksum,
//! and where the page is that it is kept for. The form, numbers little-endian, as [`pack`] writes it:
//!
//! | bytes | |
//! |---|---|
//! | 1 | [`PACKED`], plus 1 when the record initialises the page, plus 2 when the page's address is left out |
//! | 1 | `xl_info` |
//! | 1 | resource manager |
//! | 4 | transaction id |
//! | 1 | with the address left out: the lowest byte of its CRC-32C |
//! | rest | the record from its byte 24 on; with the address left out, without its bytes 28..44 |
//!
//! Those sixteen bytes are tablespace, database, relation and block in the header of the first block a record refers
//! to: of most records the only one.
//!
//! Invariant: [`unpack`] under the same key gives back the record that was packed, [`unlink`](crate::unlink)ed. A
//! record that would not come back so is not packed. A packed record has a meaning only under its key: redo refuses a
//! record that does not name the page, but an address that was left out is filled in from the key, so the byte of the
//! checksum takes over that check. The byte finds a record under a wrong key in 255 of 256 cases, and a fault that
//! stores records under wrong keys hardly stops at one record.

use bytes::BufMut;
use pg_types::wal::RECORD_HEADER_BYTES;
use pg_types::{Key, KeyKind};

/// What a packed record begins with, at least: more than the number of any [`PageDelta`](crate::PageDelta) variant,
/// which the `postcard` form of one begins with.
pub const PACKED: u8 = 0x10;
const WILL_INIT: u8 = 1;
const ADDRESS_LEFT_OUT: u8 = 2;

/// The most that a packed record has before the record's own bytes.
pub const PACKED_HEAD: usize = FRAME + 1;
const FRAME: usize = 7;

/// Where a record has the address of the first block it refers to.
const ADDRESS: std::ops::Range<usize> = RECORD_HEADER_BYTES + 4..RECORD_HEADER_BYTES + 20;
const PADDING: std::ops::Range<usize> = 18..20;

/// Appends the record as it is kept for the page under `key`. False, and nothing appended, when it is not as Postgres
/// writes records: another length than it says, or padding that is not zero.
pub fn pack(out: &mut impl BufMut, key: &Key, will_init: bool, record: &[u8]) -> bool {
    let Some((header, rest)) = record.split_first_chunk::<RECORD_HEADER_BYTES>() else {
        return false;
    };
    if header[..4] != (record.len() as u32).to_le_bytes() || header[PADDING] != [0, 0] {
        return false;
    }
    // All that is short goes together: each call of the buffer looks for room.
    let mut head = [0; PACKED_HEAD + 4];
    head[0] = PACKED | if will_init { WILL_INIT } else { 0 };
    (head[1], head[2]) = (header[16], header[17]);
    head[3..FRAME].copy_from_slice(&header[4..8]);
    let own = address(key).filter(|own| record.get(ADDRESS) == Some(own));
    if let Some(address) = own {
        head[0] |= ADDRESS_LEFT_OUT;
        head[FRAME] = check(&address);
        head[PACKED_HEAD..].copy_from_slice(&rest[..4]);
        out.put_slice(&head);
        out.put_slice(&record[ADDRESS.end..]);
    } else {
        out.put_slice(&head[..FRAME]);
        out.put_slice(rest);
    }
    true
}

/// A packed record that is found under a key it was not packed for.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the record was kept for another page")]
pub struct WrongPage;

/// Makes `out` the record, unlinked, that was packed for the page under `key`; false when this is no packed record.
pub fn unpack(key: &Key, packed: &[u8], out: &mut Vec<u8>) -> Result<bool, WrongPage> {
    let Some((head, rest)) = packed.split_first_chunk::<FRAME>() else {
        return Ok(false);
    };
    let mut start = [0; ADDRESS.end];
    let (start, rest) = match head[0] & !WILL_INIT {
        PACKED => (&mut start[..RECORD_HEADER_BYTES], rest),
        it if it == PACKED | ADDRESS_LEFT_OUT => {
            let Some(([checked, first @ ..], rest)) = rest.split_first_chunk::<5>() else {
                return Ok(false);
            };
            let address = address(key).ok_or(WrongPage)?;
            if check(&address) != *checked {
                return Err(WrongPage);
            }
            start[RECORD_HEADER_BYTES..ADDRESS.start].copy_from_slice(first);
            start[ADDRESS].copy_from_slice(&address);
            (&mut start[..], rest)
        }
        _ => return Ok(false),
    };
    let length = (start.len() + rest.len()) as u32;
    start[..4].copy_from_slice(&length.to_le_bytes());
    start[4..8].copy_from_slice(&head[3..]);
    (start[16], start[17]) = (head[1], head[2]);
    out.clear();
    out.reserve(length as usize);
    out.extend_from_slice(start);
    out.extend_from_slice(rest);
    Ok(true)
}

/// Resource manager and `xl_info` of a packed record; `None` for anything else.
pub fn packed_operation(packed: &[u8]) -> Option<(u8, u8)> {
    let head = packed.first_chunk::<FRAME>()?;
    (head[0] & !(WILL_INIT | ADDRESS_LEFT_OUT) == PACKED).then_some((head[2], head[1]))
}

/// A relation's page as records refer to it.
fn address(key: &Key) -> Option<[u8; 16]> {
    (key.kind == KeyKind::RelBlock).then_some(())?;
    let mut address = [0; 16];
    for (at, part) in address
        .chunks_exact_mut(4)
        .zip([key.a, key.b, key.c, key.e])
    {
        at.copy_from_slice(&part.to_le_bytes());
    }
    Some(address)
}

fn check(address: &[u8; 16]) -> u8 {
    crc32c::crc32c(address) as u8
}
