//! The standard 8 KiB page: header fields and line pointers.
//!
//! The header accessors take a whole page (`BLCKSZ` bytes) and index into its first 24 bytes; line
//! pointers, whose place depends on page contents, are checked and return `None` out of range.

use crate::bytes_le::{at_u16, at_u32, get_u32, put_u16, put_u32};
use crate::{BLCKSZ, Lsn};

/// Bytes of a page header (`SizeOfPageHeaderData`).
pub const PAGE_HEADER_BYTES: usize = 24;
/// Bytes of one line pointer.
pub const ITEM_ID_BYTES: usize = 4;
/// Page size and layout version as they stand in the header.
pub const PAGE_SIZE_AND_VERSION: u16 = BLCKSZ as u16 | 4;

/// There may be unused line pointers.
pub const PD_HAS_FREE_LINES: u16 = 0x0001;
/// A new tuple version did not fit.
pub const PD_PAGE_FULL: u16 = 0x0002;
/// Every tuple is visible to everyone.
pub const PD_ALL_VISIBLE: u16 = 0x0004;

const LSN_HIGH: usize = 0;
const LSN_LOW: usize = 4;
const CHECKSUM: usize = 8;
const FLAGS: usize = 10;
const LOWER: usize = 12;
const UPPER: usize = 14;
const SPECIAL: usize = 16;
const SIZE_VERSION: usize = 18;
const PRUNE_XID: usize = 20;

/// `pd_lsn`: stored as two halves, the high one first.
#[inline]
pub fn lsn(page: &[u8]) -> Lsn {
    Lsn(u64::from(at_u32(page, LSN_HIGH)) << 32 | u64::from(at_u32(page, LSN_LOW)))
}

/// Sets `pd_lsn`: the end of the last record that changed the page.
#[inline]
pub fn set_lsn(page: &mut [u8], lsn: Lsn) {
    put_u32(page, LSN_HIGH, (lsn.0 >> 32) as u32);
    put_u32(page, LSN_LOW, lsn.0 as u32);
}

/// `pd_checksum`; without meaning in clusters that have data checksums off.
#[inline]
pub fn checksum(page: &[u8]) -> u16 {
    at_u16(page, CHECKSUM)
}

/// Sets `pd_checksum`; `value` is not checked against the page.
#[inline]
pub fn set_checksum(page: &mut [u8], value: u16) {
    put_u16(page, CHECKSUM, value);
}

/// `pd_flags`: [`PD_HAS_FREE_LINES`], [`PD_PAGE_FULL`] and [`PD_ALL_VISIBLE`].
#[inline]
pub fn flags(page: &[u8]) -> u16 {
    at_u16(page, FLAGS)
}

/// Sets `pd_flags`, all of them.
#[inline]
pub fn set_flags(page: &mut [u8], value: u16) {
    put_u16(page, FLAGS, value);
}

/// Sets and clears header flags.
#[inline]
pub fn change_flags(page: &mut [u8], set: u16, clear: u16) {
    let value = (flags(page) & !clear) | set;
    set_flags(page, value);
}

/// End of the line pointers.
#[inline]
pub fn lower(page: &[u8]) -> usize {
    usize::from(at_u16(page, LOWER))
}

/// Sets `pd_lower`, the end of the line pointers.
#[inline]
pub fn set_lower(page: &mut [u8], value: u16) {
    put_u16(page, LOWER, value);
}

/// Start of the tuples.
#[inline]
pub fn upper(page: &[u8]) -> usize {
    usize::from(at_u16(page, UPPER))
}

/// Sets `pd_upper`, the start of the tuples; 0 makes the page count as new.
#[inline]
pub fn set_upper(page: &mut [u8], value: u16) {
    put_u16(page, UPPER, value);
}

/// Start of the access method's own space at the page's end.
#[inline]
pub fn special(page: &[u8]) -> usize {
    usize::from(at_u16(page, SPECIAL))
}

/// Sets `pd_special`, the start of the access method's own space.
#[inline]
pub fn set_special(page: &mut [u8], value: u16) {
    put_u16(page, SPECIAL, value);
}

/// `pd_pagesize_version`; [`PAGE_SIZE_AND_VERSION`] on every page that is not new.
#[inline]
pub fn size_and_version(page: &[u8]) -> u16 {
    at_u16(page, SIZE_VERSION)
}

/// `pd_prune_xid`: the oldest transaction that may have left something to prune; 0 if none is known.
#[inline]
pub fn prune_xid(page: &[u8]) -> u32 {
    at_u32(page, PRUNE_XID)
}

/// Sets `pd_prune_xid`.
#[inline]
pub fn set_prune_xid(page: &mut [u8], xid: u32) {
    put_u32(page, PRUNE_XID, xid);
}

/// Whether the page was never initialised (`PageIsNew`): such a page carries no LSN.
#[inline]
pub fn is_new(page: &[u8]) -> bool {
    at_u16(page, UPPER) == 0
}

/// Makes an empty page with `special_bytes` of special space, everything else zero (`PageInit`).
#[inline]
pub fn init(page: &mut [u8], special_bytes: usize) {
    page.fill(0);
    let special = BLCKSZ
        - special_bytes
            .next_multiple_of(8)
            .min(BLCKSZ - PAGE_HEADER_BYTES);
    set_lower(page, PAGE_HEADER_BYTES as u16);
    set_upper(page, special as u16);
    set_special(page, special as u16);
    put_u16(page, SIZE_VERSION, PAGE_SIZE_AND_VERSION);
}

