//! B-tree pages: hints of scans and of a running vacuum.

use super::{Damaged, Rules, mask_dead_marks};
use crate::Page;
use crate::btree::{
    BTP_HAS_GARBAGE, BTP_LEAF, BTP_META, BTP_SPLIT_END, flags, set_cycle_id, set_flags,
};

pub(super) fn mask(page: &mut Page, rules: Rules) -> Result<(), Damaged> {
    let flags = flags(page);
    if flags & BTP_LEAF != 0 && flags & BTP_META == 0 {
        mask_dead_marks(page, rules)?;
    }
    // A running vacuum's marks on pages that were split meanwhile are not logged.
    set_flags(page, flags & !(BTP_HAS_GARBAGE | BTP_SPLIT_END));
    set_cycle_id(page, 0);
    Ok(())
}
