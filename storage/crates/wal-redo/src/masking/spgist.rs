//! SP-GiST pages: nothing but the free space differs, and a cache on the meta page.

use pg_types::page::{PAGE_HEADER_BYTES, lower};

use super::{Damaged, MASK, mask_unused_space};
use crate::Page;
use crate::spgist::{META, flags};

/// Bytes of the meta page's magic number.
const MAGIC_BYTES: usize = 4;

pub(super) fn mask(page: &mut Page) -> Result<(), Damaged> {
    if lower(page) < PAGE_HEADER_BYTES {
        return Ok(());
    }
    mask_unused_space(page)?;
    // Which pages had room last is kept there and never logged. No record that Postgres checks has that page,
    // so that its own rules do without; those who compare whole relations meet it.
    if flags(page) & META != 0 {
        let end = lower(page).max(PAGE_HEADER_BYTES + MAGIC_BYTES);
        page[PAGE_HEADER_BYTES + MAGIC_BYTES..end].fill(MASK);
    }
    Ok(())
}
