//! Records with known bodies make the changes that Postgres's recovery would make, at the edges a small workload
//! does not reach: wraparound, page and segment boundaries, truncation, epochs.

use bytes::Bytes;
use pg_types::maps::{VM_BLOCKS_PER_PAGE, fsm_leaf_block};
use pg_types::v15::{CheckPoint, ClusterParameters};
use pg_types::wal::{info, rmgr};
use pg_types::{ForkNumber, Key, Lsn, PgMajor, RelTag, SlruKind};
use wal_decode::synth::plain_record;
use wal_decode::{
    DecodedRecord, InterpretError, Interpreted, MetaChange, PageChange, PageDelta, TimelineState,
    decode, interpret,
};

const REL: RelTag = RelTag {
    spc: 1663,
    db: 5,
    rel: 16384,
    fork: ForkNumber::Main,
};

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn record(rmid: u8, info: u8, xid: u32, body: &[u8]) -> Bytes {
    plain_record(rmid, info, xid, Lsn(8), body)
}

fn parsed(bytes: &Bytes) -> DecodedRecord<'_> {
    decode(Lsn(0x0100_0028), Lsn(0x0100_0100), bytes).unwrap()
}

fn changes(rmid: u8, info: u8, xid: u32, body: &[u8]) -> Interpreted {
    interpret(&parsed(&record(rmid, info, xid, body)), &state()).unwrap()
}

fn state() -> TimelineState {
    TimelineState {
        next_xid: 1000,
        next_multi: 1,
        ..TimelineState::start_of_nothing(PgMajor::V15)
    }
}

fn observed(mut state: TimelineState, rmid: u8, info: u8, xid: u32, body: &[u8]) -> TimelineState {
    state
        .observe(&parsed(&record(rmid, info, xid, body)))
        .unwrap();
    state
}

fn delta(kind: SlruKind, page: u32, delta: PageDelta) -> (Key, PageChange) {
    (Key::slru_block(kind, page), PageChange::Delta(delta))
}

#[test]
fn multixact_members_split_at_pages_and_wrap_past_the_last_number() {
    // Four members, the first two the last that exist, of the last multixact on its offsets page.
    let first = u32::MAX - 1;
    let body = words(&[2047, first, 4, 100, 0, 101, 1, 102, 2, 103, 3]);
    let out = changes(rmgr::MULTIXACT, info::multixact::CREATE_ID, 0, &body);
    let offsets = SlruKind::MultixactOffsets;
    let members = SlruKind::MultixactMembers;
    assert_eq!(
        out.pages.to_vec(),
        [
            delta(
                offsets,
                0,
                PageDelta::MultixactOffset {
                    entries: vec![(2047, first)]
                }
            ),
            delta(
                offsets,
                1,
                PageDelta::MultixactOffset {
                    entries: vec![(2048, 2)]
                }
            ),
            delta(
                members,
                u32::MAX / 1636,
                PageDelta::MultixactMembers {
                    first,
                    members: vec![(100, 0), (101, 1)]
                }
            ),
            delta(
                members,
                0,
                PageDelta::MultixactMembers {
                    first: 0,
                    members: vec![(102, 2), (103, 3)]
                }
            ),
        ]
    );
    // An offset of 0 would mean "not set": the end of the numbers is stored as 1.
    let out = changes(
        rmgr::MULTIXACT,
        info::multixact::CREATE_ID,
        0,
        &words(&[5, u32::MAX, 1, 100, 0]),
    );
    let entries = vec![(5, u32::MAX), (6, 1)];
    assert_eq!(
        out.pages[0],
        delta(offsets, 0, PageDelta::MultixactOffset { entries })
    );
}

#[test]
fn multixact_truncation_drops_member_segments_by_range_even_across_the_wrap() {
    let per_segment = 1636 * 32;
    let body = words(&[5, 1, 10_000, per_segment * 3, per_segment * 7 + 1]);
    let out = changes(rmgr::MULTIXACT, info::multixact::TRUNCATE_ID, 0, &body);
    let kind = SlruKind::MultixactMembers;
    assert_eq!(
        out.meta.to_vec(),
        [
            MetaChange::SlruDropSegments {
                kind,
                first: 3,
                last: 6
            },
            MetaChange::SlruTruncate {
                kind: SlruKind::MultixactOffsets,
                cutoff_page: 9_999 / 2048
            },
        ]
    );
    let last_segment = u32::MAX / 1636 / 32;
    let body = words(&[5, 1, 1, per_segment * last_segment, per_segment * 2]);
    let out = changes(rmgr::MULTIXACT, info::multixact::TRUNCATE_ID, 0, &body);
    assert_eq!(
        out.meta[0],
        MetaChange::SlruDropSegments {
            kind,
            first: last_segment,
            last: last_segment
        }
    );
    assert_eq!(
        out.meta[1],
        MetaChange::SlruDropSegments {
            kind,
            first: 0,
            last: 1
        }
    );
}

