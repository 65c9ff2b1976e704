//! Geometry of the visibility map and of the free space map.

use crate::BLCKSZ;
use crate::page::PAGE_HEADER_BYTES;

/// Heap block visible to everyone.
pub const VM_ALL_VISIBLE: u8 = 0x01;
/// Heap block holds no transaction id that needs freezing.
pub const VM_ALL_FROZEN: u8 = 0x02;
/// Both bits.
pub const VM_VALID_BITS: u8 = 0x03;

/// Heap blocks described by one byte of the map.
pub const VM_BLOCKS_PER_BYTE: u32 = 4;
/// Heap blocks described by one page of the map.
pub const VM_BLOCKS_PER_PAGE: u32 = (BLCKSZ - PAGE_HEADER_BYTES) as u32 * VM_BLOCKS_PER_BYTE;

/// The map page for a heap block.
pub fn vm_page(heap_blkno: u32) -> u32 {
    heap_blkno / VM_BLOCKS_PER_PAGE
}

/// Byte offset on the map page, header included, and shift of a heap block's two bits.
pub fn vm_position(heap_blkno: u32) -> (usize, u32) {
    let in_page = heap_blkno % VM_BLOCKS_PER_PAGE;
    (
        PAGE_HEADER_BYTES + (in_page / VM_BLOCKS_PER_BYTE) as usize,
        in_page % VM_BLOCKS_PER_BYTE * 2,
    )
}

/// Map pages that remain when the heap is cut to `heap_blocks`, the last of them perhaps in part.
pub fn vm_pages_for(heap_blocks: u32) -> u32 {
    heap_blocks.div_ceil(VM_BLOCKS_PER_PAGE)
}

/// Leaf slots on a free space map page.
pub const FSM_SLOTS_PER_PAGE: u32 = {
    let nodes = (BLCKSZ - PAGE_HEADER_BYTES - 4) as u32;
    let non_leaf = BLCKSZ as u32 / 2 - 1;
    nodes - non_leaf
};

/// Physical block of the free space map's leaf page for a heap block: upper levels are stored before
/// the first leaf they cover.
pub fn fsm_leaf_block(heap_blkno: u32) -> u32 {
    let leaf = heap_blkno / FSM_SLOTS_PER_PAGE;
    let level1 = leaf / FSM_SLOTS_PER_PAGE;
    let root = level1 / FSM_SLOTS_PER_PAGE;
    leaf + (level1 + 1) + (root + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn visibility_map_geometry() {
        assert_eq!(VM_BLOCKS_PER_PAGE, 32672);
        assert_eq!(vm_position(0), (24, 0));
        assert_eq!(vm_position(5), (25, 2));
        assert_eq!((vm_page(32671), vm_page(32672)), (0, 1));
        assert_eq!(
            (vm_pages_for(0), vm_pages_for(1), vm_pages_for(32672)),
            (0, 1, 1)
        );
    }

    #[test]
    fn free_space_map_geometry() {
        assert_eq!(FSM_SLOTS_PER_PAGE, 4069);
        assert_eq!(fsm_leaf_block(0), 2);
        assert_eq!(fsm_leaf_block(4069), 3);
        // The second level-1 page stands right before its first leaf.
        assert_eq!(fsm_leaf_block(4069 * 4069 - 1), 4069 + 1);
        assert_eq!(fsm_leaf_block(4069 * 4069), 4069 + 3);
    }
}
