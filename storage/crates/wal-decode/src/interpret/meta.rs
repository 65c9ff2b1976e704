//! Records that change which relations and databases exist.

use bytes::Bytes;
use pg_types::maps::{VM_BLOCKS_PER_PAGE, fsm_leaf_block, vm_page, vm_pages_for};
use pg_types::wal::info;
use pg_types::{ForkNumber, Key};

use super::{PageStep, Sink, malformed, word};
use crate::change::MetaChange;
use crate::record::DecodedRecord;
use crate::state::TimelineState;
use crate::xact::rel_tag;

const SHORT: &str = "its body is too short";

pub(super) fn smgr_create<S: Sink>(
    record: &DecodedRecord<'_>,
    out: &mut S,
) -> Result<(), S::Error> {
    let fork = u8::try_from(word(record, 12)?)
        .ok()
        .and_then(ForkNumber::from_u8);
    let fork = fork.ok_or_else(|| malformed(record, "it names an unknown fork"))?;
    let rel = rel_tag(record.main_data, fork).ok_or_else(|| malformed(record, SHORT))?;
    out.meta(MetaChange::CreateRel(rel))?;
    Ok(())
}

pub(super) fn smgr_truncate<S: Sink>(
    record: &DecodedRecord<'_>,
    out: &mut S,
) -> Result<(), S::Error> {
    let blocks = word(record, 0)?;
    let rel = record
        .main_data
        .get(4..)
        .and_then(|bytes| rel_tag(bytes, ForkNumber::Main));
    let rel = rel.ok_or_else(|| malformed(record, SHORT))?;
    let flags = word(record, 16)?;
    if flags & info::smgr::TRUNCATE_HEAP != 0 {
        out.meta(MetaChange::TruncateRel { rel, blocks })?;
    }
    if flags & info::smgr::TRUNCATE_FSM != 0 {
        // The leaf page that is cut in the middle goes as a whole: a search that misses it corrects the
        // levels above, whereas an entry past the heap's end would be believed.
        let fsm_blocks = if blocks == 0 {
            0
        } else {
            fsm_leaf_block(blocks)
        };
        let rel = rel.with_fork(ForkNumber::Fsm);
        out.meta(MetaChange::TruncateRel {
            rel,
            blocks: fsm_blocks,
        })?;
    }
    if flags & info::smgr::TRUNCATE_VM != 0 {
        let rel = rel.with_fork(ForkNumber::VisibilityMap);
        out.meta(MetaChange::TruncateRel {
            rel,
            blocks: vm_pages_for(blocks),
        })?;
        if !blocks.is_multiple_of(VM_BLOCKS_PER_PAGE) {
            let step = PageStep::VisibilityMapTruncate {
                heap_blocks: blocks,
            };
            out.page(Key::rel_block(rel, vm_page(blocks)), step)?;
        }
    }
    Ok(())
}

pub(super) fn dbase<S: Sink>(record: &DecodedRecord<'_>, out: &mut S) -> Result<(), S::Error> {
    let db = word(record, 0)?;
    match record.op() {
        info::dbase::CREATE_FILE_COPY => out.meta(MetaChange::CopyDatabase {
            source: (word(record, 12)?, word(record, 8)?),
            target: (word(record, 4)?, db),
        })?,
        info::dbase::CREATE_WAL_LOG => {
            out.meta(MetaChange::CreateDatabase {
                spc: word(record, 4)?,
                db,
            })?;
        }
        _ => {
            let count = word(record, 4)? as usize;
            if count > record.main_data.len() / 4 {
                return Err(malformed(record, SHORT).into());
            }
            for i in 0..count {
                out.meta(MetaChange::DropDatabase {
                    spc: word(record, 8 + 4 * i)?,
                    db,
                })?;
            }
        }
    }
    Ok(())
}

/// Body: `oid u32`, and for a new one its path, which a zero byte ends.
pub(super) fn tablespace<S: Sink>(record: &DecodedRecord<'_>, out: &mut S) -> Result<(), S::Error> {
    let spc = word(record, 0)?;
    if record.op() == info::tblspc::DROP {
        out.meta(MetaChange::DropTablespace { spc })?;
        return Ok(());
    }
    let path = record.main_data[4..].split(|byte| *byte == 0).next();
    let path = path.and_then(|path| std::str::from_utf8(path).ok());
    let path = path.ok_or_else(|| malformed(record, "its path is no text"))?;
    out.meta(MetaChange::CreateTablespace {
        spc,
        path: path.to_owned(),
    })?;
    Ok(())
}

pub(super) fn relmap<S: Sink>(
    record: &DecodedRecord<'_>,
    state: &TimelineState,
    out: &mut S,
) -> Result<(), S::Error> {
    let (db, spc, length) = (
        word(record, 0)?,
        word(record, 4)?,
        word(record, 8)? as usize,
    );
    let content = record
        .main_data
        .get(12..)
        .filter(|content| content.len() == length);
    let content = content.ok_or_else(|| malformed(record, "its map is cut short"))?;
    if length != state.major.facts().relmap_bytes {
        return Err(malformed(record, format!("its map has {length} bytes")).into());
    }
    out.meta(MetaChange::RelMap {
        spc,
        db,
        content: Bytes::copy_from_slice(content),
    })?;
    Ok(())
}
