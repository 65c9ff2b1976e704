//! Applies WAL of Postgres 15, 17 and 18 to single 8 KiB pages, natively in Rust.
//!
//! The resulting page is what Postgres's own redo would leave, byte for byte except where Postgres itself calls a
//! byte unimportant ([`masking`] says which) and where minors of one major differ ([`minors`]). [`oracle`] checks
//! that against page images that Postgres logs for the purpose.
//!
//! Invariants:
//! - Pure: no I/O, no clock; the hot path allocates nothing beyond what decoding a record with more than four blocks
//!   needs.
//! - Never panics, whatever the bytes: records and pages are checked as they are read.
//! - After an error the page's content is unspecified; the caller throws it away.
//! - Deltas are applied in WAL order, each exactly once. Redo never skips a record that the page has already, as
//!   Postgres does for pages on disk that may be newer: the storage orders versions and never offers one twice. A page
//!   whose LSN is not below the end of the record shows that it did, and is an error, also in release builds. Records
//!   that make the page anew are not checked, because nothing of the page before them matters.
//!
//! Redo of a block uses the record's main data, the block's own data and where the other blocks are, never what the
//! other blocks hold: `wal_decode::strip_images` keeps exactly that.
//!
//! The crate has no state, so a crash leaves nothing of it behind.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod brin;
mod btree;
mod error;
mod generic;
mod gin;
mod gist;
mod hash;
mod heap;
mod heap2;
mod index_tuple;
mod layout;
pub mod masking;
pub mod minors;
pub mod oracle;
mod packing;
mod page;
mod page_ops;
mod sequence;
mod settings;
mod slru;
mod spgist;
mod tuple;
mod visibility;

use pg_types::page as header;
use pg_types::wal::{info, rmgr};
use pg_types::{ForkNumber, Key, KeyKind, Lsn, RelTag};
use wal_decode::{BlockRef, DecodedRecord, PageDelta, PageStep, decode_for, restore_into};

pub use error::RedoError;
use error::{Step, Why};
pub use page::Page;
pub use settings::ClusterSettings;

/// Applies one delta to the page under `key`, for a cluster of Postgres 15 with neither data checksums nor
/// `wal_log_hints`, which is how Weir creates clusters.
///
/// A delta for a page that does not exist yet applies to a page of zeroes. The page's LSN becomes the
/// record's end wherever Postgres sets it: not for SLRU pages, nor for side effects on visibility maps.
pub fn apply(delta: &PageDelta, key: Key, page: &mut Page) -> Result<(), RedoError> {
    apply_with(ClusterSettings::default(), delta, key, page)
}

/// As [`apply`], for a cluster with these settings.
pub fn apply_with(
    settings: ClusterSettings,
    delta: &PageDelta,
    key: Key,
    page: &mut Page,
) -> Result<(), RedoError> {
    let step = match delta {
        PageDelta::Record {
            end_lsn, record, ..
        } => {
            return apply_record(settings, *end_lsn, record, key, page);
        }
        PageDelta::VisibilityMapClear { heap_blknos, flags } => PageStep::VisibilityMapClear {
            heap_blknos,
            flags: *flags,
        },
        PageDelta::VisibilityMapTruncate { heap_blocks } => PageStep::VisibilityMapTruncate {
            heap_blocks: *heap_blocks,
        },
        PageDelta::ClogSetStatus { xids, status } => PageStep::ClogSetStatus {
            xids,
            status: *status,
        },
        PageDelta::MultixactOffset { entries } => PageStep::MultixactOffset { entries },
        PageDelta::MultixactMembers { first, members } => PageStep::MultixactMembers {
            first: *first,
            members,
        },
        PageDelta::CommitTimestamp {
            xids,
            timestamp,
            origin,
        } => PageStep::CommitTimestamp {
            xids,
            timestamp: *timestamp,
            origin: *origin,
        },
    };
    apply_step(settings, step, key, page)
}

/// As [`apply_with`] does with a [`PageDelta::Record`], whose record is lent. An error if the page has the LSN of the
/// record or a later one, unless the record makes the page anew.
pub fn apply_record(
    settings: ClusterSettings,
    end_lsn: Lsn,
    record: &[u8],
    key: Key,
    page: &mut Page,
) -> Result<(), RedoError> {
    let Some(rel) = key.rel().filter(|_| key.kind == KeyKind::RelBlock) else {
        return Err(RedoError::delta(key, "record", MISPLACED));
    };
    // The start is only for messages; the version a delta makes is its end.
    decode_for(end_lsn, end_lsn, record, |decoded| {
        check_order(decoded, key, page)?;
        redo_record_with(settings, decoded, rel, key.e, page)
    })
    .unwrap_or_else(|source| Err(RedoError::Undecodable { key, source }))
}

/// Every page that WAL changes has the LSN of an earlier record, or none: Postgres sets it under the page's lock.
#[inline]
fn check_order(rec: &DecodedRecord<'_>, key: Key, page: &Page) -> Result<(), RedoError> {
    if header::lsn(page) < rec.end_lsn {
        return Ok(());
    }
    let makes_anew = |block: &BlockRef<'_>| block.will_init && block.blkno == key.e;
    if rec.blocks.iter().any(makes_anew) {
        return Ok(());
    }
    let why = format!(
        "the page has LSN {}: the record was applied before, or out of order",
        header::lsn(page)
    );
    Err(RedoError::record(key, rec, Why::Text(why)))
}

