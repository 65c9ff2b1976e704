//! Hash index pages: hints of scans, and freed overflow pages.

use super::{Damaged, Rules, mask_content, mask_dead_marks, mask_unused_space};
use crate::Page;
use crate::hash::{
    LH_BUCKET_PAGE, LH_OVERFLOW_PAGE, LH_PAGE_HAS_DEAD_TUPLES, LH_PAGE_TYPE, OPAQUE_BYTES, flags,
    put_flags,
};

pub(super) fn mask(page: &mut Page, rules: Rules) -> Result<(), Damaged> {
    mask_unused_space(page)?;
    if pg_types::page::special(page) != pg_types::BLCKSZ - OPAQUE_BYTES {
        return Err(Damaged);
    }
    let flags = flags(page);
    put_flags(page, flags & !LH_PAGE_HAS_DEAD_TUPLES);
    match flags & LH_PAGE_TYPE {
        LH_BUCKET_PAGE | LH_OVERFLOW_PAGE => mask_dead_marks(page, rules)?,
        // A freed page is made anew, by Postgres as by redo.
        0 if rules == Rules::Postgres => mask_content(page),
        _ => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use pg_types::BLCKSZ;
    use pg_types::page::{self, ItemId, ItemState, set_item_id};

    use super::*;
    use crate::masking::{self, PageClass, first_difference};

    fn page_of(flags: u16, state: ItemState) -> Page {
        let mut page = [0; BLCKSZ];
        page::init(&mut page, OPAQUE_BYTES);
        page::set_lower(&mut page, 28);
        let id = ItemId {
            state,
            ..ItemId::normal(8160, 16)
        };
        set_item_id(&mut page, 1, id).unwrap();
        put_flags(&mut page, flags);
        page
    }

    fn same(mut a: Page, mut b: Page, rules: Rules) -> bool {
        for page in [&mut a, &mut b] {
            masking::mask(page, 3, PageClass::Hash, rules).unwrap();
        }
        first_difference(&a, &b).is_none()
    }

    #[test]
    fn what_scans_mark_never_counts_and_a_freed_page_does_when_tight() {
        let live = page_of(LH_BUCKET_PAGE, ItemState::Normal);
        let dead = page_of(LH_BUCKET_PAGE | LH_PAGE_HAS_DEAD_TUPLES, ItemState::Dead);
        let split = page_of(LH_BUCKET_PAGE | 0x20, ItemState::Normal);
        let freed = page_of(0, ItemState::Normal);
        let mut other = freed;
        other[28] = 1;
        page::set_lower(&mut other, 32);
        for rules in [Rules::Postgres, Rules::Tight] {
            assert!(same(live, dead, rules));
            assert!(!same(live, split, rules));
        }
        assert!(same(freed, other, Rules::Postgres));
        assert!(!same(freed, other, Rules::Tight));
    }
}
