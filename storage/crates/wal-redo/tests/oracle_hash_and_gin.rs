//! Redo makes what Postgres makes, for hash and GIN indexes: every record kind that Postgres writes for them,
//! compared after each record and with the files at the end, over sessions at the same time and crashes too.

mod support;

use pg_types::PgMajor;
use pg_types::bytes_le::{at_u16, put_u16};
use pg_types::wal::{info, rmgr};
use pg_types::{Key, page};
use support::cluster::Cluster;
use support::recorded::{Recorded, assert_clean, with_damaged_copies};
use wal_decode::{DecodedRecord, PageDelta, decode};
use wal_redo::oracle::{Redo, Report, op_name};
use wal_redo::{Page, apply};

const SETTINGS: &str = "
fsync = off
wal_level = replica
wal_consistency_checking = all
wal_keep_size = 8GB
max_wal_size = 8GB
autovacuum = off
gin_pending_list_limit = 64kB
statement_timeout = 300s
";

/// Indexes built over rows and ones that grow from nothing, logged row by row; unlogged ones for their init
/// forks. Keys of 2 kB make an entry tree deep with few rows. A build fills the pages of a posting tree, so
/// that rows which take the places of deleted ones split them.
const TABLES: &str = "
CREATE EXTENSION pg_trgm; CREATE EXTENSION btree_gin;
CREATE TABLE hashed (id int, v int);
INSERT INTO hashed SELECT i, i % 50 FROM generate_series(1, 2000) i;
CREATE INDEX hash_id ON hashed USING hash (id);
CREATE INDEX hash_same ON hashed USING hash (v);
CREATE TABLE chains (id int, v int);
CREATE INDEX hash_chain ON chains USING hash (v);
CREATE TABLE dying (id int, v int);
CREATE INDEX hash_dying ON dying USING hash (v);
CREATE UNLOGGED TABLE fleeting (id int, tag int[]);
CREATE INDEX ON fleeting USING hash (id); CREATE INDEX ON fleeting USING gin (tag);
CREATE TABLE words (id int, body tsvector, t text);
CREATE INDEX gin_list ON words USING gin (body) WITH (fastupdate = on);
CREATE INDEX gin_tree ON words USING gin (body) WITH (fastupdate = off);
CREATE INDEX gin_trgm ON words USING gin (t gin_trgm_ops);
CREATE INDEX gin_pair ON words USING gin (id, body);
CREATE TABLE tags (id int, tag int[]);
INSERT INTO tags SELECT i, '{1}' FROM generate_series(1, 24000) i;
DELETE FROM tags WHERE id % 8 = 0; VACUUM tags;
CREATE INDEX gin_tags ON tags USING gin (tag) WITH (fastupdate = off);
CREATE TABLE sparse (id int, tag int[], filler text) WITH (fillfactor = 10);
CREATE INDEX gin_sparse ON sparse USING gin (tag) WITH (fastupdate = off);
CREATE TABLE wide (id int, keys text[]);
CREATE INDEX gin_wide ON wide USING gin (keys) WITH (fastupdate = off);
";

