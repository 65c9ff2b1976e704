//! Which bytes of a page redo need not reproduce.
//!
//! Postgres can log, with each record, what its pages looked like afterwards (`wal_consistency_checking`)
//! and compares that in recovery with what redo made, after overwriting ("masking") in both whatever may
//! rightly differ: hint bits, free space, padding, command ids, the LSN. [`Rules::Postgres`] masks the same.
//!
//! [`Rules::Tight`] masks less. It keeps what is the same on every run, given that the page was redone from
//! the beginning and not merely patched: `PD_ALL_VISIBLE`, lock and multixact bits of tuples, normal line
//! pointers of B-tree leaves, the content of visibility maps. Bits in them decide what a query sees.

mod brin;
mod btree;
mod gin;
mod gist;
mod hash;
mod heap;
mod spgist;

use pg_types::bytes_le::{at_u16, at_u32};
use pg_types::page::{
    self, ItemId, ItemState, PAGE_HEADER_BYTES, PD_ALL_VISIBLE, PD_HAS_FREE_LINES, PD_PAGE_FULL,
    item_count, item_id, set_item_id,
};
use pg_types::wal::rmgr;
use pg_types::{BLCKSZ, ForkNumber, Lsn};

use crate::Page;
use crate::btree::{OPAQUE_BYTES, cycle_id};
use crate::layout::{layout, max_align};
use crate::sequence::{SEQUENCE_MAGIC, SPECIAL_BYTES};
use crate::{gin as gin_page, hash as hash_page};

/// What masked bytes become.
const MASK: u8 = 0;

/// How a page is laid out, as far as masking goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PageClass {
    /// A page of a table, and any other whose special space is empty.
    Heap,
    /// A page of a B-tree index.
    Btree,
    /// A page of a hash index.
    Hash,
    /// A page of a GIN index.
    Gin,
    /// A page of a GiST index.
    Gist,
    /// A page of an SP-GiST index.
    SpGist,
    /// A page of a BRIN index.
    Brin,
    /// What an extension logs piece by piece.
    Generic,
    /// The one page of a sequence.
    Sequence,
    /// A page of a visibility map: bits behind the page header, without line pointers.
    VisibilityMap,
    /// Any other page with a standard header: other index kinds, free space maps.
    Other,
}

impl PageClass {
    /// What a record of this resource manager changes.
    pub fn of_record(rmid: u8, fork: ForkNumber) -> PageClass {
        match (rmid, fork) {
            (_, ForkNumber::VisibilityMap) => PageClass::VisibilityMap,
            (_, ForkNumber::Fsm) => PageClass::Other,
            (rmgr::HEAP | rmgr::HEAP2, _) => PageClass::Heap,
            (rmgr::BTREE, _) => PageClass::Btree,
            (rmgr::HASH, _) => PageClass::Hash,
            (rmgr::GIN, _) => PageClass::Gin,
            (rmgr::GIST, _) => PageClass::Gist,
            (rmgr::SPGIST, _) => PageClass::SpGist,
            (rmgr::BRIN, _) => PageClass::Brin,
            (rmgr::GENERIC, _) => PageClass::Generic,
            (rmgr::SEQ, _) => PageClass::Sequence,
            _ => PageClass::Other,
        }
    }

