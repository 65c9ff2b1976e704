//! Records of vacuum on an SP-GiST index: removed leaf tuples, redirects and placeholders.

use pg_types::PgMajor;
use pg_types::bytes_le::{at_u32, put_u32};
use pg_types::page::{item_count, set_item_id};
use wal_decode::DecodedRecord;

use super::{
    Body, DEAD_TUPLE_BYTES, MAX_ITEMS, NO_ITEM, NOWHERE, PLACEHOLDERS, POINTER, REDIRECTS,
    STATE_MASK, State, bury, check, count, dead_tuple, put_target, set_next, tuple_mut,
};
use crate::Page;
use crate::error::{Step, Why};
use crate::page_ops::{index_multi_delete, stored_item};

fn remains(state: State) -> [u8; DEAD_TUPLE_BYTES] {
    dead_tuple(state, NOWHERE, 0)
}

/// Body: `to become dead u16, to become placeholders u16, moved u16, rechained u16, xid u32, building u8,
/// pad`; the numbers of each, those moved and those rechained as all sources, then all targets. A moved tuple
/// takes the place of the head of its chain.
pub(super) fn leaf(rec: &DecodedRecord<'_>, page: &mut Page) -> Step {
    let (fields, mut rest) = Body::new(rec, 16)?;
    let dead = rest.numbers(fields.half(0)?)?;
    let placeholders = rest.numbers(fields.half(2)?)?;
    let moved = fields.half(4)?;
    let (from, to) = (rest.numbers(moved)?, rest.numbers(moved)?);
    let rechained = fields.half(6)?;
    let (link, next) = (rest.numbers(rechained)?, rest.numbers(rechained)?);

    check(page)?;
    bury(page, dead, (State::Dead, State::Dead), remains)?;
    let freed = (State::Placeholder, State::Placeholder);
    bury(page, placeholders, freed, remains)?;
    for (from, to) in from.iter().zip(to.iter()) {
        let (a, b) = (stored_item(page, from)?, stored_item(page, to)?);
        let swapped = set_item_id(page, from, b).and_then(|()| set_item_id(page, to, a));
        swapped.ok_or(Why::Is("it moves a line pointer off the page"))?;
    }
    bury(page, from, freed, remains)?;
    for (number, next) in link.iter().zip(next.iter()) {
        set_next(page, number, next)?;
    }
    Ok(())
}

/// A root that is still a leaf has no chains, so its tuples go without a trace. Body: `deleted u16, pad, xid
/// u32, building u8, pad`, the numbers.
pub(super) fn root(rec: &DecodedRecord<'_>, page: &mut Page) -> Step {
    let (fields, mut rest) = Body::new(rec, 12)?;
    check(page)?;
    index_multi_delete(page, rest.numbers(fields.half(0)?)?.0)
}

/// Redirects that no search can need become placeholders; placeholders at the page's end go. Body: `redirects u16,
/// first placeholder to go u16, newest xid of a redirect u32`, as of 16 `the index is one of a catalog u8, pad`, the
/// redirects' numbers.
pub(super) fn redirects(major: PgMajor, rec: &DecodedRecord<'_>, page: &mut Page) -> Step {
    let (fields, mut rest) = Body::new(rec, major.facts().records.spgist_redirects_at)?;
    let redirects = fields.half(0)?;
    let first = fields.half(2)?;
    check(page)?;
    for number in rest.numbers(redirects)?.iter() {
        let tuple = tuple_mut(page, number, DEAD_TUPLE_BYTES)?;
        let header = at_u32(tuple, 0) & !STATE_MASK | State::Placeholder as u32;
        put_u32(tuple, 0, header);
        put_target(tuple, POINTER, NOWHERE);
    }
    count(page, REDIRECTS, 0, redirects)?;
    count(page, PLACEHOLDERS, redirects, 0)?;
    if first == NO_ITEM {
        return Ok(());
    }
    let mut doomed = [[0u8; 2]; MAX_ITEMS];
    let last = item_count(page);
    let numbers = (first..=last).zip(doomed.iter_mut());
    let mut length = 0;
    for (number, slot) in numbers {
        *slot = number.to_le_bytes();
        length += 1;
    }
    count(page, PLACEHOLDERS, 0, length)?;
    index_multi_delete(page, doomed[..usize::from(length)].as_flattened())?;
    Ok(())
}
