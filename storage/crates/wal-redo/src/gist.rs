//! Records of the `Gist` resource manager (access/gistxlog.h).
//!
//! A page split leaves a chain of pages of which only the first has a downlink yet; the others are reached
//! by the flag "follow right" on their left neighbours until a later record inserts their downlinks. That
//! record then also ends the split on the left neighbour, see [`end_split`].

use pg_types::bytes_le::{at_u16, get_u16, get_u32, get_u64, put_u16, put_u32, put_u64};
use pg_types::page::{self, PAGE_HEADER_BYTES, item_count};
use pg_types::wal::info::gist as op;
use pg_types::wal::rmgr;
use pg_types::{BLCKSZ, Lsn, PgMajor};
use wal_decode::{BlockRef, DecodedRecord};

use crate::Page;

use crate::error::{CUT_SHORT, Step, Why};
use crate::heap::WRONG_BLOCK;
use crate::index_tuple::whole_tuple;
use crate::layout::layout;
use crate::page_ops::{Place, add_item, index_delete, index_multi_delete, index_overwrite};

/// Bytes of the special space: split sequence number (laid out as a page's LSN), right neighbour, flags,
/// page id.
pub(crate) const OPAQUE_BYTES: usize = 16;
pub(crate) const PAGE_ID: u16 = 0xFF81;
const OPAQUE: usize = BLCKSZ - OPAQUE_BYTES;
const RIGHT: usize = OPAQUE + 8;
const FLAGS: usize = OPAQUE + 12;
const PAGE_ID_AT: usize = OPAQUE + 14;

pub(crate) const LEAF: u16 = 1 << 0;
pub(crate) const DELETED: u16 = 1 << 1;
// 1 << 2 is in `minors`: it means nothing.
pub(crate) const FOLLOW_RIGHT: u16 = 1 << 3;
pub(crate) const HAS_GARBAGE: u16 = 1 << 4;

const ROOT: u32 = 0;
const NO_BLOCK: u32 = u32::MAX;

pub(crate) fn redo(
    major: PgMajor,
    rec: &DecodedRecord<'_>,
    block: &BlockRef<'_>,
    page: &mut Page,
) -> Step {
    if ends_split(rec, block) {
        end_split(rec, page)?;
    } else {
        match (rec.op(), block.id) {
            (op::PAGE_UPDATE, 0) => update(rec, block, page)?,
            (op::DELETE, 0) => delete(major, rec, page)?,
            (op::PAGE_SPLIT, 1..) => split(rec, block, page)?,
            (op::PAGE_DELETE, 0) => mark_deleted(rec, page)?,
            (op::PAGE_DELETE, 1) => {
                check(page)?;
                index_delete(page, get_u16(rec.main_data, 8).ok_or(CUT_SHORT)?)?;
            }
            _ => return Err(WRONG_BLOCK),
        }
    }
    page::set_lsn(page, rec.end_lsn);
    Ok(())
}

/// Makes good what an image in a record lacks, see [`end_split`]. Records of others lack nothing.
pub(crate) fn complete_image(
    rec: &DecodedRecord<'_>,
    block: &BlockRef<'_>,
    page: &mut Page,
) -> Step {
    if rec.rmid == rmgr::GIST && ends_split(rec, block) {
        end_split(rec, page)?;
    }
    Ok(())
}

/// Whether the block is the left half of a split whose right half gets its downlink by this record.
fn ends_split(rec: &DecodedRecord<'_>, block: &BlockRef<'_>) -> bool {
    matches!(
        (rec.op(), block.id),
        (op::PAGE_UPDATE, 1) | (op::PAGE_SPLIT, 0)
    )
}

/// Makes the record's LSN the split sequence number and clears the flag that stood in for it. Postgres does
/// so when the record is written already, so an image in the record lacks it.
fn end_split(rec: &DecodedRecord<'_>, page: &mut Page) -> Step {
    check(page)?;
    set_split_number(page, rec.end_lsn);
    change_flags(page, 0, FOLLOW_RIGHT);
    Ok(())
}

/// Block data: numbers of the tuples to delete, then the tuples to add at the end. One tuple for one other
/// is put in its place. Body: `deleted u16, added u16`.
///
/// Older minors also set the flag "tuples deleted" on a leaf, see [`crate::minors`].
fn update(rec: &DecodedRecord<'_>, block: &BlockRef<'_>, page: &mut Page) -> Step {
    check(page)?;
    let deleted = get_u16(rec.main_data, 0).ok_or(CUT_SHORT)?;
    let added = get_u16(rec.main_data, 2).ok_or(CUT_SHORT)?;
    let (numbers, mut tuples) = block
        .data
        .split_at_checked(usize::from(deleted) * 2)
        .ok_or(CUT_SHORT)?;
    if deleted == 1 && added == 1 {
        let number = get_u16(numbers, 0).ok_or(CUT_SHORT)?;
        return index_overwrite(page, number, whole_tuple(tuples)?);
    }
    if deleted > 0 {
        index_multi_delete(page, numbers)?;
    }
    while !tuples.is_empty() {
        let tuple = whole_tuple(tuples)?;
        add_item(page, tuple, item_count(page) + 1, Place::Shift)?;
        tuples = &tuples[tuple.len()..];
    }
    Ok(())
}

