//! Removing an empty page from the tree, in two steps: half-dead, then unlinked.

use pg_types::bytes_le::{get_u16, get_u32, get_u64, put_u16};
use pg_types::page::{self, PAGE_HEADER_BYTES, item, item_mut};
use wal_decode::DecodedRecord;

use super::posting::set_no_key_columns;
use super::{
    BTP_DELETED, BTP_HALF_DEAD, BTP_HAS_FULLXID, BTP_LEAF, HIGH_KEY, check, init, leaf_flag,
    set_flags, set_level, set_next, set_prev,
};
use crate::Page;
use crate::error::{CUT_SHORT, Step, Why};
use crate::index_tuple::{TUPLE_HEADER_BYTES, block, set_block};
use crate::page_ops::{Place, add_item, index_delete, stored_item};

const BAD_DOWNLINK: Why = Why::Is("a downlink of the parent page makes no sense");

fn word(rec: &DecodedRecord<'_>, at: usize) -> Step<u32> {
    get_u32(rec.main_data, at).ok_or(CUT_SHORT)
}

/// Body: `parent's line pointer u16, pad, leaf u32, left u32, right u32, top parent u32`. The downlink of
/// the dying page takes over its right neighbour's target, and that neighbour's downlink goes.
pub(super) fn half_dead_parent(rec: &DecodedRecord<'_>, page: &mut Page) -> Step {
    check(page)?;
    let offnum = get_u16(rec.main_data, 0).ok_or(CUT_SHORT)?;
    let next = offnum.checked_add(1).ok_or(CUT_SHORT)?;
    let right_id = stored_item(page, next)?;
    let right = item(page, &right_id)
        .filter(|tuple| tuple.len() >= TUPLE_HEADER_BYTES)
        .map(block)
        .ok_or(BAD_DOWNLINK)?;
    let id = stored_item(page, offnum)?;
    let downlink = item_mut(page, &id)
        .filter(|tuple| tuple.len() >= TUPLE_HEADER_BYTES)
        .ok_or(BAD_DOWNLINK)?;
    set_block(downlink, right);
    index_delete(page, next)
}

pub(super) fn half_dead_leaf(rec: &DecodedRecord<'_>, page: &mut Page) -> Step {
    let (left, right, top_parent) = (word(rec, 8)?, word(rec, 12)?, word(rec, 16)?);
    make_half_dead(page, left, right, top_parent)
}

/// An empty half-dead leaf whose high key only says which page above goes with it.
fn make_half_dead(page: &mut Page, left: u32, right: u32, top_parent: u32) -> Step {
    init(page);
    set_prev(page, left);
    set_next(page, right);
    set_flags(page, BTP_HALF_DEAD | BTP_LEAF);
    let mut tuple = [0; TUPLE_HEADER_BYTES];
    put_u16(&mut tuple, 6, TUPLE_HEADER_BYTES as u16);
    set_block(&mut tuple, top_parent);
    set_no_key_columns(&mut tuple);
    add_item(page, &tuple, HIGH_KEY, Place::Shift)
}

/// Body: `left u32, right u32, level u32, pad, safe xid u64, leaf's left u32, leaf's right u32, leaf's top
/// parent u32`. Blocks: the page itself, left, right, and the leaf when the page is one of its parents.
pub(super) fn unlink(rec: &DecodedRecord<'_>, block_id: u8, page: &mut Page) -> Step {
    let (left, right) = (word(rec, 0)?, word(rec, 4)?);
    match block_id {
        0 => {
            let level = word(rec, 8)?;
            let safe_xid = get_u64(rec.main_data, 16).ok_or(CUT_SHORT)?;
            init(page);
            set_prev(page, left);
            set_next(page, right);
            set_level(page, level);
            set_flags(page, BTP_DELETED | BTP_HAS_FULLXID | leaf_flag(level));
            page[PAGE_HEADER_BYTES..PAGE_HEADER_BYTES + 8].copy_from_slice(&safe_xid.to_le_bytes());
            page::set_lower(page, PAGE_HEADER_BYTES as u16 + 8);
        }
        1 => {
            check(page)?;
            set_next(page, right);
        }
        2 => {
            check(page)?;
            set_prev(page, left);
        }
        _ => make_half_dead(page, word(rec, 24)?, word(rec, 28)?, word(rec, 32)?)?,
    }
    Ok(())
}
