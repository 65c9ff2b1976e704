//! Records of the `Gin` resource manager.
//!
//! A GIN index has a metapage (block 0), a B-tree of entries (its root is block 1), a B-tree of row places
//! for each entry with many rows ("posting tree"), and a list of pages with entries yet to be sorted in
//! ("pending list"). A record changes several pages; a call changes the one it is for, told by its block
//! id. Splits and vacuumed entry pages are always logged as images.

mod posting_list;
mod posting_tree;

use pg_types::BLCKSZ;
use pg_types::bytes_le::{at_u16, get_i32, get_u8, get_u16, get_u32, put_u16, put_u32};
use pg_types::page::{self, PAGE_HEADER_BYTES, item_count, item_mut};
use pg_types::wal::info::gin as op;
use wal_decode::{BlockRef, DecodedRecord};

use crate::Page;
use crate::error::{CUT_SHORT, NO_IMAGE, Step, Why};
use crate::heap::WRONG_BLOCK;
use crate::index_tuple::{TUPLE_HEADER_BYTES, set_block, whole_tuple};
use crate::layout::layout;
use crate::page_ops::{Place, add_item, index_delete, stored_item};

/// Bytes of the special space.
pub(crate) const OPAQUE_BYTES: usize = 8;
const OPAQUE: usize = BLCKSZ - OPAQUE_BYTES;
const NEXT: usize = OPAQUE;
/// Posting items on an inner page of a posting tree; rows on a page of the pending list.
const COUNT: usize = OPAQUE + 4;
const FLAGS: usize = OPAQUE + 6;

/// No right neighbour.
const NONE: u32 = u32::MAX;

pub(crate) const GIN_DATA: u16 = 1 << 0;
const GIN_LEAF: u16 = 1 << 1;
pub(crate) const GIN_DELETED: u16 = 1 << 2;
const GIN_META: u16 = 1 << 3;
const GIN_LIST: u16 = 1 << 4;
const GIN_LIST_FULLROW: u16 = 1 << 5;
const GIN_INCOMPLETE_SPLIT: u16 = 1 << 6;
const GIN_COMPRESSED: u16 = 1 << 7;
/// Every flag there is.
pub(crate) const GIN_FLAGS: u16 = 0x00FF;

/// Bytes of the metapage's content; records carry it whole.
const META_BYTES: usize = 56;

/// The insertion is into a posting tree, not the entry tree.
const INSERT_IS_DATA: u16 = 0x01;
const INSERT_IS_LEAF: u16 = 0x02;

pub(crate) fn redo(rec: &DecodedRecord<'_>, block: &BlockRef<'_>, page: &mut Page) -> Step {
    match (rec.op(), block.id) {
        (op::CREATE_PTREE, 0) => posting_tree::create(rec, page)?,
        (op::INSERT, 0) => insert(rec, block, page)?,
        (op::INSERT, 1) | (op::SPLIT, 3) => end_split(page)?,
        (op::SPLIT, 0..=2) | (op::VACUUM_PAGE, 0) => return Err(NO_IMAGE),
        (op::VACUUM_DATA_LEAF_PAGE, 0) => posting_tree::recompress(block.data, page)?,
        (op::DELETE_PAGE, 0) => delete_page(rec, page)?,
        (op::DELETE_PAGE, 1) => posting_tree::delete_item(half(rec, 0)?, page)?,
        (op::DELETE_PAGE, 2) => set_next(page, word(rec, 4)?)?,
        // The relation's address comes first in this record's main data.
        (op::UPDATE_META_PAGE, 0) => restore_meta(rec, 16, page)?,
        (op::UPDATE_META_PAGE, 1) => append_to_list(rec, block, page)?,
        (op::INSERT_LISTPAGE, 0) => new_list_page(rec, block, page)?,
        (op::DELETE_LISTPAGE, 0) => restore_meta(rec, 0, page)?,
        (op::DELETE_LISTPAGE, _) => init(page, GIN_DELETED),
        _ => return Err(WRONG_BLOCK),
    }
    page::set_lsn(page, rec.end_lsn);
    Ok(())
}

fn half(rec: &DecodedRecord<'_>, at: usize) -> Step<u16> {
    get_u16(rec.main_data, at).ok_or(CUT_SHORT)
}

fn word(rec: &DecodedRecord<'_>, at: usize) -> Step<u32> {
    get_u32(rec.main_data, at).ok_or(CUT_SHORT)
}

/// The page is one of a GIN index as far as its header can tell.
fn check(page: &Page) -> Step {
    if layout(page)?.special != OPAQUE || flags(page) & !GIN_FLAGS != 0 {
        return Err(Why::Is("the page is not one of a GIN index"));
    }
    Ok(())
}

/// As [`check`]; of these flags the page must have the ones in `set` and no other.
fn check_kind(page: &Page, of: u16, set: u16, what: &'static str) -> Step {
    check(page)?;
    if flags(page) & of != set {
        return Err(Why::Is(what));
    }
    Ok(())
}

pub(crate) fn flags(page: &Page) -> u16 {
    at_u16(page, FLAGS)
}

fn put_flags(page: &mut Page, flags: u16) {
    put_u16(page, FLAGS, flags);
}

fn count(page: &Page) -> u16 {
    at_u16(page, COUNT)
}

fn put_count(page: &mut Page, count: u16) {
    put_u16(page, COUNT, count);
}

fn set_next(page: &mut Page, blkno: u32) -> Step {
    check(page)?;
    put_u32(page, NEXT, blkno);
    Ok(())
}

