//! Records of the `Btree` resource manager.
//!
//! Each record kind changes up to five pages; a call changes the one it is for, told by its block id.

mod dedup;
mod deletion;
mod insert;
mod posting;

use pg_types::BLCKSZ;
use pg_types::bytes_le::{at_u16, at_u32, get_u32, put_u16, put_u32};
use pg_types::page;
use pg_types::wal::info::btree as op;
use wal_decode::{BlockRef, DecodedRecord};

use crate::Page;
use crate::error::{CUT_SHORT, Step, Why};
use crate::heap::WRONG_BLOCK;
use crate::index_tuple::padded_tuple;
use crate::layout::layout;
use crate::page_ops::{Place, add_item};

/// Bytes of the special space.
pub(crate) const OPAQUE_BYTES: usize = 16;
const OPAQUE: usize = BLCKSZ - OPAQUE_BYTES;
const PREV: usize = OPAQUE;
const NEXT: usize = OPAQUE + 4;
const LEVEL: usize = OPAQUE + 8;
const FLAGS: usize = OPAQUE + 12;
const CYCLE_ID: usize = OPAQUE + 14;

/// No sibling (`P_NONE`).
const NO_BLOCK: u32 = 0;

pub(crate) const BTP_LEAF: u16 = 0x0001;
const BTP_ROOT: u16 = 0x0002;
const BTP_DELETED: u16 = 0x0004;
pub(crate) const BTP_META: u16 = 0x0008;
const BTP_HALF_DEAD: u16 = 0x0010;
pub(crate) const BTP_SPLIT_END: u16 = 0x0020;
pub(crate) const BTP_HAS_GARBAGE: u16 = 0x0040;
const BTP_INCOMPLETE_SPLIT: u16 = 0x0080;
const BTP_HAS_FULLXID: u16 = 0x0100;

const META_MAGIC: u32 = 0x0005_3162;
/// Where the meta page's content begins, and its length.
const META: usize = 24;
const META_BYTES: usize = 48;

/// Line pointer of the high key, on every page but the rightmost of its level.
const HIGH_KEY: u16 = 1;

pub(crate) fn redo(rec: &DecodedRecord<'_>, block: &BlockRef<'_>, page: &mut Page) -> Step {
    match (rec.op(), block.id) {
        (op::INSERT_LEAF | op::INSERT_UPPER | op::INSERT_META, 0) => {
            insert::plain(rec, block, page)?;
        }
        (op::INSERT_POST, 0) => insert::into_posting(rec, block, page)?,
        (op::INSERT_UPPER | op::INSERT_META, 1) => clear_incomplete_split(page)?,
        (op::INSERT_META, 2) => restore_meta(block, page)?,
        (op::SPLIT_L | op::SPLIT_R, 0) => {
            insert::split_left(rec, block, rec.op() == op::SPLIT_L, page)?;
        }
        (op::SPLIT_L | op::SPLIT_R, 1) => insert::split_right(rec, block, page)?,
        (op::SPLIT_L | op::SPLIT_R, 2) => insert::split_next(rec, page)?,
        (op::SPLIT_L | op::SPLIT_R, 3) => clear_incomplete_split(page)?,
        (op::DEDUP, 0) => dedup::dedup(rec, block, page)?,
        (op::VACUUM, 0) => dedup::vacuum(rec, block, 0, page)?,
        // The counts of a delete record stand behind an xid.
        (op::DELETE, 0) => dedup::vacuum(rec, block, 4, page)?,
        (op::MARK_PAGE_HALFDEAD, 0) => deletion::half_dead_leaf(rec, page)?,
        (op::MARK_PAGE_HALFDEAD, 1) => deletion::half_dead_parent(rec, page)?,
        (op::UNLINK_PAGE | op::UNLINK_PAGE_META, 0..=3) => {
            deletion::unlink(rec, block.id, page)?;
        }
        (op::UNLINK_PAGE_META, 4) => restore_meta(block, page)?,
        (op::NEWROOT, 0) => new_root(rec, block, page)?,
        (op::NEWROOT, 1) => clear_incomplete_split(page)?,
        (op::NEWROOT, 2) | (op::META_CLEANUP, 0) => restore_meta(block, page)?,
        _ => return Err(WRONG_BLOCK),
    }
    page::set_lsn(page, rec.end_lsn);
    Ok(())
}

