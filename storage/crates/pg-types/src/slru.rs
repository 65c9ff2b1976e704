//! Geometry of the SLRUs: where a transaction's or multixact's entry lies, and which segments a
//! truncation removes.

use crate::{BLCKSZ, SLRU_PAGES_PER_SEGMENT, SlruKind};

/// First transaction id that is not special.
pub const FIRST_NORMAL_XID: u32 = 3;
/// First valid multixact id.
pub const FIRST_MULTI: u32 = 1;

/// Transactions on a clog page, two bits each.
pub const CLOG_XACTS_PER_PAGE: u32 = BLCKSZ as u32 * 4;
/// Offsets on a multixact offsets page, four bytes each.
pub const MULTIXACT_OFFSETS_PER_PAGE: u32 = BLCKSZ as u32 / 4;
/// Members in one group: as many flag bytes, then as many xids.
pub const MULTIXACT_MEMBERS_PER_GROUP: u32 = 4;
/// Bytes of a group.
pub const MULTIXACT_GROUP_BYTES: u32 = MULTIXACT_MEMBERS_PER_GROUP * 5;
/// Members on a multixact members page; 12 bytes at its end stay unused.
pub const MULTIXACT_MEMBERS_PER_PAGE: u32 =
    BLCKSZ as u32 / MULTIXACT_GROUP_BYTES * MULTIXACT_MEMBERS_PER_GROUP;
/// Bytes of a commit_ts entry: timestamp, origin.
pub const COMMIT_TS_ENTRY_BYTES: u32 = 10;
/// Transactions on a commit_ts page.
pub const COMMIT_TS_XACTS_PER_PAGE: u32 = BLCKSZ as u32 / COMMIT_TS_ENTRY_BYTES;

/// Transaction statuses as the clog stores them.
pub const XACT_STATUS_COMMITTED: u8 = 1;
/// Aborted (`clog.h: TRANSACTION_STATUS_ABORTED`); 0 stands for a transaction in progress.
pub const XACT_STATUS_ABORTED: u8 = 2;

/// The clog page with the status of `xid`.
pub fn clog_page(xid: u32) -> u32 {
    xid / CLOG_XACTS_PER_PAGE
}

/// The multixact offsets page with the entry of `multi`.
pub fn multixact_offset_page(multi: u32) -> u32 {
    multi / MULTIXACT_OFFSETS_PER_PAGE
}

/// The multixact members page with the member of this number.
pub fn multixact_member_page(member: u32) -> u32 {
    member / MULTIXACT_MEMBERS_PER_PAGE
}

/// Byte offsets on its page of a member's flag byte and xid.
pub fn multixact_member_position(member: u32) -> (usize, usize) {
    let in_page = member % MULTIXACT_MEMBERS_PER_PAGE;
    let group = in_page / MULTIXACT_MEMBERS_PER_GROUP * MULTIXACT_GROUP_BYTES;
    let in_group = in_page % MULTIXACT_MEMBERS_PER_GROUP;
    (
        (group + in_group) as usize,
        (group + MULTIXACT_MEMBERS_PER_GROUP + in_group * 4) as usize,
    )
}

/// The commit_ts page with the entry of `xid`.
pub fn commit_ts_page(xid: u32) -> u32 {
    xid / COMMIT_TS_XACTS_PER_PAGE
}

/// Number of the segment that a page of any SLRU is in.
pub fn segment_of(page: u32) -> u32 {
    page / SLRU_PAGES_PER_SEGMENT
}

/// Whether `a` is before `b` on the circle of transaction ids; special ids are before all others.
pub fn xid_precedes(a: u32, b: u32) -> bool {
    if a < FIRST_NORMAL_XID || b < FIRST_NORMAL_XID {
        return a < b;
    }
    (a.wrapping_sub(b) as i32) < 0
}

/// Whether `a` is before `b` on the circle of multixact ids or member numbers.
pub fn multi_precedes(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

/// Whether every entry of page `a` is before page `b` (`PagePrecedes` of the SLRU).
pub fn page_precedes(kind: SlruKind, a: u32, b: u32) -> bool {
    let (per_page, first) = match kind {
        SlruKind::Clog => (CLOG_XACTS_PER_PAGE, FIRST_NORMAL_XID + 1),
        SlruKind::CommitTs => (COMMIT_TS_XACTS_PER_PAGE, FIRST_NORMAL_XID + 1),
        SlruKind::MultixactOffsets => (MULTIXACT_OFFSETS_PER_PAGE, FIRST_MULTI + 1),
        SlruKind::MultixactMembers => (MULTIXACT_MEMBERS_PER_PAGE, 0),
    };
    let a = a.wrapping_mul(per_page).wrapping_add(first);
    let b = b.wrapping_mul(per_page).wrapping_add(first);
    let b_last = b.wrapping_add(per_page - 1);
    let precedes = match kind {
        SlruKind::Clog | SlruKind::CommitTs => xid_precedes,
        SlruKind::MultixactOffsets | SlruKind::MultixactMembers => multi_precedes,
    };
    precedes(a, b) && precedes(a, b_last)
}

/// Whether a truncation at `cutoff_page` removes segment `segment`: both its first and its last page
/// must be before the cutoff.
pub fn truncation_removes(kind: SlruKind, segment: u32, cutoff_page: u32) -> bool {
    let first = segment.wrapping_mul(SLRU_PAGES_PER_SEGMENT);
    let last = first.wrapping_add(SLRU_PAGES_PER_SEGMENT - 1);
    page_precedes(kind, first, cutoff_page) && page_precedes(kind, last, cutoff_page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn geometry_is_postgres_s() {
        assert_eq!(CLOG_XACTS_PER_PAGE, 32768);
        assert_eq!(MULTIXACT_MEMBERS_PER_PAGE, 1636);
        assert_eq!(COMMIT_TS_XACTS_PER_PAGE, 819);
        assert_eq!(multixact_member_position(0), (0, 4));
        assert_eq!(multixact_member_position(3), (3, 16));
        assert_eq!(multixact_member_position(4), (20, 24));
        assert_eq!(multixact_member_position(1635), (8163, 8176));
    }

    #[test]
    fn truncation_is_circular_and_keeps_the_cutoff_segment() {
        assert!(truncation_removes(SlruKind::Clog, 0, 32));
        assert!(!truncation_removes(SlruKind::Clog, 0, 31));
        assert!(!truncation_removes(SlruKind::Clog, 1, 40));
        // Segment 0xFFF holds the last ids before the wrap, so it is before page 64.
        assert!(truncation_removes(SlruKind::Clog, 0xFFF, 64));
        assert!(!truncation_removes(SlruKind::Clog, 2, 0x1_FFFF));
    }
}
