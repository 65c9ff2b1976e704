//! Pages of posting trees: sorted places of an entry's rows.
//!
//! Behind the header lies a place, the page's right bound, padded to eight bytes. An inner page then has
//! posting items of ten bytes, child block and highest place below it; a leaf has posting lists (see
//! [`super::posting_list`]), one "segment" behind the other. `pd_lower` is their end.

use pg_types::bytes_le::{get_u16, get_u32, put_u16};
use pg_types::page::{self, PAGE_HEADER_BYTES};
use wal_decode::DecodedRecord;

use super::posting_list::{self, PLACE_BYTES, Segment};
use super::{GIN_COMPRESSED, GIN_DATA, GIN_LEAF, OPAQUE, check_kind, count, init, put_count};
use crate::Page;
use crate::error::{CUT_SHORT, Step, Why};

/// Where posting items or posting lists begin.
const DATA: usize = PAGE_HEADER_BYTES + 8;
/// Bytes of a posting item: child block with the high half first, then a place.
const ITEM_BYTES: usize = 4 + PLACE_BYTES;

const SEGMENT_DELETE: u8 = 1;
const SEGMENT_INSERT: u8 = 2;
const SEGMENT_REPLACE: u8 = 3;
const SEGMENT_ADD_ITEMS: u8 = 4;

const NO_ROOM: Why = Why::Is("the page has no room for its posting lists");

fn set_data_end(page: &mut Page, end: usize) {
    page::set_lower(page, end as u16);
}

/// A new tree of one leaf. Main data: bytes of the posting lists `u32`, then they.
pub(super) fn create(rec: &DecodedRecord<'_>, page: &mut Page) -> Step {
    let size = get_u32(rec.main_data, 0).ok_or(CUT_SHORT)? as usize;
    let lists = rec.main_data.get(4..).ok_or(CUT_SHORT)?;
    if lists.len() != size {
        return Err(CUT_SHORT);
    }
    init(page, GIN_DATA | GIN_LEAF | GIN_COMPRESSED);
    page.get_mut(DATA..OPAQUE)
        .and_then(|room| room.get_mut(..size))
        .ok_or(NO_ROOM)?
        .copy_from_slice(lists);
    set_data_end(page, DATA + size);
    Ok(())
}

/// How many posting items an inner page has; they are known to lie on it.
fn items(page: &Page) -> Step<usize> {
    let inner = "the page is not an inner one of a posting tree";
    check_kind(page, GIN_DATA | GIN_LEAF, GIN_DATA, inner)?;
    let items = usize::from(count(page));
    (item_at(items) <= OPAQUE)
        .then_some(items)
        .ok_or(Why::Is("the page has more posting items than fit"))
}

/// Where the posting item with this index (from 0) lies.
fn item_at(index: usize) -> usize {
    DATA + index * ITEM_BYTES
}

fn item_index(number: u16, items: usize) -> Step<usize> {
    let index = usize::from(number).wrapping_sub(1);
    if index >= items {
        return Err(Why::Text(format!(
            "it refers to posting item {number}, the page has {items}"
        )));
    }
    Ok(index)
}

fn set_items(page: &mut Page, items: usize) {
    put_count(page, items as u16);
    set_data_end(page, item_at(items));
}

/// Ends the split of a child. Data: `posting item's number u16, posting item`. The item there leads to the
/// right half from now on, the new one goes before it and leads to the left half.
pub(super) fn insert_item(data: &[u8], right_half: u32, page: &mut Page) -> Step {
    let items = items(page)?;
    let index = item_index(get_u16(data, 0).ok_or(CUT_SHORT)?, items)?;
    let item = data.get(2..2 + ITEM_BYTES).ok_or(CUT_SHORT)?;
    if item_at(items + 1) > OPAQUE {
        return Err(Why::Is("the page has no room for another posting item"));
    }
    let at = item_at(index);
    put_u16(page, at, (right_half >> 16) as u16);
    put_u16(page, at + 2, right_half as u16);
    page.copy_within(at..item_at(items), at + ITEM_BYTES);
    page[at..at + ITEM_BYTES].copy_from_slice(item);
    set_items(page, items + 1);
    Ok(())
}