#[test]
fn a_commit_sets_status_and_timestamp_on_each_page_its_transactions_lie_on() {
    // Commit of 32766 with subtransactions on both sides of a clog page boundary.
    let mut body = 77u64.to_le_bytes().to_vec();
    body.extend(words(&[
        info::xact::XINFO_HAS_SUBXACTS,
        3,
        32767,
        32768,
        40000,
    ]));
    let bytes = record(
        rmgr::XACT,
        info::xact::COMMIT | info::xact::HAS_INFO,
        32766,
        &body,
    );
    let mut timestamps = state();
    timestamps.parameters.track_commit_timestamp = true;
    timestamps.newest_commit_ts_xid = 5;
    let out = interpret(&parsed(&bytes), &timestamps).unwrap();
    let status = |xids: &[u32]| PageDelta::ClogSetStatus {
        xids: xids.to_vec(),
        status: 1,
    };
    let time = |xids: &[u32]| PageDelta::CommitTimestamp {
        xids: xids.to_vec(),
        timestamp: 77,
        origin: 0,
    };
    assert_eq!(
        out.pages.to_vec(),
        [
            delta(SlruKind::Clog, 0, status(&[32766, 32767])),
            delta(SlruKind::Clog, 1, status(&[32768, 40000])),
            delta(SlruKind::CommitTs, 40, time(&[32766, 32767, 32768])),
            delta(SlruKind::CommitTs, 48, time(&[40000])),
        ]
    );
    timestamps.observe(&parsed(&bytes)).unwrap();
    assert_eq!(
        (timestamps.next_xid, timestamps.newest_commit_ts_xid),
        (40001, 40000)
    );
    assert_eq!(timestamps.last_commit_timestamp, 77);
    // Without commit timestamps there is nothing but the clog.
    assert_eq!(interpret(&parsed(&bytes), &state()).unwrap().pages.len(), 2);
}

#[test]
fn truncation_covers_the_maps_by_its_flags() {
    let cut = |blocks: u32, flags: u32| {
        changes(
            rmgr::SMGR,
            info::smgr::TRUNCATE,
            0,
            &words(&[blocks, REL.spc, REL.db, REL.rel, flags]),
        )
    };
    let (vm, fsm) = (
        REL.with_fork(ForkNumber::VisibilityMap),
        REL.with_fork(ForkNumber::Fsm),
    );
    let blocks = VM_BLOCKS_PER_PAGE + 10;
    let out = cut(blocks, 7);
    assert_eq!(
        out.meta.to_vec(),
        [
            MetaChange::TruncateRel { rel: REL, blocks },
            MetaChange::TruncateRel {
                rel: fsm,
                blocks: fsm_leaf_block(blocks)
            },
            MetaChange::TruncateRel { rel: vm, blocks: 2 },
        ]
    );
    let clear = PageChange::Delta(PageDelta::VisibilityMapTruncate {
        heap_blocks: blocks,
    });
    assert_eq!(out.pages.to_vec(), [(Key::rel_block(vm, 1), clear)]);
    assert!(
        cut(VM_BLOCKS_PER_PAGE, 7).pages.is_empty(),
        "a cut between map pages leaves none in part"
    );
    assert_eq!(
        cut(0, 1).meta.to_vec(),
        [MetaChange::TruncateRel {
            rel: REL,
            blocks: 0
        }]
    );
}

