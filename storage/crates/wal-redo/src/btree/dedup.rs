//! Merging equal tuples into posting lists, and removing rows from them.

use pg_types::bytes_le::get_u16;
use pg_types::page::{self, item_count};
use wal_decode::{BlockRef, DecodedRecord};

use super::posting::{Builder, TID_BYTES, rows};
use super::{BTP_HAS_GARBAGE, HIGH_KEY, check, empty_like, first_data_key, flags, set_flags};
use crate::Page;
use crate::error::{CUT_SHORT, Step, Why};
use crate::index_tuple::whole_tuple;
use crate::page_ops::{Place, add_item, index_multi_delete, index_overwrite, stored_item};

/// The tuple of a line pointer in the length its own header says.
fn tuple_at(page: &Page, number: u16) -> Step<&[u8]> {
    let id = stored_item(page, number)?;
    whole_tuple(page::item(page, &id).ok_or(CUT_SHORT)?)
}

fn clear_garbage_hint(page: &mut Page) {
    set_flags(page, flags(page) & !BTP_HAS_GARBAGE);
}

/// The record's body is the number of intervals, the block's data `first line pointer u16, count u16` for
/// each: which neighbouring tuples of the page become one posting list.
pub(super) fn dedup(rec: &DecodedRecord<'_>, block: &BlockRef<'_>, page: &mut Page) -> Step {
    check(page)?;
    let count = usize::from(get_u16(rec.main_data, 0).ok_or(CUT_SHORT)?);
    let mut intervals = block
        .data
        .get(..count * 4)
        .ok_or(CUT_SHORT)?
        .chunks_exact(4)
        .map(|pair| {
            (
                u16::from_le_bytes([pair[0], pair[1]]),
                u16::from_le_bytes([pair[2], pair[3]]),
            )
        });
    let mut interval = intervals.next();
    let mut merged = empty_like(page);
    let first = first_data_key(page);
    if first > HIGH_KEY {
        let id = stored_item(page, HIGH_KEY)?;
        let high_key = page::item(page, &id).ok_or(CUT_SHORT)?;
        add_item(&mut merged, high_key, HIGH_KEY, Place::Shift)?;
    }
    let mut builder = Builder::new();
    let mut number = first;
    while number <= item_count(page) {
        let to = item_count(&merged) + 1;
        let base = tuple_at(page, number)?;
        match interval {
            Some((start, length)) if start == number => {
                builder.begin(rows(base)?.base)?;
                let end = number.checked_add(length.max(1)).ok_or(CUT_SHORT)?;
                for member in number..end {
                    builder.push(rows(tuple_at(page, member)?)?.tids)?;
                }
                add_item(&mut merged, builder.finish()?, to, Place::Shift)?;
                number = end;
                interval = intervals.next();
            }
            _ => {
                add_item(&mut merged, base, to, Place::Shift)?;
                number += 1;
            }
        }
    }
    if interval.is_some() {
        return Err(Why::Is(
            "it merges line pointers that the page does not have in this order",
        ));
    }
    clear_garbage_hint(&mut merged);
    *page = merged;
    Ok(())
}

/// Vacuum and delete records. Two counts at `counts_at` in the body: whole tuples that go, and posting
/// lists that lose rows. The block's data: both lists of line pointers, then for each shrunk posting list
/// how many places go and which.
pub(super) fn vacuum(
    rec: &DecodedRecord<'_>,
    block: &BlockRef<'_>,
    counts_at: usize,
    page: &mut Page,
) -> Step {
    check(page)?;
    let deleted = usize::from(get_u16(rec.main_data, counts_at).ok_or(CUT_SHORT)?);
    let updated = usize::from(get_u16(rec.main_data, counts_at + 2).ok_or(CUT_SHORT)?);
    let (deleted, rest) = block.data.split_at_checked(deleted * 2).ok_or(CUT_SHORT)?;
    let (updated, mut updates) = rest.split_at_checked(updated * 2).ok_or(CUT_SHORT)?;
    let mut builder = Builder::new();
    for number in updated.chunks_exact(2) {
        let number = u16::from_le_bytes([number[0], number[1]]);
        let places = usize::from(get_u16(updates, 0).ok_or(CUT_SHORT)?);
        let (gone, later) = updates[2..].split_at_checked(places * 2).ok_or(CUT_SHORT)?;
        updates = later;
        shrink_posting(page, number, gone, &mut builder)?;
    }
    index_multi_delete(page, deleted)?;
    clear_garbage_hint(page);
    Ok(())
}

/// Removes the places with these ascending numbers from a posting list.
fn shrink_posting(page: &mut Page, number: u16, gone: &[u8], builder: &mut Builder) -> Step {
    let list = rows(tuple_at(page, number)?)?;
    builder.begin(list.base)?;
    let mut gone = gone
        .chunks_exact(2)
        .map(|pair| usize::from(u16::from_le_bytes([pair[0], pair[1]])))
        .peekable();
    for (i, tid) in list.tids.chunks_exact(TID_BYTES).enumerate() {
        if gone.next_if_eq(&i).is_none() {
            builder.push(tid)?;
        }
    }
    if gone.next().is_some() {
        return Err(Why::Is("it removes rows that a posting list does not have"));
    }
    index_overwrite(page, number, builder.finish()?)
}