/// One session, everything in order.
const ALONE: &str = "
INSERT INTO hashed SELECT i, i % 50 FROM generate_series(2001, 6000) i;
INSERT INTO chains SELECT i, i % 3 FROM generate_series(1, 9000) i;
INSERT INTO tags SELECT i, '{1}' FROM generate_series(30001, 32500) i;
INSERT INTO words SELECT i, to_tsvector('simple', 'all w' || i % 7 || ' x' || i % 60 || ' y' || i), left(md5(i::text), 9) FROM generate_series(1, 1500) i;
INSERT INTO sparse SELECT i, ARRAY[i % 2], repeat('s', 300) FROM generate_series(1, 3000) i;
INSERT INTO wide SELECT i, ARRAY[(SELECT string_agg(md5(i::text || j::text), '') FROM generate_series(1, 62) j)] FROM generate_series(1, 250) i;
INSERT INTO wide SELECT i, ARRAY['one', 'two', NULL] FROM generate_series(251, 400) i;
INSERT INTO wide VALUES (0, '{}'), (0, NULL);
CHECKPOINT;
UPDATE hashed SET v = v + 1 WHERE id % 11 = 0;
UPDATE words SET body = body || to_tsvector('simple', 'new z' || id) WHERE id % 5 = 0;
UPDATE sparse SET tag = tag || 7 WHERE id % 3 = 0;
DELETE FROM hashed WHERE id % 8 <> 0;
DELETE FROM chains WHERE id % 9 <> 0;
DELETE FROM words WHERE id BETWEEN 100 AND 1300;
DELETE FROM wide WHERE id % 3 = 0;
VACUUM hashed; VACUUM chains; VACUUM words; VACUUM wide;
-- whole pages of a bucket, and the middle of a posting tree, go
DELETE FROM chains WHERE v = 1 OR id < 4000; VACUUM chains;
DELETE FROM tags WHERE id < 22000; VACUUM tags;
DELETE FROM sparse WHERE id BETWEEN 500 AND 2500; VACUUM sparse;
SELECT pg_current_xact_id(); SELECT pg_current_xact_id();
VACUUM tags; VACUUM sparse;
INSERT INTO tags SELECT i, '{1}' FROM generate_series(1, 3000) i;
INSERT INTO sparse SELECT i, ARRAY[i % 2, 7], repeat('s', 300) FROM generate_series(1, 1000) i;
INSERT INTO chains SELECT i, i % 3 FROM generate_series(1, 5000) i;
INSERT INTO hashed SELECT i, i FROM generate_series(6001, 12000) i;
-- a list of many pages is cleaned at once, and rows wider than a page go into it
BEGIN; SET LOCAL gin_pending_list_limit = '8MB';
INSERT INTO words SELECT i, to_tsvector('simple', string_agg('k' || i * j % 5000, ' ')), 'key' FROM generate_series(2001, 2030) i, generate_series(1, 600) j GROUP BY i;
INSERT INTO words SELECT i, to_tsvector('simple', 'single ' || i), left(md5(i::text), 9) FROM generate_series(2101, 2300) i;
COMMIT;
SELECT gin_clean_pending_list('gin_list'), gin_clean_pending_list('gin_trgm'), gin_clean_pending_list('gin_pair');
CHECKPOINT;
BEGIN;
INSERT INTO hashed SELECT i, i FROM generate_series(17001, 17400) i;
INSERT INTO words SELECT i, 'undone', left(md5(i::text), 9) FROM generate_series(7001, 7100) i;
SAVEPOINT a;
INSERT INTO chains SELECT i, 2 FROM generate_series(7001, 9000) i;
ROLLBACK TO a;
ROLLBACK;
VACUUM hashed; VACUUM words; VACUUM chains;
REINDEX INDEX hash_same; REINDEX INDEX gin_list;
INSERT INTO words SELECT i, to_tsvector('simple', 'late ' || i), left(md5(i::text), 9) FROM generate_series(8001, 8200) i;
-- entries that scans find dead go when a page fills up
SET enable_seqscan = off; SET enable_bitmapscan = off;
DO $$ BEGIN FOR i IN 1..8 LOOP
  INSERT INTO dying SELECT j, j % 4 FROM generate_series(1, 800) j; COMMIT;
  DELETE FROM dying WHERE id % 4 <> 0; COMMIT;
  FOR k IN 0..3 LOOP PERFORM count(*) FROM dying WHERE v = k; END LOOP; COMMIT;
