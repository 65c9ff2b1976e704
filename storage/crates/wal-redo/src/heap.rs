//! Records of the `Heap` resource manager: single tuples.
//!
//! Layouts of the record bodies (main data), little-endian: insert `offnum u16, flags u8`; delete `xmax
//! u32, offnum u16, infobits u8, flags u8`; update `old_xmax u32, old_offnum u16, old_infobits u8, flags
//! u8, new_xmax u32, new_offnum u16`; lock `xid u32, offnum u16, infobits u8, flags u8`; confirm and
//! in-place `offnum u16`.

use pg_types::bytes_le::{get_u8, get_u16, get_u32};
use pg_types::page::{self, PD_ALL_VISIBLE};
use pg_types::wal::info;
use wal_decode::{BlockRef, DecodedRecord};

use crate::Page;
use crate::error::{CUT_SHORT, Step, Why};
use crate::page_ops::{Place, normal_item, reserve};
use crate::tuple::{Ctid, HEADER_BYTES, LOGGED_HEADER_BYTES, NewHeader, Tuple, set_prunable};

/// Insert, delete and multi-insert, and the old version of an update: the page is no longer all-visible.
pub(crate) const ALL_VISIBLE_CLEARED: u8 = 0x01;
/// Insert and multi-insert: every tuple on the page is frozen, the page all-visible.
pub(crate) const INSERT_ALL_FROZEN_SET: u8 = 0x20;
const UPDATE_NEW_ALL_VISIBLE_CLEARED: u8 = 0x02;
const UPDATE_PREFIX_FROM_OLD: u8 = 0x20;
const UPDATE_SUFFIX_FROM_OLD: u8 = 0x40;
/// A speculative insertion is taken back.
const DELETE_IS_SUPER: u8 = 0x08;
const DELETE_IS_PARTITION_MOVE: u8 = 0x10;

pub(crate) const WRONG_BLOCK: Why = Why::Is("its kind does not change this block of its blocks");

pub(crate) fn redo(rec: &DecodedRecord<'_>, block: &BlockRef<'_>, page: &mut Page) -> Step {
    let op = rec.info & info::heap::OP_MASK;
    match (op, block.id) {
        (info::heap::INSERT, 0) => insert(rec, block, page)?,
        (info::heap::DELETE, 0) => delete(rec, block, page)?,
        (info::heap::UPDATE | info::heap::HOT_UPDATE, 0 | 1) => {
            update(rec, block, op == info::heap::HOT_UPDATE, page)?;
        }
        (info::heap::CONFIRM, 0) => confirm(rec, block, page)?,
        (info::heap::LOCK, 0) => lock(rec, block, page)?,
        (info::heap::INPLACE, 0) => inplace(rec, block, page)?,
        (info::heap::TRUNCATE, _) => {
            return Err(Why::Is("a truncation record changes no page"));
        }
        _ => return Err(WRONG_BLOCK),
    }
    page::set_lsn(page, rec.end_lsn);
    Ok(())
}

/// Makes the page anew when the record says that it starts with it.
pub(crate) fn init_if_asked(rec: &DecodedRecord<'_>, page: &mut Page) {
    if rec.info & info::heap::INIT_PAGE != 0 {
        page::init(page, 0);
    }
}

pub(crate) fn clear_all_visible(page: &mut Page) {
    page::change_flags(page, 0, PD_ALL_VISIBLE);
}

/// Adds a tuple of this header, with `body` for everything behind its fixed part.
pub(crate) fn put_tuple(
    page: &mut Page,
    header: &NewHeader,
    body: &[u8],
    xmin: u32,
    ctid: Ctid,
) -> Step {
    let length = HEADER_BYTES + body.len();
    let at = reserve(page, length, ctid.item, Place::Heap)?;
    let tuple = &mut page[at..at + length];
    header.write(tuple, xmin, 0, ctid);
    tuple[HEADER_BYTES..].copy_from_slice(body);
    Ok(())
}

fn insert(rec: &DecodedRecord<'_>, block: &BlockRef<'_>, page: &mut Page) -> Step {
    let offnum = get_u16(rec.main_data, 0).ok_or(CUT_SHORT)?;
    let flags = get_u8(rec.main_data, 2).ok_or(CUT_SHORT)?;
    let header = NewHeader::parse(block.data, 0).ok_or(CUT_SHORT)?;
    init_if_asked(rec, page);
    let ctid = Ctid {
        block: block.blkno,
        item: offnum,
    };
    put_tuple(
        page,
        &header,
        &block.data[LOGGED_HEADER_BYTES..],
        rec.xid,
        ctid,
    )?;
    note_insert_flags(page, flags);
    Ok(())
}

