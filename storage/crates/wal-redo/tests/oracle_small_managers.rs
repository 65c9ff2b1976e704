//! The record kinds without pages of their own, and hint bits: what they change is compared with the files of
//! the cluster at the end (SLRUs, states of prepared transactions, relation maps).

mod support;

use pg_types::PgMajor;
use pg_types::wal::{info, rmgr};
use support::cluster::Cluster;
use support::recorded::{Recorded, assert_clean};
use wal_decode::PageDelta;
use wal_redo::apply;
use wal_redo::oracle::{Report, op_name};

const SETTINGS: &str = "
fsync = off
wal_level = replica
wal_consistency_checking = all
wal_keep_size = 8GB
max_wal_size = 8GB
max_prepared_transactions = 5
autovacuum = off
statement_timeout = 300s
allow_in_place_tablespaces = on
wal_compression = pglz
";

/// Commits before timestamps are kept.
const BEFORE: &str = "
CREATE TABLE facts (id int PRIMARY KEY, v text);
DO $$ BEGIN FOR i IN 1..50 LOOP INSERT INTO facts VALUES (i, 'before'); COMMIT; END LOOP; END $$;
ALTER SYSTEM SET track_commit_timestamp = on;
";

/// With timestamps: many transactions and subtransactions, prepared transactions, messages, tablespaces.
const KEPT: &str = "
DO $$ BEGIN FOR i IN 100..2000 LOOP INSERT INTO facts VALUES (i, 'kept'); COMMIT; END LOOP; END $$;
DO $$ BEGIN FOR i IN 10000..12000 LOOP
  BEGIN INSERT INTO facts VALUES (i, 'sub'); IF i % 3 = 0 THEN RAISE EXCEPTION 'undo'; END IF;
  EXCEPTION WHEN raise_exception THEN NULL; END; END LOOP; END $$;
SELECT pg_logical_emit_message(true, 'prefix', 'content'), pg_logical_emit_message(false, 'prefix', repeat('long', 5000));
BEGIN; LOCK TABLE facts IN ACCESS EXCLUSIVE MODE; INSERT INTO facts VALUES (20002, 'locked'); COMMIT;
CREATE TABLESPACE aside LOCATION '';
CREATE TABLE moved (id int PRIMARY KEY, v text) TABLESPACE aside;
INSERT INTO moved SELECT i, 'moved' FROM generate_series(1, 2000) i;
ALTER TABLE moved SET TABLESPACE pg_default;
ALTER TABLE facts SET TABLESPACE aside;
UPDATE facts SET v = 'aside' WHERE id < 50;
CREATE DATABASE elsewhere TABLESPACE aside STRATEGY wal_log;
CREATE DATABASE copied TABLESPACE aside STRATEGY file_copy;
CREATE TABLESPACE short_lived LOCATION '';
DROP TABLESPACE short_lived;
DROP DATABASE elsewhere;
CREATE TABLE doomed (id int); INSERT INTO doomed SELECT generate_series(1, 1000);
BEGIN; DROP TABLE doomed; SAVEPOINT a; INSERT INTO facts VALUES (20003, 'x'); PREPARE TRANSACTION 'drops';
COMMIT PREPARED 'drops';
BEGIN; CREATE TABLE never (id int); INSERT INTO never SELECT generate_series(1, 1000); PREPARE TRANSACTION 'never';
ROLLBACK PREPARED 'never';
BEGIN; INSERT INTO facts VALUES (20004, 'open'); SAVEPOINT a; INSERT INTO facts VALUES (20005, 'open'); PREPARE TRANSACTION 'stays';
CHECKPOINT;
VACUUM FULL pg_class;
-- enough subtransactions for pages, and for a segment, of both kinds of transaction data
CREATE TABLE many (i int);
DO $$ BEGIN FOR i IN 1..34000 LOOP
  BEGIN INSERT INTO many VALUES (i); EXCEPTION WHEN division_by_zero THEN NULL; END; END LOOP; END $$;
COMMIT PREPARED 'stays';
UPDATE pg_database SET datallowconn = true;
";

/// Behind the truncation of old timestamps, so that these stay.
const FROM_AFAR: &str = "
SELECT pg_replication_origin_create('far'), pg_replication_origin_create('gone');
SELECT pg_replication_origin_session_setup('far');
BEGIN; SELECT pg_replication_origin_xact_setup('0/AABBCCDD', '2013-01-01 00:00');
INSERT INTO facts VALUES (20000, 'from far'); COMMIT;
BEGIN; SELECT pg_replication_origin_xact_setup('0/AABBCCEE', '2013-01-02 00:00');
INSERT INTO facts VALUES (20001, 'prepared far'); PREPARE TRANSACTION 'far';
COMMIT PREPARED 'far';
SELECT pg_replication_origin_session_reset();
SELECT pg_replication_origin_advance('gone', '0/BBBB0000');
SELECT pg_replication_origin_drop('gone');
CHECKPOINT;
BEGIN; INSERT INTO facts VALUES (30002, 'open'); SAVEPOINT a; INSERT INTO facts VALUES (30003, 'open');
PREPARE TRANSACTION 'last';
";

const OFF: &str = "ALTER SYSTEM SET track_commit_timestamp = off;";

const ON_AGAIN: &str = "
INSERT INTO facts VALUES (30000, 'not kept');
ALTER SYSTEM SET track_commit_timestamp = on;
";