pub(super) fn delete_item(number: u16, page: &mut Page) -> Step {
    let items = items(page)?;
    let index = item_index(number, items)?;
    page.copy_within(item_at(index + 1)..item_at(items), item_at(index));
    set_items(page, items - 1);
    Ok(())
}

/// What happens to one segment of a leaf.
enum Change<'a> {
    Delete,
    Insert(Segment<'a>),
    Replace(Segment<'a>),
    /// Places, sorted, that become part of it.
    AddItems(&'a [u8]),
}

/// Takes the next change off `data`: `segment's number u8, kind u8`, then a segment, or `count u16` and
/// places. Returns the number too.
fn next_change<'a>(data: &mut &'a [u8]) -> Step<(u8, Change<'a>)> {
    let (head, rest) = data.split_at_checked(2).ok_or(CUT_SHORT)?;
    *data = rest;
    let change = match head[1] {
        SEGMENT_DELETE => Change::Delete,
        SEGMENT_INSERT => Change::Insert(Segment::take(data)?),
        SEGMENT_REPLACE => Change::Replace(Segment::take(data)?),
        SEGMENT_ADD_ITEMS => {
            let count = usize::from(get_u16(data, 0).ok_or(CUT_SHORT)?);
            let (places, rest) = data[2..]
                .split_at_checked(count * PLACE_BYTES)
                .ok_or(CUT_SHORT)?;
            *data = rest;
            Change::AddItems(places)
        }
        other => return Err(Why::Text(format!("it changes a segment in way {other}"))),
    };
    Ok((head[0], change))
}

/// Segments being written to a leaf, from the first changed one on.
struct Output<'a> {
    page: &'a mut Page,
    at: usize,
}

impl Output<'_> {
    fn room(&mut self) -> &mut [u8] {
        &mut self.page[self.at..OPAQUE]
    }

    fn push(&mut self, bytes: &[u8]) -> Step {
        self.room()
            .get_mut(..bytes.len())
            .ok_or(NO_ROOM)?
            .copy_from_slice(bytes);
        self.at += bytes.len();
        Ok(())
    }
}

/// Changes the segments of a leaf. Data: number of changes `u16`, then they, in the order of the segments
/// they are about, numbered from 0 as they were before.
pub(super) fn recompress(data: &[u8], page: &mut Page) -> Step {
    let leaf = GIN_DATA | GIN_LEAF | GIN_COMPRESSED;
    check_kind(page, leaf, leaf, "the page is not a leaf of a posting tree")?;
    let before = *page;
    let mut segments = before
        .get(DATA..page::lower(&before))
        .ok_or(Why::Is("the leaf ends before its posting lists begin"))?;
    let mut output = Output { page, at: DATA };
    let mut changes = data.get(2..).ok_or(CUT_SHORT)?;
    // Wider than the record's numbers: a page can hold more lists than those reach.
    let mut number = 0u16;
    for _ in 0..get_u16(data, 0).ok_or(CUT_SHORT)? {
        let (of, change) = next_change(&mut changes)?;
        let of = u16::from(of);
        while number < of {
            output.push(Segment::take(&mut segments)?.bytes())?;
            number += 1;
        }
        if number > of {
            return Err(Why::Is("its changes of segments are out of order"));
        }
        if let Change::Insert(segment) = change {
            output.push(segment.bytes())?;
            continue;
        }
        let old = Segment::take(&mut segments)?;
        number += 1;
        match change {
            Change::Replace(segment) => output.push(segment.bytes())?,
            Change::AddItems(places) => {
                output.at += posting_list::merge(&old, places, output.room())?.ok_or(NO_ROOM)?;
            }
            Change::Delete | Change::Insert(_) => {}
        }
    }
    if !changes.is_empty() {
        return Err(Why::Is("its changes of segments do not add up to its data"));
    }
    output.push(segments)?;
    let end = output.at;
    set_data_end(page, end);
    Ok(())
}
