//! Masks of GIN pages: the content of deleted pages.

use super::{Damaged, Rules, mask_content, mask_unused_space};
use crate::Page;
use crate::gin::{GIN_DELETED, OPAQUE_BYTES, flags};

pub(super) fn mask(page: &mut Page, rules: Rules) -> Result<(), Damaged> {
    if pg_types::page::special(page) != pg_types::BLCKSZ - OPAQUE_BYTES {
        return Err(Damaged);
    }
    let flags = flags(page);
    // Postgres only marks a page that goes from the pending list; redo makes it anew. Pages of posting
    // trees, which keep their other flags, are left as they were by both.
    let content_differs = match rules {
        Rules::Postgres => flags & GIN_DELETED != 0,
        Rules::Tight => flags == GIN_DELETED,
    };
    if content_differs {
        mask_content(page);
        return Ok(());
    }
    mask_unused_space(page)
}

#[cfg(test)]
mod tests {
    use pg_types::BLCKSZ;
    use pg_types::bytes_le::put_u16;

    use super::*;
    use crate::gin::GIN_DATA;
    use crate::masking::{self, PageClass, first_difference};

    /// Two pages with these flags that differ in their content, or in their xid of deletion; whether that
    /// counts.
    fn differ(flags: u16, xid: u32, content: u8, rules: Rules) -> bool {
        let make = |xid, content| {
            let mut page = [0; BLCKSZ];
            pg_types::page::init(&mut page, OPAQUE_BYTES);
            pg_types::page::set_lower(&mut page, 40);
            pg_types::page::set_prune_xid(&mut page, xid);
            page[32] = content;
            put_u16(&mut page, BLCKSZ - 2, flags);
            masking::mask(&mut page, 7, PageClass::Gin, rules).unwrap();
            page
        };
        first_difference(&make(0, 0), &make(xid, content)).is_some()
    }

    #[test]
    fn of_deleted_pages_the_tight_rules_see_those_of_posting_trees() {
        for rules in [Rules::Postgres, Rules::Tight] {
            assert!(differ(GIN_DATA, 0, 1, rules), "a page in use");
            assert!(!differ(GIN_DELETED, 0, 1, rules), "of the pending list");
        }
        let posting = GIN_DATA | GIN_DELETED;
        assert!(!differ(posting, 9, 1, Rules::Postgres));
        assert!(differ(posting, 0, 1, Rules::Tight), "content");
        assert!(differ(posting, 9, 0, Rules::Tight), "xid of deletion");
    }
}
