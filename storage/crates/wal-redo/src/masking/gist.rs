//! GiST pages: hints of scans, the end of a split, and a flag that minors differ in.

use pg_types::Lsn;

use super::{Damaged, Rules, mask_dead_marks};
use crate::Page;
use crate::gist::{FOLLOW_RIGHT, HAS_GARBAGE, LEAF, change_flags, flags, set_split_number};
use crate::minors::mask_gist_flags;

pub(super) fn mask(page: &mut Page, rules: Rules) -> Result<(), Damaged> {
    // Postgres ends a split on the left half when the record is written already, so that the images it
    // compares with lack that. The tight rules are for images made good (see `gist::complete_image`).
    if rules == Rules::Postgres {
        set_split_number(page, Lsn::INVALID);
        change_flags(page, FOLLOW_RIGHT, 0);
    }
    change_flags(page, 0, HAS_GARBAGE);
    mask_gist_flags(page);
    if flags(page) & LEAF != 0 {
        mask_dead_marks(page, rules)?;
    }
    Ok(())
}
