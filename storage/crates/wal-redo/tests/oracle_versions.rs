//! Redo makes what Postgres 17 and 18 make, for the kinds of records that they log otherwise than 15.
//!
//! `make oracle` runs their regression suites; this is the reduced run, on the newest minor of each, and with `make
//! test-long` on the oldest supported one too. Set-up installs the servers. Where one is missing (its package is for
//! x86-64 alone) the test says so and passes: the rest of Weir does not need it.

mod support;

use pg_types::PgMajor;
use pg_types::wal::{info, rmgr};
use support::cluster::Cluster;
use support::recorded::{Recorded, assert_clean, with_damaged_copies};
use support::servers::{Server, replayed};
use wal_redo::oracle::op_name;

const SETTINGS: &str = "
fsync = off
wal_level = replica
wal_consistency_checking = all
wal_keep_size = 8GB
max_wal_size = 8GB
full_page_writes = off
wal_compression = pglz
max_prepared_transactions = 5
track_commit_timestamp = on
autovacuum = off
statement_timeout = 300s
";

/// Pruning and freezing in all their combinations, bits cleared on the visibility map by each kind of change.
const HEAP: &str = "
CREATE TABLE churn (id int PRIMARY KEY, v int, filler text) WITH (fillfactor = 80);
INSERT INTO churn SELECT i, 0, repeat('c', i % 90) FROM generate_series(1, 4000) i;
VACUUM churn;
UPDATE churn SET v = v + 1 WHERE id % 5 = 0;
SELECT count(*) FROM churn;
DO $$ BEGIN FOR i IN 1..8 LOOP
  UPDATE churn SET v = v + 1 WHERE id % 9 = i; COMMIT;
  PERFORM count(*) FROM churn WHERE id % 9 = i; COMMIT;
END LOOP; END $$;
DELETE FROM churn WHERE id % 7 = 0;
VACUUM churn;
VACUUM (FREEZE) churn;
BEGIN; SELECT id FROM churn WHERE id < 60 FOR SHARE; COMMIT;
DELETE FROM churn WHERE id % 11 = 0;
UPDATE churn SET filler = repeat('d', 200) WHERE id % 13 = 0;
VACUUM (FREEZE) churn;
VACUUM (FREEZE) pg_class, pg_attribute;
INSERT INTO churn SELECT -i, 0, 'again' FROM generate_series(1, 500) i;
";

/// Entries that scans found dead and that go when a page fills up; tuples of SP-GiST that moved; overflow pages
/// freed.
const INDEXES: &str = "
CREATE TABLE dying (id int, v int);
CREATE INDEX dying_v ON dying USING hash (v);
CREATE TABLE points (id int, p point);
CREATE INDEX points_p ON points USING gist (p);
SET enable_seqscan = off; SET enable_bitmapscan = off;
DO $$ BEGIN FOR i IN 1..6 LOOP
  INSERT INTO dying SELECT j, j % 4 FROM generate_series(1, 800) j; COMMIT;
  DELETE FROM dying WHERE id % 4 <> 0; COMMIT;
  FOR k IN 0..3 LOOP PERFORM count(*) FROM dying WHERE v = k; END LOOP; COMMIT;
  INSERT INTO points SELECT i * 1000 + j, point(j % 40, j / 40) FROM generate_series(1, 800) j; COMMIT;
  DELETE FROM points WHERE id % 3 <> 0; COMMIT;
  PERFORM count(p) FROM points WHERE p <@ box '(-1,-1),(2000,2000)'; COMMIT;
END LOOP; END $$;
RESET enable_seqscan; RESET enable_bitmapscan;
DELETE FROM dying; VACUUM dying; VACUUM points;
INSERT INTO dying SELECT i, i % 3 FROM generate_series(1, 6000) i;
DELETE FROM dying WHERE id % 8 <> 0; VACUUM dying;
DELETE FROM dying WHERE id < 5000; VACUUM dying;
CREATE TABLE shapes (id int, p point);
CREATE INDEX shapes_p ON shapes USING spgist (p);
INSERT INTO shapes SELECT i, point((i * 7919) % 10007, i) FROM generate_series(1, 5000) i;
DELETE FROM shapes WHERE id % 4 <> 0; VACUUM shapes; VACUUM shapes;
INSERT INTO shapes SELECT i, point((i * 7919) % 10007, i) FROM generate_series(1, 2000) i;
VACUUM shapes;
CREATE TABLE tags (id int, tag int[]);
CREATE INDEX tags_tag ON tags USING gin (tag);
INSERT INTO tags SELECT i, ARRAY[i % 7, i] FROM generate_series(1, 3000) i;
DELETE FROM tags WHERE id % 3 = 0; VACUUM tags;
CREATE TABLE ranges (id int);
CREATE INDEX ranges_id ON ranges USING brin (id) WITH (pages_per_range = 1);
INSERT INTO ranges SELECT generate_series(1, 5000);
SELECT brin_summarize_new_values('ranges_id');
CREATE EXTENSION bloom;
CREATE UNLOGGED TABLE fleeting (a int, b int);
CREATE INDEX fleeting_bloom ON fleeting USING bloom (a, b);
";

