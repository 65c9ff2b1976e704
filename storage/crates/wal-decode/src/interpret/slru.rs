//! Records that change the SLRUs: transaction ends, multixacts, page creation and truncation.

use bytes::Bytes;
use pg_types::slru::{
    FIRST_MULTI, XACT_STATUS_ABORTED, XACT_STATUS_COMMITTED, clog_page, commit_ts_page,
    multixact_member_page, multixact_offset_page, segment_of,
};
use pg_types::v15::ClusterParameters;
use pg_types::wal::info;
use pg_types::{Key, RelTag, SlruKind};
use smallvec::SmallVec;

use super::{PageStep, Sink, malformed, unknown, word};
use crate::change::MetaChange;
use crate::error::InterpretError;
use crate::record::DecodedRecord;
use crate::state::TimelineState;
use crate::xact::{MultixactCreate, Prepared, XactEnd};

pub(super) fn xact<S: Sink>(
    record: &DecodedRecord<'_>,
    state: &TimelineState,
    out: &mut S,
) -> Result<(), S::Error> {
    match record.info & info::xact::OP_MASK {
        info::xact::COMMIT
        | info::xact::ABORT
        | info::xact::COMMIT_PREPARED
        | info::xact::ABORT_PREPARED => xact_end(&XactEnd::parse(record, state.major)?, state, out),
        info::xact::PREPARE => {
            let prepared = Prepared::parse(record)?;
            let mut content = Vec::with_capacity(record.main_data.len() + 4);
            content.extend_from_slice(record.main_data);
            content.extend_from_slice(&crc32c::crc32c(record.main_data).to_le_bytes());
            out.meta(MetaChange::TwoPhaseCreate {
                xid: prepared.xid,
                content: Bytes::from(content),
            })?;
            Ok(())
        }
        info::xact::ASSIGNMENT | info::xact::INVALIDATIONS => Ok(()),
        _ => Err(unknown(record, "the record kind is not known").into()),
    }
}

fn xact_end<S: Sink>(
    end: &XactEnd<'_>,
    state: &TimelineState,
    out: &mut S,
) -> Result<(), S::Error> {
    let status = if end.committed {
        XACT_STATUS_COMMITTED
    } else {
        XACT_STATUS_ABORTED
    };
    // What exists comes first.
    let mut dropped: Vec<RelTag> = end.dropped_rels().collect();
    if !dropped.is_empty() {
        // Each once, so that they can be dropped some at a time, and forgotten.
        dropped.sort_unstable();
        dropped.dedup();
        out.meta(MetaChange::DropRels(dropped))?;
    }
    if end.prepared {
        out.meta(MetaChange::TwoPhaseRemove { xid: end.xid })?;
    }
    let mut xids: SmallVec<[u32; 64]> = end.xids().collect();
    by_page(&mut xids, clog_page, |page, xids| {
        let step = PageStep::ClogSetStatus { xids, status };
        out.page(Key::slru_block(SlruKind::Clog, page), step)
    })?;
    if !(end.committed && state.parameters.track_commit_timestamp) {
        return Ok(());
    }
    by_page(&mut xids, commit_ts_page, |page, xids| {
        let step = PageStep::CommitTimestamp {
            xids,
            timestamp: end.commit_ts,
            origin: end.origin,
        };
        out.page(Key::slru_block(SlruKind::CommitTs, page), step)
    })
}

/// Hands out the xids by the page that holds them.
fn by_page<E>(
    xids: &mut [u32],
    page_of: fn(u32) -> u32,
    mut each: impl FnMut(u32, &[u32]) -> Result<(), E>,
) -> Result<(), E> {
    xids.sort_unstable_by_key(|xid| page_of(*xid));
    xids.chunk_by(|one, other| page_of(*one) == page_of(*other))
        .try_for_each(|xids| each(page_of(xids[0]), xids))
}

/// A page of zeroes comes into existence.
fn zero_page<S: Sink>(kind: SlruKind, pageno: u32, out: &mut S) -> Result<(), S::Error> {
    out.meta(MetaChange::SlruExtend { kind, pageno })?;
    out.page(Key::slru_block(kind, pageno), PageStep::Zero)
}

/// The number of an SLRU page at the start of a record. Pages beyond 32 bits cannot be: 32-bit ids lead to them all.
fn page_number(record: &DecodedRecord<'_>, state: &TimelineState) -> Result<u32, InterpretError> {
    if state.major.facts().records.slru_page_number_bytes > 4 && word(record, 4)? != 0 {
        return Err(malformed(record, "its SLRU page has an impossible number"));
    }
    word(record, 0)
}

pub(super) fn clog<S: Sink>(
    record: &DecodedRecord<'_>,
    state: &TimelineState,
    out: &mut S,
) -> Result<(), S::Error> {
    let pageno = page_number(record, state)?;
    match record.op() {
        info::clog::ZEROPAGE => zero_page(SlruKind::Clog, pageno, out),
        _ => out.meta(MetaChange::SlruTruncate {
            kind: SlruKind::Clog,
            cutoff_page: pageno,
        }),
    }
}

