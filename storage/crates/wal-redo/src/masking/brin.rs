//! BRIN pages. Those of the range map have their content where a standard header says there is none.

use pg_types::page::{PAGE_HEADER_BYTES, lower};

use super::{Damaged, mask_unused_space};
use crate::Page;
use crate::brin::{META, REGULAR, clear_evacuation, kind};

pub(super) fn mask(page: &mut Page) -> Result<(), Damaged> {
    let kind = kind(page);
    if kind == REGULAR || (kind == META && lower(page) > PAGE_HEADER_BYTES) {
        mask_unused_space(page)?;
    }
    clear_evacuation(page);
    Ok(())
}
