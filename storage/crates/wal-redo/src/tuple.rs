//! The heap tuple header and the bits redo sets in it.

use pg_types::bytes_le::{at_u16, get_u16, put_u16, put_u32};
use pg_types::page::{self, ItemId};
use pg_types::slru::{FIRST_NORMAL_XID, xid_precedes};

use crate::Page;
use crate::error::{Step, Why};

/// Bytes of the fixed part of a tuple header; the null bitmap follows.
pub(crate) const HEADER_BYTES: usize = 23;
/// Bytes of the part of a tuple header that records keep: infomask2, infomask, hoff.
pub(crate) const LOGGED_HEADER_BYTES: usize = 5;

const XMIN: usize = 0;
const XMAX: usize = 4;
const CID: usize = 8;
pub(crate) const CTID: usize = 12;
const INFOMASK2: usize = 18;
pub(crate) const INFOMASK: usize = 20;
const HOFF: usize = 22;

const HEAP_XMAX_KEYSHR_LOCK: u16 = 0x0010;
pub(crate) const HEAP_COMBOCID: u16 = 0x0020;
const HEAP_XMAX_EXCL_LOCK: u16 = 0x0040;
const HEAP_XMAX_LOCK_ONLY: u16 = 0x0080;
pub(crate) const HEAP_XMIN_COMMITTED: u16 = 0x0100;
pub(crate) const HEAP_XMIN_INVALID: u16 = 0x0200;
pub(crate) const HEAP_XMAX_COMMITTED: u16 = 0x0400;
pub(crate) const HEAP_XMAX_INVALID: u16 = 0x0800;
const HEAP_XMAX_IS_MULTI: u16 = 0x1000;
const HEAP_MOVED: u16 = 0xC000;
const HEAP_LOCK_MASK: u16 = HEAP_XMAX_KEYSHR_LOCK | HEAP_XMAX_EXCL_LOCK;
const HEAP_XMAX_BITS: u16 = HEAP_XMAX_COMMITTED
    | HEAP_XMAX_INVALID
    | HEAP_XMAX_IS_MULTI
    | HEAP_LOCK_MASK
    | HEAP_XMAX_LOCK_ONLY;

const HEAP_KEYS_UPDATED: u16 = 0x2000;
const HEAP_HOT_UPDATED: u16 = 0x4000;

const XLHL_XMAX_IS_MULTI: u8 = 0x01;
const XLHL_XMAX_LOCK_ONLY: u8 = 0x02;
const XLHL_XMAX_EXCL_LOCK: u8 = 0x04;
const XLHL_XMAX_KEYSHR_LOCK: u8 = 0x08;
const XLHL_KEYS_UPDATED: u8 = 0x10;

/// The place a tuple's `t_ctid` names.
#[derive(Clone, Copy)]
pub(crate) struct Ctid {
    pub block: u32,
    pub item: u16,
}

impl Ctid {
    /// The row went to another partition (`ItemPointerSetMovedPartitions`).
    pub(crate) const MOVED: Ctid = Ctid {
        block: u32::MAX,
        item: 0xFFFD,
    };

    /// Stores it where six bytes are known to be: block number in two halves, the high one first.
    pub(crate) fn put(self, bytes: &mut [u8], at: usize) {
        put_u16(bytes, at, (self.block >> 16) as u16);
        put_u16(bytes, at + 2, self.block as u16);
        put_u16(bytes, at + 4, self.item);
    }
}

/// A tuple on a page, known to be long enough for its header.
pub(crate) struct Tuple<'a> {
    bytes: &'a mut [u8],
}

