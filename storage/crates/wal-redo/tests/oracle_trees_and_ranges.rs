//! Redo makes what Postgres makes, for GiST, SP-GiST and BRIN indexes and for generic WAL: every record kind
//! that Postgres writes for them, compared after each record and with the files at the end.

mod support;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use pg_types::PgMajor;
use pg_types::wal::{info, rmgr};
use pg_types::{Key, page};
use support::cluster::Cluster;
use support::recorded::{Recorded, assert_clean, with_damaged_copies};
use wal_decode::{DecodedRecord, PageDelta, decode};
use wal_redo::oracle::{Report, op_name};
use wal_redo::{ClusterSettings, Page, apply};

const SETTINGS: &str = "
fsync = off
wal_level = replica
wal_consistency_checking = all
wal_keep_size = 8GB
max_wal_size = 8GB
autovacuum = off
statement_timeout = 300s
";

/// Indexes that grow from nothing, so that every change of theirs is logged, and a few built over rows.
const TABLES: &str = "
CREATE EXTENSION pg_trgm; CREATE EXTENSION bloom; CREATE EXTENSION btree_gist;
CREATE TABLE places (id int, p point, r tsrange);
INSERT INTO places SELECT i, point(i % 97, i % 89),
  tsrange(timestamp '2020-01-01' + i * interval '1 hour', timestamp '2020-01-03' + i * interval '1 hour') FROM generate_series(1, 1000) i;
CREATE INDEX gist_point ON places USING gist (p);
CREATE INDEX gist_range ON places USING gist (r);
CREATE INDEX spgist_quad ON places USING spgist (p) INCLUDE (id);
CREATE INDEX spgist_kd ON places USING spgist (p kd_point_ops);
CREATE INDEX spgist_range ON places USING spgist (r);
CREATE TABLE words (id int, body tsvector, t text);
CREATE INDEX gist_body ON words USING gist (body);
CREATE INDEX gist_trgm ON words USING gist (t gist_trgm_ops (siglen = 1200));
CREATE INDEX gist_int ON words USING gist (id) INCLUDE (t);
CREATE TABLE texts (id int, t text, n text);
CREATE INDEX spgist_text ON texts USING spgist (t);
CREATE INDEX spgist_nulls ON texts USING spgist (n);
CREATE INDEX bloomed ON texts USING bloom (id, t);
CREATE TABLE few (id int, p point);
CREATE INDEX spgist_root ON few USING spgist (p);
CREATE TABLE ranges (id int, t text, filler text) WITH (fillfactor = 10);
CREATE INDEX brin_int ON ranges USING brin (id) WITH (pages_per_range = 1);
CREATE INDEX brin_text ON ranges USING brin (t) WITH (pages_per_range = 1);
CREATE INDEX brin_bloom ON ranges USING brin (id int4_bloom_ops, t text_minmax_ops) WITH (pages_per_range = 2);
CREATE TABLE dying (id int, p point);
CREATE INDEX gist_dying ON dying USING gist (p);
CREATE TABLE uneven (t text);
CREATE INDEX gist_uneven ON uneven USING gist (t gist_trgm_ops (siglen = 64));
CREATE TABLE longs (t text);
CREATE INDEX spgist_longs ON longs USING spgist (t);
";

/// Sessions at the same time: splits that others complete, searches that follow right links and redirects.
const CONCURRENT: &[(&str, &str)] = &[
    (
        "places.sql",
        "\\set i random(10000, 900000)
BEGIN;
INSERT INTO places SELECT :i + j, point(:i % 9973 * 7919 % 1000 + j, :i % 9973 * 104729 % 1000), tsrange(timestamp '2020-01-01' + (:i % 5000) * interval '1 hour', NULL)
  FROM generate_series(1, 5) j;
END;",
    ),
    (
        "undone.sql",
        "\\set i random(10000, 900000)
BEGIN;
INSERT INTO places SELECT :i + j, point(j, :i % 300), 'empty' FROM generate_series(1, 8) j;
INSERT INTO words SELECT :i, to_tsvector('simple', 'undone ' || :i), md5(:i::text);
INSERT INTO ranges VALUES (:i, repeat('u', :i % 200), '');
ROLLBACK;",
    ),
    (
        "words.sql",
        "\\set i random(10000, 900000)
INSERT INTO words SELECT :i, to_tsvector('simple', 'w' || :i % 7 || ' y' || :i), md5(:i::text);
INSERT INTO texts SELECT :i, repeat('con', :i % 9) || md5(:i::text), NULLIF(:i % 3, 0)::text;
SELECT count(*) FROM words WHERE t LIKE '%' || :i % 1000 || '%';",
    ),
    (
        "ranges.sql",
        "\\set i random(1, 9000)
UPDATE ranges SET t = repeat('c', :i % 300) WHERE id = :i;
DELETE FROM places WHERE id = :i;",
    ),
];

