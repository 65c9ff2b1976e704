//! Changes of inner tuples: one more node, a prefix split in two, a leaf chain made a subtree.

use wal_decode::DecodedRecord;

use super::{
    Body, Fields, Numbers, REDIRECTS, State, add_or_replace, blkno, bury, check, count, dead_tuple,
    init, inner_flags, leaf_flags, replace, set_node_link,
};
use crate::Page;
use crate::error::{CUT_SHORT, Step};
use crate::heap::WRONG_BLOCK;

/// Body: `old number u16, new number u16, init page u8, which block is the parent's i8, parent's number u16,
/// its node u16, pad, xid u32, building u8, pad`, the inner tuple with its new node. Blocks: old page; if the
/// tuple had to move, new page; the parent if it is on neither.
pub(super) fn add_node(rec: &DecodedRecord<'_>, id: u8, page: &mut Page) -> Step {
    let (fields, mut rest) = Body::new(rec, 20)?;
    let tuple = rest.inner_tuple()?;
    let (old, new) = (fields.half(0)?, fields.half(2)?);
    if rec.block(1).is_none() {
        check(page)?;
        return replace(page, tuple, old);
    }
    let target = (blkno(rec, 1)?, new);
    match id {
        0 => {
            check(page)?;
            let redirect = dead_tuple(State::Redirect, target, fields.word(12)?);
            replace(page, &redirect, old)?;
            count(page, REDIRECTS, 1, 0)?;
        }
        1 => {
            if fields.flag(4)? {
                init(page, inner_flags(false));
            }
            check(page)?;
            add_or_replace(page, tuple, new)?;
        }
        2 => {}
        _ => return Err(WRONG_BLOCK),
    }
    let parent = fields.0.get(5).ok_or(CUT_SHORT)?;
    if *parent == id {
        set_node_link(page, fields.half(6)?, fields.half(8)?, target)?;
    }
    Ok(())
}

/// Body: `prefix' number u16, postfix' number u16, init page u8, both on the same page u8`, the tuple with
/// the common prefix, the one with the rest. Blocks: the prefix' page, which had the tuple; the postfix'.
pub(super) fn split_tuple(rec: &DecodedRecord<'_>, id: u8, page: &mut Page) -> Step {
    let (fields, mut rest) = Body::new(rec, 6)?;
    let prefix = rest.inner_tuple()?;
    let postfix = rest.inner_tuple()?;
    let (prefix_number, postfix_number) = (fields.half(0)?, fields.half(2)?);
    let same_page = fields.flag(5)?;
    match id {
        0 => {
            check(page)?;
            replace(page, prefix, prefix_number)?;
            if same_page {
                add_or_replace(page, postfix, postfix_number)?;
            }
            Ok(())
        }
        1 if !same_page => {
            if fields.flag(4)? {
                init(page, inner_flags(false));
            }
            check(page)?;
            add_or_replace(page, postfix, postfix_number)
        }
        _ => Err(WRONG_BLOCK),
    }
}

/// Blocks of a pick split, as the record numbers them.
const SOURCE: u8 = 0;
const DESTINATION: u8 = 1;
const INNER: u8 = 2;
const PARENT: u8 = 3;

/// Body: `root split u8, pad, deleted u16, inserted u16, init source u8, init destination u8, inner's number
/// u16, init inner u8, nulls tree u8, the inner page is the parent's u8, pad, parent's number u16, its node
/// u16, pad, xid u32, building u8, pad`; the numbers deleted, the numbers inserted, a byte for each of them
/// that is not zero on the destination page, the inner tuple, the leaf tuples inserted.
pub(super) fn pick_split(rec: &DecodedRecord<'_>, id: u8, page: &mut Page) -> Step {
    let (fields, mut rest) = Body::new(rec, 28)?;
    let (deleted, inserted) = (fields.half(2)?, fields.half(4)?);
    let gone = rest.numbers(deleted)?;
    let numbers = rest.numbers(inserted)?;
    let on_destination = rest.take(usize::from(inserted))?;
    let inner_tuple = rest.inner_tuple()?;
    let target = (blkno(rec, INNER)?, fields.half(8)?);
    match id {
        SOURCE => {
            source(&fields, gone, target, page)?;
            restore_leafs(page, numbers, on_destination, false, rest)
        }
        DESTINATION => {
            if fields.flag(7)? {
                init(page, leaf_flags(fields.flag(11)?));
            }
            check(page)?;
            restore_leafs(page, numbers, on_destination, true, rest)
        }
        INNER => {
            if fields.flag(10)? {
                init(page, inner_flags(fields.flag(11)?));
            }
            check(page)?;
            add_or_replace(page, inner_tuple, target.1)?;
            if fields.flag(12)? {
                set_node_link(page, fields.half(14)?, fields.half(16)?, target)?;
            }
            Ok(())
        }
        PARENT => set_node_link(page, fields.half(14)?, fields.half(16)?, target),
        _ => Err(WRONG_BLOCK),
    }
}

/// The page of the chain that is split: emptied, or a redirect left where the chain began.
fn source(fields: &Fields<'_>, gone: Numbers<'_>, target: (u32, u16), page: &mut Page) -> Step {
    if fields.flag(6)? {
        init(page, leaf_flags(fields.flag(11)?));
        return Ok(());
    }
    check(page)?;
    let xid = fields.word(20)?;
    bury(page, gone, (State::Redirect, State::Placeholder), |state| {
        dead_tuple(state, target, xid)
    })
}

/// Adds the leaf tuples that are on this one of the two pages.
fn restore_leafs(
    page: &mut Page,
    numbers: Numbers<'_>,
    on_destination: &[u8],
    destination: bool,
    mut tuples: Body<'_>,
) -> Step {
    for (number, select) in numbers.iter().zip(on_destination) {
        let tuple = tuples.leaf_tuple()?;
        if (*select != 0) == destination {
            add_or_replace(page, tuple, number)?;
        }
    }
    Ok(())
}
