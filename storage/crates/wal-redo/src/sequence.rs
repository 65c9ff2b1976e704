//! Sequences: one page with one tuple, rewritten as a whole by every record.

use pg_types::bytes_le::put_u32;
use pg_types::page;
use wal_decode::{BlockRef, DecodedRecord};

use crate::Page;
use crate::error::{CUT_SHORT, Step, Why};
use crate::page_ops::{Place, add_item};

/// Bytes of the relation's address in front of the tuple.
const REL_BYTES: usize = 12;
/// What the special space of a sequence's page holds.
pub(crate) const SEQUENCE_MAGIC: u32 = 0x1717;
/// Bytes of that special space.
pub(crate) const SPECIAL_BYTES: usize = 8;

pub(crate) fn redo(rec: &DecodedRecord<'_>, block: &BlockRef<'_>, page: &mut Page) -> Step {
    if block.id != 0 {
        return Err(Why::Is("a sequence record has one block"));
    }
    let tuple = rec.main_data.get(REL_BYTES..).ok_or(CUT_SHORT)?;
    page::init(page, SPECIAL_BYTES);
    let special = page::special(page);
    put_u32(page, special, SEQUENCE_MAGIC);
    add_item(page, tuple, 1, Place::Shift)?;
    page::set_lsn(page, rec.end_lsn);
    Ok(())
}
