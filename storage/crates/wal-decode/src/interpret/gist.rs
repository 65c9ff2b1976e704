//! The one change of a page that an image in the record lacks: the end of a GiST split.

use pg_types::bytes_le::{at_u16, put_u16};
use pg_types::wal::{info, rmgr};
use pg_types::{BLCKSZ, page};

use super::malformed;
use crate::error::InterpretError;
use crate::record::{BlockRef, DecodedRecord};

/// The GiST page's own space: split sequence number (`nsn`), right neighbour, flags, page id.
const GIST_SPECIAL_BYTES: usize = 16;
const GIST_FLAGS: usize = 12;
/// A flag: a search that comes to the page must also search its right neighbour, which has no downlink yet.
const GIST_FOLLOW_RIGHT: u16 = 1 << 3;

/// Whether the block is the left half of a split whose right half gets its downlink by this record. What
/// that changes on the left half contains the record's LSN, so Postgres does it when the record is written
/// already, and the image does not have it.
pub(super) fn ends_split(record: &DecodedRecord<'_>, block: &BlockRef<'_>) -> bool {
    record.rmid == rmgr::GIST
        && match record.op() {
            info::gist::PAGE_UPDATE => block.id == 1,
            info::gist::PAGE_SPLIT => block.id == 0,
            _ => false,
        }
}

/// Makes the record's LSN the page's split sequence number and clears the flag that stood in for it.
pub(super) fn end_split(
    record: &DecodedRecord<'_>,
    image: &mut [u8],
) -> Result<(), InterpretError> {
    let special = page::special(image);
    if special != BLCKSZ - GIST_SPECIAL_BYTES {
        return Err(malformed(
            record,
            "the left half of a split is no GiST page",
        ));
    }
    let own = &mut image[special..];
    // A split sequence number is laid out as a page's LSN is.
    page::set_lsn(own, record.end_lsn);
    let flags = at_u16(own, GIST_FLAGS) & !GIST_FOLLOW_RIGHT;
    put_u16(own, GIST_FLAGS, flags);
    Ok(())
}