impl<'a> Tuple<'a> {
    pub(crate) fn at(page: &'a mut Page, id: &ItemId) -> Step<Tuple<'a>> {
        page::item_mut(page, id)
            .filter(|bytes| bytes.len() >= HEADER_BYTES)
            .map(|bytes| Tuple { bytes })
            .ok_or(Why::Is(
                "the tuple it changes is shorter than a tuple header",
            ))
    }

    pub(crate) fn infomask(&self) -> u16 {
        at_u16(self.bytes, INFOMASK)
    }

    pub(crate) fn set_infomask(&mut self, value: u16) {
        put_u16(self.bytes, INFOMASK, value);
    }

    pub(crate) fn infomask2(&self) -> u16 {
        at_u16(self.bytes, INFOMASK2)
    }

    pub(crate) fn set_infomask2(&mut self, value: u16) {
        put_u16(self.bytes, INFOMASK2, value);
    }

    pub(crate) fn set_xmin(&mut self, xid: u32) {
        put_u32(self.bytes, XMIN, xid);
    }

    pub(crate) fn set_xmax(&mut self, xid: u32) {
        put_u32(self.bytes, XMAX, xid);
    }

    /// The field that holds the command id, or `xvac` in tuples of ancient versions.
    pub(crate) fn set_cid(&mut self, value: u32) {
        put_u32(self.bytes, CID, value);
    }

    /// Command ids mean nothing to another session: the first one.
    pub(crate) fn reset_cid(&mut self) {
        self.set_cid(0);
        self.set_infomask(self.infomask() & !HEAP_COMBOCID);
    }

    pub(crate) fn set_ctid(&mut self, ctid: Ctid) {
        ctid.put(self.bytes, CTID);
    }

    pub(crate) fn set_hot_updated(&mut self, hot: bool) {
        let others = self.infomask2() & !HEAP_HOT_UPDATED;
        self.set_infomask2(if hot {
            others | HEAP_HOT_UPDATED
        } else {
            others
        });
    }

    /// Replaces everything the infomasks say about `xmax` by what the record says.
    pub(crate) fn set_xmax_bits(&mut self, bits: u8) {
        let mut infomask = self.infomask() & !(HEAP_XMAX_BITS | HEAP_MOVED);
        for (bit, flag) in [
            (XLHL_XMAX_IS_MULTI, HEAP_XMAX_IS_MULTI),
            (XLHL_XMAX_LOCK_ONLY, HEAP_XMAX_LOCK_ONLY),
            (XLHL_XMAX_EXCL_LOCK, HEAP_XMAX_EXCL_LOCK),
            (XLHL_XMAX_KEYSHR_LOCK, HEAP_XMAX_KEYSHR_LOCK),
        ] {
            if bits & bit != 0 {
                infomask |= flag;
            }
        }
        let mut infomask2 = self.infomask2() & !HEAP_KEYS_UPDATED;
        if bits & XLHL_KEYS_UPDATED != 0 {
            infomask2 |= HEAP_KEYS_UPDATED;
        }
        self.set_infomask(infomask);
        self.set_infomask2(infomask2);
    }

    /// Whether `xmax` only locks (`HEAP_XMAX_IS_LOCKED_ONLY`).
    pub(crate) fn xmax_only_locks(&self) -> bool {
        let infomask = self.infomask();
        infomask & HEAP_XMAX_LOCK_ONLY != 0
            || infomask & (HEAP_XMAX_IS_MULTI | HEAP_LOCK_MASK) == HEAP_XMAX_EXCL_LOCK
    }

    pub(crate) fn data_offset(&self) -> usize {
        usize::from(self.bytes[HOFF])
    }
}

/// The header of a new tuple, from what the record keeps of it.
pub(crate) struct NewHeader {
    pub infomask2: u16,
    pub infomask: u16,
    pub hoff: u8,
}

impl NewHeader {
    /// Reads the five logged bytes at `at`.
    pub(crate) fn parse(bytes: &[u8], at: usize) -> Option<NewHeader> {
        Some(NewHeader {
            infomask2: get_u16(bytes, at)?,
            infomask: get_u16(bytes, at + 2)?,
            hoff: *bytes.get(at + 4)?,
        })
    }

    /// Writes the fixed part of the tuple header to the start of `bytes`, which has room for it.
    pub(crate) fn write(&self, bytes: &mut [u8], xmin: u32, xmax: u32, ctid: Ctid) {
        put_u32(bytes, XMIN, xmin);
        put_u32(bytes, XMAX, xmax);
        put_u32(bytes, CID, 0);
        ctid.put(bytes, CTID);
        put_u16(bytes, INFOMASK2, self.infomask2);
        put_u16(bytes, INFOMASK, self.infomask & !HEAP_COMBOCID);
        bytes[HOFF] = self.hoff;
    }
}

/// Notes that the page may have something to prune once `xid` is old (`PageSetPrunable`).
pub(crate) fn set_prunable(page: &mut Page, xid: u32) {
    let old = page::prune_xid(page);
    if xid >= FIRST_NORMAL_XID && (old == 0 || xid_precedes(xid, old)) {
        page::set_prune_xid(page, xid);
    }
}