/// What the flags of an insertion say about the page.
pub(crate) fn note_insert_flags(page: &mut Page, flags: u8) {
    if flags & ALL_VISIBLE_CLEARED != 0 {
        clear_all_visible(page);
    }
    if flags & INSERT_ALL_FROZEN_SET != 0 {
        page::change_flags(page, PD_ALL_VISIBLE, 0);
    }
}

fn delete(rec: &DecodedRecord<'_>, block: &BlockRef<'_>, page: &mut Page) -> Step {
    let body = XmaxBody::parse(rec.main_data).ok_or(CUT_SHORT)?;
    let id = normal_item(page, body.offnum)?;
    let mut tuple = Tuple::at(page, &id)?;
    tuple.set_xmax_bits(body.infobits);
    tuple.set_hot_updated(false);
    if body.flags & DELETE_IS_SUPER != 0 {
        tuple.set_xmin(0);
    } else {
        tuple.set_xmax(body.xmax);
    }
    tuple.reset_cid();
    tuple.set_ctid(if body.flags & DELETE_IS_PARTITION_MOVE != 0 {
        Ctid::MOVED
    } else {
        Ctid {
            block: block.blkno,
            item: body.offnum,
        }
    });
    set_prunable(page, rec.xid);
    if body.flags & ALL_VISIBLE_CLEARED != 0 {
        clear_all_visible(page);
    }
    Ok(())
}

/// The body that delete, lock and the old half of update share.
pub(crate) struct XmaxBody {
    pub xmax: u32,
    pub offnum: u16,
    pub infobits: u8,
    pub flags: u8,
}

impl XmaxBody {
    pub(crate) fn parse(main_data: &[u8]) -> Option<XmaxBody> {
        Some(XmaxBody {
            xmax: get_u32(main_data, 0)?,
            offnum: get_u16(main_data, 4)?,
            infobits: get_u8(main_data, 6)?,
            flags: get_u8(main_data, 7)?,
        })
    }
}

/// Block 0 holds the new version, block 1 the old one; without block 1 both are on block 0.
fn update(rec: &DecodedRecord<'_>, block: &BlockRef<'_>, hot: bool, page: &mut Page) -> Step {
    let old = XmaxBody::parse(rec.main_data).ok_or(CUT_SHORT)?;
    let new_ctid = Ctid {
        block: rec
            .block(0)
            .ok_or(Why::Is("it lacks the new version's block"))?
            .blkno,
        item: get_u16(rec.main_data, 12).ok_or(CUT_SHORT)?,
    };
    let same_page = rec.block(1).is_none();
    if hot && !same_page {
        return Err(Why::Is("a HOT update names two blocks"));
    }
    if same_page || block.id == 1 {
        update_old(rec, &old, new_ctid, hot, page)?;
    }
    if block.id == 0 {
        if !same_page {
            init_if_asked(rec, page);
        }
        update_new(rec, block, &old, new_ctid, same_page, page)?;
    }
    Ok(())
}

fn update_old(
    rec: &DecodedRecord<'_>,
    old: &XmaxBody,
    new_ctid: Ctid,
    hot: bool,
    page: &mut Page,
) -> Step {
    let id = normal_item(page, old.offnum)?;
    let mut tuple = Tuple::at(page, &id)?;
    tuple.set_xmax_bits(old.infobits);
    tuple.set_hot_updated(hot);
    tuple.set_xmax(old.xmax);
    tuple.reset_cid();
    tuple.set_ctid(new_ctid);
    set_prunable(page, rec.xid);
    if old.flags & ALL_VISIBLE_CLEARED != 0 {
        clear_all_visible(page);
    }
    Ok(())
}

