//! Redo makes what Postgres makes: every page a workload touches is compared with the images Postgres logs
//! for the purpose, and with the files it leaves. And the comparison can fail.

mod support;

use pg_types::Key;
use pg_types::PgMajor;
use pg_types::wal::{info, rmgr};
use support::cluster::Cluster;
use support::recorded::{Recorded, assert_clean, with_damaged_copies};
use support::workload;
use wal_decode::{PageDelta, decode};
use wal_redo::oracle::{Redo, op_name};
use wal_redo::{ClusterSettings, Page};

const SETTINGS: &str = "
fsync = off
wal_level = replica
wal_consistency_checking = all
wal_keep_size = 8GB
max_wal_size = 8GB
max_prepared_transactions = 5
max_connections = 20
lock_timeout = 120s
statement_timeout = 300s
autovacuum_naptime = 1s
";

/// A new cluster with the settings all workloads need and these.
fn run(settings: &str, hint_bits_logged: bool, work: impl FnOnce(&Cluster)) -> Recorded {
    Recorded::run(&format!("{SETTINGS}{settings}"), hint_bits_logged, work)
}

/// Promise: with page images off, redo of every record kind of heap, B-tree, sequence and visibility map
/// gives what Postgres has, after each record and at the end.
#[test]
fn every_page_is_what_postgres_has_without_page_images() {
    let recorded = run(
        "full_page_writes = off\nwal_compression = lz4\ntrack_commit_timestamp = on\n",
        false,
        |cluster| workload::run(cluster, 150),
    );
    let report = recorded.replay(None);
    assert_clean(&report);
    let mut missing = Vec::new();
    for (rmid, op) in EXPECTED {
        if report.of(*rmid, *op).redone == 0 {
            missing.push(op_name(PgMajor::V15, *rmid, *op));
        }
    }
    assert!(
        missing.is_empty(),
        "the workload made none of {missing:?}\n{report}"
    );
}

/// Record kinds the workload must have redone at least once.
const EXPECTED: &[(u8, u8)] = &[
    (rmgr::HEAP, info::heap::INSERT),
    (rmgr::HEAP, info::heap::DELETE),
    (rmgr::HEAP, info::heap::UPDATE),
    (rmgr::HEAP, info::heap::HOT_UPDATE),
    (rmgr::HEAP, info::heap::CONFIRM),
    (rmgr::HEAP, info::heap::LOCK),
    (rmgr::HEAP, info::heap::INPLACE),
    (rmgr::HEAP2, info::heap2::PRUNE),
    (rmgr::HEAP2, info::heap2::VACUUM),
    (rmgr::HEAP2, info::heap2::FREEZE_PAGE),
    (rmgr::HEAP2, info::heap2::VISIBLE),
    (rmgr::HEAP2, info::heap2::MULTI_INSERT),
    (rmgr::HEAP2, info::heap2::LOCK_UPDATED),
    (rmgr::BTREE, info::btree::INSERT_LEAF),
    (rmgr::BTREE, info::btree::INSERT_UPPER),
    (rmgr::BTREE, info::btree::INSERT_META),
    (rmgr::BTREE, info::btree::SPLIT_L),
    (rmgr::BTREE, info::btree::SPLIT_R),
    (rmgr::BTREE, info::btree::INSERT_POST),
    (rmgr::BTREE, info::btree::DEDUP),
    (rmgr::BTREE, info::btree::DELETE),
    (rmgr::BTREE, info::btree::UNLINK_PAGE),
    (rmgr::BTREE, info::btree::UNLINK_PAGE_META),
    (rmgr::BTREE, info::btree::NEWROOT),
    (rmgr::BTREE, info::btree::MARK_PAGE_HALFDEAD),
    (rmgr::BTREE, info::btree::VACUUM),
    (rmgr::BTREE, info::btree::META_CLEANUP),
    (rmgr::SEQ, info::seq::LOG),
];

/// Promise: the same with page images on, where most pages start from an image, and with hint bits logged.
///
/// And the oracle can fail: with any of these bugs planted, the same WAL gives mismatches of that kind.
#[test]
fn with_page_images_too_and_planted_bugs_are_found() {
    let recorded = run(
        "full_page_writes = on\nwal_log_hints = on\ncheckpoint_timeout = 30s\n",
        true,
        |cluster| workload::run(cluster, 40),
    );
    assert_clean(&recorded.replay(None));

    let undisturbed = recorded.replay(Some(with_damaged_copies(recorded.settings)));
    assert!(undisturbed.mismatches.is_empty(), "{undisturbed}");

    // All at once: each spoils pages by records of its own, and a page goes on from Postgres's image.
    let spoiled = recorded.replay(Some(planted(|rec, key, page| {
        if is(rec, rmgr::HEAP, info::heap::INSERT) {
            page[8100..].rotate_right(8);
        }
        if is(rec, rmgr::HEAP, info::heap::DELETE) {
            pg_types::page::change_flags(page, pg_types::page::PD_ALL_VISIBLE, 0);
        }
        let split = is(rec, rmgr::BTREE, info::btree::SPLIT_R)
            || is(rec, rmgr::BTREE, info::btree::SPLIT_L);
        if split && rec.block(1).is_some_and(|right| right.blkno == key.e) {
            *page = [0; 8192];
        }
    })));
    assert!(
        spoiled.of(rmgr::HEAP, info::heap::INSERT).mismatched > 0,
        "a wrong offset"
    );
    assert!(
        spoiled.of(rmgr::BTREE, info::btree::SPLIT_R).mismatched > 0,
        "a lost half of a split"
    );
    let deletes = spoiled.of(rmgr::HEAP, info::heap::DELETE);
    assert_eq!(
        deletes.mismatched, 0,
        "Postgres's own rules do not see the flag"
    );
    assert!(
        deletes.tight_mismatched > 0,
        "a flag that decides what queries see"
    );
    assert!(
        spoiled.files_mismatched > 0,
        "a map bit that stays set is found in the files"
    );
}

/// Redo that spoils pages after redoing them right, and leaves bits of visibility maps set.
fn planted(
    mut spoil: impl FnMut(&wal_decode::DecodedRecord<'_>, Key, &mut Page) + 'static,
) -> Redo {
    let settings = ClusterSettings {
        hint_bits_logged: true,
        ..ClusterSettings::default()
    };
    Box::new(move |delta, key, page| {
        if matches!(delta, PageDelta::VisibilityMapClear { .. }) {
            return Ok(());
        }
        wal_redo::apply_with(settings, delta, key, page)?;
        if let PageDelta::Record {
            end_lsn, record, ..
        } = delta
        {
            let rec = decode(*end_lsn, *end_lsn, record).expect("redo has decoded it");
            spoil(&rec, key, page);
        }
        Ok(())
    })
}

fn is(rec: &wal_decode::DecodedRecord<'_>, rmid: u8, op: u8) -> bool {
    rec.rmid == rmid && (rec.info & 0x70 == op || rec.op() == op)
}