END LOOP; END $$;
RESET enable_seqscan; RESET enable_bitmapscan;
VACUUM dying;
-- the whole of an index goes, and it grows again
DELETE FROM hashed; DELETE FROM words; DELETE FROM tags; DELETE FROM wide; DELETE FROM sparse;
VACUUM hashed; VACUUM words; VACUUM tags; VACUUM wide; VACUUM sparse;
INSERT INTO hashed SELECT i, i % 50 FROM generate_series(1, 2000) i;
INSERT INTO words SELECT i, to_tsvector('simple', 'w' || i % 9 || ' y' || i), left(md5(i::text), 9) FROM generate_series(1, 500) i;
INSERT INTO wide SELECT i, ARRAY[md5(i::text)] FROM generate_series(1, 300) i;
INSERT INTO tags SELECT i, '{1,2}' FROM generate_series(1, 2000) i;
";

/// Sessions at the same time: splits that others complete, buckets squeezed next to insertions.
const CONCURRENT: &[(&str, &str)] = &[
    (
        "hashed.sql",
        "\\set i random(20000, 900000)
BEGIN;
INSERT INTO hashed SELECT :i + j, j % 5 FROM generate_series(1, 40) j;
INSERT INTO chains SELECT :i + j, :i % 3 FROM generate_series(1, 60) j;
END;",
    ),
    (
        "undone.sql",
        "\\set i random(20000, 900000)
BEGIN;
INSERT INTO hashed SELECT :i + j, j FROM generate_series(1, 30) j;
INSERT INTO words SELECT :i, to_tsvector('simple', 'undone ' || :i), left(md5(:i::text), 9);
INSERT INTO tags SELECT :i, ARRAY[1, :i % 9] FROM generate_series(1, 30) j;
ROLLBACK;",
    ),
    (
        "words.sql",
        "\\set i random(20000, 900000)
INSERT INTO words SELECT :i + j, to_tsvector('simple', 'w' || :i % 7 || ' y' || :i || ' v' || j), left(md5(:i::text), 9) FROM generate_series(1, 6) j;
INSERT INTO wide SELECT :i, ARRAY[(SELECT string_agg(md5(:i::text || j::text), '') FROM generate_series(1, 62) j)];
INSERT INTO tags SELECT :i, ARRAY[1, :i % 9] FROM generate_series(1, 30) j;
SELECT count(*) FROM words WHERE t LIKE '%' || :i % 1000 || '%';",
    ),
    (
        "gone.sql",
        "\\set i random(0, 40)
DELETE FROM hashed WHERE id % 41 = :i;
DELETE FROM chains WHERE id % 41 = :i;
DELETE FROM words WHERE id % 41 = :i;
DELETE FROM tags WHERE id % 41 = :i;",
    ),
];

/// Starts the concurrent scripts with so many transactions per client.
fn clients(cluster: &Cluster, transactions: u32) -> std::process::Command {
    let mut pgbench = cluster.client("pgbench");
    pgbench.args(["-n", "-c4", "-j2", &format!("-t{transactions}")]);
    for (name, text) in CONCURRENT {
        let script = cluster.write(name, text);
        pgbench.arg("-f").arg(script);
    }
    pgbench
}

fn vacuums(cluster: &Cluster) -> std::process::Command {
    let script = cluster.write(
        "vacuum.sql",
        "SELECT format('VACUUM %I', t) FROM generate_series(1, 6) i,
           unnest(ARRAY['hashed', 'chains', 'words', 'tags', 'wide']) t ORDER BY i \\gexec",
    );
    cluster.psql(&script)
}

fn work(cluster: &Cluster, transactions: u32) {
    cluster.sql(TABLES);
    cluster.sql(ALONE);
    let mut vacuum = vacuums(cluster).spawn().expect("start psql");
    let output = clients(cluster, transactions).output();
    let output = output.expect("run pgbench");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "pgbench: {text}");
    assert!(text.contains("failed transactions: 0 "), "{text}");
    assert!(vacuum.wait().expect("wait for psql").success(), "vacuum");
}

