//! The metapage: how many buckets there are and where, counted tuples, the list of bitmap pages.
//!
//! Buckets come in groups that double the index ("splitpoints"), from the tenth group on in four phases
//! each; the metapage keeps, for each phase, how many other pages lie before its buckets.

use pg_types::bytes_le::{at_u32, at_u64, get_u8, get_u32, get_u64, put_u16, put_u32, put_u64};
use pg_types::page::{self, PAGE_HEADER_BYTES};
use wal_decode::{BlockRef, DecodedRecord};

use super::{LH_META_PAGE, NONE, block_number, block_word, check, flag, flags, half, word};
use crate::Page;
use crate::error::{CUT_SHORT, Step, Why};

const MAGIC_NUMBER: u32 = 0x0644_0640;
const VERSION_NUMBER: u32 = 4;

const META: usize = PAGE_HEADER_BYTES;
const MAGIC: usize = META;
const VERSION: usize = META + 4;
const TUPLES: usize = META + 8;
const FILL_FACTOR: usize = META + 16;
const PAGE_ROOM: usize = META + 18;
const BITMAP_BYTES: usize = META + 20;
const BITMAP_SHIFT: usize = META + 22;
const MAX_BUCKET: usize = META + 24;
const HIGH_MASK: usize = META + 28;
const LOW_MASK: usize = META + 32;
const SPLITPOINT: usize = META + 36;
const FIRST_FREE: usize = META + 40;
const BITMAPS: usize = META + 44;
const HASH_FUNCTION: usize = META + 48;
const SPARES: usize = META + 52;
const BITMAP_BLOCKS: usize = SPARES + 4 * MAX_SPLITPOINTS;
const META_BYTES: usize = (BITMAP_BLOCKS + 4 * MAX_BITMAPS - META).next_multiple_of(8);

const MAX_BITMAPS: usize = 1024;
const MAX_SPLITPOINTS: usize = 98;
const MOST_BUCKETS: u32 = 0x4000_0000;
/// Splitpoint groups whose buckets come all at once; later ones come in `1 << PHASE_BITS` phases.
const ONE_PHASE_GROUPS: u32 = 10;
const PHASE_BITS: u32 = 2;
const PHASE_MASK: u32 = (1 << PHASE_BITS) - 1;

/// Bytes of a page between header and special space.
const ROOM: u16 = (super::OPAQUE - PAGE_HEADER_BYTES) as u16;

const UPDATE_MASKS: u8 = 1 << 0;
const UPDATE_SPLITPOINT: u8 = 1 << 1;

fn check_meta(page: &Page) -> Step {
    check(page)?;
    if flags(page) & LH_META_PAGE == 0 || page::lower(page) < META + META_BYTES {
        return Err(Why::Is("the page is not a hash index's metapage"));
    }
    Ok(())
}

/// Phase in which the index gets this many buckets (`_hash_spareindex`).
fn splitpoint_of(buckets: u32) -> u32 {
    let group = u32::BITS - buckets.saturating_sub(1).leading_zeros();
    if group < ONE_PHASE_GROUPS {
        return group;
    }
    let phase = buckets.saturating_sub(1) >> (group - (PHASE_BITS + 1)) & PHASE_MASK;
    ONE_PHASE_GROUPS + ((group - ONE_PHASE_GROUPS) << PHASE_BITS) + phase
}

/// Buckets there are once this phase is complete (`_hash_get_totalbuckets`).
fn buckets_after(splitpoint: u32) -> u32 {
    if splitpoint < ONE_PHASE_GROUPS {
        return 1 << splitpoint;
    }
    let later = splitpoint - ONE_PHASE_GROUPS;
    let half = 1u32 << (ONE_PHASE_GROUPS + (later >> PHASE_BITS) - 1);
    half + (half >> PHASE_BITS) * ((later & PHASE_MASK) + 1)
}

/// Buckets an index over this many tuples begins with.
fn first_buckets(tuples: f64, fill_factor: u16) -> u32 {
    let wanted = tuples / f64::from(fill_factor);
    if wanted >= f64::from(MOST_BUCKETS) {
        MOST_BUCKETS
    } else if wanted > 2.0 {
        buckets_after(splitpoint_of(wanted as u32))
    } else {
        2
    }
}

/// Main data: `expected tuples f64, hash function u32, tuples wanted in a bucket u16`.
pub(super) fn init(rec: &DecodedRecord<'_>, page: &mut Page) -> Step {
    let tuples = f64::from_bits(get_u64(rec.main_data, 0).ok_or(CUT_SHORT)?);
    let (function, fill_factor) = (word(rec, 8)?, half(rec, 12)?);
    let buckets = first_buckets(tuples, fill_factor);
    let splitpoint = splitpoint_of(buckets);
    let high_mask = (buckets + 1).next_power_of_two() - 1;
    let bitmap_log2 = ROOM.ilog2();
    super::init(page, NONE, NONE, LH_META_PAGE);
    for (at, value) in [
        (FILL_FACTOR, fill_factor),
        (PAGE_ROOM, ROOM),
        (BITMAP_BYTES, 1 << bitmap_log2),
        (BITMAP_SHIFT, bitmap_log2 as u16 + 3),
    ] {
        put_u16(page, at, value);
    }
    for (at, value) in [
        (MAGIC, MAGIC_NUMBER),
        (VERSION, VERSION_NUMBER),
        (MAX_BUCKET, buckets - 1),
        (HIGH_MASK, high_mask),
        (LOW_MASK, high_mask >> 1),
        (SPLITPOINT, splitpoint),
        (HASH_FUNCTION, function),
    ] {
        put_u32(page, at, value);
    }
    // The first bitmap page lies behind the first buckets.
    put_spare(page, splitpoint, 1)?;
    // So that the content is not taken for a hole.
    page::set_lower(page, (META + META_BYTES) as u16);
    Ok(())
}

