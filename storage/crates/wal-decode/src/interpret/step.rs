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
    type Error: From<InterpretError>;

    fn meta(&mut self, change: MetaChange) -> Result<(), Self::Error>;

    fn page(&mut self, key: Key, step: PageStep<'_, '_>) -> Result<(), Self::Error>;
}

/// A step of one page. [`PageStep::to_change`] makes of it what storage keeps.
#[derive(Clone, Copy, Debug)]
pub enum PageStep<'r, 'a> {
    /// The page becomes the image that the record has for this block: [`PageStep::restore`].
    Image {
        record: &'r DecodedRecord<'a>,
        block: &'r BlockRef<'a>,
    },
    /// The page becomes all zeroes.
    Zero,
    /// The record is to be redone on this block's page.
    Redo {
        record: &'r DecodedRecord<'a>,
        block: &'r BlockRef<'a>,
    },
    /// See [`PageDelta::VisibilityMapClear`], and so on.
    VisibilityMapClear {
        heap_blknos: &'r [u32],
        flags: u8,
    },
    VisibilityMapTruncate {
        heap_blocks: u32,
    },
    ClogSetStatus {
        xids: &'r [u32],
        status: u8,
    },
    MultixactOffset {
        entries: &'r [(u32, u32)],
    },
    MultixactMembers {
        first: u32,
        members: &'r [(u32, u8)],
    },
    CommitTimestamp {
        xids: &'r [u32],
        timestamp: i64,
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