#[test]
fn turning_commit_timestamps_off_removes_them_and_on_makes_the_next_page() {
    let body = |on: u8| {
        let mut body = words(&[100, 8, 10, 0, 64, 1]);
        body.extend([0, on, 0, 0]);
        body
    };
    let at_2000 = TimelineState {
        next_xid: 2000,
        ..state()
    };
    let on = record(rmgr::XLOG, info::xlog::PARAMETER_CHANGE, 0, &body(1));
    let out = interpret(&parsed(&on), &at_2000).unwrap();
    assert_eq!(
        out.pages.to_vec(),
        [(Key::slru_block(SlruKind::CommitTs, 2), PageChange::Zero)]
    );
    assert_eq!(
        out.meta.to_vec(),
        [MetaChange::SlruExtend {
            kind: SlruKind::CommitTs,
            pageno: 2
        }]
    );
    let with = observed(
        at_2000,
        rmgr::XLOG,
        info::xlog::PARAMETER_CHANGE,
        0,
        &body(1),
    );
    assert_eq!(
        (with.oldest_commit_ts_xid, with.newest_commit_ts_xid),
        (2000, 2000)
    );
    let expected = ClusterParameters {
        max_connections: 100,
        max_worker_processes: 8,
        max_wal_senders: 10,
        max_prepared_xacts: 0,
        max_locks_per_xact: 64,
        wal_level: 1,
        wal_log_hints: false,
        track_commit_timestamp: true,
    };
    assert_eq!(with.parameters, expected);
    assert!(
        interpret(&parsed(&on), &with).unwrap().is_empty(),
        "no change, no page"
    );

    let off = record(rmgr::XLOG, info::xlog::PARAMETER_CHANGE, 0, &body(0));
    let out = interpret(&parsed(&off), &with).unwrap();
    assert!(matches!(
        out.meta[0],
        MetaChange::SlruDropSegments {
            kind: SlruKind::CommitTs,
            first: 0,
            ..
        }
    ));
    let without = observed(with, rmgr::XLOG, info::xlog::PARAMETER_CHANGE, 0, &body(0));
    assert_eq!(
        (without.oldest_commit_ts_xid, without.newest_commit_ts_xid),
        (0, 0)
    );
}

#[test]
fn transaction_ids_advance_across_epochs_and_never_go_back() {
    let advance = |next_xid: u64, xid: u32| {
        let start = TimelineState {
            next_xid,
            ..state()
        };
        observed(start, rmgr::LOGICALMSG, 0, xid, b"x").next_xid
    };
    let epoch = 1u64 << 32;
    assert_eq!(advance(1000, 999), 1000);
    assert_eq!(advance(1000, 1000), 1001);
    assert_eq!(advance(1000, 0), 1000);
    assert_eq!(advance(3 * epoch + 1000, 5000), 3 * epoch + 5001);
    assert_eq!(
        advance(0xFFFF_FFF0, 0xFFFF_FFFF),
        epoch + 3,
        "the special ids are skipped"
    );
    assert_eq!(advance(0xFFFF_FFF0, 7), epoch + 8);
    assert_eq!(advance(epoch + 8, 0xFFFF_FFF0), epoch + 8);
}

#[test]
fn a_shutdown_checkpoint_decides_and_an_online_one_only_moves_forward() {
    let now = TimelineState {
        next_xid: 5000,
        next_oid: 30_000,
        next_multi: 50,
        next_multi_offset: 500,
        oldest_xid: 700,
        oldest_xid_db: 1,
        oldest_multi: 3,
        oldest_multi_db: 1,
        full_page_writes: false,
        ..state()
    };
    let stale = CheckPoint {
        full_page_writes: true,
        next_xid: 4000,
        next_oid: 20_000,
        next_multi: 40,
        next_multi_offset: 400,
        oldest_xid: 600,
        oldest_xid_db: 2,
        oldest_multi: 2,
        oldest_multi_db: 2,
        time: 99,
        oldest_active_xid: 3999,
        ..CheckPoint::default()
    };
    let online = |body: &CheckPoint| {
        observed(
            now,
            rmgr::XLOG,
            info::xlog::CHECKPOINT_ONLINE,
            0,
            &body.to_bytes(),
        )
    };
    let after = online(&stale);
    let moved = TimelineState {
        checkpoint_time: 99,
        prev_record_lsn: after.prev_record_lsn,
        last_record_lsn: after.last_record_lsn,
        ..now
    };
    assert_eq!(after, moved);

    let newer = CheckPoint {
        next_xid: 6000,
        next_multi: 60,
        next_multi_offset: 600,
        oldest_xid: 800,
        oldest_multi: 9,
        ..stale
    };
    let after = online(&newer);
    assert_eq!(
        (after.next_xid, after.next_multi, after.next_multi_offset),
        (6000, 60, 600)
    );
    assert_eq!(
        (
            after.oldest_xid,
            after.oldest_xid_db,
            after.oldest_multi,
            after.oldest_multi_db
        ),
        (800, 2, 9, 2)
    );
    assert_eq!(
        (after.next_oid, after.full_page_writes),
        (30_000, false),
        "not taken from an online checkpoint"
    );

    let after = observed(
        now,
        rmgr::XLOG,
        info::xlog::CHECKPOINT_SHUTDOWN,
        0,
        &stale.to_bytes(),
    );
    let expected = CheckPoint {
        this_tli: 1,
        prev_tli: 1,
        oldest_active_xid: 0,
        ..stale
    };
    assert_eq!(after.checkpoint_at(stale.redo, stale.time), expected);
}