/// One session, everything in order.
const ALONE: &str = "
INSERT INTO words SELECT i, to_tsvector('simple', 'all w' || i % 7 || ' x' || i % 60 || ' y' || i), md5(i::text) FROM generate_series(1, 1500) i;
INSERT INTO places SELECT i, point(i * 7919 % 1000, i * 104729 % 1000),
  tsrange(timestamp '2020-01-01' + (i * 7919 % 5000) * interval '1 hour', timestamp '2020-02-01' + (i * 7919 % 5000) * interval '1 hour')
  FROM generate_series(1001, 5000) i;
INSERT INTO texts SELECT i, repeat(chr(97 + i % 3), i % 40) || md5((i % 700)::text), NULLIF(i % 50, 0)::text FROM generate_series(1, 3000) i;
INSERT INTO texts SELECT i, 'one prefix for all ' || md5(i::text), NULL FROM generate_series(3001, 3800) i;
INSERT INTO texts VALUES (4000, 'one pre');
INSERT INTO few SELECT i, point(i, i) FROM generate_series(1, 9) i;
DELETE FROM few WHERE id > 4;
VACUUM few;
INSERT INTO few SELECT i, NULL FROM generate_series(1, 600) i;
INSERT INTO ranges SELECT i, repeat('a', i % 9), repeat('x', 90) FROM generate_series(1, 12000) i;
VACUUM ranges;
CHECKPOINT;
UPDATE words SET body = body || to_tsvector('simple', 'new z' || id) WHERE id % 5 = 0;
UPDATE places SET p = point(id, -id) WHERE id % 13 = 0;
UPDATE texts SET t = t || t WHERE id % 17 = 0;
UPDATE ranges SET t = repeat('z', 40 + id % 300) WHERE id % 10 = 0;
DELETE FROM words WHERE id BETWEEN 100 AND 1300;
DELETE FROM places WHERE id BETWEEN 500 AND 4500;
DELETE FROM texts WHERE id % 4 <> 0;
VACUUM words; VACUUM places; VACUUM texts;
-- pages that vacuum deleted come into use again once nobody can be on the way to them
SELECT pg_current_xact_id(); SELECT pg_current_xact_id();
VACUUM words; VACUUM places; VACUUM texts;
SELECT brin_desummarize_range('brin_int', b) FROM generate_series(0, 20) b;
SELECT brin_desummarize_range('brin_bloom', b * 2) FROM generate_series(5, 20) b;
VACUUM ranges;
INSERT INTO places SELECT i, point(i % 31, i % 37), tsrange(NULL, timestamp '2021-01-01' + i * interval '1 minute') FROM generate_series(5001, 7500) i;
INSERT INTO words SELECT i, to_tsvector('simple', 'late w' || i), md5(i::text) FROM generate_series(5000, 6000) i;
INSERT INTO texts SELECT i, 'one prefix for ' || md5(i::text), NULLIF(i % 2, 0)::text FROM generate_series(5000, 6000) i;
VACUUM places;
CHECKPOINT;
BEGIN;
INSERT INTO words SELECT i, 'undone', md5(i::text) FROM generate_series(7001, 7100) i;
INSERT INTO texts SELECT i, 'one un' || i, NULL FROM generate_series(7001, 7300) i;
SAVEPOINT a;
INSERT INTO places SELECT i, point(i, 1), NULL FROM generate_series(9001, 9300) i;
ROLLBACK TO a;
ROLLBACK;
VACUUM places; VACUUM texts; VACUUM words;
REINDEX INDEX gist_range; REINDEX INDEX spgist_text; REINDEX INDEX brin_text; REINDEX INDEX bloomed;
INSERT INTO places SELECT i, point(i, i), 'empty' FROM generate_series(7001, 7200) i;
-- entries that scans find dead go when a page fills up
SET enable_seqscan = off; SET enable_bitmapscan = off;
DO $$ BEGIN FOR i IN 1..8 LOOP
  INSERT INTO dying SELECT i * 1000 + j, point(j % 40, j / 40) FROM generate_series(1, 800) j; COMMIT;
  DELETE FROM dying WHERE id % 3 <> 0; COMMIT;
  PERFORM count(p) FROM dying WHERE p <@ box '(-1,-1),(2000,2000)'; COMMIT;
