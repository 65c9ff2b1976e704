//! Records of the `SPGist` resource manager (access/spgxlog.h).
//!
//! Inner tuples lead to nodes, leaf tuples of one node are chained on their page by line pointer numbers.
//! Numbers therefore stay: a tuple that goes leaves a *placeholder* (its place may be taken), a *redirect*
//! (searches under way follow it to where its node went) or a *dead* tuple (a node still leads there). The
//! page counts the first two.
//!
//! All that redo needs is in the records' main data. Booleans that tell whether an index is being built are
//! always false in WAL, since a new index is logged as whole pages at its end.

mod insert;
mod split;
mod vacuum;

use pg_types::bytes_le::{at_u16, at_u32, get_u8, get_u16, get_u32, put_u16, put_u32};
use pg_types::page::{self, item, item_mut};
use pg_types::wal::info::spgist as op;
use pg_types::{BLCKSZ, PgMajor};
use wal_decode::{BlockRef, DecodedRecord};

use crate::Page;
use crate::error::{CUT_SHORT, Step, Why};
use crate::heap::WRONG_BLOCK;
use crate::layout::layout;
use crate::page_ops::{Place, add_item, index_delete, index_multi_delete, stored_item};

/// Bytes of the special space: flags, redirects, placeholders, page id, a `u16` each.
pub(crate) const OPAQUE_BYTES: usize = 8;
pub(crate) const PAGE_ID: u16 = 0xFF82;
const OPAQUE: usize = BLCKSZ - OPAQUE_BYTES;
const FLAGS: usize = OPAQUE;
const REDIRECTS: usize = OPAQUE + 2;
const PLACEHOLDERS: usize = OPAQUE + 4;
const PAGE_ID_AT: usize = OPAQUE + 6;

pub(crate) const META: u16 = 1 << 0;
const LEAF: u16 = 1 << 2;
const NULLS: u16 = 1 << 3;

/// Line pointer number that is none.
const NO_ITEM: u16 = 0;
/// Most tuples an index page can hold (`MaxIndexTuplesPerPage`).
const MAX_ITEMS: usize = 408;

/// What has become of a tuple (`tupstate`), the lowest two bits of every tuple.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
enum State {
    Redirect = 1,
    Dead = 2,
    Placeholder = 3,
}

const STATE_MASK: u32 = 3;
/// Leaf and dead tuples: number of the next one in the chain, in the lower 14 bits; flags above them.
const NEXT: usize = 4;
const NEXT_MASK: u16 = 0x3FFF;
/// Dead tuples: where a redirect leads to, and the transaction that left it.
const POINTER: usize = 6;
const XID: usize = 12;
const DEAD_TUPLE_BYTES: usize = 16;
/// Header of a leaf tuple.
const LEAF_HEADER_BYTES: usize = 12;
/// Header of an inner tuple: node count in bits 3 to 15, prefix bytes in the upper half; then its size.
const INNER_HEADER_BYTES: usize = 8;
const INNER_SIZE: usize = 4;
/// Nodes are laid out as index tuples: a place, then a size in 13 bits.
const NODE_HEADER_BYTES: usize = 8;
const NODE_INFO: usize = 6;
const NODE_SIZE_MASK: u16 = 0x1FFF;

/// Block number and line pointer number.
type Target = (u32, u16);
const NOWHERE: Target = (u32::MAX, NO_ITEM);

const BAD_TUPLE: Why = Why::Is("a tuple of the page makes no sense");

pub(crate) fn redo(
    major: PgMajor,
    rec: &DecodedRecord<'_>,
    block: &BlockRef<'_>,
    page: &mut Page,
) -> Step {
    match rec.op() {
        op::ADD_LEAF => insert::add_leaf(rec, block.id, page)?,
        op::MOVE_LEAFS => insert::move_leafs(rec, block.id, page)?,
        op::ADD_NODE => split::add_node(rec, block.id, page)?,
        op::SPLIT_TUPLE => split::split_tuple(rec, block.id, page)?,
        op::PICKSPLIT => split::pick_split(rec, block.id, page)?,
        op::VACUUM_LEAF if block.id == 0 => vacuum::leaf(rec, page)?,
        op::VACUUM_ROOT if block.id == 0 => vacuum::root(rec, page)?,
        op::VACUUM_REDIRECT if block.id == 0 => vacuum::redirects(major, rec, page)?,
        _ => return Err(WRONG_BLOCK),
    }
    page::set_lsn(page, rec.end_lsn);
    Ok(())
}

