//! Index kinds, and what extensions log. All of these are redone, except for pages that records only name and pages
//! that they always log as images.
//!
//! WAL may hold, with every block of these records, the page as it is after the change, which only serves to be
//! compared with (computes used to ask for that by `wal_consistency_checking`): it is left out.
//!
//! Postgres builds a record when its pages are changed already, so that an image is the page. There is one exception:
//! [`super::gist::ends_split`].

use pg_types::PgMajor;
use pg_types::bytes_le::{get_u8, get_u16};
use pg_types::wal::{info, rmgr};

use super::{NoImage, Sink, blocks, change_block, malformed, unknown_kind};
use crate::record::{BlockRef, DecodedRecord};

/// What a record of hash, GIN, GiST, SP-GiST, BRIN or generic WAL changes.
pub(super) fn changes<S: Sink>(
    record: &DecodedRecord<'_>,
    major: PgMajor,
    out: &mut S,
) -> Result<(), S::Error> {
    if !is_known(record) {
        return unknown_kind(record, out);
    }
    if record.blocks.is_empty() && !touches_no_page(record) {
        return Err(malformed(record, "it refers to no block").into());
    }
    match record.rmid {
        rmgr::HASH => hash(record, major, out),
        rmgr::GIN => gin(record, out),
        _ => blocks(record, NoImage::Redo, out),
    }
}

/// The kinds that may refer to no block. Two are GiST's: that a deleted page is used again, told to standbys for
/// the sake of their queries; and a record whose only use is that it has an LSN. An extension may also begin and
/// finish a generic record without touching a page.
fn touches_no_page(record: &DecodedRecord<'_>) -> bool {
    match record.rmid {
        rmgr::GENERIC => true,
        rmgr::GIST => matches!(record.op(), info::gist::PAGE_REUSE | info::gist::ASSIGN_LSN),
        _ => false,
    }
}

/// Whether redo knows this kind of record.
fn is_known(record: &DecodedRecord<'_>) -> bool {
    use info::{brin, gin, gist, hash, spgist};
    match record.rmid {
        rmgr::HASH => record.op() <= hash::VACUUM_ONE_PAGE,
        rmgr::GIN => (gin::CREATE_PTREE..=gin::VACUUM_DATA_LEAF_PAGE).contains(&record.op()),
        rmgr::GIST => matches!(
            record.op(),
            gist::PAGE_UPDATE
                | gist::DELETE
                | gist::PAGE_REUSE
                | gist::PAGE_SPLIT
                | gist::PAGE_DELETE
                | gist::ASSIGN_LSN
        ),
        rmgr::SPGIST => (spgist::ADD_LEAF..=spgist::VACUUM_REDIRECT).contains(&record.op()),
        rmgr::BRIN => record.op() & brin::OP_MASK <= brin::DESUMMARIZE,
        rmgr::GENERIC => record.op() == 0,
        _ => false,
    }
}

/// Whether a record names the block without changing it, and without giving it its LSN.
///
/// Three kinds of hash records name the first page of a bucket, as block 0, only for standbys to lock it while tuples
/// on its other pages move or go. When such a record does change that page, it refers to it by another number. The
/// server holds no lock on such a page's content while it logs the record, so an image of it that comes along to be
/// compared with may be from before or after what others log at the same time.
///
/// As of Postgres 17, `SQUEEZE_PAGE` also names the page that would take the tuples of the freed one when there are
/// none. Body: see `wal_redo`'s `hash`.
pub fn is_only_named(record: &DecodedRecord<'_>, block: &BlockRef<'_>, major: PgMajor) -> bool {
    if record.rmid != rmgr::HASH {
        return false;
    }
    match (record.op(), block.id) {
        (info::hash::MOVE_PAGE_CONTENTS | info::hash::SQUEEZE_PAGE | info::hash::DELETE, 0) => true,
        (info::hash::SQUEEZE_PAGE, 1) if major.facts().records.hash_squeeze_may_only_name => {
            let (tuples, is_page_before) =
                (get_u16(record.main_data, 8), get_u8(record.main_data, 11));
            tuples == Some(0) && is_page_before == Some(0)
        }
        _ => false,
    }
}

/// Hash records.
fn hash<S: Sink>(record: &DecodedRecord<'_>, major: PgMajor, out: &mut S) -> Result<(), S::Error> {
    let op = record.op();
    for block in &record.blocks {
        let no_image = match block.id {
            _ if is_only_named(record, block, major) => NoImage::Unchanged,
            _ if op == info::hash::SPLIT_PAGE => NoImage::Malformed,
            _ => NoImage::Redo,
        };
        change_block(record, block, no_image, out)?;
    }
    Ok(())
}

/// GIN records. The pages of a split, but for the child whose split ended before, and entry pages after a
/// vacuum always come as images.
fn gin<S: Sink>(record: &DecodedRecord<'_>, out: &mut S) -> Result<(), S::Error> {
    for block in &record.blocks {
        let no_image = match (record.op(), block.id) {
            (info::gin::SPLIT, 0..=2) | (info::gin::VACUUM_PAGE, _) => NoImage::Malformed,
            _ => NoImage::Redo,
        };
        change_block(record, block, no_image, out)?;
    }
    Ok(())
}
