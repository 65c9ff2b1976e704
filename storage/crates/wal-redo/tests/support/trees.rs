//! A workload of GiST, SP-GiST, BRIN and bloom indexes, of every kind of record that Postgres writes for them.

use super::cluster::Cluster;

pub const SETTINGS: &str = "
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

/// Runs everything; `transactions` are per client.
pub fn run(cluster: &Cluster, transactions: u32) {
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