END LOOP; END $$;
RESET enable_seqscan; RESET enable_bitmapscan;
VACUUM dying;
-- a page of many short and a few long keys does not fit into two; GiST throws dice, so there are many such pages
INSERT INTO uneven SELECT CASE WHEN i % 7 = 0 THEN (SELECT string_agg(md5(i::text || j::text), '') FROM generate_series(1, 40) j) ELSE md5(i::text) END
  FROM generate_series(1, 3000) i;
-- values longer than a page, under nodes that are not there yet
INSERT INTO longs SELECT md5(i::text) FROM generate_series(1, 400) i;
INSERT INTO longs SELECT chr(110 + i) || (SELECT string_agg(md5(i::text || j::text), '') FROM generate_series(1, 300) j) FROM generate_series(1, 6) i;
-- the whole of an index goes, and it grows again
DELETE FROM places; DELETE FROM texts; DELETE FROM few; DELETE FROM words;
VACUUM places; VACUUM texts; VACUUM few; VACUUM words;
INSERT INTO places SELECT i, point(i % 31, i % 37), tsrange(NULL, timestamp '2021-01-01' + i * interval '1 minute') FROM generate_series(1, 800) i;
INSERT INTO texts SELECT i, md5(i::text), NULLIF(i % 2, 0)::text FROM generate_series(1, 800) i;
INSERT INTO words SELECT i, to_tsvector('simple', 'w' || i), md5(i::text) FROM generate_series(1, 500) i;
VACUUM places;
";

fn work(cluster: &Cluster, transactions: u32) {
    cluster.sql(TABLES);
    cluster.sql(ALONE);
    let vacuum = cluster.write(
        "vacuum.sql",
        "SELECT format('VACUUM %I', t) FROM generate_series(1, 6) i,
           unnest(ARRAY['places', 'words', 'texts', 'ranges']) t ORDER BY i \\gexec",
    );
    let mut vacuum = cluster.psql(&vacuum).spawn().expect("start psql");
    let mut args = vec!["-n".to_owned(), "-c4".into(), "-j2".into()];
    args.push(format!("-t{transactions}"));
    for (name, text) in CONCURRENT {
        let script = cluster.write(name, text);
        args.extend(["-f".into(), script.display().to_string()]);
    }
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let output = cluster.run("pgbench", &args);
    assert!(vacuum.wait().expect("wait for psql").success(), "vacuum");
    assert!(output.contains("failed transactions: 0 "), "{output}");
}

