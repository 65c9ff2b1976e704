//! From a record to what it changes, key by key.
//!
//! Invariants: the result covers everything redo of the record would touch in durable state, or there is an
//! error; at most one page change for each key. A block with an applied image always interprets, whatever
//! its resource manager; one without, or with an image for consistency checking, only for the record kinds
//! whose redo Weir has.
//!
//! What is left out on purpose: free space map updates that redo makes on the side (the map is a hint and
//! is shipped at suspend), `pg_subtrans` and `pg_notify` (cleared at every start), replication slots and
//! origins (logical replication is refused).

mod gist;
mod heap;
mod index_methods;
mod meta;
mod slru;
mod step;

pub use heap::{MapClears, map_clears};
pub use index_methods::is_only_named;
pub use step::{PageStep, Sink, restore_image_page};

use pg_types::Key;
use pg_types::wal::{info, rmgr};
use smallvec::SmallVec;

use crate::change::{MetaChange, PageChange};
use crate::error::{InterpretError, UnknownRecord};
use crate::malformed::malformed;
use crate::record::{BlockRef, DecodedRecord};
use crate::state::TimelineState;

/// What one record changes, as storage keeps it. Pages carry the record's end LSN.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interpreted {
    /// Each page with its change; a key comes once.
    pub pages: SmallVec<[(Key, PageChange); 2]>,
    /// Changes of what exists, in the order in which they apply, and before those of pages.
    pub meta: SmallVec<[MetaChange; 1]>,
}

impl Interpreted {
    /// Whether the record changes nothing that storage keeps.
    pub fn is_empty(&self) -> bool {
        self.pages.is_empty() && self.meta.is_empty()
    }
}

impl Sink for Interpreted {
    type Error = InterpretError;

    fn meta(&mut self, change: MetaChange) -> Result<(), InterpretError> {
        self.meta.push(change);
        Ok(())
    }

    fn page(&mut self, key: Key, step: PageStep<'_, '_>) -> Result<(), InterpretError> {
        self.pages.push((key, step.to_change()?));
        Ok(())
    }
}

/// Turns a record into changes to keep. `state` is the timeline's *before* the record: whether a commit also
/// stores a commit timestamp depends on it.
pub fn interpret(
    record: &DecodedRecord<'_>,
    state: &TimelineState,
) -> Result<Interpreted, InterpretError> {
    let mut out = Interpreted::default();
    interpret_into(record, state, &mut out)?;
    Ok(out)
}

/// As [`interpret`], handing each change to `out` as it is found, borrowed from the record. After an error `out` may
/// have got some of the record's changes.
pub fn interpret_into<S: Sink>(
    record: &DecodedRecord<'_>,
    state: &TimelineState,
    out: &mut S,
) -> Result<(), S::Error> {
    let op = record.op();
    match record.rmid {
        rmgr::HEAP | rmgr::HEAP2 => {
            blocks(record, NoImage::Redo, out)?;
            heap::visibility_map_clears(record, out)?;
        }
        rmgr::BTREE if op <= info::btree::META_CLEANUP => blocks(record, NoImage::Redo, out)?,
        rmgr::SEQ if op == info::seq::LOG => blocks(record, NoImage::Redo, out)?,
        rmgr::XLOG => xlog(record, state, out)?,
        rmgr::BTREE | rmgr::SEQ => unknown_kind(record, out)?,
        rmgr::HASH | rmgr::GIN | rmgr::GIST | rmgr::SPGIST | rmgr::BRIN | rmgr::GENERIC => {
            index_methods::changes(record, state.major, out)?;
        }
        _ => {
            if !record.blocks.is_empty() && record.rmid < rmgr::FIRST_CUSTOM {
                return Err(
                    malformed(record, "it refers to blocks, which its kind never does").into(),
                );
            }
            blockless(record, state, out)?;
        }
    }
    Ok(())
}

