//! Pruning, vacuum's second pass and freezing as Postgres 17 and later log them: one kind of record.
//!
//! Main data: `reason u8, flags u8`, and an xid that only standbys look at. The flags say which lists the block's
//! data has, in this order: freeze plans (`count u16, pad u16`, then `xmax u32, infomask2 u16, infomask u16, flags
//! u8, pad, ntuples u16` each); redirects, line pointers that become dead, and those that become unused (`count u16`,
//! then the numbers, in pairs for redirects); and behind the lists the numbers of the tuples to freeze, plan after
//! plan.

use pg_types::bytes_le::{get_u8, get_u16, get_u32};
use wal_decode::{BlockRef, DecodedRecord};

use super::{Freeze, numbers, prune_items};
use crate::Page;
use crate::error::{CUT_SHORT, Step, Why};
use crate::page_ops::{repair_fragmentation, truncate_line_pointers};

/// Tuples may move on the page, for which Postgres needs a stronger lock.
const CLEANUP_LOCK: u8 = 1 << 2;
const HAS_FREEZE_PLANS: u8 = 1 << 4;
const HAS_REDIRECTIONS: u8 = 1 << 5;
const HAS_DEAD_ITEMS: u8 = 1 << 6;
const HAS_NOW_UNUSED_ITEMS: u8 = 1 << 7;

/// Bytes of one freeze plan, and before the first one.
const PLAN_BYTES: usize = 12;
const PLANS_HEADER_BYTES: usize = 4;

/// Reads the block's data front to back.
struct Lists<'a>(&'a [u8]);

impl<'a> Lists<'a> {
    fn take(&mut self, length: usize) -> Step<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(CUT_SHORT)?;
        self.0 = rest;
        Ok(taken)
    }

    /// A list of items of `item` bytes with its count, `header` bytes of both; empty when it is not `there`.
    fn list(&mut self, there: bool, header: usize, item: usize) -> Step<&'a [u8]> {
        if !there {
            return Ok(&[]);
        }
        let count = get_u16(self.take(header)?, 0).ok_or(CUT_SHORT)?;
        self.take(usize::from(count) * item)
    }
}

pub(super) fn prune_and_freeze(
    rec: &DecodedRecord<'_>,
    block: &BlockRef<'_>,
    page: &mut Page,
) -> Step {
    let flags = get_u8(rec.main_data, 1).ok_or(CUT_SHORT)?;
    let has = |flag: u8| flags & flag != 0;
    let mut lists = Lists(block.data);
    let plans = lists.list(has(HAS_FREEZE_PLANS), PLANS_HEADER_BYTES, PLAN_BYTES)?;
    let redirected = lists.list(has(HAS_REDIRECTIONS), 2, 4)?;
    let dead = lists.list(has(HAS_DEAD_ITEMS), 2, 2)?;
    let unused = lists.list(has(HAS_NOW_UNUSED_ITEMS), 2, 2)?;

    if !(redirected.is_empty() && dead.is_empty() && unused.is_empty()) {
        prune_items(page, redirected, dead, unused)?;
        if has(CLEANUP_LOCK) {
            repair_fragmentation(page)?;
        } else {
            truncate_line_pointers(page)?;
        }
    }
    for plan in plans.chunks_exact(PLAN_BYTES) {
        let freeze = Freeze {
            xmax: get_u32(plan, 0).ok_or(CUT_SHORT)?,
            infomask2: get_u16(plan, 4).ok_or(CUT_SHORT)?,
            infomask: get_u16(plan, 6).ok_or(CUT_SHORT)?,
            flags: get_u8(plan, 8).ok_or(CUT_SHORT)?,
        };
        let count = usize::from(get_u16(plan, 10).ok_or(CUT_SHORT)?);
        for number in numbers(lists.take(count * 2)?) {
            freeze.tuple(number, page)?;
        }
    }
    if !lists.0.is_empty() {
        return Err(Why::Is("its lists do not add up to its data"));
    }
    Ok(())
}