/// The page is one of a B-tree as far as its header can tell.
fn check(page: &Page) -> Step {
    if layout(page)?.special != OPAQUE {
        return Err(Why::Is("the page is not one of a B-tree"));
    }
    Ok(())
}

fn init(page: &mut Page) {
    page::init(page, OPAQUE_BYTES);
}

fn next(page: &Page) -> u32 {
    at_u32(page, NEXT)
}

fn set_prev(page: &mut Page, blkno: u32) {
    put_u32(page, PREV, blkno);
}

fn set_next(page: &mut Page, blkno: u32) {
    put_u32(page, NEXT, blkno);
}

fn set_level(page: &mut Page, level: u32) {
    put_u32(page, LEVEL, level);
}

pub(crate) fn flags(page: &Page) -> u16 {
    at_u16(page, FLAGS)
}

pub(crate) fn set_flags(page: &mut Page, value: u16) {
    put_u16(page, FLAGS, value);
}

pub(crate) fn cycle_id(page: &Page) -> u16 {
    at_u16(page, CYCLE_ID)
}

pub(crate) fn set_cycle_id(page: &mut Page, value: u16) {
    put_u16(page, CYCLE_ID, value);
}

/// First line pointer behind the high key, if there is one.
fn first_data_key(page: &Page) -> u16 {
    if next(page) == NO_BLOCK {
        HIGH_KEY
    } else {
        HIGH_KEY + 1
    }
}

fn leaf_flag(level: u32) -> u16 {
    if level == 0 { BTP_LEAF } else { 0 }
}

fn clear_incomplete_split(page: &mut Page) -> Step {
    check(page)?;
    set_flags(page, flags(page) & !BTP_INCOMPLETE_SPLIT);
    Ok(())
}

/// Makes the meta page anew from the block's data: `version, root, level, fastroot, fastlevel, deleted
/// pages` as `u32`, then a byte for "every column's equality is bitwise".
fn restore_meta(block: &BlockRef<'_>, page: &mut Page) -> Step {
    let mut fields = [0u32; 6];
    for (i, field) in fields.iter_mut().enumerate() {
        *field = get_u32(block.data, i * 4).ok_or(CUT_SHORT)?;
    }
    let all_equal_image = *block.data.get(24).ok_or(CUT_SHORT)?;
    init(page);
    put_u32(page, META, META_MAGIC);
    for (i, field) in fields.iter().enumerate() {
        put_u32(page, META + 4 + i * 4, *field);
    }
    // An old statistic that has to read "unknown".
    page[META + 32..META + 40].copy_from_slice(&(-1.0f64).to_le_bytes());
    page[META + 40] = all_equal_image;
    set_flags(page, BTP_META);
    // So that the content is not taken for a hole.
    page::set_lower(page, (META + META_BYTES) as u16);
    Ok(())
}

fn new_root(rec: &DecodedRecord<'_>, block: &BlockRef<'_>, page: &mut Page) -> Step {
    let level = get_u32(rec.main_data, 4).ok_or(CUT_SHORT)?;
    init(page);
    set_level(page, level);
    set_flags(page, BTP_ROOT | leaf_flag(level));
    if level > 0 {
        restore_items(block.data, page)?;
    }
    Ok(())
}

/// Fills an empty page with index tuples as they lay on another one: the last line pointer's comes first.
fn restore_items(data: &[u8], page: &mut Page) -> Step {
    // Adding backwards needs to know where each one starts; a page cannot hold more.
    const MAX_ITEMS: usize = BLCKSZ / (4 + 8);
    let mut starts = [0u16; MAX_ITEMS];
    let (mut at, mut count) = (0, 0);
    while at < data.len() {
        *starts
            .get_mut(count)
            .ok_or(Why::Is("it has more index tuples than a page holds"))? = at as u16;
        at += padded_tuple(&data[at..])?.len();
        count += 1;
    }
    for (i, start) in starts[..count].iter().rev().enumerate() {
        let item = padded_tuple(&data[usize::from(*start)..])?;
        add_item(page, item, i as u16 + 1, Place::Shift)?;
    }
    Ok(())
}

/// An empty page with the same special space, to be filled in place of `page`.
fn empty_like(page: &Page) -> Page {
    let mut copy = [0; BLCKSZ];
    init(&mut copy);
    copy[OPAQUE..].copy_from_slice(&page[OPAQUE..]);
    copy
}