/// State of a line pointer (`lp_flags`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum ItemState {
    /// Free to be used for a new tuple (`itemid.h: LP_UNUSED`).
    Unused = 0,
    /// Points to a tuple (`itemid.h: LP_NORMAL`).
    Normal = 1,
    /// Points to another line pointer of the page, on heap pages only (`itemid.h: LP_REDIRECT`).
    Redirect = 2,
    /// Dead (`itemid.h: LP_DEAD`): without a tuple on heap pages, with one on index pages.
    Dead = 3,
}

/// A line pointer (`ItemIdData`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ItemId {
    /// Offset of the tuple, or the target line pointer of a redirect.
    pub offset: u16,
    /// What the pointer points to (`lp_flags`).
    pub state: ItemState,
    /// Bytes of the tuple (`lp_len`); 0 where there is none.
    pub length: u16,
}

impl ItemId {
    /// A free line pointer (`itemid.h: ItemIdSetUnused`).
    pub const UNUSED: ItemId = ItemId {
        offset: 0,
        state: ItemState::Unused,
        length: 0,
    };
    /// A dead line pointer without a tuple (`itemid.h: ItemIdSetDead`).
    pub const DEAD: ItemId = ItemId {
        offset: 0,
        state: ItemState::Dead,
        length: 0,
    };

    /// A pointer to the `length` bytes at `offset` of the page (`itemid.h: ItemIdSetNormal`).
    #[inline]
    pub fn normal(offset: u16, length: u16) -> ItemId {
        ItemId {
            offset,
            state: ItemState::Normal,
            length,
        }
    }

    /// A pointer to line pointer `target`, counted from 1 (`itemid.h: ItemIdSetRedirect`).
    #[inline]
    pub fn redirect(target: u16) -> ItemId {
        ItemId {
            offset: target,
            state: ItemState::Redirect,
            length: 0,
        }
    }

    /// Unpacks a word of the page: from the low end, 15 bits of offset, 2 of state, 15 of length.
    #[inline]
    pub fn from_u32(word: u32) -> ItemId {
        let state = match word >> 15 & 3 {
            0 => ItemState::Unused,
            1 => ItemState::Normal,
            2 => ItemState::Redirect,
            _ => ItemState::Dead,
        };
        ItemId {
            offset: (word & 0x7FFF) as u16,
            state,
            length: (word >> 17) as u16,
        }
    }

    /// The word that the page holds; bits of offset and length beyond the fifteenth are lost.
    #[inline]
    pub fn to_u32(self) -> u32 {
        u32::from(self.offset & 0x7FFF)
            | (self.state as u32) << 15
            | u32::from(self.length & 0x7FFF) << 17
    }
}

/// Number of line pointers (`PageGetMaxOffsetNumber`).
#[inline]
pub fn item_count(page: &[u8]) -> u16 {
    (lower(page).saturating_sub(PAGE_HEADER_BYTES) / ITEM_ID_BYTES) as u16
}

#[inline]
fn item_id_at(number: u16) -> Option<usize> {
    let index = usize::from(number.checked_sub(1)?);
    let at = PAGE_HEADER_BYTES + index * ITEM_ID_BYTES;
    (at + ITEM_ID_BYTES <= BLCKSZ).then_some(at)
}

/// Line pointer `number` (from 1); `None` when the page has no such pointer.
#[inline]
pub fn item_id(page: &[u8], number: u16) -> Option<ItemId> {
    (number <= item_count(page)).then_some(())?;
    get_u32(page, item_id_at(number)?).map(ItemId::from_u32)
}

/// Stores line pointer `number` (from 1), which need not be below `pd_lower` yet; `None` when it can
/// not lie on a page.
#[inline]
pub fn set_item_id(page: &mut [u8], number: u16, item: ItemId) -> Option<()> {
    let at = item_id_at(number)?;
    put_u32(page, at, item.to_u32());
    Some(())
}

/// The tuple of a normal line pointer.
#[inline]
pub fn item<'a>(page: &'a [u8], id: &ItemId) -> Option<&'a [u8]> {
    page.get(usize::from(id.offset)..usize::from(id.offset) + usize::from(id.length))
}

/// The tuple of a normal line pointer, to change.
#[inline]
pub fn item_mut<'a>(page: &'a mut [u8], id: &ItemId) -> Option<&'a mut [u8]> {
    page.get_mut(usize::from(id.offset)..usize::from(id.offset) + usize::from(id.length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_initialised_page_reads_back() {
        let mut page = vec![0xAA; BLCKSZ];
        init(&mut page, 16);
        assert!(!is_new(&page));
        assert_eq!(
            (lower(&page), upper(&page), special(&page)),
            (24, 8176, 8176)
        );
        set_lsn(&mut page, Lsn(0x1_0203_0405));
        assert_eq!(lsn(&page), Lsn(0x1_0203_0405));
        assert_eq!(
            &page[..8],
            &[1, 0, 0, 0, 5, 4, 3, 2],
            "the high half of an LSN comes first"
        );
        assert!(is_new(&[0; BLCKSZ]));
    }

    #[test]
    fn line_pointers_pack_as_fifteen_two_fifteen_bits() {
        let id = ItemId::normal(8000, 61);
        assert_eq!(id.to_u32(), 8000 | 1 << 15 | 61 << 17);
        assert_eq!(ItemId::from_u32(id.to_u32()), id);
        let mut page = vec![0; BLCKSZ];
        init(&mut page, 0);
        assert_eq!(item_id(&page, 1), None);
        set_item_id(&mut page, 1, id);
        set_lower(&mut page, 28);
        assert_eq!(item_id(&page, 1), Some(id));
        assert_eq!((item_id(&page, 0), item_id(&page, 2)), (None, None));
    }
}
