//! Records of the `Hash` resource manager.
//!
//! A hash index has a metapage (block 0), a page for each bucket, overflow pages chained behind them, and
//! bitmap pages that say which overflow pages are in use. A record changes up to seven pages; a call changes
//! the one it is for, told by its block id. Some records name a bucket's first page, as block 0, only for
//! standbys to lock it: such a page does not change, and `wal_decode::interpret` leaves it out.

mod meta;
mod tuples;

use pg_types::bytes_le::{at_u16, get_u8, get_u16, get_u32, put_u16, put_u32};
use pg_types::page::{self, PAGE_HEADER_BYTES};
use pg_types::wal::info::hash as op;
use pg_types::{BLCKSZ, PgMajor};
use wal_decode::{BlockRef, DecodedRecord};

use crate::Page;
use crate::error::{CUT_SHORT, NO_IMAGE, Step, Why};
use crate::heap::WRONG_BLOCK;
use crate::layout::layout;

/// Bytes of the special space.
pub(crate) const OPAQUE_BYTES: usize = 16;
const OPAQUE: usize = BLCKSZ - OPAQUE_BYTES;
/// On a bucket's first page this is no block but the highest bucket at the time of its last split.
const PREV: usize = OPAQUE;
const NEXT: usize = OPAQUE + 4;
const BUCKET: usize = OPAQUE + 8;
const FLAGS: usize = OPAQUE + 12;
const PAGE_ID: usize = OPAQUE + 14;

/// What the last two bytes of every page hold (`HASHO_PAGE_ID`).
pub(crate) const HASH_PAGE_ID: u16 = 0xFF80;
/// Neither a block nor a bucket.
const NONE: u32 = u32::MAX;

const LH_UNUSED_PAGE: u16 = 0;
pub(crate) const LH_OVERFLOW_PAGE: u16 = 1 << 0;
pub(crate) const LH_BUCKET_PAGE: u16 = 1 << 1;
const LH_BITMAP_PAGE: u16 = 1 << 2;
const LH_META_PAGE: u16 = 1 << 3;
const LH_BUCKET_NEEDS_SPLIT_CLEANUP: u16 = 1 << 6;
pub(crate) const LH_PAGE_HAS_DEAD_TUPLES: u16 = 1 << 7;
/// The flags that say what kind of page it is; none of them: a freed overflow page.
pub(crate) const LH_PAGE_TYPE: u16 =
    LH_OVERFLOW_PAGE | LH_BUCKET_PAGE | LH_BITMAP_PAGE | LH_META_PAGE;

