//! Changes to line pointers and tuples of a standard page, with Postgres's placement rules.
//!
//! Where a tuple lands is part of the result: later records address tuples by line pointer only, but the
//! bytes of the page, and whether the next tuple fits, depend on it. Tuples are packed downwards from the
//! special space, line pointers grow upwards; a tuple takes its length rounded up to eight bytes.

use pg_types::BLCKSZ;
use pg_types::page::{
    self, ITEM_ID_BYTES, ItemId, ItemState, PAGE_HEADER_BYTES, PD_HAS_FREE_LINES, item_count,
    item_id, set_item_id,
};

use crate::Page;
use crate::error::{Step, Why};
use crate::layout::{BAD_HEADER, BAD_ITEM, Layout, layout, max_align};
use crate::packing::{compact, halves};

/// Most line pointers a heap page may have (`MaxHeapTuplesPerPage`).
const MAX_HEAP_ITEMS: u16 = 291;

/// Whether a new tuple may take the place of an unused line pointer, and how many pointers there may be.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// Heap: an existing pointer must be unused and is taken.
    Heap,
    /// Index whose tuples keep their numbers: the same, without the heap's limit.
    Reuse,
    /// Index: later pointers move up by one.
    Shift,
}

/// Makes room for a tuple of `length` bytes as line pointer `number` and returns where its bytes go.
pub(crate) fn reserve(page: &mut Page, length: usize, number: u16, place: Place) -> Step<usize> {
    let at = layout(page)?;
    let count = item_count(page);
    if number == 0 || number > count + 1 {
        return Err(Why::Text(format!(
            "it adds line pointer {number} to a page that has {count}"
        )));
    }
    let exists = number <= count;
    if place != Place::Shift {
        if place == Place::Heap && number > MAX_HEAP_ITEMS {
            return Err(Why::Is("it adds more line pointers than a heap page has"));
        }
        if exists && item_id(page, number).is_some_and(in_use) {
            return Err(Why::Text(format!(
                "it adds line pointer {number}, which is in use"
            )));
        }
    }
    let lower = if exists && place != Place::Shift {
        at.lower
    } else {
        at.lower + ITEM_ID_BYTES
    };
    let upper = at
        .upper
        .checked_sub(max_align(length))
        .filter(|upper| lower <= *upper);
    let Some(upper) = upper else {
        return Err(Why::Text(format!(
            "a tuple of {length} bytes does not fit into the page"
        )));
    };
    if exists && place == Place::Shift {
        let from = PAGE_HEADER_BYTES + usize::from(number - 1) * ITEM_ID_BYTES;
        page.copy_within(from..at.lower, from + ITEM_ID_BYTES);
    }
    set_item_id(page, number, ItemId::normal(upper as u16, length as u16)).ok_or(BAD_HEADER)?;
    page::set_lower(page, lower as u16);
    page::set_upper(page, upper as u16);
    Ok(upper)
}

/// Adds a tuple (`PageAddItem`).
pub(crate) fn add_item(page: &mut Page, item: &[u8], number: u16, place: Place) -> Step {
    let at = reserve(page, item.len(), number, place)?;
    page[at..at + item.len()].copy_from_slice(item);
    Ok(())
}

fn in_use(id: ItemId) -> bool {
    id.state != ItemState::Unused || id.length != 0
}

/// Line pointer `number`, with the tuple it leads to known to lie on the page.
pub(crate) fn stored_item(page: &Page, number: u16) -> Step<ItemId> {
    let id = item_id(page, number).ok_or_else(|| {
        Why::Text(format!(
            "it refers to line pointer {number}, the page has {}",
            item_count(page)
        ))
    })?;
    let (offset, end) = (
        usize::from(id.offset),
        usize::from(id.offset) + usize::from(id.length),
    );
    if id.length == 0 || offset < PAGE_HEADER_BYTES || end > BLCKSZ {
        return Err(Why::Text(format!(
            "it refers to line pointer {number}, which leads to no tuple"
        )));
    }
    Ok(id)
}