/// Record kinds the workload must have redone at least once. Not there: GiST's `PAGE_REUSE` and `ASSIGN_LSN`,
/// which change no page; the second is not written with the WAL level that Weir needs.
const EXPECTED: &[(u8, u8)] = &[
    (rmgr::GIST, info::gist::PAGE_UPDATE),
    (rmgr::GIST, info::gist::DELETE),
    (rmgr::GIST, info::gist::PAGE_SPLIT),
    (rmgr::GIST, info::gist::PAGE_DELETE),
    (rmgr::SPGIST, info::spgist::ADD_LEAF),
    (rmgr::SPGIST, info::spgist::MOVE_LEAFS),
    (rmgr::SPGIST, info::spgist::ADD_NODE),
    (rmgr::SPGIST, info::spgist::SPLIT_TUPLE),
    (rmgr::SPGIST, info::spgist::PICKSPLIT),
    (rmgr::SPGIST, info::spgist::VACUUM_LEAF),
    (rmgr::SPGIST, info::spgist::VACUUM_ROOT),
    (rmgr::SPGIST, info::spgist::VACUUM_REDIRECT),
    (rmgr::BRIN, info::brin::CREATE_INDEX),
    (rmgr::BRIN, info::brin::INSERT),
    (rmgr::BRIN, info::brin::UPDATE),
    (rmgr::BRIN, info::brin::SAMEPAGE_UPDATE),
    (rmgr::BRIN, info::brin::REVMAP_EXTEND),
    (rmgr::BRIN, info::brin::DESUMMARIZE),
    (rmgr::GENERIC, 0),
];

fn assert_complete(report: &Report) {
    let missing: Vec<String> = EXPECTED
        .iter()
        .filter(|(rmid, op)| report.of(*rmid, *op).redone == 0)
        .map(|(rmid, op)| op_name(PgMajor::V15, *rmid, *op))
        .collect();
    assert!(
        missing.is_empty(),
        "the workload made none of {missing:?}\n{report}"
    );
    assert!(
        report.of(rmgr::GIST, info::gist::PAGE_REUSE).records > 0,
        "no deleted GiST page was used again\n{report}"
    );
}

/// Promise: with page images off, redo of every record kind of these resource managers gives what Postgres
/// has, after each record and at the end.
#[test]
fn trees_and_ranges_are_what_postgres_has_without_page_images() {
    let settings = format!("{SETTINGS}full_page_writes = off\nwal_compression = lz4\n");
    let recorded = Recorded::run(&settings, false, |cluster| work(cluster, 60));
    let seen = Rc::new(RefCell::new(BTreeMap::new()));
    let counts = Rc::clone(&seen);
    let report = recorded.replay(Some(Box::new(move |delta, key, page| {
        if let Some(rec) = record_of(delta) {
            for (name, _) in VARIANTS.iter().filter(|(_, is_so)| is_so(&rec)) {
                *counts.borrow_mut().entry(*name).or_insert(0u32) += 1;
            }
        }
        apply(delta, key, page)
    })));
    assert_clean(&report);
    assert_complete(&report);
    println!("{:#?}", seen.borrow());
    let seen = seen.borrow();
    let missing = VARIANTS.iter().filter(|(name, _)| !seen.contains_key(name));
    let missing: Vec<&str> = missing.map(|(name, _)| *name).collect();
    assert!(missing.is_empty(), "the workload made none of {missing:?}");
}

type Variant = (&'static str, fn(&DecodedRecord<'_>) -> bool);

/// A byte of the main data of an SP-GiST record of this kind.
fn sp(rec: &DecodedRecord<'_>, op: u8, at: usize) -> Option<u8> {
    is(rec, rmgr::SPGIST, op)
        .then(|| rec.main_data.get(at).copied())
        .flatten()
}

