//! New leaf tuples, on a page with room or together with their chain on another.

use wal_decode::DecodedRecord;

use super::{
    Body, NO_ITEM, State, add_or_replace, blkno, bury, check, dead_tuple, init, leaf_flags,
    replace, set_next, set_node_link,
};
use crate::Page;
use crate::error::Step;
use crate::heap::WRONG_BLOCK;

/// Body: `init page u8, nulls tree u8, number u16, number of the chain's head u16, parent's number u16, its
/// node u16`, the leaf tuple. Blocks: leaf page, parent if a node's link changes.
pub(super) fn add_leaf(rec: &DecodedRecord<'_>, id: u8, page: &mut Page) -> Step {
    let (fields, mut rest) = Body::new(rec, 10)?;
    let (number, head) = (fields.half(2)?, fields.half(4)?);
    match id {
        0 => {
            if fields.flag(0)? {
                init(page, leaf_flags(fields.flag(1)?));
            }
            check(page)?;
            let tuple = rest.leaf_tuple()?;
            if number == head {
                // The chain consisted of a dead tuple.
                return replace(page, tuple, number);
            }
            add_or_replace(page, tuple, number)?;
            if head != NO_ITEM {
                set_next(page, head, number)?;
            }
            Ok(())
        }
        1 => set_node_link(
            page,
            fields.half(6)?,
            fields.half(8)?,
            (blkno(rec, 0)?, number),
        ),
        _ => Err(WRONG_BLOCK),
    }
}

/// Body: `moved u16, init page u8, a dead tuple is replaced u8, nulls tree u8, pad, parent's number u16, its
/// node u16, pad, xid u32, building u8, pad`; the numbers on the old page, those on the new page and the
/// leaf tuples, which are one more than moved, or just the new one if a dead one is replaced. Blocks: old
/// page, new page, parent.
pub(super) fn move_leafs(rec: &DecodedRecord<'_>, id: u8, page: &mut Page) -> Step {
    let (fields, mut rest) = Body::new(rec, 20)?;
    let moved = fields.half(0)?;
    let inserted = if fields.flag(3)? {
        1
    } else {
        moved.saturating_add(1)
    };
    let from = rest.numbers(moved)?;
    let to = rest.numbers(inserted)?;
    let target = (blkno(rec, 1)?, to.last()?);
    match id {
        0 => {
            check(page)?;
            let xid = fields.word(12)?;
            bury(page, from, (State::Redirect, State::Placeholder), |state| {
                dead_tuple(state, target, xid)
            })
        }
        1 => {
            if fields.flag(2)? {
                init(page, leaf_flags(fields.flag(4)?));
            }
            check(page)?;
            to.iter()
                .try_for_each(|number| add_or_replace(page, rest.leaf_tuple()?, number))
        }
        2 => set_node_link(page, fields.half(6)?, fields.half(8)?, target),
        _ => Err(WRONG_BLOCK),
    }
}