pub(crate) fn redo(
    major: PgMajor,
    rec: &DecodedRecord<'_>,
    block: &BlockRef<'_>,
    page: &mut Page,
) -> Step {
    match (rec.op(), block.id) {
        (op::INIT_META_PAGE, 0) => meta::init(rec, page)?,
        (op::INIT_BITMAP_PAGE, 0) => init_bitmap(rec, page)?,
        (op::INIT_BITMAP_PAGE, 1) => meta::add_first_bitmap(page)?,
        (op::INSERT, 0) => tuples::insert(rec, block, page)?,
        (op::INSERT, 1) => meta::count_tuples(page, 1)?,
        (op::ADD_OVFL_PAGE, 0) => init_overflow(rec, block, page)?,
        (op::ADD_OVFL_PAGE, 1) => set_next(page, block_number(rec, 0)?)?,
        (op::ADD_OVFL_PAGE, 2) => mark_in_bitmap(block, true, page)?,
        (op::ADD_OVFL_PAGE, 3) => init_bitmap(rec, page)?,
        (op::ADD_OVFL_PAGE, 4) => meta::add_overflow(rec, block, page)?,
        (op::SPLIT_ALLOCATE_PAGE, 0) => begin_split(rec, page)?,
        (op::SPLIT_ALLOCATE_PAGE, 1) => init_new_bucket(rec, page)?,
        (op::SPLIT_ALLOCATE_PAGE, 2) => meta::add_bucket(rec, block, page)?,
        (op::SPLIT_PAGE, 0) => return Err(NO_IMAGE),
        (op::SPLIT_COMPLETE, 0) => set_flags(page, half(rec, 0)?)?,
        (op::SPLIT_COMPLETE, 1) => set_flags(page, half(rec, 2)?)?,
        (op::MOVE_PAGE_CONTENTS, 1) => tuples::receive(rec, 0, block, page)?,
        (op::MOVE_PAGE_CONTENTS, 2) => tuples::delete(block.data, page)?,
        (op::SQUEEZE_PAGE, 1) => receive_last(rec, block, page)?,
        (op::SQUEEZE_PAGE, 2) => init(page, NONE, NONE, LH_UNUSED_PAGE),
        (op::SQUEEZE_PAGE, 3) => set_next(page, word(rec, 4)?)?,
        (op::SQUEEZE_PAGE, 4) => set_prev(page, word(rec, 0)?)?,
        (op::SQUEEZE_PAGE, 5) => mark_in_bitmap(block, false, page)?,
        (op::SQUEEZE_PAGE, 6) => meta::set_first_free(block, page)?,
        (op::DELETE, 1) => delete(rec, block, page)?,
        (op::SPLIT_CLEANUP, 0) => clear_flag(page, LH_BUCKET_NEEDS_SPLIT_CLEANUP)?,
        (op::UPDATE_META_PAGE, 0) => meta::set_tuples(rec, page)?,
        (op::VACUUM_ONE_PAGE, 0) => tuples::vacuum(major, rec, page)?,
        (op::VACUUM_ONE_PAGE, 1) => {
            meta::count_tuples(page, -i64::from(tuples::vacuumed(major, rec)?))?;
        }
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

fn flag(rec: &DecodedRecord<'_>, at: usize) -> Step<bool> {
    get_u8(rec.main_data, at)
        .map(|byte| byte != 0)
        .ok_or(CUT_SHORT)
}

fn block_number(rec: &DecodedRecord<'_>, id: u8) -> Step<u32> {
    rec.block(id)
        .map(|block| block.blkno)
        .ok_or(Why::Is("it lacks a block that it needs"))
}

/// The one number a block's data holds.
fn block_word(block: &BlockRef<'_>) -> Step<u32> {
    get_u32(block.data, 0).ok_or(CUT_SHORT)
}

/// The page is one of a hash index as far as its header and page id can tell.
fn check(page: &Page) -> Step {
    if layout(page)?.special != OPAQUE || at_u16(page, PAGE_ID) != HASH_PAGE_ID {
        return Err(Why::Is("the page is not one of a hash index"));
    }
    Ok(())
}

pub(crate) fn flags(page: &Page) -> u16 {
    at_u16(page, FLAGS)
}

/// Sets the flags of a page that is not known to be of a hash index.
pub(crate) fn put_flags(page: &mut Page, flags: u16) {
    put_u16(page, FLAGS, flags);
}

fn set_flags(page: &mut Page, flags: u16) -> Step {
    check(page)?;
    put_flags(page, flags);
    Ok(())
}

fn clear_flag(page: &mut Page, flag: u16) -> Step {
    set_flags(page, flags(page) & !flag)
}

fn set_prev(page: &mut Page, blkno: u32) -> Step {
    check(page)?;
    put_u32(page, PREV, blkno);
    Ok(())
}

fn set_next(page: &mut Page, blkno: u32) -> Step {
    check(page)?;
    put_u32(page, NEXT, blkno);
    Ok(())
}

/// An empty page that no page follows.
fn init(page: &mut Page, prev: u32, bucket: u32, flags: u16) {
    page::init(page, OPAQUE_BYTES);
    put_u32(page, PREV, prev);
    put_u32(page, NEXT, NONE);
    put_u32(page, BUCKET, bucket);
    put_flags(page, flags);
    put_u16(page, PAGE_ID, HASH_PAGE_ID);
}

/// A bitmap page with every overflow page in use. Main data: bytes of the bitmap `u16`.
fn init_bitmap(rec: &DecodedRecord<'_>, page: &mut Page) -> Step {
    let end = PAGE_HEADER_BYTES + usize::from(half(rec, 0)?);
    if end > OPAQUE {
        return Err(Why::Is("its bitmap is longer than a page"));
    }
    init(page, NONE, NONE, LH_BITMAP_PAGE);
    page[PAGE_HEADER_BYTES..end].fill(0xFF);
    page::set_lower(page, end as u16);
    Ok(())
}

/// Notes in a bitmap page whether an overflow page is in use. The block's data: number of the bit `u32`.
fn mark_in_bitmap(block: &BlockRef<'_>, in_use: bool, page: &mut Page) -> Step {
    check(page)?;
    let bit = block_word(block)?;
    let at = PAGE_HEADER_BYTES + (bit / 8) as usize;
    if at >= page::lower(page) {
        return Err(Why::Text(format!(
            "it changes bit {bit}, which the bitmap page does not have"
        )));
    }
    let mask = 1 << (bit % 8);
    if in_use {
        page[at] |= mask;
    } else {
        page[at] &= !mask;
    }
    Ok(())
}

/// A new overflow page behind block 1. Its data: number of the bucket `u32`.
fn init_overflow(rec: &DecodedRecord<'_>, block: &BlockRef<'_>, page: &mut Page) -> Step {
    init(
        page,
        block_number(rec, 1)?,
        block_word(block)?,
        LH_OVERFLOW_PAGE,
    );
    Ok(())
}

/// The first page of the bucket to be split. Main data of the record: `new bucket u32, old bucket's flags
/// u16, new bucket's flags u16, what else changes on the metapage u8`.
fn begin_split(rec: &DecodedRecord<'_>, page: &mut Page) -> Step {
    set_flags(page, half(rec, 4)?)?;
    set_prev(page, word(rec, 0)?)
}

/// The first page of the bucket that a split fills; see [`begin_split`].
fn init_new_bucket(rec: &DecodedRecord<'_>, page: &mut Page) -> Step {
    let bucket = word(rec, 0)?;
    init(page, bucket, bucket, half(rec, 6)?);
    Ok(())
}

/// The page that takes what a freed overflow page held. Main data of the record: `page before the freed one
/// u32, page behind it u32, tuples u16, then as bytes: this is the bucket's first page, this is the page
/// before the freed one`.
fn receive_last(rec: &DecodedRecord<'_>, block: &BlockRef<'_>, page: &mut Page) -> Step {
    tuples::receive(rec, 8, block, page)?;
    if flag(rec, 11)? {
        set_next(page, word(rec, 4)?)?;
    }
    Ok(())
}

/// Main data: `the page has no dead tuples left u8, it is the bucket's first u8`.
fn delete(rec: &DecodedRecord<'_>, block: &BlockRef<'_>, page: &mut Page) -> Step {
    tuples::delete(block.data, page)?;
    if flag(rec, 0)? {
        clear_flag(page, LH_PAGE_HAS_DEAD_TUPLES)?;
    }
    Ok(())
}