/// As [`stored_item`]; the pointer must be a normal one.
pub(crate) fn normal_item(page: &Page, number: u16) -> Step<ItemId> {
    let id = stored_item(page, number)?;
    if id.state != ItemState::Normal {
        return Err(Why::Text(format!(
            "it changes the tuple of line pointer {number}, which is {:?}",
            id.state
        )));
    }
    Ok(id)
}

/// Sets an existing line pointer.
pub(crate) fn replace_item_id(page: &mut Page, number: u16, id: ItemId) -> Step {
    if number == 0 || number > item_count(page) {
        return Err(Why::Text(format!(
            "it changes line pointer {number}, the page has {}",
            item_count(page)
        )));
    }
    set_item_id(page, number, id).ok_or(BAD_HEADER)
}

/// Frees the space of tuples that have no line pointer any more, and cuts unused line pointers off the
/// end (`PageRepairFragmentation`).
pub(crate) fn repair_fragmentation(page: &mut Page) -> Step {
    let bounds = layout(page)?;
    let (words, _) = halves(page, bounds);
    let (mut last_used, mut unused_count) = (0, 0);
    for (index, word) in words.iter_mut().enumerate() {
        if ItemId::from_u32(u32::from_le_bytes(*word)).state == ItemState::Unused {
            *word = ItemId::UNUSED.to_u32().to_le_bytes();
            unused_count += 1;
        } else {
            last_used = index + 1;
        }
    }
    let cut = words.len() - last_used;
    compact(page, bounds)?;
    page::set_lower(page, (bounds.lower - cut * ITEM_ID_BYTES) as u16);
    set_free_lines_hint(page, unused_count > cut);
    Ok(())
}

fn set_free_lines_hint(page: &mut Page, has_unused: bool) {
    if has_unused {
        page::change_flags(page, PD_HAS_FREE_LINES, 0);
    } else {
        page::change_flags(page, 0, PD_HAS_FREE_LINES);
    }
}

/// Cuts unused line pointers off the end, but never the first one (`PageTruncateLinePointerArray`).
pub(crate) fn truncate_line_pointers(page: &mut Page) -> Step {
    let bounds = layout(page)?;
    let is_unused = |page: &Page, number: u16| {
        item_id(page, number).is_none_or(|id| id.state == ItemState::Unused)
    };
    let mut count = item_count(page);
    while count > 1 && is_unused(page, count) {
        count -= 1;
    }
    let cut = usize::from(item_count(page) - count) * ITEM_ID_BYTES;
    page::set_lower(page, (bounds.lower - cut) as u16);
    let has_unused = (1..=count).any(|number| is_unused(page, number));
    set_free_lines_hint(page, has_unused);
    Ok(())
}

/// Removes one tuple and closes the gap it leaves (`PageIndexTupleDelete`).
pub(crate) fn index_delete(page: &mut Page, number: u16) -> Step {
    let bounds = layout(page)?;
    let id = stored_item(page, number)?;
    let (offset, length) = (usize::from(id.offset), max_align(usize::from(id.length)));
    if offset < bounds.upper || offset + length > bounds.special {
        return Err(BAD_ITEM);
    }
    let pointer = PAGE_HEADER_BYTES + usize::from(number - 1) * ITEM_ID_BYTES;
    page.copy_within(pointer + ITEM_ID_BYTES..bounds.lower, pointer);
    page::set_lower(page, (bounds.lower - ITEM_ID_BYTES) as u16);
    move_tuples(page, bounds.upper, offset, length as isize)
}

