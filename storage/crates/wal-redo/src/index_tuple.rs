//! Index tuples as B-tree, hash, GIN and GiST store them.
//!
//! A tuple begins with a six-byte place (block in two halves, the high one first, then item) and `t_info`,
//! which holds the tuple's size in its lower 13 bits.

use pg_types::bytes_le::{at_u16, put_u16};

use crate::error::{CUT_SHORT, Step, Why};
use crate::layout::max_align;

/// Bytes of an index tuple's header.
pub(crate) const TUPLE_HEADER_BYTES: usize = 8;

/// Where `t_info` lies.
pub(crate) const INFO: usize = 6;
pub(crate) const SIZE_MASK: u16 = 0x1FFF;

/// Size of a tuple that is at least a header long.
pub(crate) fn size(tuple: &[u8]) -> usize {
    usize::from(at_u16(tuple, INFO) & SIZE_MASK)
}

/// The tuple at the start of `bytes`, with the padding behind it.
pub(crate) fn padded_tuple(bytes: &[u8]) -> Step<&[u8]> {
    if bytes.len() < TUPLE_HEADER_BYTES {
        return Err(CUT_SHORT);
    }
    let size = size(bytes);
    if size < TUPLE_HEADER_BYTES {
        return Err(Why::Is("an index tuple is shorter than its header"));
    }
    bytes.get(..max_align(size)).ok_or(CUT_SHORT)
}

/// The tuple at the start of `bytes`, in its own length.
pub(crate) fn whole_tuple(bytes: &[u8]) -> Step<&[u8]> {
    if bytes.len() < TUPLE_HEADER_BYTES {
        return Err(CUT_SHORT);
    }
    bytes
        .get(..size(bytes))
        .filter(|tuple| tuple.len() >= TUPLE_HEADER_BYTES)
        .ok_or(CUT_SHORT)
}

/// Block part of the place of a tuple that is at least a header long.
pub(crate) fn block(tuple: &[u8]) -> u32 {
    u32::from(at_u16(tuple, 0)) << 16 | u32::from(at_u16(tuple, 2))
}

/// Replaces the block part of the place.
pub(crate) fn set_block(tuple: &mut [u8], blkno: u32) {
    put_u16(tuple, 0, (blkno >> 16) as u16);
    put_u16(tuple, 2, blkno as u16);
}
