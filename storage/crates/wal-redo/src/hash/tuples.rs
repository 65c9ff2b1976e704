//! Records that add index tuples to a page of a hash index and remove them.

use pg_types::PgMajor;
use pg_types::bytes_le::get_u16;
use wal_decode::{BlockRef, DecodedRecord};

use super::{LH_PAGE_HAS_DEAD_TUPLES, check, clear_flag, half, word};
use crate::Page;
use crate::error::{CUT_SHORT, Step, Why};
use crate::index_tuple::{padded_tuple, whole_tuple};
use crate::page_ops::{Place, add_item, index_multi_delete};

/// Main data of a vacuum record before the line pointers: `xid u32, tuples u32`; as of 16 `xid u32, tuples u16, the
/// index is one of a catalog u8, pad`.
const VACUUM_BYTES: usize = 8;

/// The record's body is the line pointer number, the block's data the tuple.
pub(super) fn insert(rec: &DecodedRecord<'_>, block: &BlockRef<'_>, page: &mut Page) -> Step {
    check(page)?;
    add_item(page, whole_tuple(block.data)?, half(rec, 0)?, Place::Shift)
}

/// Adds the tuples that another page of the bucket loses. Their number stands in the main data at `count_at`;
/// the block's data: their line pointer numbers `u16` each, then the tuples, padded.
pub(super) fn receive(
    rec: &DecodedRecord<'_>,
    count_at: usize,
    block: &BlockRef<'_>,
    page: &mut Page,
) -> Step {
    check(page)?;
    let count = usize::from(half(rec, count_at)?);
    let (numbers, mut tuples) = block.data.split_at_checked(count * 2).ok_or(CUT_SHORT)?;
    for i in 0..count {
        let number = get_u16(numbers, i * 2).ok_or(CUT_SHORT)?;
        let tuple = padded_tuple(tuples)?;
        add_item(page, tuple, number, Place::Shift)?;
        tuples = &tuples[tuple.len()..];
    }
    if !tuples.is_empty() {
        return Err(Why::Is("its tuples do not add up to its data"));
    }
    Ok(())
}

/// Removes the tuples with these ascending line pointer numbers, little-endian.
pub(super) fn delete(numbers: &[u8], page: &mut Page) -> Step {
    check(page)?;
    if !numbers.len().is_multiple_of(2) {
        return Err(CUT_SHORT);
    }
    index_multi_delete(page, numbers)
}

/// How many tuples a vacuum record removes.
pub(super) fn vacuumed(major: PgMajor, rec: &DecodedRecord<'_>) -> Step<u32> {
    match major.facts().records.hash_vacuum_count_bytes {
        2 => half(rec, 4).map(u32::from),
        _ => word(rec, 4),
    }
}

/// Removes the tuples that scans found dead, to make room for an insertion.
pub(super) fn vacuum(major: PgMajor, rec: &DecodedRecord<'_>, page: &mut Page) -> Step {
    let count = vacuumed(major, rec)? as usize;
    let numbers = rec.main_data.get(VACUUM_BYTES..).ok_or(CUT_SHORT)?;
    if numbers.len() != count.saturating_mul(2) {
        return Err(Why::Is("it has another number of tuples than it says"));
    }
    delete(numbers, page)?;
    clear_flag(page, LH_PAGE_HAS_DEAD_TUPLES)
}
