//! Records of the `Heap2` resource manager: whole pages, vacuum, visibility.
//!
//! Layouts of the record bodies (main data), little-endian: visible `xid u32, flags u8`, multi-insert `flags u8, pad,
//! ntuples u16, offnum u16 each`; lock-updated as a lock. Pruning and freezing differ between majors: [`v15`],
//! [`v17`].

mod v15;
mod v17;

use pg_types::ForkNumber;
use pg_types::bytes_le::{get_u8, get_u16};
use pg_types::page::{self, ItemId, PD_ALL_VISIBLE};
use pg_types::wal::info;
use wal_decode::{BlockRef, DecodedRecord};

use crate::error::{CUT_SHORT, Step, Why};
use crate::heap::{WRONG_BLOCK, XmaxBody, init_if_asked, note_insert_flags, put_tuple};
use crate::page_ops::{normal_item, replace_item_id};
use crate::tuple::{Ctid, LOGGED_HEADER_BYTES, NewHeader, Tuple};
use crate::{ClusterSettings, Page, visibility};

const FREEZE_XVAC: u8 = 0x02;
const INVALID_XVAC: u8 = 0x04;
const FROZEN_XID: u32 = 2;

pub(crate) fn redo(
    settings: ClusterSettings,
    rec: &DecodedRecord<'_>,
    block: &BlockRef<'_>,
    page: &mut Page,
) -> Step {
    let op = rec.info & info::heap::OP_MASK;
    match (op, block.id) {
        (info::heap2::PRUNE..=info::heap2::FREEZE_PAGE, 0) => {
            if settings.major.facts().records.prune_and_freeze {
                v17::prune_and_freeze(rec, block, page)?;
            } else {
                v15::redo(op, rec, block, page)?;
            }
        }
        (info::heap2::MULTI_INSERT, 0) => multi_insert(rec, block, page)?,
        (info::heap2::LOCK_UPDATED, 0) => lock_updated(rec, page)?,
        // These two set the LSN themselves, or not.
        (info::heap2::VISIBLE, 0) => return visible_map(rec, block, page),
        (info::heap2::VISIBLE, 1) => {
            page::change_flags(page, PD_ALL_VISIBLE, 0);
            if !settings.hint_bits_logged {
                return Ok(());
            }
        }
        (info::heap2::NEW_CID | info::heap2::REWRITE, _) => {
            return Err(Why::Is("it serves logical decoding and changes no page"));
        }
        _ => return Err(WRONG_BLOCK),
    }
    page::set_lsn(page, rec.end_lsn);
    Ok(())
}

/// A list of line pointer numbers.
fn numbers(bytes: &[u8]) -> impl Iterator<Item = u16> + '_ {
    bytes
        .chunks_exact(2)
        .map(|pair| u16::from_le_bytes([pair[0], pair[1]]))
}

fn set_all(page: &mut Page, listed: &[u8], id: ItemId) -> Step {
    numbers(listed).try_for_each(|number| replace_item_id(page, number, id))
}

/// What pruning does to line pointers: pairs of number and where it leads now, then those whose tuples are gone.
fn prune_items(page: &mut Page, redirected: &[u8], dead: &[u8], unused: &[u8]) -> Step {
    for pair in redirected.chunks_exact(4) {
        let (from, to) = (
            u16::from_le_bytes([pair[0], pair[1]]),
            u16::from_le_bytes([pair[2], pair[3]]),
        );
        replace_item_id(page, from, ItemId::redirect(to))?;
    }
    set_all(page, dead, ItemId::DEAD)?;
    set_all(page, unused, ItemId::UNUSED)
}

/// What becomes of a frozen tuple's header.
struct Freeze {
    xmax: u32,
    infomask2: u16,
    infomask: u16,
    flags: u8,
}

impl Freeze {
    fn tuple(&self, number: u16, page: &mut Page) -> Step {
        let id = normal_item(page, number)?;
        let mut tuple = Tuple::at(page, &id)?;
        tuple.set_xmax(self.xmax);
        if self.flags & FREEZE_XVAC != 0 {
            tuple.set_cid(FROZEN_XID);
        }
        if self.flags & INVALID_XVAC != 0 {
            tuple.set_cid(0);
        }
        tuple.set_infomask2(self.infomask2);
        tuple.set_infomask(self.infomask);
        Ok(())
    }
}

/// The map's page of a visible record; block 1 says which heap block it is about.
fn visible_map(rec: &DecodedRecord<'_>, block: &BlockRef<'_>, page: &mut Page) -> Step {
    let flags = get_u8(rec.main_data, 4).ok_or(CUT_SHORT)?;
    let heap = rec.block(1).ok_or(Why::Is("it lacks the heap block"))?;
    if block.rel.fork != ForkNumber::VisibilityMap {
        return Err(Why::Is("its first block is not of a visibility map"));
    }
    visibility::set(heap.blkno, flags, block.blkno, rec.end_lsn, page)
}

/// Tuples follow each other in the block's data, each at an even offset: `datalen u16, infomask2 u16,
/// infomask u16, hoff u8`, then `datalen` bytes.
fn multi_insert(rec: &DecodedRecord<'_>, block: &BlockRef<'_>, page: &mut Page) -> Step {
    let flags = get_u8(rec.main_data, 0).ok_or(CUT_SHORT)?;
    let count = get_u16(rec.main_data, 2).ok_or(CUT_SHORT)?;
    init_if_asked(rec, page);
    let init = rec.info & info::heap::INIT_PAGE != 0;
    let mut at = 0usize;
    for i in 0..count {
        // A new page is filled from the first line pointer on, without a list.
        let item = if init {
            i + 1
        } else {
            get_u16(rec.main_data, 4 + usize::from(i) * 2).ok_or(CUT_SHORT)?
        };
        at = at.next_multiple_of(2);
        let length = usize::from(get_u16(block.data, at).ok_or(CUT_SHORT)?);
        let header = NewHeader::parse(block.data, at + 2).ok_or(CUT_SHORT)?;
        at += 2 + LOGGED_HEADER_BYTES;
        let body = block.data.get(at..at + length).ok_or(CUT_SHORT)?;
        at += length;
        let ctid = Ctid {
            block: block.blkno,
            item,
        };
        put_tuple(page, &header, body, rec.xid, ctid)?;
    }
    if at != block.data.len() {
        return Err(Why::Is("its tuples do not add up to its data"));
    }
    note_insert_flags(page, flags);
    Ok(())
}

fn lock_updated(rec: &DecodedRecord<'_>, page: &mut Page) -> Step {
    let body = XmaxBody::parse(rec.main_data).ok_or(CUT_SHORT)?;
    let id = normal_item(page, body.offnum)?;
    let mut tuple = Tuple::at(page, &id)?;
    tuple.set_xmax_bits(body.infobits);
    tuple.set_xmax(body.xmax);
    Ok(())
}
