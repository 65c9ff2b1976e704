//! SLRU pages: transaction status, multixacts, commit timestamps. They carry no header and no LSN.

use pg_types::bytes_le::{put_i64, put_u16, put_u32};
use pg_types::slru::{
    CLOG_XACTS_PER_PAGE, COMMIT_TS_ENTRY_BYTES, COMMIT_TS_XACTS_PER_PAGE,
    MULTIXACT_OFFSETS_PER_PAGE, clog_page, commit_ts_page, multixact_member_page,
    multixact_member_position, multixact_offset_page,
};
use pg_types::{Key, SlruKind};

use crate::Page;
use crate::error::{Step, Why};

const STATUS_MASK: u8 = 3;

fn check_kind(key: Key, kind: SlruKind) -> Step {
    if key.slru() == Some(kind) && key.is_page() {
        return Ok(());
    }
    Err(Why::Text(format!(
        "it is for pages of {}",
        kind.directory()
    )))
}

fn check_page(key: Key, what: &str, number: u32, page: u32) -> Step {
    if key.e == page {
        return Ok(());
    }
    Err(Why::Text(format!("{what} {number} lies on page {page}")))
}

pub(crate) fn clog(key: Key, xids: &[u32], status: u8, page: &mut Page) -> Step {
    check_kind(key, SlruKind::Clog)?;
    for xid in xids {
        check_page(key, "transaction", *xid, clog_page(*xid))?;
        let in_page = xid % CLOG_XACTS_PER_PAGE;
        let (at, shift) = ((in_page / 4) as usize, in_page % 4 * 2);
        page[at] = page[at] & !(STATUS_MASK << shift) | (status & STATUS_MASK) << shift;
    }
    Ok(())
}

pub(crate) fn multixact_offsets(key: Key, entries: &[(u32, u32)], page: &mut Page) -> Step {
    check_kind(key, SlruKind::MultixactOffsets)?;
    for (multi, offset) in entries {
        check_page(key, "multixact", *multi, multixact_offset_page(*multi))?;
        let at = (multi % MULTIXACT_OFFSETS_PER_PAGE * 4) as usize;
        put_u32(page, at, *offset);
    }
    Ok(())
}

pub(crate) fn multixact_members(
    key: Key,
    first: u32,
    members: &[(u32, u8)],
    page: &mut Page,
) -> Step {
    check_kind(key, SlruKind::MultixactMembers)?;
    let mut number = first;
    for (xid, status) in members {
        check_page(
            key,
            "multixact member",
            number,
            multixact_member_page(number),
        )?;
        let (flag_at, xid_at) = multixact_member_position(number);
        page[flag_at] = *status;
        put_u32(page, xid_at, *xid);
        number = number.wrapping_add(1);
    }
    Ok(())
}

pub(crate) fn commit_timestamps(
    key: Key,
    xids: &[u32],
    timestamp: i64,
    origin: u16,
    page: &mut Page,
) -> Step {
    check_kind(key, SlruKind::CommitTs)?;
    for xid in xids {
        check_page(key, "transaction", *xid, commit_ts_page(*xid))?;
        let at = (xid % COMMIT_TS_XACTS_PER_PAGE * COMMIT_TS_ENTRY_BYTES) as usize;
        put_i64(page, at, timestamp);
        put_u16(page, at + 8, origin);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use pg_types::BLCKSZ;

    #[test]
    fn statuses_replace_each_other() {
        let (mut page, key) = ([0; BLCKSZ], Key::slru_block(SlruKind::Clog, 1));
        clog(key, &[32768, 32770], 1, &mut page).unwrap();
        clog(key, &[32770], 2, &mut page).unwrap();
        assert_eq!(page[0], 0b10_0001);
        assert!(clog(key, &[5], 1, &mut page).is_err(), "on another page");
        let wrong = Key::slru_block(SlruKind::CommitTs, 1);
        assert!(clog(wrong, &[32768], 1, &mut page).is_err());
    }

    #[test]
    fn members_follow_their_group_layout() {
        let (mut page, key) = ([0; BLCKSZ], Key::slru_block(SlruKind::MultixactMembers, 0));
        multixact_members(key, 3, &[(700, 1), (701, 5)], &mut page).unwrap();
        assert_eq!((page[3], page[20]), (1, 5));
        assert_eq!(page[16..20], 700u32.to_le_bytes());
        assert_eq!(page[24..28], 701u32.to_le_bytes());
    }

    #[test]
    fn commit_times_carry_their_origin() {
        let (mut page, key) = ([0; BLCKSZ], Key::slru_block(SlruKind::CommitTs, 0));
        commit_timestamps(key, &[4], -2, 9, &mut page).unwrap();
        assert_eq!(page[40..48], (-2i64).to_le_bytes());
        assert_eq!(page[48..50], 9u16.to_le_bytes());
    }
}