/// Ways through redo that a record's fields choose between; the workload must take each of them.
const VARIANTS: &[Variant] = &[
    ("GiST: one tuple for another", |rec| {
        is(rec, rmgr::GIST, info::gist::PAGE_UPDATE) && rec.main_data[..4] == [1, 0, 1, 0]
    }),
    ("GiST: an insertion ends a split", |rec| {
        is(rec, rmgr::GIST, info::gist::PAGE_UPDATE) && rec.block(1).is_some()
    }),
    ("GiST: a split ends a split", |rec| {
        is(rec, rmgr::GIST, info::gist::PAGE_SPLIT) && rec.block(0).is_some()
    }),
    ("GiST: the root splits", |rec| {
        is(rec, rmgr::GIST, info::gist::PAGE_SPLIT)
            && rec.block(1).is_some_and(|first| first.blkno == 0)
    }),
    ("GiST: a page splits in three", |rec| {
        let is_root = rec.block(1).is_some_and(|first| first.blkno == 0);
        let last = if is_root { 4 } else { 3 };
        is(rec, rmgr::GIST, info::gist::PAGE_SPLIT) && rec.block(last).is_some()
    }),
    ("leaf on a new page", |rec| {
        sp(rec, info::spgist::ADD_LEAF, 0) == Some(1)
    }),
    ("leaf in the nulls tree", |rec| {
        sp(rec, info::spgist::ADD_LEAF, 1) == Some(1)
    }),
    ("leaf for a dead one", |rec| {
        is(rec, rmgr::SPGIST, info::spgist::ADD_LEAF) && rec.main_data[2..4] == rec.main_data[4..6]
    }),
    ("leaf at the head of a chain", |rec| {
        is(rec, rmgr::SPGIST, info::spgist::ADD_LEAF) && rec.main_data[4..6] == [0, 0]
    }),
    ("leafs moved to a new page", |rec| {
        sp(rec, info::spgist::MOVE_LEAFS, 2) == Some(1)
    }),
    ("node added in place", |rec| {
        is(rec, rmgr::SPGIST, info::spgist::ADD_NODE) && rec.block(1).is_none()
    }),
    ("node added, the parent elsewhere", |rec| {
        sp(rec, info::spgist::ADD_NODE, 5) == Some(2)
    }),
    ("node added on a new page", |rec| {
        sp(rec, info::spgist::ADD_NODE, 4) == Some(1)
    }),
    ("prefix split on one page", |rec| {
        sp(rec, info::spgist::SPLIT_TUPLE, 5) == Some(1)
    }),
    ("pick split of the root", |rec| {
        sp(rec, info::spgist::PICKSPLIT, 0) == Some(1)
    }),
    ("pick split of a new page", |rec| {
        sp(rec, info::spgist::PICKSPLIT, 6) == Some(1)
    }),
    ("pick split with a new destination", |rec| {
        sp(rec, info::spgist::PICKSPLIT, 7) == Some(1)
    }),
    ("pick split with a new inner page", |rec| {
        sp(rec, info::spgist::PICKSPLIT, 10) == Some(1)
    }),
    ("pick split in the nulls tree", |rec| {
        sp(rec, info::spgist::PICKSPLIT, 11) == Some(1)
    }),
    ("pick split, the inner page is the parent's", |rec| {
        sp(rec, info::spgist::PICKSPLIT, 12) == Some(1)
    }),
    ("pick split, the parent elsewhere", |rec| {
        is(rec, rmgr::SPGIST, info::spgist::PICKSPLIT) && rec.block(3).is_some()
    }),
    ("vacuum leaves a dead tuple", |rec| {
        sp(rec, info::spgist::VACUUM_LEAF, 0).is_some_and(|dead| dead > 0)
    }),
    ("vacuum moves the next of a chain to its head", |rec| {
        sp(rec, info::spgist::VACUUM_LEAF, 4).is_some_and(|moved| moved > 0)
    }),
    ("vacuum mends a chain", |rec| {
        sp(rec, info::spgist::VACUUM_LEAF, 6).is_some_and(|mended| mended > 0)
    }),
    ("vacuum makes redirects placeholders", |rec| {
        sp(rec, info::spgist::VACUUM_REDIRECT, 0).is_some_and(|redirects| redirects > 0)
    }),
    ("vacuum cuts placeholders off", |rec| {
        sp(rec, info::spgist::VACUUM_REDIRECT, 2).is_some_and(|first| first > 0)
    }),
    ("summary on a new page", |rec| {
        is(rec, rmgr::BRIN, info::brin::INSERT) && rec.op() & info::brin::INIT_PAGE != 0
    }),
    ("summary moved to a new page", |rec| {
        is(rec, rmgr::BRIN, info::brin::UPDATE) && rec.op() & info::brin::INIT_PAGE != 0
    }),
];