pub(super) fn commit_ts<S: Sink>(
    record: &DecodedRecord<'_>,
    state: &TimelineState,
    out: &mut S,
) -> Result<(), S::Error> {
    let pageno = page_number(record, state)?;
    match record.op() {
        info::commit_ts::ZEROPAGE => zero_page(SlruKind::CommitTs, pageno, out),
        _ => out.meta(MetaChange::SlruTruncate {
            kind: SlruKind::CommitTs,
            cutoff_page: pageno,
        }),
    }
}

/// Turning commit timestamps on makes the page of the next transaction; turning them off removes all
/// pages. Postgres logs neither but for this record.
pub(super) fn parameter_change<S: Sink>(
    record: &DecodedRecord<'_>,
    state: &TimelineState,
    out: &mut S,
) -> Result<(), S::Error> {
    let parameters = ClusterParameters::parse_change(record.main_data)
        .ok_or_else(|| malformed(record, "its body is too short"))?;
    match (
        state.parameters.track_commit_timestamp,
        parameters.track_commit_timestamp,
    ) {
        (false, true) => zero_page(
            SlruKind::CommitTs,
            commit_ts_page(state.next_xid as u32),
            out,
        ),
        (true, false) => out.meta(MetaChange::SlruDropSegments {
            kind: SlruKind::CommitTs,
            first: 0,
            last: segment_of(commit_ts_page(u32::MAX)),
        }),
        _ => Ok(()),
    }
}

pub(super) fn multixact<S: Sink>(
    record: &DecodedRecord<'_>,
    state: &TimelineState,
    out: &mut S,
) -> Result<(), S::Error> {
    match record.op() {
        info::multixact::ZERO_OFF_PAGE => {
            zero_page(SlruKind::MultixactOffsets, page_number(record, state)?, out)
        }
        info::multixact::ZERO_MEM_PAGE => {
            zero_page(SlruKind::MultixactMembers, page_number(record, state)?, out)
        }
        info::multixact::CREATE_ID => create_multixact(&MultixactCreate::parse(record)?, out),
        _ => {
            let (keep_from, members_from, members_to) =
                (word(record, 8)?, word(record, 12)?, word(record, 16)?);
            truncate_multixacts(keep_from, members_from, members_to, out)
        }
    }
}

fn create_multixact<S: Sink>(create: &MultixactCreate<'_>, out: &mut S) -> Result<(), S::Error> {
    // The next multixact's first member is stored too: its start is this one's end. 0 means "not set".
    let entries = [
        (create.multi, create.offset),
        (create.next_multi(), create.next_offset().max(1)),
    ];
    let offsets_page = |entry: &(u32, u32)| multixact_offset_page(entry.0);
    for entries in entries.chunk_by(|one, other| offsets_page(one) == offsets_page(other)) {
        let key = Key::slru_block(SlruKind::MultixactOffsets, offsets_page(&entries[0]));
        out.page(key, PageStep::MultixactOffset { entries })?;
    }
    let members: SmallVec<[(u32, u8); 16]> = create.members().collect();
    let (mut first, mut left) = (create.offset, members.as_slice());
    while !left.is_empty() {
        let page = multixact_member_page(first);
        // Member numbers wrap around past the last one.
        let on_page = (0..left.len() as u32)
            .take_while(|more| multixact_member_page(first.wrapping_add(*more)) == page)
            .count();
        let (members, later) = left.split_at(on_page);
        out.page(
            Key::slru_block(SlruKind::MultixactMembers, page),
            PageStep::MultixactMembers { first, members },
        )?;
        first = first.wrapping_add(on_page as u32);
        left = later;
    }
    Ok(())
}

fn truncate_multixacts<S: Sink>(
    keep_from: u32,
    members_from: u32,
    members_to: u32,
    out: &mut S,
) -> Result<(), S::Error> {
    let last_segment = segment_of(multixact_member_page(u32::MAX));
    let (first, end) = (
        segment_of(multixact_member_page(members_from)),
        segment_of(multixact_member_page(members_to)),
    );
    let kind = SlruKind::MultixactMembers;
    let gone = if first <= end {
        [(first, end), (0, 0)]
    } else {
        [(first, last_segment + 1), (0, end)]
    };
    for (first, end) in gone.into_iter().filter(|(first, end)| first < end) {
        let last = end - 1;
        out.meta(MetaChange::SlruDropSegments { kind, first, last })?;
    }
    // One multixact further back, so that the cutoff page is one that exists.
    let last_gone = if keep_from <= FIRST_MULTI {
        u32::MAX
    } else {
        keep_from - 1
    };
    let cutoff_page = multixact_offset_page(last_gone);
    out.meta(MetaChange::SlruTruncate {
        kind: SlruKind::MultixactOffsets,
        cutoff_page,
    })
}
