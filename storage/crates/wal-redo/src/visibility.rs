//! The visibility map: two bits for each heap block.

use pg_types::maps::{VM_BLOCKS_PER_PAGE, VM_VALID_BITS, vm_page, vm_position};
use pg_types::page;
use pg_types::wal::{info, rmgr};
use pg_types::{BLCKSZ, ForkNumber, Lsn};
use wal_decode::{BlockRef, DecodedRecord, map_clears};

use crate::Page;
use crate::error::{Step, Why};

const WRONG_PAGE: Why = Why::Is("the heap block lies on another page of the visibility map");

/// Sets `flags` for a heap block. The page's LSN moves only when the bits were different.
pub(crate) fn set(heap_blkno: u32, flags: u8, map_page: u32, lsn: Lsn, page: &mut Page) -> Step {
    if vm_page(heap_blkno) != map_page {
        return Err(WRONG_PAGE);
    }
    init_if_new(page);
    let (at, shift) = vm_position(heap_blkno);
    let flags = flags & VM_VALID_BITS;
    if page[at] >> shift & VM_VALID_BITS != flags {
        page[at] |= flags << shift;
        page::set_lsn(page, lsn);
    }
    Ok(())
}

/// Clears `flags` for some heap blocks, as heap records do on the side. The LSN stays as it is: the map
/// errs towards "not visible", so Postgres does not order it against the heap.
pub(crate) fn clear(heap_blknos: &[u32], flags: u8, map_page: u32, page: &mut Page) -> Step {
    init_if_new(page);
    for heap_blkno in heap_blknos {
        if vm_page(*heap_blkno) != map_page {
            return Err(WRONG_PAGE);
        }
        let (at, shift) = vm_position(*heap_blkno);
        page[at] &= !((flags & VM_VALID_BITS) << shift);
    }
    Ok(())
}

/// Whether the block is the map page that a heap record names because it clears bits there. Records that set bits are
/// another kind.
pub(crate) fn is_named_map(rec: &DecodedRecord<'_>, block: &BlockRef<'_>) -> bool {
    let sets = rec.rmid == rmgr::HEAP2 && rec.info & info::heap::OP_MASK == info::heap2::VISIBLE;
    block.rel.fork == ForkNumber::VisibilityMap && !sets
}

/// Clears on a map page that the record names what it clears there. The page's LSN moves only when a bit was set.
pub(crate) fn clear_named(rec: &DecodedRecord<'_>, block: &BlockRef<'_>, page: &mut Page) -> Step {
    let clears = map_clears(rec).map_err(|error| Why::Text(error.to_string()))?;
    let clears = clears.ok_or(Why::Is(
        "it names a visibility map and clears nothing there",
    ))?;
    init_if_new(page);
    let mut changed = false;
    for heap_blkno in &clears.blknos {
        // An update's two pages may lie on different pages of the map.
        if vm_page(*heap_blkno) == block.blkno {
            let (at, shift) = vm_position(*heap_blkno);
            let mask = (clears.flags & VM_VALID_BITS) << shift;
            changed |= page[at] & mask != 0;
            page[at] &= !mask;
        }
    }
    if changed {
        page::set_lsn(page, rec.end_lsn);
    }
    Ok(())
}

/// Clears the bits of all heap blocks from `heap_blocks` on.
pub(crate) fn truncate(heap_blocks: u32, map_page: u32, page: &mut Page) -> Step {
    if vm_page(heap_blocks) != map_page {
        return Err(WRONG_PAGE);
    }
    let (at, shift) = vm_position(heap_blocks);
    if heap_blocks.is_multiple_of(VM_BLOCKS_PER_PAGE) || page::is_new(page) {
        // Whole pages are cut off, and a map that does not exist stays so.
        return Ok(());
    }
    page[at] &= ((1u16 << shift) - 1) as u8;
    page[at + 1..BLCKSZ].fill(0);
    Ok(())
}

fn init_if_new(page: &mut Page) {
    if page::is_new(page) {
        page::init(page, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::layout;
    use pg_types::{Key, PgMajor, RelTag};
    use wal_decode::{TimelineState, interpret};

    #[test]
    fn bits_are_set_and_cleared_for_one_block_only() {
        let mut page = [0; BLCKSZ];
        set(5, 3, 0, Lsn(100), &mut page).unwrap();
        assert!(layout(&page).is_ok(), "a new map page is initialised");
        assert_eq!((page[25], page::lsn(&page)), (0b1100, Lsn(100)));
        set(5, 3, 0, Lsn(200), &mut page).unwrap();
        assert_eq!(page::lsn(&page), Lsn(100), "nothing changed");
        set(4, 1, 0, Lsn(300), &mut page).unwrap();
        clear(&[5], 2, 0, &mut page).unwrap();
        assert_eq!((page[25], page::lsn(&page)), (0b0101, Lsn(300)));
        assert!(set(5, 3, 1, Lsn(1), &mut page).is_err(), "another map page");
    }

    /// What minors of August 2026 and later write for a deletion on heap block 5: the map's page by name.
    #[test]
    fn a_named_map_page_is_cleared_once_and_gets_the_lsn() {
        let rel = |fork| RelTag {
            spc: 1663,
            db: 5,
            rel: 16384,
            fork,
        };
        let block = |id, fork, blkno| BlockRef {
            id,
            rel: rel(fork),
            blkno,
            will_init: false,
            image: None,
            data: &[],
        };
        let record = DecodedRecord {
            start_lsn: Lsn(900),
            end_lsn: Lsn(1000),
            prev_lsn: Lsn(800),
            xid: 7,
            rmid: rmgr::HEAP,
            info: info::heap::DELETE,
            top_level_xid: None,
            origin: None,
            blocks: [
                block(0, ForkNumber::Main, 5),
                block(1, ForkNumber::VisibilityMap, 0),
            ]
            .into_iter()
            .collect(),
            // xmax, line pointer, infobits, flags: all-visible cleared
            main_data: &[7, 0, 0, 0, 1, 0, 0, 1],
            raw: &[0; 24],
        };
        for major in PgMajor::ALL {
            let changes = interpret(&record, &TimelineState::start_of_nothing(major)).unwrap();
            let keys: Vec<_> = changes.pages.iter().map(|(key, _)| *key).collect();
            let expected = [ForkNumber::Main, ForkNumber::VisibilityMap]
                .into_iter()
                .zip([5, 0])
                .map(|(fork, blkno)| Key::rel_block(rel(fork), blkno));
            assert_eq!(keys, expected.collect::<Vec<_>>(), "one change for each");
        }
        let mut page = [0; BLCKSZ];
        for heap_block in [4, 5] {
            set(heap_block, 3, 0, Lsn(100), &mut page).unwrap();
        }
        let map = rel(ForkNumber::VisibilityMap);
        crate::redo_record(&record, map, 0, &mut page).unwrap();
        assert_eq!((page[25], page::lsn(&page)), (0b0011, Lsn(1000)));
        page::set_lsn(&mut page, Lsn(500));
        crate::redo_record(&record, map, 0, &mut page).unwrap();
        assert_eq!(page::lsn(&page), Lsn(500), "no bit was left to clear");
    }

    #[test]
    fn a_truncation_clears_from_its_block_on() {
        let mut page = [0; BLCKSZ];
        truncate(6, 0, &mut page).unwrap();
        assert!(page::is_new(&page), "no map, nothing to clear");
        for block in 0..40 {
            set(block, 3, 0, Lsn(1), &mut page).unwrap();
        }
        truncate(6, 0, &mut page).unwrap();
        assert_eq!(page[24..27], [0xFF, 0x0F, 0]);
    }
}
