//! Insertions and page splits.

use pg_types::BLCKSZ;
use pg_types::bytes_le::{get_u16, get_u32};
use pg_types::page::{self, item_mut};
use wal_decode::{BlockRef, DecodedRecord};

use super::posting;
use super::{
    BTP_INCOMPLETE_SPLIT, HIGH_KEY, NO_BLOCK, check, empty_like, first_data_key, init, leaf_flag,
    restore_items, set_cycle_id, set_flags, set_level, set_next, set_prev,
};
use crate::Page;
use crate::error::{CUT_SHORT, Step, Why};
use crate::index_tuple::{padded_tuple, whole_tuple};
use crate::page_ops::{Place, add_item, stored_item};

/// The record's body is the line pointer number, the block's data the tuple.
pub(super) fn plain(rec: &DecodedRecord<'_>, block: &BlockRef<'_>, page: &mut Page) -> Step {
    check(page)?;
    let offnum = get_u16(rec.main_data, 0).ok_or(CUT_SHORT)?;
    add_item(page, whole_tuple(block.data)?, offnum, Place::Shift)
}

/// The new row lies within the range of the posting list before it. The block's data: place number in
/// that list, then the tuple as it was meant.
pub(super) fn into_posting(rec: &DecodedRecord<'_>, block: &BlockRef<'_>, page: &mut Page) -> Step {
    check(page)?;
    let offnum = get_u16(rec.main_data, 0).ok_or(CUT_SHORT)?;
    let place = get_u16(block.data, 0).ok_or(CUT_SHORT)?;
    let mut buffer = [0; BLCKSZ];
    let new_item = copy_tuple(whole_tuple(&block.data[2..])?, &mut buffer)?;
    let id = stored_item(page, offnum.saturating_sub(1))?;
    let list = item_mut(page, &id).ok_or(CUT_SHORT)?;
    check_length(list)?;
    posting::swap(new_item, list, place)?;
    add_item(page, new_item, offnum, Place::Shift)
}

fn copy_tuple<'a>(tuple: &[u8], buffer: &'a mut [u8; BLCKSZ]) -> Step<&'a mut [u8]> {
    let copy = buffer.get_mut(..tuple.len()).ok_or(CUT_SHORT)?;
    copy.copy_from_slice(tuple);
    Ok(copy)
}

fn check_length(tuple: &[u8]) -> Step {
    whole_tuple(tuple).map(|_| ())
}

/// Body of a split record: `level u32, first right u16, new item u16, place in posting u16`.
struct Split {
    level: u32,
    first_right: u16,
    new_item: u16,
    posting_place: u16,
}

impl Split {
    fn parse(rec: &DecodedRecord<'_>) -> Step<Split> {
        let body = || {
            Some(Split {
                level: get_u32(rec.main_data, 0)?,
                first_right: get_u16(rec.main_data, 4)?,
                new_item: get_u16(rec.main_data, 6)?,
                posting_place: get_u16(rec.main_data, 8)?,
            })
        };
        body().ok_or(CUT_SHORT)
    }
}

fn block_number(rec: &DecodedRecord<'_>, id: u8) -> Step<u32> {
    rec.block(id)
        .map(|block| block.blkno)
        .ok_or(Why::Is("it lacks a block that it needs"))
}

/// The new right page: everything on it is in the record.
pub(super) fn split_right(rec: &DecodedRecord<'_>, block: &BlockRef<'_>, page: &mut Page) -> Step {
    let split = Split::parse(rec)?;
    let left = block_number(rec, 0)?;
    init(page);
    set_prev(page, left);
    set_next(page, rec.block(2).map_or(NO_BLOCK, |block| block.blkno));
    set_level(page, split.level);
    set_flags(page, leaf_flag(split.level));
    restore_items(block.data, page)
}

/// The page to the right of the new right page.
pub(super) fn split_next(rec: &DecodedRecord<'_>, page: &mut Page) -> Step {
    check(page)?;
    set_prev(page, block_number(rec, 1)?);
    Ok(())
}

/// The left page keeps its lower tuples. The block's data: the new tuple if it goes left or lands in a
/// posting list of the left half, then the new high key.
pub(super) fn split_left(
    rec: &DecodedRecord<'_>,
    block: &BlockRef<'_>,
    new_item_left: bool,
    page: &mut Page,
) -> Step {
    check(page)?;
    let split = Split::parse(rec)?;
    let right = block_number(rec, 1)?;
    let mut data = block.data;
    let mut buffer = [0; BLCKSZ];
    let mut new_item: &[u8] = &[];
    // Line pointer of the posting list the new row lands in; changed in place, since it is copied next.
    let mut posting = 0;
    if new_item_left || split.posting_place != 0 {
        let logged = padded_tuple(data)?;
        data = &data[logged.len()..];
        let copy = copy_tuple(logged, &mut buffer)?;
        if split.posting_place != 0 {
            posting = split.new_item.saturating_sub(1);
            let id = stored_item(page, posting)?;
            let list = item_mut(page, &id).ok_or(CUT_SHORT)?;
            check_length(list)?;
            posting::swap(copy, list, split.posting_place)?;
        }
        new_item = copy;
    }
    let high_key = padded_tuple(data)?;

    let mut left = empty_like(page);
    add_item(&mut left, high_key, HIGH_KEY, Place::Shift)?;
    let mut to = HIGH_KEY + 1;
    let mut add = |item: &[u8]| {
        to += 1;
        add_item(&mut left, item, to - 1, Place::Shift)
    };
    let first = first_data_key(page);
    for number in first..split.first_right {
        if new_item_left && number == split.new_item {
            add(new_item)?;
        }
        let id = stored_item(page, number)?;
        let item = page::item(page, &id).ok_or(CUT_SHORT)?;
        if number == posting {
            add(padded_tuple(item)?)?;
        } else {
            add(item)?;
        }
    }
    if new_item_left && split.new_item == split.first_right.max(first) {
        add(new_item)?;
    }
    *page = left;
    set_flags(page, BTP_INCOMPLETE_SPLIT | leaf_flag(split.level));
    set_next(page, right);
    set_cycle_id(page, 0);
    Ok(())
}