/// Moves the tuples in `upper..end` by `distance` bytes, their line pointers and `pd_upper` with them.
pub(crate) fn move_tuples(page: &mut Page, upper: usize, end: usize, distance: isize) -> Step {
    let target = upper.checked_add_signed(distance).ok_or(BAD_HEADER)?;
    if target + (end - upper) > BLCKSZ {
        return Err(BAD_ITEM);
    }
    page.copy_within(upper..end, target);
    page::set_upper(page, target as u16);
    for number in 1..=item_count(page) {
        let Some(id) = item_id(page, number) else {
            continue;
        };
        if id.length != 0 && usize::from(id.offset) <= end {
            let offset = usize::from(id.offset)
                .checked_add_signed(distance)
                .filter(|offset| *offset < BLCKSZ)
                .ok_or(BAD_ITEM)?;
            let moved = ItemId {
                offset: offset as u16,
                ..id
            };
            set_item_id(page, number, moved).ok_or(BAD_HEADER)?;
        }
    }
    Ok(())
}

/// Removes several tuples (`PageIndexMultiDelete`); `numbers` are little-endian and ascending.
pub(crate) fn index_multi_delete(page: &mut Page, numbers: &[u8]) -> Step {
    let mut doomed = numbers
        .chunks_exact(2)
        .map(|pair| u16::from_le_bytes([pair[0], pair[1]]));
    // Postgres takes the simple way for up to two tuples, which leaves the rest where it is.
    if doomed.len() <= 2 {
        return doomed
            .rev()
            .try_for_each(|number| index_delete(page, number));
    }
    let bounds = layout(page)?;
    let mut next_doomed = doomed.next();
    let mut kept = 0;
    for number in 1..=item_count(page) {
        if next_doomed == Some(number) {
            next_doomed = doomed.next();
            continue;
        }
        kept += 1;
        if let Some(id) = item_id(page, number) {
            set_item_id(page, kept, id).ok_or(BAD_HEADER)?;
        }
    }
    if let Some(number) = next_doomed {
        return Err(Why::Text(format!(
            "it deletes line pointer {number}, which is missing or out of order"
        )));
    }
    let lower = PAGE_HEADER_BYTES + usize::from(kept) * ITEM_ID_BYTES;
    page::set_lower(page, lower as u16);
    compact(page, Layout { lower, ..bounds })
}