/// Reads a record's main data from front to back.
struct Body<'a> {
    bytes: &'a [u8],
}

impl<'a> Body<'a> {
    /// The fields of fixed place, and what follows them.
    fn new(rec: &DecodedRecord<'a>, fixed: usize) -> Step<(Fields<'a>, Body<'a>)> {
        let (fields, bytes) = rec.main_data.split_at_checked(fixed).ok_or(CUT_SHORT)?;
        Ok((Fields(fields), Body { bytes }))
    }

    fn take(&mut self, length: usize) -> Step<&'a [u8]> {
        let (taken, rest) = self.bytes.split_at_checked(length).ok_or(CUT_SHORT)?;
        self.bytes = rest;
        Ok(taken)
    }

    fn numbers(&mut self, count: u16) -> Step<Numbers<'a>> {
        self.take(usize::from(count) * 2).map(Numbers)
    }

    fn leaf_tuple(&mut self) -> Step<&'a [u8]> {
        let size = get_u32(self.bytes, 0).ok_or(CUT_SHORT)? >> 2;
        self.tuple(size as usize, LEAF_HEADER_BYTES)
    }

    fn inner_tuple(&mut self) -> Step<&'a [u8]> {
        let size = get_u16(self.bytes, INNER_SIZE).ok_or(CUT_SHORT)?;
        self.tuple(usize::from(size), INNER_HEADER_BYTES)
    }

    fn tuple(&mut self, size: usize, least: usize) -> Step<&'a [u8]> {
        if size < least {
            return Err(Why::Is("an index tuple is shorter than its header"));
        }
        self.take(size)
    }
}

/// Fields of a body, by offset.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn flag(&self, at: usize) -> Step<bool> {
        Ok(get_u8(self.0, at).ok_or(CUT_SHORT)? != 0)
    }

    fn half(&self, at: usize) -> Step<u16> {
        get_u16(self.0, at).ok_or(CUT_SHORT)
    }

    fn word(&self, at: usize) -> Step<u32> {
        get_u32(self.0, at).ok_or(CUT_SHORT)
    }
}

/// Line pointer numbers as a record lists them.
#[derive(Clone, Copy)]
struct Numbers<'a>(&'a [u8]);

impl<'a> Numbers<'a> {
    fn iter(self) -> impl DoubleEndedIterator<Item = u16> + ExactSizeIterator + use<'a> {
        self.0.chunks_exact(2).map(|pair| at_u16(pair, 0))
    }

    fn last(self) -> Step<u16> {
        self.iter().next_back().ok_or(CUT_SHORT)
    }
}

fn blkno(rec: &DecodedRecord<'_>, id: u8) -> Step<u32> {
    rec.block(id).map(|block| block.blkno).ok_or(WRONG_BLOCK)
}

/// An empty page.
fn init(page: &mut Page, flags: u16) {
    page::init(page, OPAQUE_BYTES);
    put_u16(page, FLAGS, flags);
    put_u16(page, PAGE_ID_AT, PAGE_ID);
}

fn leaf_flags(stores_nulls: bool) -> u16 {
    LEAF | inner_flags(stores_nulls)
}

fn inner_flags(stores_nulls: bool) -> u16 {
    if stores_nulls { NULLS } else { 0 }
}

/// The page is one of an SP-GiST index as far as its header can tell.
fn check(page: &Page) -> Step {
    if layout(page)?.special != OPAQUE {
        return Err(Why::Is("the page is not one of an SP-GiST index"));
    }
    Ok(())
}

pub(crate) fn flags(page: &Page) -> u16 {
    at_u16(page, FLAGS)
}

/// Changes one of the page's counters.
fn count(page: &mut Page, at: usize, more: u16, less: u16) -> Step {
    let value = at_u16(page, at).checked_add(more);
    let value = value
        .and_then(|value| value.checked_sub(less))
        .ok_or(Why::Is(
            "the page counts fewer redirects or placeholders than go",
        ))?;
    put_u16(page, at, value);
    Ok(())
}

/// Adds a tuple at the end, or in the place of a placeholder.
fn add_or_replace(page: &mut Page, tuple: &[u8], number: u16) -> Step {
    if number <= page::item_count(page) {
        let id = stored_item(page, number)?;
        let state = item(page, &id).and_then(|tuple| get_u32(tuple, 0));
        if state.ok_or(BAD_TUPLE)? & STATE_MASK != State::Placeholder as u32 {
            return Err(Why::Text(format!(
                "it replaces the tuple of line pointer {number}, which is no placeholder"
            )));
        }
        count(page, PLACEHOLDERS, 0, 1)?;
        index_delete(page, number)?;
    }
    add_item(page, tuple, number, Place::Shift)
}