fn work(cluster: &Cluster) {
    cluster.sql(BEFORE);
    cluster.restart();
    cluster.sql(KEPT);
    cluster.run("vacuumdb", &["--all", "--freeze", "--quiet"]);
    cluster.sql(FROM_AFAR);
}

/// Kinds that must have occurred.
const EXPECTED: &[(u8, u8)] = &[
    (rmgr::XLOG, info::xlog::PARAMETER_CHANGE),
    (rmgr::XLOG, info::xlog::NEXTOID),
    (rmgr::XACT, info::xact::PREPARE),
    (rmgr::XACT, info::xact::COMMIT_PREPARED),
    (rmgr::XACT, info::xact::ABORT_PREPARED),
    (rmgr::XACT, info::xact::ASSIGNMENT),
    (rmgr::XACT, info::xact::ABORT),
    (rmgr::CLOG, info::clog::ZEROPAGE),
    (rmgr::DBASE, info::dbase::CREATE_FILE_COPY),
    (rmgr::DBASE, info::dbase::CREATE_WAL_LOG),
    (rmgr::DBASE, info::dbase::DROP),
    (rmgr::TBLSPC, info::tblspc::CREATE),
    (rmgr::TBLSPC, info::tblspc::DROP),
    (rmgr::RELMAP, info::relmap::UPDATE),
    (rmgr::STANDBY, info::standby::LOCK),
    (rmgr::STANDBY, info::standby::RUNNING_XACTS),
    (rmgr::STANDBY, info::standby::INVALIDATIONS),
    (rmgr::COMMIT_TS, info::commit_ts::ZEROPAGE),
    (rmgr::COMMIT_TS, info::commit_ts::TRUNCATE),
    (rmgr::REPLORIGIN, info::replorigin::SET),
    (rmgr::REPLORIGIN, info::replorigin::DROP),
    (rmgr::LOGICALMSG, info::logicalmsg::MESSAGE),
];

fn missing(report: &Report) -> Vec<String> {
    let absent = |(rmid, op): &&(u8, u8)| report.of(*rmid, *op).records == 0;
    let absent = EXPECTED.iter().filter(absent);
    absent
        .map(|(rmid, op)| op_name(PgMajor::V15, *rmid, *op))
        .collect()
}

/// Promise: what the kinds without images change is in the end what Postgres has in its files; and a commit
/// timestamp credited to another origin shows.
#[test]
fn the_small_resource_managers_leave_what_postgres_has() {
    let recorded = Recorded::run(SETTINGS, false, work);
    let report = recorded.replay(None);
    for (name, op) in report.ops() {
        println!("{name}: {}", op.records);
    }
    assert_clean(&report);
    let missing = missing(&report);
    assert!(missing.is_empty(), "the workload made none of {missing:?}");

    let nameless = recorded.replay(Some(Box::new(|delta, key, page| {
        let mut delta = delta.clone();
        if let PageDelta::CommitTimestamp { origin, .. } = &mut delta {
            *origin = 0;
        }
        apply(&delta, key, page)
    })));
    assert!(nameless.files_mismatched > 0, "{nameless}");
}

/// Promise: timestamps are gone once they were switched off, and begin anew when switched on again. Only a
/// change of parameters says so.
#[test]
fn commit_timestamps_switched_off_and_on() {
    let recorded = Recorded::run(SETTINGS, false, |cluster| {
        cluster.sql(BEFORE);
        cluster.restart();
        let commits = "DO $$ BEGIN FOR i IN 100..2000 LOOP INSERT INTO facts VALUES (i, 'kept'); COMMIT; END LOOP; END $$;";
        cluster.sql(&format!("{commits} CHECKPOINT; {OFF}"));
        cluster.restart();
        cluster.sql(ON_AGAIN);
        cluster.restart();
        cluster.sql("INSERT INTO facts VALUES (30001, 'kept again');");
    });
    let report = recorded.replay(None);
    assert_clean(&report);
    let changes = report.of(rmgr::XLOG, info::xlog::PARAMETER_CHANGE).records;
    // The first is the new cluster's first start.
    assert_eq!(changes, 4, "{report}");
}

/// Promise: with page images off and hint bits logged, a hint-bit record has no image and changes nothing.
#[test]
fn a_hint_record_without_an_image_changes_nothing() {
    let settings = format!("{SETTINGS}full_page_writes = off\nwal_log_hints = on\n");
    let recorded = Recorded::run(&settings, true, |cluster| {
        cluster.sql(
            "CREATE TABLE hinted (id int PRIMARY KEY, v text);
             INSERT INTO hinted SELECT i, 'x' FROM generate_series(1, 5000) i;
             BEGIN; INSERT INTO hinted SELECT i, 'x' FROM generate_series(6000, 7000) i; ROLLBACK;
             DELETE FROM hinted WHERE id % 5 = 0;
             CHECKPOINT;
             SELECT count(*) FROM hinted;
             SET enable_seqscan = off; SET enable_bitmapscan = off;
             SELECT count(v) FROM hinted WHERE id > 0;
             UPDATE hinted SET v = 'y' WHERE id < 100;",
        );
    });
    let report = recorded.replay(None);
    assert_clean(&report);
    let hints = report.of(rmgr::XLOG, info::xlog::FPI_FOR_HINT);
    assert!(hints.records > 20, "{report}");
    assert_eq!(hints.images, 0, "{report}");
}