/// An empty page without a right neighbour.
fn init(page: &mut Page, flags: u16) {
    page::init(page, OPAQUE_BYTES);
    put_u32(page, NEXT, NONE);
    put_flags(page, flags);
}

/// The left half of a split whose right half gets its downlink by this record.
fn end_split(page: &mut Page) -> Step {
    check(page)?;
    put_flags(page, flags(page) & !GIN_INCOMPLETE_SPLIT);
    Ok(())
}

/// Main data: `flags u16`, and unless the page is a leaf the blocks of the two halves of the split that
/// this insertion ends, four bytes each with the high half first.
fn insert(rec: &DecodedRecord<'_>, block: &BlockRef<'_>, page: &mut Page) -> Step {
    let kind = half(rec, 0)?;
    let right_half = match kind & INSERT_IS_LEAF {
        0 => Some(u32::from(half(rec, 6)?) << 16 | u32::from(half(rec, 8)?)),
        _ => None,
    };
    match (kind & INSERT_IS_DATA != 0, right_half) {
        (true, None) => posting_tree::recompress(block.data, page),
        (true, Some(right_half)) => posting_tree::insert_item(block.data, right_half, page),
        (false, right_half) => insert_entry(block.data, right_half, page),
    }
}

/// Data: `line pointer u16, it replaces the tuple there u8, pad, tuple`. An inner page's tuple there now
/// leads to the right half of a split, the new one before it to the left half.
fn insert_entry(data: &[u8], right_half: Option<u32>, page: &mut Page) -> Step {
    let leaf = if right_half.is_some() { 0 } else { GIN_LEAF };
    check_kind(
        page,
        GIN_DATA | GIN_LEAF,
        leaf,
        "the page is not of this level of an entry tree",
    )?;
    let number = get_u16(data, 0).ok_or(CUT_SHORT)?;
    let replaces = get_u8(data, 2).ok_or(CUT_SHORT)? != 0;
    let tuple = whole_tuple(data.get(4..).ok_or(CUT_SHORT)?)?;
    if let Some(right_half) = right_half.filter(|blkno| *blkno != NONE) {
        let id = stored_item(page, number)?;
        let downlink = item_mut(page, &id)
            .filter(|downlink| downlink.len() >= TUPLE_HEADER_BYTES)
            .ok_or(Why::Is("a downlink of the page makes no sense"))?;
        set_block(downlink, right_half);
        put_u16(downlink, 4, 0);
    }
    if replaces {
        index_delete(page, number)?;
    }
    add_item(page, tuple, number, Place::Shift)
}

/// A page that goes from a posting tree keeps its content. Main data: `downlink's number u16, pad, right neighbour
/// u32, xid u32`; once the xid is old, no search can still be on its way to the page.
fn delete_page(rec: &DecodedRecord<'_>, page: &mut Page) -> Step {
    let xid = word(rec, 8)?;
    check_kind(
        page,
        GIN_DATA,
        GIN_DATA,
        "the page is not of a posting tree",
    )?;
    put_flags(page, flags(page) | GIN_DELETED);
    page::set_prune_xid(page, xid);
    Ok(())
}

/// Makes the metapage anew from its content in the main data at `at`.
fn restore_meta(rec: &DecodedRecord<'_>, at: usize, page: &mut Page) -> Step {
    let content = rec.main_data.get(at..at + META_BYTES).ok_or(CUT_SHORT)?;
    init(page, GIN_META);
    let end = PAGE_HEADER_BYTES + META_BYTES;
    page[PAGE_HEADER_BYTES..end].copy_from_slice(content);
    // So that the content is not taken for a hole.
    page::set_lower(page, end as u16);
    Ok(())
}

/// The pending list's last page. Main data from byte 72 on, behind the metapage's content: `last page before
/// this record u32, page that follows it now u32, tuples i32`. The block's data: one row's tuples.
fn append_to_list(rec: &DecodedRecord<'_>, block: &BlockRef<'_>, page: &mut Page) -> Step {
    let tuples = get_i32(rec.main_data, 80).ok_or(CUT_SHORT)?;
    if tuples <= 0 {
        return set_next(page, word(rec, 76)?);
    }
    check_kind(
        page,
        GIN_LIST,
        GIN_LIST,
        "the page is not of a pending list",
    )?;
    add_tuples(block.data, tuples, page)?;
    put_count(page, count(page).wrapping_add(1));
    Ok(())
}

/// A page of a row's tuples that are to become part of the pending list. Main data: `next page u32, tuples
/// i32`. Only the last of these pages can take other rows, and counts.
fn new_list_page(rec: &DecodedRecord<'_>, block: &BlockRef<'_>, page: &mut Page) -> Step {
    let next = word(rec, 0)?;
    let tuples = get_i32(rec.main_data, 4).ok_or(CUT_SHORT)?;
    if next == NONE {
        init(page, GIN_LIST | GIN_LIST_FULLROW);
        put_count(page, 1);
    } else {
        init(page, GIN_LIST);
        set_next(page, next)?;
    }
    add_tuples(block.data, tuples, page)
}

/// Adds that many tuples, which follow each other unpadded, behind those the page has.
fn add_tuples(mut data: &[u8], tuples: i32, page: &mut Page) -> Step {
    for _ in 0..tuples {
        let tuple = whole_tuple(data)?;
        add_item(page, tuple, item_count(page) + 1, Place::Shift)?;
        data = &data[tuple.len()..];
    }
    if !data.is_empty() {
        return Err(Why::Is("its tuples do not add up to its data"));
    }
    Ok(())
}
