//! What a record does to a page, borrowed from the record: nothing is copied until the caller keeps the step.

use bytes::BytesMut;
use pg_types::{BLCKSZ, Key, page};

use super::{gist, malformed};
use crate::change::{MetaChange, PageChange, PageDelta};
use crate::error::InterpretError;
use crate::image::restore_into;
use crate::record::{BlockRef, DecodedRecord, strip_images};

/// Takes what records change, in WAL order. What a record changes of what exists comes before what it changes of
/// pages; each key comes at most once a record.
pub trait Sink {
    /// Why a change could not be taken, or a record could not be read as one.
    type Error: From<InterpretError>;

    /// Takes a change of what exists. An error ends the record.
    fn meta(&mut self, change: MetaChange) -> Result<(), Self::Error>;

    /// Takes the step of the page under `key`. An error ends the record.
    fn page(&mut self, key: Key, step: PageStep<'_, '_>) -> Result<(), Self::Error>;
}

/// A step of one page. [`PageStep::to_change`] makes of it what storage keeps.
#[derive(Clone, Copy, Debug)]
pub enum PageStep<'r, 'a> {
    /// The page becomes the image that the record has for this block: [`PageStep::restore`].
    Image {
        /// The record that carries the image.
        record: &'r DecodedRecord<'a>,
        /// The reference to this page among the record's blocks; it has an image.
        block: &'r BlockRef<'a>,
    },
    /// The page becomes all zeroes.
    Zero,
    /// The record is to be redone on this block's page.
    Redo {
        /// The record as it was read.
        record: &'r DecodedRecord<'a>,
        /// The reference to this page among the record's blocks.
        block: &'r BlockRef<'a>,
    },
    /// See [`PageDelta::VisibilityMapClear`], and so on.
    VisibilityMapClear {
        /// Block numbers of the heap, not of the map.
        heap_blknos: &'r [u32],
        /// Bits to clear (`visibilitymapdefs.h: VISIBILITYMAP_ALL_VISIBLE`, `VISIBILITYMAP_ALL_FROZEN`).
        flags: u8,
    },
    /// See [`PageDelta::VisibilityMapTruncate`].
    VisibilityMapTruncate {
        /// Blocks that the heap still has.
        heap_blocks: u32,
    },
    /// See [`PageDelta::ClogSetStatus`].
    ClogSetStatus {
        /// Transactions and subtransactions, all with their status on this page.
        xids: &'r [u32],
        /// `TRANSACTION_STATUS_COMMITTED` or `TRANSACTION_STATUS_ABORTED` of `clog.h`.
        status: u8,
    },
    /// See [`PageDelta::MultixactOffset`].
    MultixactOffset {
        /// Each multixact with the number of its first member; all on this page.
        entries: &'r [(u32, u32)],
    },
    /// See [`PageDelta::MultixactMembers`].
    MultixactMembers {
        /// Number of the first of these members.
        first: u32,
        /// Each member's transaction, and its status (`multixact.h: MultiXactStatus`).
        members: &'r [(u32, u8)],
    },
    /// See [`PageDelta::CommitTimestamp`].
    CommitTimestamp {
        /// Transactions and subtransactions, all with their entry on this page.
        xids: &'r [u32],
        /// Microseconds since 2000-01-01 UTC.
        timestamp: i64,
        /// The replication origin's id, 0 for a transaction of this cluster.
        origin: u16,
    },
}

impl PageStep<'_, '_> {
    /// As storage keeps it.
    pub fn to_change(&self) -> Result<PageChange, InterpretError> {
        let delta = match *self {
            PageStep::Image { record, block } => {
                let mut page = BytesMut::zeroed(BLCKSZ);
                restore_image_page(record, block, &mut page)?;
                return Ok(PageChange::Image(page.freeze()));
            }
            PageStep::Zero => return Ok(PageChange::Zero),
            PageStep::Redo { record, block } => PageDelta::Record {
                end_lsn: record.end_lsn,
                will_init: block.will_init,
                record: strip_images(record, block.id),
            },
            PageStep::VisibilityMapClear { heap_blknos, flags } => PageDelta::VisibilityMapClear {
                heap_blknos: heap_blknos.to_vec(),
                flags,
            },
            PageStep::VisibilityMapTruncate { heap_blocks } => {
                PageDelta::VisibilityMapTruncate { heap_blocks }
            }
            PageStep::ClogSetStatus { xids, status } => PageDelta::ClogSetStatus {
                xids: xids.to_vec(),
                status,
            },
            PageStep::MultixactOffset { entries } => PageDelta::MultixactOffset {
                entries: entries.to_vec(),
            },
            PageStep::MultixactMembers { first, members } => PageDelta::MultixactMembers {
                first,
                members: members.to_vec(),
            },
            PageStep::CommitTimestamp {
                xids,
                timestamp,
                origin,
            } => PageDelta::CommitTimestamp {
                xids: xids.to_vec(),
                timestamp,
                origin,
            },
        };
        Ok(PageChange::Delta(delta))
    }
}

/// Makes `out`, [`BLCKSZ`] bytes, the block's image with the record's LSN; a page that was never initialised keeps
/// none.
pub fn restore_image_page(
    record: &DecodedRecord<'_>,
    block: &BlockRef<'_>,
    out: &mut [u8],
) -> Result<(), InterpretError> {
    let Some(image) = &block.image else {
        return Err(malformed(record, "a block lacks its page image"));
    };
    restore_into(image, out)
        .map_err(|error| malformed(record, format!("{error} of block reference {}", block.id)))?;
    if !page::is_new(out) {
        page::set_lsn(out, record.end_lsn);
    }
    if gist::ends_split(record, block) {
        gist::end_split(record, out)?;
    }
    Ok(())
}