const MISPLACED: Why = Why::Is("it is not for a page of this kind");

/// Applies a step as it comes from a record, without keeping it in between; as [`apply_with`] does with what is kept.
pub fn apply_step(
    settings: ClusterSettings,
    step: PageStep<'_, '_>,
    key: Key,
    page: &mut Page,
) -> Result<(), RedoError> {
    let (what, result) = match step {
        PageStep::Image { record, block } | PageStep::Redo { record, block } => {
            return redo_block(settings, record, block, page)
                .map_err(|why| RedoError::record(key, record, why));
        }
        PageStep::Zero => {
            page.fill(0);
            return Ok(());
        }
        PageStep::VisibilityMapClear { heap_blknos, flags } => {
            let cleared = on_map(key, || visibility::clear(heap_blknos, flags, key.e, page));
            ("visibility map clear", cleared)
        }
        PageStep::VisibilityMapTruncate { heap_blocks } => {
            let cut = on_map(key, || visibility::truncate(heap_blocks, key.e, page));
            ("visibility map truncation", cut)
        }
        PageStep::ClogSetStatus { xids, status } => {
            ("transaction status", slru::clog(key, xids, status, page))
        }
        PageStep::MultixactOffset { entries } => (
            "multixact offset",
            slru::multixact_offsets(key, entries, page),
        ),
        PageStep::MultixactMembers { first, members } => (
            "multixact member",
            slru::multixact_members(key, first, members, page),
        ),
        PageStep::CommitTimestamp {
            xids,
            timestamp,
            origin,
        } => (
            "commit timestamp",
            slru::commit_timestamps(key, xids, timestamp, origin, page),
        ),
    };
    result.map_err(|why| RedoError::delta(key, what, why))
}

/// Does it if the key is that of a visibility map's page.
fn on_map(key: Key, change: impl FnOnce() -> Step) -> Step {
    let is_map = key
        .rel()
        .is_some_and(|rel| rel.fork == ForkNumber::VisibilityMap);
    if is_map && key.kind == KeyKind::RelBlock {
        change()
    } else {
        Err(MISPLACED)
    }
}

/// Applies a record to one of the blocks it refers to, for a cluster as in [`apply`], whatever the page's LSN.
pub fn redo_record(
    rec: &DecodedRecord<'_>,
    rel: RelTag,
    blkno: u32,
    page: &mut Page,
) -> Result<(), RedoError> {
    redo_record_with(ClusterSettings::default(), rec, rel, blkno, page)
}

/// As [`redo_record`], for a cluster with these settings.
pub fn redo_record_with(
    settings: ClusterSettings,
    rec: &DecodedRecord<'_>,
    rel: RelTag,
    blkno: u32,
    page: &mut Page,
) -> Result<(), RedoError> {
    let block = rec
        .blocks
        .iter()
        .find(|block| block.rel == rel && block.blkno == blkno);
    block
        .ok_or(Why::Is("it does not refer to this page"))
        .and_then(|block| redo_block(settings, rec, block, page))
        .map_err(|why| RedoError::record(Key::rel_block(rel, blkno), rec, why))
}

fn redo_block(
    settings: ClusterSettings,
    rec: &DecodedRecord<'_>,
    block: &BlockRef<'_>,
    page: &mut Page,
) -> Step {
    if let Some(image) = block.image.filter(|image| image.apply) {
        restore_into(&image, page).map_err(|error| Why::Text(error.to_string()))?;
        // A page that was never initialised has no place for an LSN.
        if !header::is_new(page) {
            header::set_lsn(page, rec.end_lsn);
        }
        return gist::complete_image(rec, block, page);
    }
    match rec.rmid {
        rmgr::HEAP | rmgr::HEAP2 if visibility::is_named_map(rec, block) => {
            visibility::clear_named(rec, block, page)
        }
        rmgr::HEAP => heap::redo(rec, block, page),
        rmgr::HEAP2 => heap2::redo(settings, rec, block, page),
        rmgr::BTREE => btree::redo(rec, block, page),
        rmgr::HASH => hash::redo(settings.major, rec, block, page),
        rmgr::GIN => gin::redo(rec, block, page),
        rmgr::GIST => gist::redo(settings.major, rec, block, page),
        rmgr::SPGIST => spgist::redo(settings.major, rec, block, page),
        rmgr::BRIN => brin::redo(rec, block, page),
        rmgr::GENERIC => generic::redo(rec, block, page),
        rmgr::SEQ if rec.op() == info::seq::LOG => sequence::redo(rec, block, page),
        // With page images off, a hint-bit record says only that a page was touched.
        rmgr::XLOG if rec.op() == info::xlog::FPI_FOR_HINT => Ok(()),
        rmgr::XLOG => Err(Why::Is("it has no page image to restore")),
        _ => Err(Why::Is(
            "no redo is known for this resource manager without a page image",
        )),
    }
}