    /// What a page of unknown origin is, told by its special space.
    pub fn of_page(page: &Page, fork: ForkNumber) -> PageClass {
        // Hash, GiST and SP-GiST end in a page id where a B-tree has a cycle id, which stays below.
        const FIRST_PAGE_ID: u16 = 0xFF80;
        let special = page::special(page);
        let page_id = at_u16(page, BLCKSZ - 2);
        match fork {
            ForkNumber::VisibilityMap => PageClass::VisibilityMap,
            ForkNumber::Fsm => PageClass::Other,
            _ if special == BLCKSZ => PageClass::Heap,
            _ if special == BLCKSZ - OPAQUE_BYTES && cycle_id(page) < FIRST_PAGE_ID => {
                PageClass::Btree
            }
            _ if special == BLCKSZ - hash_page::OPAQUE_BYTES
                && page_id == hash_page::HASH_PAGE_ID =>
            {
                PageClass::Hash
            }
            _ if special == BLCKSZ - SPECIAL_BYTES && at_u32(page, special) == SEQUENCE_MAGIC => {
                PageClass::Sequence
            }
            // The only kind without a page id; its flags stay below all of them.
            _ if special == BLCKSZ - gin_page::OPAQUE_BYTES
                && gin_page::flags(page) & !gin_page::GIN_FLAGS == 0 =>
            {
                PageClass::Gin
            }
            _ if special == BLCKSZ - crate::gist::OPAQUE_BYTES
                && page_id == crate::gist::PAGE_ID =>
            {
                PageClass::Gist
            }
            _ if special == BLCKSZ - crate::spgist::OPAQUE_BYTES
                && page_id == crate::spgist::PAGE_ID =>
            {
                PageClass::SpGist
            }
            _ if special == BLCKSZ - crate::brin::SPECIAL_BYTES
                && (crate::brin::META..=crate::brin::REGULAR).contains(&page_id) =>
            {
                PageClass::Brin
            }
            _ => PageClass::Other,
        }
    }
}

/// How much to mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rules {
    /// What Postgres's own check leaves out.
    Postgres,
    /// Only what differs even when redo is right.
    Tight,
}

/// The page is damaged: masking cannot find its parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the page's header or line pointers make no sense")]
pub struct Damaged;

/// Overwrites what may differ in block `blkno`. A page that was never initialised has nothing to mask.
pub fn mask(page: &mut Page, blkno: u32, class: PageClass, rules: Rules) -> Result<(), Damaged> {
    if page::is_new(page) {
        return Ok(());
    }
    mask_lsn_and_checksum(page);
    if class != PageClass::Generic {
        mask_hint_bits(page, class, rules);
    }
    match class {
        PageClass::Heap => {
            mask_unused_space(page)?;
            heap::mask_tuples(page, blkno, rules)
        }
        PageClass::Btree => {
            mask_unused_space(page)?;
            btree::mask(page, rules)
        }
        PageClass::Hash => hash::mask(page, rules),
        PageClass::Gin => gin::mask(page, rules),
        PageClass::Gist => {
            mask_unused_space(page)?;
            gist::mask(page, rules)
        }
        PageClass::SpGist => spgist::mask(page),
        PageClass::Brin => brin::mask(page),
        PageClass::Sequence | PageClass::Generic | PageClass::Other => mask_unused_space(page),
        // The map's content is all "unused space" to a standard header: Postgres's check sees none of it.
        PageClass::VisibilityMap => match rules {
            Rules::Postgres => mask_unused_space(page),
            Rules::Tight => Ok(()),
        },
    }
}

/// The first byte that differs, if any.
pub fn first_difference(a: &Page, b: &Page) -> Option<usize> {
    a.iter().zip(b).position(|(a, b)| a != b)
}

fn mask_lsn_and_checksum(page: &mut Page) {
    page::set_lsn(page, Lsn::INVALID);
    page::set_checksum(page, 0);
}

fn mask_hint_bits(page: &mut Page, class: PageClass, rules: Rules) {
    // On a deleted page of GIN the field says, logged, from when on the page may be used again.
    if class != PageClass::Gin || rules == Rules::Postgres {
        page::set_prune_xid(page, 0);
    }
    let hints = PD_PAGE_FULL | PD_HAS_FREE_LINES;
    page::change_flags(
        page,
        0,
        match rules {
            Rules::Postgres => hints | PD_ALL_VISIBLE,
            Rules::Tight => hints,
        },
    );
}

fn mask_unused_space(page: &mut Page) -> Result<(), Damaged> {
    let bounds = layout(page).map_err(|_| Damaged)?;
    page[bounds.lower..bounds.upper].fill(MASK);
    Ok(())
}