/// Statistics dropped by commits, aborts and prepared transactions; relation maps; enough transactions for SLRU
/// pages, and for segments of them to go.
const REST: &str = "
CREATE TABLE doomed (id int); CREATE FUNCTION nothing() RETURNS int LANGUAGE sql AS 'SELECT 1';
BEGIN; DROP TABLE doomed; DROP FUNCTION nothing(); SAVEPOINT a; INSERT INTO tags VALUES (0, '{}');
PREPARE TRANSACTION 'drops';
COMMIT PREPARED 'drops';
BEGIN; CREATE TABLE never (id int); PREPARE TRANSACTION 'never';
ROLLBACK PREPARED 'never';
BEGIN; CREATE TABLE undone (id int); ROLLBACK;
VACUUM FULL pg_class;
CREATE TABLE many (i int);
DO $$ BEGIN FOR i IN 1..34000 LOOP
  BEGIN INSERT INTO many VALUES (i); EXCEPTION WHEN division_by_zero THEN NULL; END; END LOOP; END $$;
DO $$ BEGIN FOR i IN 1..150 LOOP
  BEGIN PERFORM 1 FROM churn WHERE id <= 20 FOR KEY SHARE; UPDATE churn SET v = i WHERE id = i;
  EXCEPTION WHEN raise_exception THEN NULL; END; END LOOP; END $$;
CREATE DATABASE copied STRATEGY file_copy;
UPDATE pg_database SET datallowconn = true;
CHECKPOINT;
";

const AFTER_FREEZE: &str = "
BEGIN; INSERT INTO tags VALUES (1, '{1}'); PREPARE TRANSACTION 'open';
CHECKPOINT;
";

/// Kinds that the workload must have made.
const EXPECTED: &[(u8, u8)] = &[
    (rmgr::XLOG, info::xlog::CHECKPOINT_REDO),
    (rmgr::XACT, info::xact::COMMIT_PREPARED),
    (rmgr::XACT, info::xact::ABORT_PREPARED),
    (rmgr::CLOG, info::clog::ZEROPAGE),
    (rmgr::MULTIXACT, info::multixact::CREATE_ID),
    (rmgr::RELMAP, info::relmap::UPDATE),
    (rmgr::COMMIT_TS, info::commit_ts::ZEROPAGE),
    (rmgr::COMMIT_TS, info::commit_ts::TRUNCATE),
    (rmgr::HEAP2, info::heap2::PRUNE_ON_ACCESS),
    (rmgr::HEAP2, info::heap2::PRUNE_VACUUM_SCAN),
    (rmgr::HEAP2, info::heap2::PRUNE_VACUUM_CLEANUP),
    (rmgr::HEAP2, info::heap2::VISIBLE),
    (rmgr::HEAP, info::heap::INPLACE),
    (rmgr::BTREE, info::btree::VACUUM),
    (rmgr::HASH, info::hash::VACUUM_ONE_PAGE),
    (rmgr::HASH, info::hash::SQUEEZE_PAGE),
    (rmgr::GIN, info::gin::UPDATE_META_PAGE),
    (rmgr::GIST, info::gist::DELETE),
    (rmgr::SPGIST, info::spgist::VACUUM_REDIRECT),
    (rmgr::BRIN, info::brin::INSERT),
];

fn work(cluster: &Cluster) {
    for script in [HEAP, INDEXES, REST] {
        cluster.sql(script);
    }
    cluster.run("vacuumdb", &["--all", "--freeze", "--quiet"]);
    cluster.sql(AFTER_FREEZE);
}

/// Promise: with page images off, redo of every kind of record whose layout this server's major changed gives what it
/// has, after each record and at the end; damaged records and pages are refused or make nonsense, but nothing panics.
fn prove(server: &Server) {
    println!("Postgres {}", server.name());
    let major = server.major;
    let recorded = Recorded::run_on(server, SETTINGS, false, work);
    let report = recorded.replay(Some(with_damaged_copies(recorded.settings)));
    assert_clean(&report);
    // The init fork of the unlogged bloom index, and nothing else.
    assert_eq!(report.not_logged.len(), 1, "{report}");
    let missing: Vec<String> = EXPECTED
        .iter()
        .filter(|(rmid, op)| report.of(*rmid, *op).records == 0)
        .map(|(rmid, op)| op_name(major, *rmid, *op))
        .collect();
    assert!(
        missing.is_empty(),
        "the workload made none of {missing:?}\n{report}"
    );
}

#[test]
fn redo_makes_what_postgres_17_makes() {
    replayed(PgMajor::V17).iter().for_each(prove);
}

#[test]
fn redo_makes_what_postgres_18_makes() {
    replayed(PgMajor::V18).iter().for_each(prove);
}