/// Puts another tuple in the place of one, shifting those before it if the lengths differ
/// (`PageIndexTupleOverwrite`).
pub(crate) fn index_overwrite(page: &mut Page, number: u16, item: &[u8]) -> Step {
    let bounds = layout(page)?;
    let id = stored_item(page, number)?;
    let offset = usize::from(id.offset);
    let (old, new) = (max_align(usize::from(id.length)), max_align(item.len()));
    if offset < bounds.upper || offset + old > bounds.special {
        return Err(BAD_ITEM);
    }
    if new > old + (bounds.upper - bounds.lower) {
        return Err(Why::Is(
            "the page has no room for the tuple's longer version",
        ));
    }
    let distance = old as isize - new as isize;
    if distance != 0 {
        move_tuples(page, bounds.upper, offset, distance)?;
    }
    let offset = offset.checked_add_signed(distance).ok_or(BAD_ITEM)?;
    let placed = ItemId {
        offset: offset as u16,
        length: item.len() as u16,
        ..id
    };
    set_item_id(page, number, placed).ok_or(BAD_HEADER)?;
    page.get_mut(offset..offset + item.len())
        .ok_or(BAD_ITEM)?
        .copy_from_slice(item);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page_with(lengths: &[usize], special: usize, place: Place) -> Page {
        let mut page = [0; BLCKSZ];
        page::init(&mut page, special);
        for (i, length) in lengths.iter().enumerate() {
            add_item(&mut page, &vec![i as u8 + 1; *length], i as u16 + 1, place).unwrap();
        }
        page
    }

    /// First byte and length of each line pointer's tuple, 0 for none.
    fn tuples(page: &Page) -> Vec<(u8, u16)> {
        (1..=item_count(page))
            .map(|number| {
                let id = item_id(page, number).unwrap();
                let first = page::item(page, &id).and_then(|tuple| tuple.first());
                (first.copied().unwrap_or(0), id.length)
            })
            .collect()
    }

    fn numbers(list: &[u16]) -> Vec<u8> {
        list.iter()
            .flat_map(|number| number.to_le_bytes())
            .collect()
    }

    #[test]
    fn an_index_tuple_shifts_those_behind_it_and_a_heap_tuple_takes_a_free_pointer() {
        let mut index = page_with(&[16, 24], 16, Place::Shift);
        add_item(&mut index, &[9; 16], 1, Place::Shift).unwrap();
        assert_eq!(tuples(&index), [(9, 16), (1, 16), (2, 24)]);

        let mut heap = page_with(&[30, 30], 0, Place::Heap);
        assert!(
            add_item(&mut heap, &[9; 30], 1, Place::Heap).is_err(),
            "in use"
        );
        assert!(
            add_item(&mut heap, &[9; 30], 4, Place::Heap).is_err(),
            "leaves a gap"
        );
        replace_item_id(&mut heap, 1, ItemId::UNUSED).unwrap();
        add_item(&mut heap, &[9; 30], 1, Place::Heap).unwrap();
        assert_eq!(tuples(&heap), [(9, 30), (2, 30)]);
        assert_eq!(page::upper(&heap), BLCKSZ - 3 * 32, "tuples are aligned");
    }

    #[test]
    fn a_full_page_refuses_a_tuple() {
        let mut page = page_with(&[8000], 0, Place::Heap);
        assert!(add_item(&mut page, &[1; 200], 2, Place::Heap).is_err());
    }

    #[test]
    fn repair_packs_tuples_and_keeps_their_pointers() {
        let mut page = page_with(&[40, 50, 60], 0, Place::Heap);
        replace_item_id(&mut page, 1, ItemId::redirect(3)).unwrap();
        replace_item_id(&mut page, 2, ItemId::UNUSED).unwrap();
        repair_fragmentation(&mut page).unwrap();
        assert_eq!(tuples(&page)[2], (3, 60));
        assert_eq!(page::upper(&page), BLCKSZ - 64);
        assert_eq!(item_count(&page), 3);
        assert_ne!(page::flags(&page) & PD_HAS_FREE_LINES, 0);
    }

    #[test]
    fn unused_pointers_at_the_end_go_but_one_stays() {
        let mut page = page_with(&[40, 40, 40], 0, Place::Heap);
        for number in [2, 3] {
            replace_item_id(&mut page, number, ItemId::UNUSED).unwrap();
        }
        truncate_line_pointers(&mut page).unwrap();
        assert_eq!(item_count(&page), 1);
        assert_eq!(page::flags(&page) & PD_HAS_FREE_LINES, 0);
        replace_item_id(&mut page, 1, ItemId::UNUSED).unwrap();
        truncate_line_pointers(&mut page).unwrap();
        assert_eq!(
            item_count(&page),
            1,
            "an empty array would mean an empty page"
        );
        assert_ne!(page::flags(&page) & PD_HAS_FREE_LINES, 0);
    }

    #[test]
    fn deleting_index_tuples_closes_the_gaps_for_few_and_for_many() {
        let all = page_with(&[16, 24, 32, 16, 24], 16, Place::Shift);
        let mut two = all;
        index_multi_delete(&mut two, &numbers(&[2, 4])).unwrap();
        assert_eq!(tuples(&two), [(1, 16), (3, 32), (5, 24)]);
        assert_eq!(page::upper(&two), BLCKSZ - 16 - 72);
        let mut three = all;
        index_multi_delete(&mut three, &numbers(&[1, 3, 5])).unwrap();
        assert_eq!(tuples(&three), [(2, 24), (4, 16)]);
        assert_eq!(page::upper(&three), BLCKSZ - 16 - 40);
        let mut wrong = all;
        assert!(index_multi_delete(&mut wrong, &numbers(&[1, 2, 9])).is_err());
    }

    #[test]
    fn a_shorter_version_moves_the_tuples_stored_before_it() {
        let mut page = page_with(&[16, 40, 24], 16, Place::Shift);
        index_overwrite(&mut page, 2, &[7; 24]).unwrap();
        assert_eq!(tuples(&page), [(1, 16), (7, 24), (3, 24)]);
        assert_eq!(page::upper(&page), BLCKSZ - 16 - 64);
    }
}
