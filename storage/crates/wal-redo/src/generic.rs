//! Records of the `Generic` resource manager, by which extensions log changes of pages with a standard
//! header (transam/generic_xlog.c). The block's data is a list of pieces: `offset u16, length u16, bytes`.

use pg_types::BLCKSZ;
use pg_types::bytes_le::get_u16;
use pg_types::page;
use wal_decode::{BlockRef, DecodedRecord};

use crate::Page;
use crate::error::{CUT_SHORT, Step, Why};

pub(crate) fn redo(rec: &DecodedRecord<'_>, block: &BlockRef<'_>, page: &mut Page) -> Step {
    let mut pieces = block.data;
    while !pieces.is_empty() {
        let offset = usize::from(get_u16(pieces, 0).ok_or(CUT_SHORT)?);
        let length = usize::from(get_u16(pieces, 2).ok_or(CUT_SHORT)?);
        let bytes = pieces.get(4..4 + length).ok_or(CUT_SHORT)?;
        page.get_mut(offset..offset + length)
            .ok_or(Why::Is("it changes bytes behind the page's end"))?
            .copy_from_slice(bytes);
        pieces = &pieces[4 + length..];
    }
    // What lies between line pointers and tuples is not logged; Postgres clears it in both places.
    let (lower, upper) = (page::lower(page), page::upper(page));
    if lower > upper || upper > BLCKSZ {
        return Err(Why::Is("the page's header makes no sense afterwards"));
    }
    page[lower..upper].fill(0);
    page::set_lsn(page, rec.end_lsn);
    Ok(())
}