/// Scans of an index mark the entries they found dead without telling the WAL: under the tight rules dead
/// line pointers count as normal ones, under Postgres's no state counts.
fn mask_dead_marks(page: &mut Page, rules: Rules) -> Result<(), Damaged> {
    for number in 1..=item_count(page) {
        let Some(id) = item_id(page, number).filter(|id| id.state != ItemState::Unused) else {
            continue;
        };
        let state = match rules {
            Rules::Postgres => ItemState::Unused,
            Rules::Tight if id.state == ItemState::Dead => ItemState::Normal,
            Rules::Tight => id.state,
        };
        set_item_id(page, number, ItemId { state, ..id }).ok_or(Damaged)?;
    }
    Ok(())
}

/// Leaves of the page what its header says but for where its parts begin.
fn mask_content(page: &mut Page) {
    page[PAGE_HEADER_BYTES..].fill(MASK);
    page::set_lower(page, 0);
    page::set_upper(page, 0);
}

/// Where a line pointer's tuple starts and ends, and where its padding ends.
fn extent(id: &ItemId) -> Result<(usize, usize, usize), Damaged> {
    let start = usize::from(id.offset);
    let (end, padded) = (
        start + usize::from(id.length),
        start + max_align(usize::from(id.length)),
    );
    if start < PAGE_HEADER_BYTES || padded > BLCKSZ {
        return Err(Damaged);
    }
    Ok((start, end, padded))
}

#[cfg(test)]
mod tests {
    use pg_types::bytes_le::put_u16;

    use super::*;
    use crate::page_ops::{Place, add_item};
    use crate::tuple::{HEAP_COMBOCID, HEAP_XMAX_INVALID, HEAP_XMIN_COMMITTED, INFOMASK};

    fn heap_page(infomask: u16) -> Page {
        let mut page = [0; BLCKSZ];
        page::init(&mut page, 0);
        let mut tuple = [1; 30];
        put_u16(&mut tuple, INFOMASK, infomask);
        add_item(&mut page, &tuple, 1, Place::Heap).unwrap();
        page
    }

    fn same(a: &Page, b: &Page, rules: Rules) -> bool {
        let (mut a, mut b) = (*a, *b);
        mask(&mut a, 0, PageClass::Heap, rules).unwrap();
        mask(&mut b, 0, PageClass::Heap, rules).unwrap();
        first_difference(&a, &b).is_none()
    }

    #[test]
    fn hint_bits_free_space_and_padding_never_count() {
        let a = heap_page(0x0002);
        let mut b = heap_page(0x0002 | HEAP_XMIN_COMMITTED | HEAP_XMAX_INVALID | HEAP_COMBOCID);
        b[4000] = 9;
        b[BLCKSZ - 1] = 9;
        page::change_flags(&mut b, PD_PAGE_FULL, 0);
        page::set_lsn(&mut b, Lsn(77));
        assert!(same(&a, &b, Rules::Postgres) && same(&a, &b, Rules::Tight));
    }

    #[test]
    fn only_the_tight_rules_see_all_visible_and_lock_bits() {
        let a = heap_page(0x0002);
        let mut all_visible = a;
        page::change_flags(&mut all_visible, PD_ALL_VISIBLE, 0);
        let locked = heap_page(0x0002 | 0x0040);
        for b in [all_visible, locked] {
            assert!(same(&a, &b, Rules::Postgres));
            assert!(!same(&a, &b, Rules::Tight));
        }
    }

    #[test]
    fn data_always_counts() {
        let a = heap_page(0x0002);
        let mut b = a;
        b[BLCKSZ - 4] ^= 1;
        assert!(!same(&a, &b, Rules::Postgres));
    }

    #[test]
    fn a_damaged_page_is_an_error() {
        let mut page = heap_page(0);
        page::set_lower(&mut page, 9000);
        assert_eq!(
            mask(&mut page, 0, PageClass::Heap, Rules::Postgres),
            Err(Damaged)
        );
    }
}