fn spare_at(splitpoint: u32) -> Step<usize> {
    let index = splitpoint as usize;
    (index < MAX_SPLITPOINTS)
        .then_some(SPARES + 4 * index)
        .ok_or(Why::Is("a splitpoint is higher than there can be"))
}

fn put_spare(page: &mut Page, splitpoint: u32, pages: u32) -> Step {
    put_u32(page, spare_at(splitpoint)?, pages);
    Ok(())
}

fn add_bitmap(page: &mut Page, blkno: u32) -> Step {
    let count = at_u32(page, BITMAPS);
    if count as usize >= MAX_BITMAPS {
        return Err(Why::Is("the metapage has no room for another bitmap page"));
    }
    put_u32(page, BITMAP_BLOCKS + 4 * count as usize, blkno);
    put_u32(page, BITMAPS, count + 1);
    Ok(())
}

/// The bitmap page that every index begins with follows its first buckets, which begin at block 1.
pub(super) fn add_first_bitmap(page: &mut Page) -> Step {
    check_meta(page)?;
    let blkno = at_u32(page, MAX_BUCKET).wrapping_add(2);
    add_bitmap(page, blkno)
}

fn tuples(page: &Page) -> f64 {
    f64::from_bits(at_u64(page, TUPLES))
}

fn put_tuples(page: &mut Page, tuples: f64) {
    put_u64(page, TUPLES, tuples.to_bits());
}

/// That many more tuples, or fewer.
pub(super) fn count_tuples(page: &mut Page, more: i64) -> Step {
    check_meta(page)?;
    let counted = tuples(page) + more as f64;
    put_tuples(page, counted);
    Ok(())
}

/// Main data: number of tuples `f64`, as vacuum counted them.
pub(super) fn set_tuples(rec: &DecodedRecord<'_>, page: &mut Page) -> Step {
    check_meta(page)?;
    let counted = get_u64(rec.main_data, 0).ok_or(CUT_SHORT)?;
    put_tuples(page, f64::from_bits(counted));
    Ok(())
}

/// The block's data: where to look for a free overflow page, `u32`.
pub(super) fn set_first_free(block: &BlockRef<'_>, page: &mut Page) -> Step {
    check_meta(page)?;
    put_u32(page, FIRST_FREE, block_word(block)?);
    Ok(())
}

/// Main data: `bytes of a bitmap u16, the page was found free u8`. Otherwise it is a new one at the
/// index's end, and so is the bitmap page of block 3, if there is one.
pub(super) fn add_overflow(rec: &DecodedRecord<'_>, block: &BlockRef<'_>, page: &mut Page) -> Step {
    set_first_free(block, page)?;
    if flag(rec, 2)? {
        return Ok(());
    }
    let mut new_pages = 1;
    if rec.block(3).is_some() {
        add_bitmap(page, block_number(rec, 3)?)?;
        new_pages = 2;
    }
    let at = spare_at(at_u32(page, SPLITPOINT))?;
    let spares = at_u32(page, at).wrapping_add(new_pages);
    put_u32(page, at, spares);
    Ok(())
}

/// A split makes one more bucket. The block's data, as far as the flags at byte 8 of the main data say: low
/// and high mask `u32` each, then the splitpoint and the pages before its buckets, `u32` each.
pub(super) fn add_bucket(rec: &DecodedRecord<'_>, block: &BlockRef<'_>, page: &mut Page) -> Step {
    check_meta(page)?;
    let changes = get_u8(rec.main_data, 8).ok_or(CUT_SHORT)?;
    let pair = |at| {
        let first = get_u32(block.data, at).ok_or(CUT_SHORT)?;
        let second = get_u32(block.data, at + 4).ok_or(CUT_SHORT)?;
        Ok((first, second))
    };
    put_u32(page, MAX_BUCKET, word(rec, 0)?);
    let mut at = 0;
    if changes & UPDATE_MASKS != 0 {
        let (low, high) = pair(at)?;
        put_u32(page, LOW_MASK, low);
        put_u32(page, HIGH_MASK, high);
        at += 8;
    }
    if changes & UPDATE_SPLITPOINT != 0 {
        let (splitpoint, spares) = pair(at)?;
        put_spare(page, splitpoint, spares)?;
        put_u32(page, SPLITPOINT, splitpoint);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_double_at_once_first_and_in_quarters_later() {
        let counts: Vec<u32> = [2, 3, 4, 5, 8, 9, 512, 513, 641, 1024, 1025, 1281]
            .map(|buckets| buckets_after(splitpoint_of(buckets)))
            .into();
        assert_eq!(counts, [2, 4, 4, 8, 8, 16, 512, 640, 768, 1024, 1280, 1536]);
        assert_eq!(buckets_after(splitpoint_of(MOST_BUCKETS)), MOST_BUCKETS);
        assert!((splitpoint_of(MOST_BUCKETS) as usize) < MAX_SPLITPOINTS);
    }

    #[test]
    fn nonsense_expectations_make_an_index_all_the_same() {
        for (tuples, fill_factor, buckets) in [
            (0.0, 307, 2),
            (f64::NAN, 307, 2),
            (-1.0, 307, 2),
            (1.0, 0, MOST_BUCKETS),
            (0.0, 0, 2),
            (f64::INFINITY, 307, MOST_BUCKETS),
            (1e5, 307, 512),
        ] {
            assert_eq!(first_buckets(tuples, fill_factor), buckets, "{tuples}");
        }
    }
}
