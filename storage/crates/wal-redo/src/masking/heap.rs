//! Heap tuples: hint bits, command ids, padding.

use pg_types::bytes_le::{at_u16, put_u16, put_u32};
use pg_types::page::{ItemState, item_count, item_id};

use super::{Damaged, MASK, Rules, extent};
use crate::Page;
use crate::tuple::{
    CTID, Ctid, HEADER_BYTES, HEAP_COMBOCID, HEAP_XMAX_COMMITTED, HEAP_XMAX_INVALID,
    HEAP_XMIN_COMMITTED, HEAP_XMIN_INVALID, INFOMASK,
};

/// Every visibility-related bit of a tuple's infomask.
const HEAP_XACT_MASK: u16 = 0xFFF0;
/// Item part of the `t_ctid` of a speculative insertion.
const SPECULATIVE: u16 = 0xFFFE;
/// Where a tuple's command id lies.
const CID: usize = 8;

pub(super) fn mask_tuples(page: &mut Page, blkno: u32, rules: Rules) -> Result<(), Damaged> {
    for number in 1..=item_count(page) {
        let Some(id) = item_id(page, number).filter(|id| id.length != 0) else {
            continue;
        };
        let (start, end, padded) = extent(&id)?;
        if id.state == ItemState::Normal {
            if end - start < HEADER_BYTES {
                return Err(Damaged);
            }
            mask_tuple(&mut page[start..end], blkno, number, rules);
        }
        page[end..padded].fill(MASK);
    }
    Ok(())
}

fn mask_tuple(tuple: &mut [u8], blkno: u32, number: u16, rules: Rules) {
    let infomask = at_u16(tuple, INFOMASK);
    let xmin_frozen = HEAP_XMIN_COMMITTED | HEAP_XMIN_INVALID;
    let frozen = infomask & xmin_frozen == xmin_frozen;
    let masked = match (frozen, rules) {
        (true, _) => HEAP_XMAX_INVALID | HEAP_XMAX_COMMITTED,
        (false, Rules::Postgres) => HEAP_XACT_MASK,
        (false, Rules::Tight) => xmin_frozen | HEAP_XMAX_INVALID | HEAP_XMAX_COMMITTED,
    };
    let masked = match rules {
        Rules::Postgres => masked,
        Rules::Tight => masked | HEAP_COMBOCID,
    };
    put_u16(tuple, INFOMASK, infomask & !masked);
    put_u32(tuple, CID, 0);
    // While a speculative insertion is open, its place holds a token.
    if at_u16(tuple, CTID + 4) == SPECULATIVE {
        let own = Ctid {
            block: blkno,
            item: number,
        };
        own.put(tuple, CTID);
    }
}
