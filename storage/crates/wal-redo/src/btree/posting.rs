//! Posting lists: index tuples of one key with the sorted places of many rows.
//!
//! When a bit of a tuple's `t_info` says that its place is not one, the item part holds a count and flags,
//! the block part an offset.

use pg_types::BLCKSZ;
use pg_types::bytes_le::{at_u16, put_u16};

use crate::error::{Step, Why};
use crate::index_tuple::{INFO, SIZE_MASK, TUPLE_HEADER_BYTES, block, set_block};
use crate::layout::max_align;

/// Bytes of a row's place.
pub(super) const TID_BYTES: usize = 6;

const ITEM: usize = 4;
/// The place is used for something else.
const ALT_TID: u16 = 0x2000;
const IS_POSTING: u16 = 0x2000;
const COUNT_MASK: u16 = 0x0FFF;

const BAD_POSTING: Why = Why::Is("a posting list makes no sense");

/// Marks the place as holding a count of key columns, here none.
pub(super) fn set_no_key_columns(tuple: &mut [u8]) {
    put_u16(tuple, INFO, at_u16(tuple, INFO) | ALT_TID);
    put_u16(tuple, ITEM, 0);
}

fn is_posting(tuple: &[u8]) -> bool {
    at_u16(tuple, INFO) & ALT_TID != 0 && at_u16(tuple, ITEM) & IS_POSTING != 0
}

/// A tuple taken apart: what is kept of its key, and the places of its rows.
#[derive(Clone, Copy)]
pub(super) struct Rows<'a> {
    /// Header and key.
    pub base: &'a [u8],
    pub tids: &'a [u8],
}

/// The rows a tuple stands for, one or many.
pub(super) fn rows(tuple: &[u8]) -> Step<Rows<'_>> {
    if !is_posting(tuple) {
        return Ok(Rows {
            base: tuple,
            tids: &tuple[..TID_BYTES],
        });
    }
    let range = posting_range(tuple)?;
    Ok(Rows {
        base: &tuple[..range.start],
        tids: &tuple[range],
    })
}

fn posting_range(tuple: &[u8]) -> Step<std::ops::Range<usize>> {
    let count = usize::from(at_u16(tuple, ITEM) & COUNT_MASK);
    let start = block(tuple) as usize;
    let fits = is_posting(tuple)
        && count > 0
        && (TUPLE_HEADER_BYTES..=BLCKSZ).contains(&start)
        && start + count * TID_BYTES <= tuple.len();
    fits.then_some(start..start + count * TID_BYTES)
        .ok_or(BAD_POSTING)
}

/// A tuple being made from a key and places, on the stack.
pub(super) struct Builder {
    bytes: [u8; BLCKSZ],
    base: usize,
    tids: usize,
}

impl Builder {
    pub(super) fn new() -> Builder {
        Builder {
            bytes: [0; BLCKSZ],
            base: 0,
            tids: 0,
        }
    }

    /// Begins anew with the header and key of `rows`, without its places.
    pub(super) fn begin(&mut self, base: &[u8]) -> Step {
        self.bytes
            .get_mut(..base.len())
            .ok_or(BAD_POSTING)?
            .copy_from_slice(base);
        (self.base, self.tids) = (base.len(), 0);
        Ok(())
    }

    pub(super) fn push(&mut self, tids: &[u8]) -> Step {
        let at = self.base + self.tids;
        self.bytes
            .get_mut(at..at + tids.len())
            .ok_or(BAD_POSTING)?
            .copy_from_slice(tids);
        self.tids += tids.len();
        Ok(())
    }

    /// A posting list, or a plain tuple when there is one place.
    pub(super) fn finish(&mut self) -> Step<&[u8]> {
        let count = self.tids / TID_BYTES;
        let length = match count {
            0 => return Err(Why::Is("a posting list would be left without rows")),
            1 => self.base,
            _ => max_align(self.base + self.tids),
        };
        if self.base < TUPLE_HEADER_BYTES
            || length > usize::from(SIZE_MASK)
            || count > usize::from(COUNT_MASK)
        {
            return Err(BAD_POSTING);
        }
        let info = at_u16(&self.bytes, INFO) & !SIZE_MASK | length as u16;
        if count == 1 {
            self.bytes.copy_within(self.base..self.base + TID_BYTES, 0);
            put_u16(&mut self.bytes, INFO, info & !ALT_TID);
        } else {
            put_u16(&mut self.bytes, INFO, info | ALT_TID);
            put_u16(&mut self.bytes, ITEM, count as u16 | IS_POSTING);
            set_block(&mut self.bytes, self.base as u32);
            self.bytes[self.base + self.tids..length].fill(0);
        }
        Ok(&self.bytes[..length])
    }
}

/// A new row lands inside a posting list: it takes place number `at` there, and the list's last place
/// becomes the new tuple's, which is inserted behind the list.
pub(super) fn swap(new_item: &mut [u8], posting: &mut [u8], at: u16) -> Step {
    let range = posting_range(posting)?;
    let places = &mut posting[range];
    let at = usize::from(at) * TID_BYTES;
    if at >= places.len() || new_item.len() < TUPLE_HEADER_BYTES {
        return Err(Why::Is("it splits a posting list outside its rows"));
    }
    let mut last = [0; TID_BYTES];
    last.copy_from_slice(&places[places.len() - TID_BYTES..]);
    places.copy_within(at..places.len() - TID_BYTES, at + TID_BYTES);
    places[at..at + TID_BYTES].copy_from_slice(&new_item[..TID_BYTES]);
    new_item[..TID_BYTES].copy_from_slice(&last);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index_tuple::size;

    fn plain(key: u8, tid: u8) -> Vec<u8> {
        let mut tuple = vec![0, 0, 0, tid, 1, 0, 16, 0];
        tuple.extend_from_slice(&[key; 8]);
        tuple
    }

    fn posting(tids: &[u8]) -> Vec<u8> {
        let base = plain(7, 0);
        let mut builder = Builder::new();
        builder.begin(&base).unwrap();
        for tid in tids {
            builder.push(&[0, 0, 0, *tid, 1, 0]).unwrap();
        }
        builder.finish().unwrap().to_vec()
    }

    fn places(tuple: &[u8]) -> Vec<u8> {
        rows(tuple)
            .unwrap()
            .tids
            .chunks(6)
            .map(|tid| tid[3])
            .collect()
    }

    #[test]
    fn a_posting_list_keeps_key_and_places() {
        let tuple = posting(&[1, 2, 5]);
        assert_eq!(tuple.len(), 16 + 24, "padded to eight bytes");
        assert_eq!(size(&tuple), tuple.len());
        assert_eq!(places(&tuple), [1, 2, 5]);
        assert_eq!(&rows(&tuple).unwrap().base[8..], &[7; 8]);
        assert_eq!(posting(&[3]), plain(7, 3), "one place makes a plain tuple");
    }

    #[test]
    fn a_swap_keeps_the_list_sorted_and_hands_out_its_last_place() {
        let (mut new_item, mut list) = (plain(7, 3), posting(&[1, 2, 5]));
        swap(&mut new_item, &mut list, 2).unwrap();
        assert_eq!(places(&list), [1, 2, 3]);
        assert_eq!(new_item, plain(7, 5));
        assert!(swap(&mut new_item, &mut list, 3).is_err());
    }
}
