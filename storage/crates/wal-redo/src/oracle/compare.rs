//! Where a page that redo makes and the server's own may differ, and where they do.
//!
//! Pure functions of two pages and, where the rule depends on it, the record between them.

use bytes::Bytes;
use pg_types::maps::{VM_VALID_BITS, vm_position};
use pg_types::page as header;
use pg_types::wal::{info, rmgr};
use pg_types::{BLCKSZ, ForkNumber, Key, Lsn, PgMajor};
use wal_decode::{BlockRef, DecodedRecord, is_only_named};

use super::names;
use crate::Page;
use crate::masking::{self, PageClass, Rules};

/// Whether the record changes nothing of the block but its LSN, and the server's own page need not get that.
///
/// - Until Postgres 16 `SQUEEZE_PAGE` does so to the page that would take the tuples of the freed one when there are
///   none: the server sets the LSN without marking the page as changed. From 17 on it leaves the page alone.
/// - A page image for hint bits: the server sets the LSN only when the page was clean before (`MarkBufferDirtyHint`).
///   A page that a checkpoint is writing at that moment, or that another session hinted first, keeps the LSN it had.
pub(super) fn may_stamp(rec: &DecodedRecord<'_>, block: &BlockRef<'_>, major: PgMajor) -> bool {
    let is_squeezed = is_only_named(rec, block, PgMajor::V17) && !is_only_named(rec, block, major);
    let is_hint_image =
        rec.rmid == rmgr::XLOG && rec.op() == info::xlog::FPI_FOR_HINT && block.image.is_some();
    is_squeezed || is_hint_image
}

/// The init fork of an unlogged bloom index, which from 17 on is written by generic records: an unlogged relation's
/// are not logged. Postgres's own recovery then finds no bloom index there (ADR 14).
pub(super) fn is_never_logged(key: Key, theirs: &Page, major: PgMajor) -> bool {
    const BLOOM_PAGE_ID: [u8; 2] = 0xFF83_u16.to_le_bytes();
    let is_init_fork = key.rel().is_some_and(|rel| rel.fork == ForkNumber::Init);
    major != PgMajor::V15 && is_init_fork && theirs.ends_with(&BLOOM_PAGE_ID)
}

pub(super) fn page_of(bytes: &Bytes) -> Option<Page> {
    bytes.as_ref().try_into().ok()
}

/// The first byte that differs under these rules; damage counts as a difference at the start.
pub(super) fn difference(
    ours: &Page,
    theirs: &Page,
    blkno: u32,
    class: PageClass,
    rules: Rules,
) -> Option<usize> {
    let (mut ours, mut theirs) = (*ours, *theirs);
    let masked = masking::mask(&mut ours, blkno, class, rules)
        .and_then(|()| masking::mask(&mut theirs, blkno, class, rules));
    match masked {
        Ok(()) => masking::first_difference(&ours, &theirs),
        Err(masking::Damaged) => Some(0),
    }
}

/// Backends change other blocks' bits on a map page in an order that is not the WAL's, so an image of it
/// says something certain only about the block whose record carries it.
pub(super) fn map_difference(rec: &DecodedRecord<'_>, ours: &Page, theirs: &Page) -> Option<usize> {
    let is_visible = rec.rmid == rmgr::HEAP2 && names::op_bits(rec) == info::heap2::VISIBLE;
    let heap_block = rec.block(1).filter(|_| is_visible)?;
    let (at, shift) = vm_position(heap_block.blkno);
    ((ours[at] ^ theirs[at]) >> shift & VM_VALID_BITS != 0).then_some(at)
}

/// Against a file the LSN counts too. A sequence's file is behind its last record on purpose: the record
/// says how far values were fetched in advance.
/// The init fork of an unlogged index is written before it is logged, so its file has no LSN.
pub(super) fn file_difference(
    ours: &Page,
    theirs: &Page,
    blkno: u32,
    class: PageClass,
    fork: ForkNumber,
) -> Option<usize> {
    if class == PageClass::SpGist && taken_into_use(ours, theirs) {
        return None;
    }
    if header::lsn(ours) != header::lsn(theirs) && fork != ForkNumber::Init {
        return Some(0);
    }
    let (mut ours, mut theirs) = (*ours, *theirs);
    // A map's pages are made, empty, before anything is logged that needs them.
    if class == PageClass::VisibilityMap && header::is_new(&ours) {
        header::init(&mut ours, 0);
    }
    if class == PageClass::Sequence {
        for page in [&mut ours, &mut theirs] {
            let data = header::upper(page).saturating_add(24)..header::special(page);
            if let Some(data) = page.get_mut(data) {
                data.fill(0);
            }
        }
    }
    difference(&ours, &theirs, blkno, class, Rules::Tight)
}

/// SP-GiST initialises an empty page when it takes it for use, and logs that with the first tuple only.
fn taken_into_use(ours: &Page, theirs: &Page) -> bool {
    header::lsn(theirs) == Lsn::INVALID
        && header::item_count(theirs) == 0
        && header::item_count(ours) == 0
}

/// The first byte of a map in which ours has a bit that theirs has not.
pub(super) fn bits_too_many(ours: &Page, theirs: &Page) -> Option<usize> {
    (header::PAGE_HEADER_BYTES..BLCKSZ).find(|at| ours[*at] & !theirs[*at] != 0)
}
