//! Packs the tuples of a page, as Postgres does after some of them went.
//!
//! The bytes between tuples do not matter. The order of the tuples does: it is the order of their line pointers, from
//! the special space downwards.

use std::ops::Range;

use pg_types::BLCKSZ;
use pg_types::page::{self, ITEM_ID_BYTES, ItemId, PAGE_HEADER_BYTES};
use smallvec::SmallVec;

use crate::Page;
use crate::error::{Step, Why};
use crate::layout::{BAD_ITEM, Layout, max_align};

/// The line pointers below `lower`, word by word, and the tuples from `upper` to the special space.
pub(crate) fn halves(page: &mut Page, bounds: Layout) -> (&mut [[u8; ITEM_ID_BYTES]], &mut [u8]) {
    let (head, tuples) = page.split_at_mut(bounds.upper);
    let (words, _) = head[PAGE_HEADER_BYTES..bounds.lower].as_chunks_mut();
    (words, &mut tuples[..bounds.special - bounds.upper])
}

/// Packs all stored tuples against the special space, in line pointer order (`compactify_tuples`).
///
/// Pages are packed often, and few of their tuples have changed since the last time: the first ones lie where they
/// should, and most others lie next to each other, so that they move together.
pub(crate) fn compact(page: &mut Page, bounds: Layout) -> Step {
    let (words, tuples) = halves(page, bounds);
    // Offsets are from `bounds.upper`.
    let stored = |word: [u8; ITEM_ID_BYTES]| {
        let id = ItemId::from_u32(u32::from_le_bytes(word));
        let from = usize::from(id.offset).wrapping_sub(bounds.upper);
        (from, max_align(usize::from(id.length)), id)
    };
    let mut upper = tuples.len();
    let mut in_place = 0;
    for word in words.iter() {
        let (from, length, _) = stored(*word);
        if length != 0 {
            if from.checked_add(length) != Some(upper) {
                break;
            }
            upper = from;
        }
        in_place += 1;
    }
    // All others lie below.
    let limit = upper;
    let mut runs = Runs::new();
    let (from, end) = (limit as u16, limit as u16);
    let mut run = Run { from, end };
    for word in &mut words[in_place..] {
        let (from, length, id) = stored(*word);
        if length == 0 {
            continue;
        }
        let end = from.wrapping_add(length);
        if from > end || end > limit {
            return Err(BAD_ITEM);
        }
        upper = upper.checked_sub(length).ok_or(Why::Is(
            "the tuples of the page are longer than the page has room",
        ))?;
        if end != usize::from(run.from) {
            runs.push(run);
            run.end = end as u16;
        }
        run.from = from as u16;
        let offset = (bounds.upper + upper) as u16;
        *word = ItemId { offset, ..id }.to_u32().to_le_bytes();
    }
    runs.push(run);
    place(&runs, &mut tuples[..limit], upper);
    page::set_upper(page, (bounds.upper + upper) as u16);
    Ok(())
}

/// Tuples that lie next to each other and stay so.
#[derive(Clone, Copy)]
struct Run {
    from: u16,
    end: u16,
}

impl Run {
    fn range(self) -> Range<usize> {
        usize::from(self.from)..usize::from(self.end)
    }
}

/// In the order in which they are to lie, downwards. A page has no more: each run is eight bytes or longer.
type Runs = SmallVec<[Run; BLCKSZ / 8]>;

/// Puts runs next to each other at the end of the tuples' space, from `upper` on.
fn place(runs: &Runs, tuples: &mut [u8], upper: usize) {
    if runs.is_sorted_by(|run, next| next.end <= run.from) {
        let mut to = tuples.len();
        for run in runs {
            to -= run.range().len();
            tuples.copy_within(run.range(), to);
        }
    } else {
        let mut placed = SmallVec::<[u8; BLCKSZ]>::new();
        for run in runs.iter().rev() {
            placed.extend_from_slice(&tuples[run.range()]);
        }
        tuples[upper..].copy_from_slice(&placed);
    }
}

#[cfg(test)]
mod tests {
    use pg_types::page::{item, item_count, item_id, set_item_id};
    use proptest::prelude::*;

    use super::*;
    use crate::layout::layout;
    use crate::page_ops::{Place, add_item};

    /// A page whose tuples lie in the order of `lengths`, under numbers that are not in that order, and lack some.
    fn page_of(lengths: &[(u8, u16, bool)]) -> Page {
        let mut page = [0; BLCKSZ];
        page::init(&mut page, 16);
        for (index, (fill, length, _)) in lengths.iter().enumerate() {
            let tuple = vec![*fill; usize::from(*length)];
            // A quarter of the tuples come before all others in the line pointers, though they lie behind them.
            let number = if fill % 4 == 0 { 1 } else { index as u16 + 1 };
            if add_item(&mut page, &tuple, number, Place::Shift).is_err() {
                break;
            }
        }
        for (number, (_, _, gone)) in (1..=item_count(&page)).zip(lengths) {
            if *gone {
                set_item_id(&mut page, number, ItemId::UNUSED);
            }
        }
        page
    }

    /// Each line pointer with its tuple.
    fn tuples(page: &Page) -> Vec<(u8, Vec<u8>)> {
        (1..=item_count(page))
            .filter_map(|number| item_id(page, number))
            .map(|id| {
                let stored = if id.length == 0 {
                    Vec::new()
                } else {
                    item(page, &id).map(<[u8]>::to_vec).unwrap_or_default()
                };
                (id.state as u8, stored)
            })
            .collect()
    }

    #[test]
    fn a_tuple_that_begins_before_the_others_space_is_refused() {
        let mut page = page_of(&[(1, 64, false), (2, 64, false)]);
        let bounds = layout(&page).unwrap_or_else(|_| panic!("a page of two tuples"));
        // From before the tuples' space to where it ends.
        let all = ItemId::normal(
            bounds.upper as u16 - 8,
            (bounds.special - bounds.upper) as u16 + 8,
        );
        set_item_id(&mut page, 1, all);
        assert!(compact(&mut page, bounds).is_err());
    }

    proptest! {
        #[test]
        fn packed_tuples_are_the_same_and_follow_each_other_without_gaps(
            lengths in prop::collection::vec((any::<u8>(), 1u16..300, any::<bool>()), 0..120)
        ) {
            let mut page = page_of(&lengths);
            let before = tuples(&page);
            let bounds = layout(&page).map_err(|_| TestCaseError::fail("layout"))?;
            compact(&mut page, bounds).map_err(|_| TestCaseError::fail("compact"))?;
            prop_assert_eq!(tuples(&page), before);
            let mut upper = page::special(&page);
            for number in 1..=item_count(&page) {
                let Some(id) = item_id(&page, number).filter(|id| id.length != 0) else { continue };
                upper -= max_align(usize::from(id.length));
                prop_assert_eq!(usize::from(id.offset), upper, "line pointer {}", number);
            }
            prop_assert_eq!(page::upper(&page), upper);
        }

        #[test]
        fn any_bytes_are_packed_or_refused(
            words in prop::collection::vec(any::<u32>(), 0..80),
            upper in 400u16..8192,
        ) {
            let mut page = [7; BLCKSZ];
            page::init(&mut page, 8);
            page::set_lower(&mut page, (PAGE_HEADER_BYTES + words.len() * ITEM_ID_BYTES) as u16);
            page::set_upper(&mut page, upper & !7);
            for (number, word) in (1..).zip(&words) {
                set_item_id(&mut page, number, ItemId::from_u32(*word));
            }
            if let Ok(bounds) = layout(&page) {
                let _ = compact(&mut page, bounds);
            }
        }
    }
}