/// Record kinds the workload must have checked at least once: all there are.
const EXPECTED: &[(u8, u8)] = &[
    (rmgr::HASH, info::hash::INIT_META_PAGE),
    (rmgr::HASH, info::hash::INIT_BITMAP_PAGE),
    (rmgr::HASH, info::hash::INSERT),
    (rmgr::HASH, info::hash::ADD_OVFL_PAGE),
    (rmgr::HASH, info::hash::SPLIT_ALLOCATE_PAGE),
    (rmgr::HASH, info::hash::SPLIT_PAGE),
    (rmgr::HASH, info::hash::SPLIT_COMPLETE),
    (rmgr::HASH, info::hash::MOVE_PAGE_CONTENTS),
    (rmgr::HASH, info::hash::SQUEEZE_PAGE),
    (rmgr::HASH, info::hash::DELETE),
    (rmgr::HASH, info::hash::SPLIT_CLEANUP),
    (rmgr::HASH, info::hash::UPDATE_META_PAGE),
    (rmgr::HASH, info::hash::VACUUM_ONE_PAGE),
    (rmgr::GIN, info::gin::CREATE_PTREE),
    (rmgr::GIN, info::gin::INSERT),
    (rmgr::GIN, info::gin::SPLIT),
    (rmgr::GIN, info::gin::VACUUM_PAGE),
    (rmgr::GIN, info::gin::DELETE_PAGE),
    (rmgr::GIN, info::gin::UPDATE_META_PAGE),
    (rmgr::GIN, info::gin::INSERT_LISTPAGE),
    (rmgr::GIN, info::gin::DELETE_LISTPAGE),
    (rmgr::GIN, info::gin::VACUUM_DATA_LEAF_PAGE),
];

/// Kinds whose pages always come as images, so that nothing is redone.
const IMAGES_ALONE: &[(u8, u8)] = &[
    (rmgr::HASH, info::hash::SPLIT_PAGE),
    (rmgr::GIN, info::gin::VACUUM_PAGE),
];

fn assert_complete(report: &Report) {
    let missing: Vec<String> = EXPECTED
        .iter()
        .filter(|kind| {
            let op = report.of(kind.0, kind.1);
            op.redone == 0 && !(IMAGES_ALONE.contains(kind) && op.images > 0)
        })
        .map(|(rmid, op)| op_name(PgMajor::V15, *rmid, *op))
        .collect();
    assert!(
        missing.is_empty(),
        "the workload made none of {missing:?}\n{report}"
    );
}

/// Promise: with page images off, redo of every record kind of hash and GIN gives what Postgres has, after
/// each record and at the end. Each way a record kind can go has been taken.
#[test]
fn hash_and_gin_are_what_postgres_has_without_page_images() {
    let settings = format!("{SETTINGS}full_page_writes = off\nwal_compression = lz4\n");
    let recorded = Recorded::run(&settings, false, |cluster| work(cluster, 25));
    let ways = std::rc::Rc::new(std::cell::RefCell::new(Ways::default()));
    let seen = ways.clone();
    let report = recorded.replay(Some(Box::new(move |delta, key, page| {
        if let Some(rec) = record_of(delta) {
            seen.borrow_mut().note(&rec, key);
        }
        apply(delta, key, page)
    })));
    assert_clean(&report);
    assert_complete(&report);
    ways.borrow().assert_all();
}