/// The new version; what it shares with the old one at either end may be left out of the record when
/// both are on one page.
fn update_new(
    rec: &DecodedRecord<'_>,
    block: &BlockRef<'_>,
    old: &XmaxBody,
    ctid: Ctid,
    same_page: bool,
    page: &mut Page,
) -> Step {
    let new_xmax = get_u32(rec.main_data, 8).ok_or(CUT_SHORT)?;
    let mut data = block.data;
    let mut shared_length = |flag: u8| -> Step<usize> {
        if old.flags & flag == 0 {
            return Ok(0);
        }
        if !same_page {
            return Err(Why::Is(
                "it takes parts from an old version on another page",
            ));
        }
        let length = get_u16(data, 0).ok_or(CUT_SHORT)?;
        data = &data[2..];
        Ok(usize::from(length))
    };
    let prefix = shared_length(UPDATE_PREFIX_FROM_OLD)?;
    let suffix = shared_length(UPDATE_SUFFIX_FROM_OLD)?;
    let header = NewHeader::parse(data, 0).ok_or(CUT_SHORT)?;
    let logged = &data[LOGGED_HEADER_BYTES..];
    // Between the fixed header and the data: null bitmap and padding, always logged.
    let bitmap = if prefix > 0 {
        usize::from(header.hoff)
            .checked_sub(HEADER_BYTES)
            .filter(|length| *length <= logged.len())
            .ok_or(CUT_SHORT)?
    } else {
        0
    };
    let (prefix_from, suffix_from) = if prefix > 0 || suffix > 0 {
        shared_parts(page, old.offnum, prefix, suffix)?
    } else {
        (0, 0)
    };
    let length = HEADER_BYTES + logged.len() + prefix + suffix;
    let mut at = reserve(page, length, ctid.item, Place::Heap)?;
    header.write(&mut page[at..at + length], rec.xid, new_xmax, ctid);
    at += HEADER_BYTES;
    page[at..at + bitmap].copy_from_slice(&logged[..bitmap]);
    at += bitmap;
    page.copy_within(prefix_from..prefix_from + prefix, at);
    at += prefix;
    page[at..at + logged.len() - bitmap].copy_from_slice(&logged[bitmap..]);
    at += logged.len() - bitmap;
    page.copy_within(suffix_from..suffix_from + suffix, at);
    if old.flags & UPDATE_NEW_ALL_VISIBLE_CLEARED != 0 {
        clear_all_visible(page);
    }
    Ok(())
}

/// Where on the page the old version's shared prefix and suffix begin.
fn shared_parts(page: &mut Page, old: u16, prefix: usize, suffix: usize) -> Step<(usize, usize)> {
    let id = normal_item(page, old)?;
    let data_offset = Tuple::at(page, &id)?.data_offset();
    let (start, length) = (usize::from(id.offset), usize::from(id.length));
    if data_offset + prefix > length || suffix > length {
        return Err(Why::Is(
            "it takes more from the old version than that one has",
        ));
    }
    Ok((start + data_offset, start + length - suffix))
}

/// A speculative insertion stays: the token in its `t_ctid` gives way to its own place.
fn confirm(rec: &DecodedRecord<'_>, block: &BlockRef<'_>, page: &mut Page) -> Step {
    let offnum = get_u16(rec.main_data, 0).ok_or(CUT_SHORT)?;
    let id = normal_item(page, offnum)?;
    Tuple::at(page, &id)?.set_ctid(Ctid {
        block: block.blkno,
        item: offnum,
    });
    Ok(())
}

fn lock(rec: &DecodedRecord<'_>, block: &BlockRef<'_>, page: &mut Page) -> Step {
    let body = XmaxBody::parse(rec.main_data).ok_or(CUT_SHORT)?;
    let id = normal_item(page, body.offnum)?;
    let mut tuple = Tuple::at(page, &id)?;
    tuple.set_xmax_bits(body.infobits);
    // With nothing but lockers left, the tuple is its own newest version again.
    if tuple.xmax_only_locks() {
        tuple.set_hot_updated(false);
        tuple.set_ctid(Ctid {
            block: block.blkno,
            item: body.offnum,
        });
    }
    tuple.set_xmax(body.xmax);
    tuple.reset_cid();
    Ok(())
}

fn inplace(rec: &DecodedRecord<'_>, block: &BlockRef<'_>, page: &mut Page) -> Step {
    let offnum = get_u16(rec.main_data, 0).ok_or(CUT_SHORT)?;
    let id = normal_item(page, offnum)?;
    let data_offset = Tuple::at(page, &id)?.data_offset();
    let target = page::item_mut(page, &id)
        .and_then(|tuple| tuple.get_mut(data_offset..))
        .filter(|target| target.len() == block.data.len())
        .ok_or(Why::Is("the tuple it overwrites has another length"))?;
    target.copy_from_slice(block.data);
    Ok(())
}