/// Resource managers whose records never refer to blocks.
fn blockless<S: Sink>(
    record: &DecodedRecord<'_>,
    state: &TimelineState,
    out: &mut S,
) -> Result<(), S::Error> {
    match (record.rmid, record.op()) {
        (rmgr::XACT, _) => slru::xact(record, state, out),
        (rmgr::SMGR, info::smgr::CREATE) => meta::smgr_create(record, out),
        (rmgr::SMGR, info::smgr::TRUNCATE) => meta::smgr_truncate(record, out),
        (rmgr::CLOG, info::clog::ZEROPAGE | info::clog::TRUNCATE) => slru::clog(record, state, out),
        (
            rmgr::DBASE,
            info::dbase::CREATE_FILE_COPY | info::dbase::CREATE_WAL_LOG | info::dbase::DROP,
        ) => meta::dbase(record, out),
        (rmgr::MULTIXACT, 0..=info::multixact::TRUNCATE_ID) => slru::multixact(record, state, out),
        (rmgr::RELMAP, info::relmap::UPDATE) => meta::relmap(record, state, out),
        (rmgr::COMMIT_TS, info::commit_ts::ZEROPAGE | info::commit_ts::TRUNCATE) => {
            slru::commit_ts(record, state, out)
        }
        (rmgr::STANDBY, 0..=info::standby::INVALIDATIONS)
        | (rmgr::REPLORIGIN, info::replorigin::SET | info::replorigin::DROP)
        | (rmgr::LOGICALMSG, info::logicalmsg::MESSAGE) => Ok(()),
        (rmgr::TBLSPC, info::tblspc::CREATE | info::tblspc::DROP) => meta::tablespace(record, out),
        (rmgr::FIRST_CUSTOM.., _) => {
            Err(unknown(record, "resource managers of extensions are not supported").into())
        }
        _ => Err(unknown(record, "the record kind is not known").into()),
    }
}

fn xlog<S: Sink>(
    record: &DecodedRecord<'_>,
    state: &TimelineState,
    out: &mut S,
) -> Result<(), S::Error> {
    match record.op() {
        info::xlog::FPI => blocks(record, NoImage::Malformed, out),
        info::xlog::FPI_FOR_HINT => blocks(record, NoImage::Unchanged, out),
        info::xlog::PARAMETER_CHANGE => slru::parameter_change(record, state, out),
        info::xlog::CHECKPOINT_SHUTDOWN
        | info::xlog::CHECKPOINT_ONLINE
        | info::xlog::NOOP
        | info::xlog::NEXTOID
        | info::xlog::SWITCH
        | info::xlog::BACKUP_END
        | info::xlog::RESTORE_POINT
        | info::xlog::FPW_CHANGE
        | info::xlog::END_OF_RECOVERY
        | info::xlog::OVERWRITE_CONTRECORD => Ok(()),
        info::xlog::CHECKPOINT_REDO if state.major.facts().records.checkpoint_redo => Ok(()),
        _ => Err(unknown(record, "the record kind is not known").into()),
    }
}

/// What a block reference without an applied image means.
#[derive(Clone, Copy, PartialEq, Eq)]
enum NoImage {
    /// The record is kept to be redone on the page.
    Redo,
    /// Nothing: a hint-bit record while page images are off, a page only named to be locked.
    Unchanged,
    /// The record kind always has an image.
    Malformed,
    /// No redo is known.
    Unknown,
}

fn blocks<S: Sink>(
    record: &DecodedRecord<'_>,
    no_image: NoImage,
    out: &mut S,
) -> Result<(), S::Error> {
    record
        .blocks
        .iter()
        .try_for_each(|block| change_block(record, block, no_image, out))
}

/// A record of a kind that is not known: only its page images can be used.
fn unknown_kind<S: Sink>(record: &DecodedRecord<'_>, out: &mut S) -> Result<(), S::Error> {
    if record.blocks.is_empty() {
        return Err(unknown(record, "the record kind is not known").into());
    }
    blocks(record, NoImage::Unknown, out)
}

fn change_block<'a, S: Sink>(
    record: &DecodedRecord<'a>,
    block: &BlockRef<'a>,
    no_image: NoImage,
    out: &mut S,
) -> Result<(), S::Error> {
    let step = match (&block.image, no_image) {
        (Some(image), _) if image.apply => PageStep::Image { record, block },
        (_, NoImage::Redo) => PageStep::Redo { record, block },
        (_, NoImage::Unchanged) => return Ok(()),
        (_, NoImage::Malformed) => {
            return Err(malformed(record, "a block lacks its page image").into());
        }
        (_, NoImage::Unknown) => {
            return Err(unknown(
                record,
                "a block comes without a page image and no redo is known for it",
            )
            .into());
        }
    };
    out.page(Key::rel_block(block.rel, block.blkno), step)
}

fn unknown(record: &DecodedRecord<'_>, why: &'static str) -> InterpretError {
    UnknownRecord {
        lsn: record.start_lsn,
        rmid: record.rmid,
        op: record.op(),
        why,
    }
    .into()
}

/// A `u32` of the main data.
fn word(record: &DecodedRecord<'_>, at: usize) -> Result<u32, InterpretError> {
    pg_types::bytes_le::get_u32(record.main_data, at)
        .ok_or_else(|| malformed(record, "its body is too short"))
}