/// Branches inside record kinds, counted. Not among them, since no squeeze frees anything but the last page of
/// a chain and no small index fills a bitmap page: `a_squeeze_and_a_full_bitmap` in `arbitrary_hash_and_gin.rs`.
#[derive(Default)]
struct Ways(std::collections::BTreeMap<&'static str, u32>);

const WAYS: &[&str] = &[
    "hash: overflow page found free",
    "hash: overflow page at the end",
    "hash: split begins a group of buckets",
    "hash: tuples move to a bucket's first page",
    "hash: tuples move to an overflow page",
    "hash: freed page after the one that takes its tuples",
    "hash: freed page further behind",
    "gin: entry replaced",
    "gin: entry added",
    "gin: downlink in the entry tree",
    "gin: downlink in a posting tree",
    "gin: segment deleted",
    "gin: segment inserted",
    "gin: segment replaced",
    "gin: rows added to a segment",
    "gin: rows added to the list's last page",
    "gin: pages added to the list",
    "gin: split of an inner page",
];

impl Ways {
    fn note(&mut self, rec: &DecodedRecord<'_>, key: Key) {
        let Some(block) = rec.blocks.iter().find(|block| block.blkno == key.e) else {
            return;
        };
        let (main, data) = (rec.main_data, block.data);
        match (rec.rmid, rec.op(), block.id) {
            (rmgr::HASH, info::hash::ADD_OVFL_PAGE, 4) => {
                self.add(if main[2] != 0 { WAYS[0] } else { WAYS[1] });
            }
            (rmgr::HASH, info::hash::SPLIT_ALLOCATE_PAGE, 2) if main[8] == 3 => self.add(WAYS[2]),
            (rmgr::HASH, info::hash::MOVE_PAGE_CONTENTS, 1) => {
                self.add(if main[2] != 0 { WAYS[3] } else { WAYS[4] });
            }
            (rmgr::HASH, info::hash::SQUEEZE_PAGE, 1) => {
                self.add(if main[11] != 0 { WAYS[5] } else { WAYS[6] });
            }
            (rmgr::GIN, info::gin::INSERT, 0) => match at_u16(main, 0) {
                2 => self.add(if data[2] != 0 { WAYS[7] } else { WAYS[8] }),
                0 => self.add(WAYS[9]),
                1 => self.add(WAYS[10]),
                _ => self.segment(data),
            },
            (rmgr::GIN, info::gin::VACUUM_DATA_LEAF_PAGE, 0) => self.segment(data),
            (rmgr::GIN, info::gin::UPDATE_META_PAGE, 1) => {
                self.add(if main[80] != 0 { WAYS[15] } else { WAYS[16] });
            }
            (rmgr::GIN, info::gin::SPLIT, 3) => self.add(WAYS[17]),
            _ => {}
        }
    }

    /// The first of the changes to a posting tree's leaf.
    fn segment(&mut self, data: &[u8]) {
        if let Some(kind @ 1..=4) = data.get(3) {
            self.add(WAYS[10 + usize::from(*kind)]);
        }
    }

    fn add(&mut self, way: &'static str) {
        *self.0.entry(way).or_default() += 1;
    }

    fn assert_all(&self) {
        println!("{:#?}", self.0);
        let missing: Vec<_> = WAYS
            .iter()
            .filter(|way| !self.0.contains_key(*way))
            .collect();
        assert!(missing.is_empty(), "the workload went none of {missing:?}");
    }
}

/// Promise: the same with page images on; damaged records and pages never make redo panic; and planted bugs
/// are found.
#[test]
fn hash_and_gin_with_page_images_too_and_planted_bugs_are_found() {
    let settings = format!(
        "{SETTINGS}full_page_writes = on\nwal_log_hints = on\nwal_compression = pglz\ncheckpoint_timeout = 30s\n"
    );
    let recorded = Recorded::run(&settings, true, |cluster| work(cluster, 10));
    assert_clean(&recorded.replay(Some(with_damaged_copies(recorded.settings))));

    for round in BUGS {
        let report = recorded.replay(Some(planted(round)));
        for bug in *round {
            let (rmid, op) = bug.kind;
            let found = report.of(rmid, op);
            if bug.hidden {
                assert_eq!(found.mismatched, 0, "{}\n{report}", bug.what);
            } else {
                assert!(found.mismatched > 0, "not found: {}\n{report}", bug.what);
            }
            assert!(found.tight_mismatched > 0, "{}\n{report}", bug.what);
        }
    }
}

/// A session that never ends its transaction, and how to wait until it has done its work.
const OPEN: &str = "BEGIN;
INSERT INTO hashed SELECT i, i % 5 FROM generate_series(50001, 50600) i;
INSERT INTO chains SELECT i, 1 FROM generate_series(50001, 51500) i;
INSERT INTO words SELECT i, to_tsvector('simple', 'open ' || i), 'open' FROM generate_series(50001, 50100) i;
INSERT INTO tags SELECT i, '{1,8}' FROM generate_series(50001, 51000) i;
SELECT pg_sleep(600);";
const SETTLED: &str = "DO $$ BEGIN FOR i IN 1..1200 LOOP
  EXIT WHEN EXISTS (SELECT FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND pid <> pg_backend_pid());
  PERFORM pg_sleep(0.05); PERFORM pg_stat_clear_snapshot();
END LOOP; END $$;
SELECT pg_switch_wal();";

/// Promise: what crashes cut off, without a word about it in the WAL, is as good as undone; what Postgres's
/// own redo then made of pages that were never written is what redo makes.
#[test]
fn hash_and_gin_after_crashes_are_what_postgres_has() {
    let settings = format!("{SETTINGS}full_page_writes = off\n");
    let recorded = Recorded::run(&settings, false, |cluster| {
        cluster.sql(TABLES);
        for _ in 0..3 {
            let output = clients(cluster, 5).output().expect("run pgbench");
            assert!(output.status.success(), "pgbench: {output:?}");
            let script = cluster.write("open.sql", OPEN);
            let mut open = cluster.psql(&script).spawn().expect("start psql");
            // All WAL is flushed first: a record that breaks off would be overwritten in place, which Weir's
            // computes never do.
            cluster.sql(SETTLED);
            cluster.crash_and_restart();
            let end = open.wait().expect("wait for psql");
            assert!(!end.success(), "the session outlived its server");
            // Postgres's check in recovery fails on pages that were cut off and came again later.
            cluster.sql("VACUUM (TRUNCATE false) hashed, chains, words, tags;");
        }
    });
    let report = recorded.replay(None);
    assert_clean(&report);
    for kind in [info::hash::SQUEEZE_PAGE, info::hash::SPLIT_COMPLETE] {
        assert!(report.of(rmgr::HASH, kind).checked > 0, "{report}");
    }
    let cleaned = report.of(rmgr::GIN, info::gin::DELETE_LISTPAGE);
    assert!(cleaned.checked > 0, "{report}");
}

/// Promise: a page whose LSN the server set without marking the page as changed counts as the same, whichever of its
/// LSNs the file has. A key fills two pages and begins a third; what the third has is deleted, and its page freed,
/// with nothing to be moved to the first.
#[test]
fn a_page_that_only_gets_its_lsn_is_the_same_as_its_file() {
    let settings = format!("{SETTINGS}full_page_writes = off\n");
    let recorded = Recorded::run(&settings, false, |cluster| {
        cluster.sql(
            "CREATE TABLE stamped (id int, v int); CREATE INDEX hash_stamped ON stamped USING hash (v);
             INSERT INTO stamped SELECT i, 1 FROM generate_series(1, 900) i;
             DELETE FROM stamped WHERE id > 800;",
        );
        // Clean from here on, unless marked.
        cluster.sql("CHECKPOINT");
        cluster.sql("VACUUM stamped");
    });
    let report = recorded.replay(None);
    assert_clean(&report);
    let freed = report.of(rmgr::HASH, info::hash::SQUEEZE_PAGE);
    assert!(freed.checked > 0, "{report}");
}

/// A mistake of redo.
struct Bug {
    what: &'static str,
    /// The record kind it must be found at: a page that differs goes on as Postgres has it.
    kind: (u8, u8),
    /// Block of the record whose page gets it.
    block: u8,
    /// Postgres's own comparison does not see it.
    hidden: bool,
    /// Does it to a page that was redone right.
    spoil: fn(&DecodedRecord<'_>, &mut Page),
}

const fn bug(
    what: &'static str,
    kind: (u8, u8),
    block: u8,
    spoil: fn(&DecodedRecord<'_>, &mut Page),
) -> Bug {
    Bug {
        what,
        kind,
        block,
        hidden: false,
        spoil,
    }
}

/// Bugs by replay, in each at most one for a record kind.
const BUGS: &[&[Bug]] = &[
    &[
        bug(
            "an inserted row is not counted",
            (rmgr::HASH, info::hash::INSERT),
            1,
            |_, page| page[32..40].fill(0),
        ),
        bug(
            "a new overflow page counts as free",
            (rmgr::HASH, info::hash::ADD_OVFL_PAGE),
            2,
            |_, page| page[24] &= !1,
        ),
        bug(
            "a chain goes on behind its end after a squeeze",
            (rmgr::HASH, info::hash::SQUEEZE_PAGE),
            1,
            |_, page| page[8180] ^= 1,
        ),
        bug(
            "a bucket's split never ends",
            (rmgr::HASH, info::hash::SPLIT_COMPLETE),
            0,
            |_, page| page[8188] |= 0x20,
        ),
        bug(
            "a tuple moves to the wrong line pointer",
            (rmgr::HASH, info::hash::MOVE_PAGE_CONTENTS),
            1,
            |_, page| page[24..32].rotate_left(4),
        ),
        bug(
            "a row is lost from a posting list",
            (rmgr::GIN, info::gin::INSERT),
            0,
            |rec, page| {
                if at_u16(rec.main_data, 0) == 3 {
                    let lower = page::lower(page);
                    page[lower - 2..lower].fill(0);
                }
            },
        ),
        bug(
            "the pending list loses its last page",
            (rmgr::GIN, info::gin::UPDATE_META_PAGE),
            0,
            |_, page| page[28] ^= 1,
        ),
        bug(
            "a deleted posting page keeps its downlink",
            (rmgr::GIN, info::gin::DELETE_PAGE),
            1,
            |_, page| {
                let count = at_u16(page, 8188);
                put_u16(page, 8188, count + 1);
            },
        ),
    ],
    &[
        bug(
            "a split keeps the mark that it is not complete",
            (rmgr::GIN, info::gin::INSERT),
            1,
            |_, page| {
                let flags = at_u16(page, 8190);
                put_u16(page, 8190, flags | 0x40);
            },
        ),
        Bug {
            hidden: true,
            ..bug(
                "a deleted posting page may be used again at once",
                (rmgr::GIN, info::gin::DELETE_PAGE),
                0,
                |_, page| page::set_prune_xid(page, 0),
            )
        },
    ],
];

/// Redo with these bugs.
fn planted(bugs: &'static [Bug]) -> Redo {
    let settings = wal_redo::ClusterSettings {
        hint_bits_logged: true,
        ..wal_redo::ClusterSettings::default()
    };
    Box::new(move |delta, key, page| {
        wal_redo::apply_with(settings, delta, key, page)?;
        if let Some(rec) = record_of(delta) {
            let kind = (rec.rmid, rec.op());
            let hit = |bug: &&Bug| {
                let block = rec.block(bug.block);
                bug.kind == kind && block.is_some_and(|block| block.blkno == key.e)
            };
            if let Some(bug) = bugs.iter().find(hit) {
                (bug.spoil)(&rec, page);
            }
        }
        Ok(())
    })
}

fn record_of(delta: &PageDelta) -> Option<DecodedRecord<'_>> {
    let PageDelta::Record {
        end_lsn, record, ..
    } = delta
    else {
        return None;
    };
    Some(decode(*end_lsn, *end_lsn, record).expect("interpreted records decode"))
}