/// Promise: the same with page images on, which GiST needs completed; damaged records and pages never make
/// redo panic; and planted bugs are found.
#[test]
fn trees_and_ranges_with_page_images_too_and_planted_bugs_are_found() {
    let settings = format!(
        "{SETTINGS}full_page_writes = on\nwal_log_hints = on\nwal_compression = zstd\ncheckpoint_timeout = 30s\n"
    );
    let recorded = Recorded::run(&settings, true, |cluster| work(cluster, 30));
    assert_clean(&recorded.replay(Some(with_damaged_copies(recorded.settings))));

    // All at once: after a mismatch the page goes on as Postgres has it, so each is found where it was made.
    let report = recorded.replay(Some(Box::new(|delta, key, page| {
        let before = *page;
        let settings = ClusterSettings {
            hint_bits_logged: true,
            ..ClusterSettings::default()
        };
        wal_redo::apply_with(settings, delta, key, page)?;
        if let Some(rec) = record_of(delta) {
            for (_, (rmid, op), spoil) in BUGS {
                if is(&rec, *rmid, *op) {
                    spoil(&rec, key, page);
                }
            }
            // A split is left open: nothing that Postgres's own rules see.
            let is_left = rec.block(1).is_some_and(|left| left.blkno == key.e);
            if is(&rec, rmgr::GIST, info::gist::PAGE_UPDATE) && is_left {
                *page = before;
                page::set_lsn(page, rec.end_lsn);
            }
        }
        Ok(())
    })));
    for (what, (rmid, op), _) in BUGS {
        let found = report.of(*rmid, *op).mismatched;
        assert!(found > 0, "not found: {what}\n{report}");
    }
    let wrong = report.ops().filter(|(_, op)| op.mismatched > 0).count();
    assert_eq!(wrong, BUGS.len(), "found elsewhere as well\n{report}");
    let updates = report.of(rmgr::GIST, info::gist::PAGE_UPDATE);
    assert!(
        updates.mismatched == 0 && updates.tight_mismatched > 0,
        "only the tight rules see a split left open\n{report}"
    );
}

type Spoil = fn(&DecodedRecord<'_>, Key, &mut Page);

/// What is wrong, the record kind it is done and must be found at, and how to do it to a page that was redone
/// right.
const BUGS: &[(&str, (u8, u8), Spoil)] = &[
    (
        "the right half of a split is lost",
        (rmgr::GIST, info::gist::PAGE_SPLIT),
        |rec, key, page| {
            if rec.block(2).is_some_and(|right| right.blkno == key.e) {
                *page = [0; 8192];
            }
        },
    ),
    (
        "a deleted page does not say so",
        (rmgr::GIST, info::gist::PAGE_DELETE),
        |rec, key, page| {
            if rec.block(0).is_some_and(|leaf| leaf.blkno == key.e) {
                page[8188] &= !2;
            }
        },
    ),
    (
        "a redirect leads to the wrong place",
        (rmgr::SPGIST, info::spgist::MOVE_LEAFS),
        |rec, key, page| {
            if rec.block(0).is_some_and(|source| source.blkno == key.e) {
                let upper = page::upper(page);
                page[upper + 10] ^= 1;
            }
        },
    ),
    (
        "placeholders are not counted",
        (rmgr::SPGIST, info::spgist::VACUUM_LEAF),
        |_, _, page| page[8188] ^= 1,
    ),
    (
        "the range map's entries are one too far",
        (rmgr::BRIN, info::brin::INSERT),
        |rec, key, page| {
            if rec.block(1).is_some_and(|map| map.blkno == key.e) {
                page[24..8184].rotate_right(6);
            }
        },
    ),
    (
        "a byte of a generic record goes astray",
        (rmgr::GENERIC, 0),
        |_, _, page| page[8000] ^= 1,
    ),
];

fn record_of(delta: &PageDelta) -> Option<DecodedRecord<'_>> {
    match delta {
        PageDelta::Record {
            end_lsn, record, ..
        } => Some(decode(*end_lsn, *end_lsn, record).expect("redo has decoded it")),
        _ => None,
    }
}

fn is(rec: &DecodedRecord<'_>, rmid: u8, op: u8) -> bool {
    let bits = if rmid == rmgr::BRIN {
        rec.op() & info::brin::OP_MASK
    } else {
        rec.op()
    };
    rec.rmid == rmid && bits == op
}