/// Puts another tuple in the place of one, at the end of the free space.
fn replace(page: &mut Page, tuple: &[u8], number: u16) -> Step {
    index_delete(page, number)?;
    add_item(page, tuple, number, Place::Shift)
}

fn put_target(tuple: &mut [u8], at: usize, (blkno, number): Target) {
    put_u16(tuple, at, (blkno >> 16) as u16);
    put_u16(tuple, at + 2, blkno as u16);
    put_u16(tuple, at + 4, number);
}

/// What stays of a tuple that goes (`spgFormDeadTuple`). Only redirects lead anywhere and name a
/// transaction.
fn dead_tuple(state: State, target: Target, xid: u32) -> [u8; DEAD_TUPLE_BYTES] {
    let (target, xid) = match state {
        State::Redirect => (target, xid),
        State::Dead | State::Placeholder => (NOWHERE, 0),
    };
    let mut tuple = [0; DEAD_TUPLE_BYTES];
    put_u32(&mut tuple, 0, (DEAD_TUPLE_BYTES as u32) << 2 | state as u32);
    put_target(&mut tuple, POINTER, target);
    put_u32(&mut tuple, XID, xid);
    tuple
}

/// Puts dead tuples in the place of others (`spgPageIndexMultiDelete`): the first one listed becomes
/// `first`, the others `rest`. `tuple_of` makes them.
fn bury(
    page: &mut Page,
    numbers: Numbers<'_>,
    (first, rest): (State, State),
    tuple_of: impl Fn(State) -> [u8; DEAD_TUPLE_BYTES],
) -> Step {
    let Some(first_listed) = numbers.iter().next() else {
        return Ok(());
    };
    let mut sorted = [[0u8; 2]; MAX_ITEMS];
    let sorted = sorted
        .get_mut(..numbers.iter().len())
        .ok_or(Why::Is("it deletes more tuples than a page holds"))?;
    for (slot, number) in sorted.iter_mut().zip(numbers.iter()) {
        *slot = number.to_le_bytes();
    }
    sorted.sort_unstable_by_key(|number| u16::from_le_bytes(*number));
    index_multi_delete(page, sorted.as_flattened())?;
    for number in sorted {
        let number = u16::from_le_bytes(*number);
        let state = if number == first_listed { first } else { rest };
        add_item(page, &tuple_of(state), number, Place::Shift)?;
        match state {
            State::Redirect => count(page, REDIRECTS, 1, 0)?,
            State::Placeholder => count(page, PLACEHOLDERS, 1, 0)?,
            State::Dead => {}
        }
    }
    Ok(())
}

/// Sets the link to the next leaf tuple of the chain.
fn set_next(page: &mut Page, number: u16, next: u16) -> Step {
    let tuple = tuple_mut(page, number, LEAF_HEADER_BYTES)?;
    let value = at_u16(tuple, NEXT) & !NEXT_MASK | next & NEXT_MASK;
    put_u16(tuple, NEXT, value);
    Ok(())
}

fn tuple_mut(page: &mut Page, number: u16, least: usize) -> Step<&mut [u8]> {
    let id = stored_item(page, number)?;
    item_mut(page, &id)
        .filter(|tuple| tuple.len() >= least)
        .ok_or(BAD_TUPLE)
}

/// Makes node `node` (from 0) of an inner tuple lead elsewhere (`spgUpdateNodeLink`).
fn set_node_link(page: &mut Page, number: u16, node: u16, target: Target) -> Step {
    check(page)?;
    let tuple = tuple_mut(page, number, INNER_HEADER_BYTES)?;
    let header = at_u32(tuple, 0);
    let (nodes, prefix) = ((header >> 3 & 0x1FFF) as u16, header >> 16);
    if node >= nodes {
        return Err(Why::Text(format!(
            "it changes node {node} of an inner tuple that has {nodes}"
        )));
    }
    let mut at = INNER_HEADER_BYTES + prefix as usize;
    for _ in 0..node {
        let size = get_u16(tuple, at + NODE_INFO).ok_or(BAD_TUPLE)? & NODE_SIZE_MASK;
        at += usize::from(size).max(NODE_HEADER_BYTES);
    }
    let found = tuple.get_mut(at..at + NODE_HEADER_BYTES).ok_or(BAD_TUPLE)?;
    put_target(found, 0, target);
    Ok(())
}
