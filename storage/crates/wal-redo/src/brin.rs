//! Records of the `BRIN` resource manager (access/brin_xlog.h).
//!
//! A BRIN index has a meta page, then pages of the range map, which give the place of the summary tuple of
//! every range of table blocks, and pages with those tuples. Summary tuples keep their line pointers, since
//! the map refers to them: deleting one leaves an unused line pointer.

use pg_types::BLCKSZ;
use pg_types::bytes_le::{at_u16, get_u16, get_u32, put_u16, put_u32};
use pg_types::page::{self, ITEM_ID_BYTES, ItemId, PAGE_HEADER_BYTES, item_count};
use pg_types::wal::info::brin as op;
use wal_decode::{BlockRef, DecodedRecord};

use crate::Page;
use crate::error::{CUT_SHORT, Step, Why};
use crate::heap::WRONG_BLOCK;
use crate::layout::{BAD_ITEM, layout, max_align};
use crate::page_ops::{
    Place, add_item, index_overwrite, move_tuples, replace_item_id, stored_item,
};

/// Bytes of the special space, which ends in flags and the page's type.
pub(crate) const SPECIAL_BYTES: usize = 8;
const SPECIAL: usize = BLCKSZ - SPECIAL_BYTES;
const FLAGS: usize = SPECIAL + 4;
const TYPE: usize = SPECIAL + 6;

pub(crate) const META: u16 = 0xF091;
const RANGE_MAP: u16 = 0xF092;
pub(crate) const REGULAR: u16 = 0xF093;
/// Tuples are about to leave the page, which the range map needs. Not logged.
const EVACUATE: u16 = 1 << 0;

const META_MAGIC: u32 = 0xA810_9CFA;
/// Meta page: magic, version, blocks a range, last page of the range map.
const META_BYTES: usize = 16;
const LAST_MAP_PAGE: usize = PAGE_HEADER_BYTES + 12;

const TID_BYTES: usize = 6;
/// Entries of a range map page.
const MAP_ENTRIES: u32 = ((SPECIAL - PAGE_HEADER_BYTES) / TID_BYTES) as u32;

/// Where a summary tuple is; `None` for a range without one.
type Summary = Option<(u32, u16)>;

pub(crate) fn redo(rec: &DecodedRecord<'_>, block: &BlockRef<'_>, page: &mut Page) -> Step {
    match (rec.info & op::OP_MASK, block.id) {
        (op::CREATE_INDEX, 0) => create(rec, page)?,
        (op::INSERT, 0) => insert(rec, block, 0, page)?,
        (op::INSERT, 1) => map_inserted(rec, 0, page)?,
        // An update to another page: as an insertion whose body stands behind the old tuple's number.
        (op::UPDATE, 0) => insert(rec, block, 4, page)?,
        (op::UPDATE, 1) => map_inserted(rec, 4, page)?,
        (op::UPDATE, 2) => delete_keeping_numbers(page, half(rec, 0)?)?,
        (op::SAMEPAGE_UPDATE, 0) => {
            check(page)?;
            index_overwrite(page, half(rec, 0)?, block.data)?;
        }
        (op::REVMAP_EXTEND, 0) => {
            check(page)?;
            put_u32(page, LAST_MAP_PAGE, word(rec, 0)?);
            page::set_lower(page, (PAGE_HEADER_BYTES + META_BYTES) as u16);
        }
        (op::REVMAP_EXTEND, 1) => init(page, RANGE_MAP),
        (op::DESUMMARIZE, 0) => set_map_entry(page, word(rec, 0)?, word(rec, 4)?, None)?,
        (op::DESUMMARIZE, 1) => delete_keeping_numbers(page, half(rec, 8)?)?,
        _ => return Err(WRONG_BLOCK),
    }
    page::set_lsn(page, rec.end_lsn);
    Ok(())
}

fn word(rec: &DecodedRecord<'_>, at: usize) -> Step<u32> {
    get_u32(rec.main_data, at).ok_or(CUT_SHORT)
}

fn half(rec: &DecodedRecord<'_>, at: usize) -> Step<u16> {
    get_u16(rec.main_data, at).ok_or(CUT_SHORT)
}

/// Body: `blocks a range u32, version u16`.
fn create(rec: &DecodedRecord<'_>, page: &mut Page) -> Step {
    let fields = [
        META_MAGIC,
        u32::from(half(rec, 4)?),
        word(rec, 0)?,
        0, // there is no page of the range map yet
    ];
    init(page, META);
    for (i, field) in fields.into_iter().enumerate() {
        put_u32(page, PAGE_HEADER_BYTES + 4 * i, field);
    }
    // So that the content is not taken for a hole.
    page::set_lower(page, (PAGE_HEADER_BYTES + META_BYTES) as u16);
    Ok(())
}

/// Body from `at`: `first block of the range u32, blocks a range u32, line pointer u16`. Block data: the
/// summary tuple.
fn insert(rec: &DecodedRecord<'_>, block: &BlockRef<'_>, at: usize, page: &mut Page) -> Step {
    if rec.info & op::INIT_PAGE != 0 {
        init(page, REGULAR);
    }
    check(page)?;
    add_item(page, block.data, half(rec, at + 8)?, Place::Reuse)
}

fn map_inserted(rec: &DecodedRecord<'_>, at: usize, page: &mut Page) -> Step {
    let tuple_page = rec.block(0).ok_or(WRONG_BLOCK)?.blkno;
    let place = Some((tuple_page, half(rec, at + 8)?));
    set_map_entry(page, word(rec, at + 4)?, word(rec, at)?, place)
}

/// Sets the map's entry for the range that `heap_block` is in.
fn set_map_entry(page: &mut Page, range_blocks: u32, heap_block: u32, place: Summary) -> Step {
    check(page)?;
    let range = heap_block
        .checked_div(range_blocks)
        .ok_or(Why::Is("it says that a range has no blocks"))?;
    let at = PAGE_HEADER_BYTES + (range % MAP_ENTRIES) as usize * TID_BYTES;
    let (blkno, number) = place.unwrap_or((u32::MAX, 0));
    put_u16(page, at, (blkno >> 16) as u16);
    put_u16(page, at + 2, blkno as u16);
    put_u16(page, at + 4, number);
    Ok(())
}

/// Removes a tuple, but its line pointer only if it is the last (`PageIndexTupleDeleteNoCompact`).
fn delete_keeping_numbers(page: &mut Page, number: u16) -> Step {
    check(page)?;
    let bounds = layout(page)?;
    let id = stored_item(page, number)?;
    let (offset, length) = (usize::from(id.offset), max_align(usize::from(id.length)));
    if offset < bounds.upper || offset + length > bounds.special {
        return Err(BAD_ITEM);
    }
    if number < item_count(page) {
        replace_item_id(page, number, ItemId::UNUSED)?;
    } else {
        page::set_lower(page, (bounds.lower - ITEM_ID_BYTES) as u16);
    }
    move_tuples(page, bounds.upper, offset, length as isize)
}

fn init(page: &mut Page, kind: u16) {
    page::init(page, SPECIAL_BYTES);
    put_u16(page, TYPE, kind);
}

/// The page is one of a BRIN index as far as its header can tell.
fn check(page: &Page) -> Step {
    if layout(page)?.special != SPECIAL {
        return Err(Why::Is("the page is not one of a BRIN index"));
    }
    Ok(())
}

pub(crate) fn kind(page: &Page) -> u16 {
    at_u16(page, TYPE)
}

pub(crate) fn clear_evacuation(page: &mut Page) {
    let flags = at_u16(page, FLAGS) & !EVACUATE;
    put_u16(page, FLAGS, flags);
}