/// Removal of tuples that scans found dead, by an insertion. Body: `xid u32, count u16`, as of 16 `the index is one
/// of a catalog u8, pad`, the numbers.
///
/// Redo of older minors also sets the flag "tuples deleted" here, see [`crate::minors`].
fn delete(major: PgMajor, rec: &DecodedRecord<'_>, page: &mut Page) -> Step {
    check(page)?;
    let count = usize::from(get_u16(rec.main_data, 4).ok_or(CUT_SHORT)?);
    let at = major.facts().records.gist_delete_numbers_at;
    let numbers = rec.main_data.get(at..at + count * 2).ok_or(CUT_SHORT)?;
    index_multi_delete(page, numbers)?;
    change_flags(page, 0, HAS_GARBAGE);
    Ok(())
}

/// One of the pages a page is split into, from nothing. Body: `right neighbour of the old page u32, pad,
/// its split sequence number u64, it was a leaf u8, pad, pages u16, mark them to follow right u8`. Block
/// data: `tuples u32`, the tuples.
fn split(rec: &DecodedRecord<'_>, block: &BlockRef<'_>, page: &mut Page) -> Step {
    let body = rec.main_data;
    let old_right = get_u32(body, 0).ok_or(CUT_SHORT)?;
    let old_number = get_u64(body, 8).ok_or(CUT_SHORT)?;
    let (&was_leaf, &follow) = body.get(16).zip(body.get(20)).ok_or(CUT_SHORT)?;
    let pages = get_u16(body, 18).ok_or(CUT_SHORT)?;
    let first = rec.block(1).ok_or(WRONG_BLOCK)?;

    page::init(page, OPAQUE_BYTES);
    put_u16(page, PAGE_ID_AT, PAGE_ID);
    set_split_number(page, Lsn(old_number));
    let is_root = block.blkno == ROOT;
    if was_leaf != 0 && !is_root {
        change_flags(page, LEAF, 0);
    }
    // A root keeps its place: it becomes the parent of the others, which have their downlinks in it.
    let (right, has_next) = if is_root {
        (NO_BLOCK, false)
    } else if u16::from(block.id) < pages {
        let next = block.id.checked_add(1).and_then(|id| rec.block(id));
        (next.ok_or(WRONG_BLOCK)?.blkno, true)
    } else {
        (old_right, false)
    };
    put_u32(page, RIGHT, right);
    if has_next && follow != 0 && first.blkno != ROOT {
        change_flags(page, FOLLOW_RIGHT, 0);
    }

    let count = get_u32(block.data, 0).ok_or(CUT_SHORT)?;
    let mut tuples = &block.data[4..];
    for _ in 0..count {
        let tuple = whole_tuple(tuples)?;
        add_item(page, tuple, item_count(page) + 1, Place::Shift)?;
        tuples = &tuples[tuple.len()..];
    }
    Ok(())
}

/// An empty leaf leaves the tree; it remembers the last transaction that could have come to it, in place of
/// line pointers. Body: `xid u64, downlink's line pointer on the parent u16`.
fn mark_deleted(rec: &DecodedRecord<'_>, page: &mut Page) -> Step {
    check(page)?;
    let xid = get_u64(rec.main_data, 0).ok_or(CUT_SHORT)?;
    if item_count(page) != 0 {
        return Err(Why::Is("it deletes a page that is not empty"));
    }
    change_flags(page, DELETED, 0);
    page::set_lower(page, (PAGE_HEADER_BYTES + 8) as u16);
    put_u64(page, PAGE_HEADER_BYTES, xid);
    Ok(())
}

/// The page is one of a GiST index as far as its header can tell.
fn check(page: &Page) -> Step {
    if layout(page)?.special != OPAQUE {
        return Err(Why::Is("the page is not one of a GiST index"));
    }
    Ok(())
}

pub(crate) fn flags(page: &Page) -> u16 {
    at_u16(page, FLAGS)
}

pub(crate) fn change_flags(page: &mut Page, set: u16, clear: u16) {
    let value = flags(page) & !clear | set;
    put_u16(page, FLAGS, value);
}

pub(crate) fn set_split_number(page: &mut Page, number: Lsn) {
    page::set_lsn(&mut page[OPAQUE..], number);
}
