//! Pruning, vacuum's second pass and freezing as Postgres 15 logs them: three kinds of records.
//!
//! Main data: prune `xid u32, nredirected u16, ndead u16`, vacuum `nunused u16`, freeze `xid u32, ntuples u16`. Item
//! lists are the block's data.

use pg_types::bytes_le::{get_u8, get_u16, get_u32};
use pg_types::page::ItemId;
use pg_types::wal::info::heap2;
use wal_decode::{BlockRef, DecodedRecord};

use super::{Freeze, prune_items, set_all};
use crate::Page;
use crate::error::{CUT_SHORT, Step};
use crate::page_ops::{repair_fragmentation, truncate_line_pointers};

/// Bytes of one frozen tuple's entry: `xmax u32, offnum u16, infomask2 u16, infomask u16, flags u8`, padded.
const FREEZE_ENTRY_BYTES: usize = 12;

pub(super) fn redo(op: u8, rec: &DecodedRecord<'_>, block: &BlockRef<'_>, page: &mut Page) -> Step {
    match op {
        heap2::PRUNE => prune(rec, block, page),
        heap2::VACUUM => vacuum(rec, block, page),
        _ => freeze(rec, block, page),
    }
}

/// The block's data: pairs of redirects, then pointers that become dead, then those that become unused.
fn prune(rec: &DecodedRecord<'_>, block: &BlockRef<'_>, page: &mut Page) -> Step {
    let redirects = usize::from(get_u16(rec.main_data, 4).ok_or(CUT_SHORT)?);
    let dead = usize::from(get_u16(rec.main_data, 6).ok_or(CUT_SHORT)?);
    let (redirected, rest) = block
        .data
        .split_at_checked(redirects * 4)
        .ok_or(CUT_SHORT)?;
    let (dead, unused) = rest.split_at_checked(dead * 2).ok_or(CUT_SHORT)?;
    prune_items(page, redirected, dead, unused)?;
    repair_fragmentation(page)
}

fn vacuum(rec: &DecodedRecord<'_>, block: &BlockRef<'_>, page: &mut Page) -> Step {
    let count = usize::from(get_u16(rec.main_data, 0).ok_or(CUT_SHORT)?);
    let unused = block.data.get(..count * 2).ok_or(CUT_SHORT)?;
    set_all(page, unused, ItemId::UNUSED)?;
    truncate_line_pointers(page)
}

fn freeze(rec: &DecodedRecord<'_>, block: &BlockRef<'_>, page: &mut Page) -> Step {
    let count = usize::from(get_u16(rec.main_data, 4).ok_or(CUT_SHORT)?);
    let entries = block
        .data
        .get(..count * FREEZE_ENTRY_BYTES)
        .ok_or(CUT_SHORT)?;
    for entry in entries.chunks_exact(FREEZE_ENTRY_BYTES) {
        let freeze = Freeze {
            xmax: get_u32(entry, 0).ok_or(CUT_SHORT)?,
            infomask2: get_u16(entry, 6).ok_or(CUT_SHORT)?,
            infomask: get_u16(entry, 8).ok_or(CUT_SHORT)?,
            flags: get_u8(entry, 10).ok_or(CUT_SHORT)?,
        };
        freeze.tuple(get_u16(entry, 4).ok_or(CUT_SHORT)?, page)?;
    }
    Ok(())
}
