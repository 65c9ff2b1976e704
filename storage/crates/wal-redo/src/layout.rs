//! The bounds of a standard page.

use pg_types::BLCKSZ;
use pg_types::page::{self, PAGE_HEADER_BYTES};

use crate::Page;
use crate::error::{Step, Why};

pub(crate) const BAD_HEADER: Why = Why::Is("the page's header makes no sense");
pub(crate) const BAD_ITEM: Why = Why::Is("a line pointer of the page leads outside its tuples");

/// The length with its padding to eight bytes. Without a branch, which would often be mistaken for lengths that are as
/// good as random.
pub(crate) fn max_align(length: usize) -> usize {
    (length + 7) & !7
}

/// The page's bounds, known to be in order.
#[derive(Clone, Copy)]
pub(crate) struct Layout {
    pub lower: usize,
    pub upper: usize,
    pub special: usize,
}

pub(crate) fn layout(page: &Page) -> Step<Layout> {
    let (lower, upper, special) = (page::lower(page), page::upper(page), page::special(page));
    let in_order = PAGE_HEADER_BYTES <= lower
        && lower <= upper
        && upper <= special
        && special <= BLCKSZ
        && special.is_multiple_of(8);
    in_order
        .then_some(Layout {
            lower,
            upper,
            special,
        })
        .ok_or(BAD_HEADER)
}
