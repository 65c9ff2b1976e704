//! What heap records clear on the visibility map.
//!
//! Until the minors of August 2026 (17.11, 18.6), clearing the bits is a side effect on map pages that the record
//! does not name. Records of those minors name each map page on which bits were cleared, behind the heap pages, and
//! the record's end becomes the map page's LSN. Servers of one major write both kinds of records, so the kind is told
//! from each record.

use pg_types::maps::{VM_ALL_FROZEN, VM_VALID_BITS, vm_page};
use pg_types::wal::{info, rmgr};
use pg_types::{ForkNumber, Key, RelTag};
use smallvec::SmallVec;

use super::{PageStep, Sink, malformed};
use crate::error::InterpretError;
use crate::record::{BlockRef, DecodedRecord};

/// Bit of insert, multi-insert, delete and (for the old version) update records.
const ALL_VISIBLE_CLEARED: u8 = 0x01;
/// Bit of update records for the new version.
const NEW_ALL_VISIBLE_CLEARED: u8 = 0x02;
/// Bit of lock records.
const ALL_FROZEN_CLEARED: u8 = 0x01;

/// Heap blocks of one relation whose map bits a record clears, and which bits.
pub struct MapClears {
    /// The heap's relation and fork, not the map's.
    pub rel: RelTag,
    /// Block numbers of the heap: two for an update that clears bits of both its pages, otherwise one.
    pub blknos: SmallVec<[u32; 2]>,
    /// Bits to clear (`visibilitymapdefs.h: VISIBILITYMAP_ALL_VISIBLE`, `VISIBILITYMAP_ALL_FROZEN`).
    pub flags: u8,
}

/// Adds what the record clears on visibility map pages that it does not name, one change for each map page. If it
/// names one, no other has a bit to clear.
pub(super) fn visibility_map_clears<S: Sink>(
    record: &DecodedRecord<'_>,
    out: &mut S,
) -> Result<(), S::Error> {
    // Few records clear anything, which one byte tells.
    let clears_nothing = clearing_bits(record).is_none_or(|(at, bits)| {
        record
            .main_data
            .get(at)
            .is_some_and(|flags| flags & bits == 0)
    });
    if clears_nothing {
        return Ok(());
    }
    let Some(clears) = map_clears(record)? else {
        return Ok(());
    };
    let is_map = |block: &BlockRef<'_>| block.rel.fork == ForkNumber::VisibilityMap;
    if record.blocks.iter().any(is_map) {
        return Ok(());
    }
    let rel = clears.rel.with_fork(ForkNumber::VisibilityMap);
    let mut blknos = clears.blknos.as_slice();
    while let [first, rest @ ..] = blknos {
        let same_page = 1 + rest
            .iter()
            .take_while(|blkno| vm_page(**blkno) == vm_page(*first))
            .count();
        let (now, later) = blknos.split_at(same_page);
        let step = PageStep::VisibilityMapClear {
            heap_blknos: now,
            flags: clears.flags,
        };
        out.page(Key::rel_block(rel, vm_page(*first)), step)?;
        blknos = later;
    }
    Ok(())
}

/// What a heap record clears on the visibility map, named or not.
pub fn map_clears(record: &DecodedRecord<'_>) -> Result<Option<MapClears>, InterpretError> {
    let Some((flags_at, bits)) = clearing_bits(record) else {
        return Ok(None);
    };
    let found = flag_byte(record, flags_at)? & bits;
    if found == 0 {
        return Ok(None);
    }
    // Block 0 is the new version's page; block 1 the old one's, when it is another.
    let (rel, new) = heap_block(record, 0)?;
    let (mut blknos, mut flags) = (SmallVec::new(), VM_VALID_BITS);
    match (record.rmid, record.info & info::heap::OP_MASK) {
        (rmgr::HEAP, info::heap::UPDATE | info::heap::HOT_UPDATE) => {
            if found & ALL_VISIBLE_CLEARED != 0 {
                blknos.push(record.block(1).map_or(new, |block| block.blkno));
            }
            if found & NEW_ALL_VISIBLE_CLEARED != 0 {
                blknos.push(new);
            }
            blknos.dedup();
        }
        (rmgr::HEAP, info::heap::LOCK) | (rmgr::HEAP2, info::heap2::LOCK_UPDATED) => {
            blknos.push(new);
            flags = VM_ALL_FROZEN;
        }
        _ => blknos.push(new),
    }
    Ok(Some(MapClears { rel, blknos, flags }))
}

/// Where in its main data a record that can clear map bits has its flags, and which of them say that it does.
#[inline]
fn clearing_bits(record: &DecodedRecord<'_>) -> Option<(usize, u8)> {
    match (record.rmid, record.info & info::heap::OP_MASK) {
        (rmgr::HEAP, info::heap::INSERT) => Some((2, ALL_VISIBLE_CLEARED)),
        (rmgr::HEAP, info::heap::DELETE) => Some((7, ALL_VISIBLE_CLEARED)),
        (rmgr::HEAP, info::heap::UPDATE | info::heap::HOT_UPDATE) => {
            Some((7, ALL_VISIBLE_CLEARED | NEW_ALL_VISIBLE_CLEARED))
        }
        (rmgr::HEAP, info::heap::LOCK) => Some((7, ALL_FROZEN_CLEARED)),
        (rmgr::HEAP2, info::heap2::MULTI_INSERT) => Some((0, ALL_VISIBLE_CLEARED)),
        (rmgr::HEAP2, info::heap2::LOCK_UPDATED) => Some((7, ALL_FROZEN_CLEARED)),
        _ => None,
    }
}

fn flag_byte(record: &DecodedRecord<'_>, at: usize) -> Result<u8, InterpretError> {
    record
        .main_data
        .get(at)
        .copied()
        .ok_or_else(|| malformed(record, "its body is too short"))
}

fn heap_block(record: &DecodedRecord<'_>, id: u8) -> Result<(RelTag, u32), InterpretError> {
    let block = record
        .block(id)
        .ok_or_else(|| malformed(record, "it lacks the block it changes"))?;
    Ok((block.rel, block.blkno))
}