#[test]
fn counters_follow_the_records_between_checkpoints() {
    let after = observed(
        state(),
        rmgr::XLOG,
        info::xlog::NEXTOID,
        0,
        &words(&[24_576]),
    );
    assert_eq!(after.next_oid, 24_576);
    let create = words(&[2047, 90, 2, 1500, 0, 1600, 0]);
    let after = observed(
        state(),
        rmgr::MULTIXACT,
        info::multixact::CREATE_ID,
        0,
        &create,
    );
    assert_eq!(
        (after.next_multi, after.next_multi_offset, after.next_xid),
        (2048, 92, 1601)
    );
    let older = observed(
        after,
        rmgr::MULTIXACT,
        info::multixact::CREATE_ID,
        0,
        &words(&[2046, 88, 2, 3, 0, 4, 0]),
    );
    assert_eq!((older.next_multi, older.next_multi_offset), (2048, 92));
    let last = observed(
        TimelineState {
            next_multi: u32::MAX,
            ..state()
        },
        rmgr::MULTIXACT,
        info::multixact::CREATE_ID,
        0,
        &words(&[u32::MAX, 10, 1, 5, 0]),
    );
    assert_eq!(last.next_multi, 1, "0 is no multixact");
    let cut = observed(
        after,
        rmgr::MULTIXACT,
        info::multixact::TRUNCATE_ID,
        0,
        &words(&[5, 1, 2000, 1, 80]),
    );
    assert_eq!((cut.oldest_multi, cut.oldest_multi_db), (2000, 5));
    let cut = observed(
        after,
        rmgr::CLOG,
        info::clog::TRUNCATE,
        0,
        &words(&[0, 900, 5]),
    );
    assert_eq!((cut.oldest_xid, cut.oldest_xid_db), (900, 5));
    let running = words(&[0, 0, 0, 4321, 4000, 4320]);
    assert_eq!(
        observed(
            state(),
            rmgr::STANDBY,
            info::standby::RUNNING_XACTS,
            0,
            &running
        )
        .next_xid,
        4321
    );
    let fpw = observed(state(), rmgr::XLOG, info::xlog::FPW_CHANGE, 0, &[1]);
    assert_eq!(
        (fpw.full_page_writes, fpw.full_page_writes_lsn),
        (true, Lsn(0x0100_0028))
    );
}

#[test]
fn what_is_not_known_stops_with_its_name() {
    let refused =
        |rmid: u8, info: u8| match interpret(&parsed(&record(rmid, info, 0, &[0; 64])), &state()) {
            Err(InterpretError::Unknown(unknown)) => unknown.to_string(),
            other => panic!("{other:?}"),
        };
    let message = refused(rmgr::TBLSPC, 0x20);
    assert!(
        message.contains("Tablespace") && message.contains("0/1000028"),
        "{message}"
    );
    refused(rmgr::XLOG, 0xE0);
    refused(rmgr::SMGR, 0x40);
    refused(200, 0);
    refused(rmgr::BTREE, 0xF0);
    refused(rmgr::GIN, 0xA0);
    refused(rmgr::GIST, 0x40);
    refused(rmgr::SPGIST, 0x90);
    refused(rmgr::BRIN, 0x70);
    refused(rmgr::GENERIC, 0x10);
    for (rmid, op) in [(rmgr::GIST, 0x00), (rmgr::GIN, 0x20), (rmgr::HASH, 0x20)] {
        let without_block = interpret(&parsed(&record(rmid, op, 0, &[0; 64])), &state());
        assert!(matches!(
            without_block,
            Err(InterpretError::Malformed { .. })
        ));
    }
    let short = interpret(
        &parsed(&record(rmgr::SMGR, info::smgr::CREATE, 0, &[0; 4])),
        &state(),
    );
    assert!(matches!(short, Err(InterpretError::Malformed { .. })));
}

#[test]
fn tablespaces_come_and_go() {
    let body = [&16500u32.to_le_bytes()[..], b"/srv/fast\0"].concat();
    assert_eq!(
        changes(rmgr::TBLSPC, info::tblspc::CREATE, 0, &body).meta[..],
        [MetaChange::CreateTablespace {
            spc: 16500,
            path: "/srv/fast".into()
        }]
    );
    assert_eq!(
        changes(rmgr::TBLSPC, info::tblspc::DROP, 0, &body[..4]).meta[..],
        [MetaChange::DropTablespace { spc: 16500 }]
    );
}

#[test]
fn gist_records_for_standbys_touch_nothing() {
    for op in [info::gist::PAGE_REUSE, info::gist::ASSIGN_LSN] {
        assert!(changes(rmgr::GIST, op, 0, &[0; 32]).is_empty());
    }
}
