//! SQL that makes Postgres log every kind of record redo knows.

use super::cluster::Cluster;

const TABLES: &str = "
CREATE TABLE parent (id int PRIMARY KEY, v int, filler text) WITH (fillfactor = 70);
INSERT INTO parent SELECT i, 0, repeat('p', 60) FROM generate_series(1, 200) i;
CREATE TABLE child (id serial PRIMARY KEY, parent int REFERENCES parent, note text);
CREATE TABLE keyed (k int PRIMARY KEY, n int, filler text);
CREATE TABLE parts (id int, part int, v text) PARTITION BY LIST (part);
CREATE TABLE parts_0 PARTITION OF parts FOR VALUES IN (0);
CREATE TABLE parts_1 PARTITION OF parts FOR VALUES IN (1);
INSERT INTO parts SELECT i, i % 2, repeat('x', i % 50) FROM generate_series(1, 400) i;
CREATE TABLE churn (id int PRIMARY KEY, a int, b text, c int);
CREATE INDEX churn_a ON churn (a);
CREATE INDEX churn_b ON churn (b);
INSERT INTO churn SELECT i, i % 7, 'b' || i % 11, i FROM generate_series(1, 800) i;
CREATE UNLOGGED TABLE fleeting (i int PRIMARY KEY);
INSERT INTO fleeting SELECT generate_series(1, 100);
CREATE SEQUENCE steps CACHE 5;
SELECT setval('steps', 1000);
";

/// Clients at the same time: locks with many holders, subtransactions, speculative insertions.
const CONCURRENT: &[(&str, &str)] = &[
    (
        "child.sql",
        "\\set p random(1, 40)
BEGIN;
INSERT INTO child (parent, note) VALUES (:p, repeat('n', :p));
SELECT id FROM parent WHERE id = :p FOR SHARE;
END;",
    ),
    (
        "parent.sql",
        "\\set p random(1, 40)
\\set q random(1, 40)
BEGIN;
UPDATE parent SET v = v + 1 WHERE id = least(:p, :q);
SAVEPOINT a;
SELECT id FROM parent WHERE id = greatest(:p, :q) FOR NO KEY UPDATE;
ROLLBACK TO a;
SELECT nextval('steps');
SAVEPOINT b;
UPDATE parent SET filler = repeat('q', :p) WHERE id = least(:p, :q);
RELEASE b;
END;",
    ),
    (
        "keyshare.sql",
        "\\set p random(1, 40)
BEGIN;
SELECT id FROM parent WHERE id = :p FOR KEY SHARE;
SAVEPOINT a;
UPDATE parent SET v = v - 1 WHERE id = :p;
END;",
    ),
    (
        "upsert.sql",
        "\\set k random(1, 300)
INSERT INTO keyed VALUES (:k, 1, repeat('k', :k)) ON CONFLICT (k) DO UPDATE SET n = keyed.n + 1;",
    ),
    (
        "unkey.sql",
        "\\set k random(1, 300)
DELETE FROM keyed WHERE k = :k;",
    ),
    (
        "churn.sql",
        "\\set i random(1, 800)
\\set a random(1, 7)
UPDATE churn SET a = :a, c = c + 1 WHERE id = :i;
SELECT count(*) FROM churn WHERE a = :a AND c > 0;
UPDATE churn SET b = 'b' || :a WHERE id = :i;",
    ),
    (
        "parts.sql",
        "\\set i random(1, 400)
UPDATE parts SET part = 1 - part WHERE id = :i;",
    ),
];

/// Whatever a background worker's snapshot might keep alive would make the rest depend on timing.
const QUIET: &str = "
ALTER SYSTEM SET autovacuum = off;
SELECT pg_reload_conf();
DO $$ BEGIN FOR i IN 1..600 LOOP
  EXIT WHEN NOT EXISTS (SELECT FROM pg_stat_activity WHERE backend_type LIKE 'autovacuum%');
  PERFORM pg_sleep(0.05); PERFORM pg_stat_clear_snapshot();
END LOOP; END $$;
";

/// One session: everything that needs no second one.
const ALONE: &str = "
SELECT nextval('steps') FROM generate_series(1, 200);
CREATE TABLE wide (id int, big text, small int);
INSERT INTO wide SELECT i, string_agg(md5(i::text || j::text), ''), i
  FROM generate_series(1, 20) i, generate_series(1, 200) j GROUP BY i;
UPDATE wide SET small = small + 1;
UPDATE wide SET big = big || 'x' WHERE id % 3 = 0;
DELETE FROM wide WHERE id % 5 = 0;
VACUUM wide;

-- posting lists: built, extended in the middle, split, partly emptied
CREATE TABLE dups (v int, w text);
CREATE INDEX dups_v ON dups (v);
CREATE INDEX dups_w ON dups (w);
INSERT INTO dups SELECT i % 5, 'w' || i % 3 FROM generate_series(1, 6000) i;
DELETE FROM dups WHERE ctid IN (SELECT ctid FROM dups ORDER BY md5(ctid::text) LIMIT 2500);
VACUUM dups;
INSERT INTO dups SELECT i % 5, 'w' || i % 3 FROM generate_series(1, 6000) i;
DELETE FROM dups WHERE v = 3;
VACUUM dups;

-- a deep tree, emptied from the middle, down to one page, and filled again
CREATE TABLE deep (id int, k text);
CREATE INDEX deep_k ON deep (k);
INSERT INTO deep SELECT i, lpad(i::text, 8, '0') || (SELECT string_agg(md5(i::text || j::text), '') FROM generate_series(1, 30) j)
  FROM generate_series(1, 1200) i;
DELETE FROM deep WHERE id BETWEEN 100 AND 1100;
VACUUM deep;
DELETE FROM deep WHERE id < 1199;
VACUUM deep;
VACUUM deep;
INSERT INTO deep SELECT i, lpad(i::text, 8, '0') || (SELECT string_agg(md5(i::text || j::text), '') FROM generate_series(1, 30) j)
  FROM generate_series(1200, 2000) i;
DELETE FROM deep WHERE id % 7 = 0;
VACUUM deep;
INSERT INTO deep SELECT i, lpad(i::text, 8, '0') || (SELECT string_agg(md5(i::text || j::text), '') FROM generate_series(1, 30) j)
  FROM generate_series(1, 300) i;

-- ascending and descending keys, deletions in runs
CREATE TABLE runs (id int PRIMARY KEY, v int);
INSERT INTO runs SELECT i, i FROM generate_series(1, 6000) i;
INSERT INTO runs SELECT -i, i FROM generate_series(1, 3000) i;
DELETE FROM runs WHERE id BETWEEN 500 AND 4500;
VACUUM runs;
VACUUM (FREEZE) runs;
UPDATE runs SET v = v + 1 WHERE id % 3 = 0;
INSERT INTO runs SELECT i, i FROM generate_series(1000, 3000) i;
DELETE FROM runs WHERE id > 3000;
VACUUM runs;

-- the tail of a table goes, its maps are cut with it
CREATE TABLE tail (id int, filler text);
INSERT INTO tail SELECT i, repeat('t', 300) FROM generate_series(1, 3000) i;
VACUUM (FREEZE) tail;
DELETE FROM tail WHERE id > 200;
VACUUM tail;
INSERT INTO tail SELECT i, repeat('t', 300) FROM generate_series(1, 500) i;
BEGIN; TRUNCATE tail; INSERT INTO tail VALUES (1, 'again'); COMMIT;

-- dead index entries found by scans
CREATE TABLE dying (id int PRIMARY KEY, v int, pad text);
CREATE INDEX dying_v ON dying (v);
INSERT INTO dying SELECT i, i, '' FROM generate_series(1, 400) i;
DO $$ BEGIN FOR i IN 1..12 LOOP
  UPDATE dying SET v = v + 1; COMMIT;
  PERFORM count(*) FROM dying WHERE v BETWEEN 100 AND 200; COMMIT;
END LOOP; END $$;
SET enable_seqscan = off; SET enable_bitmapscan = off;
DO $$ BEGIN FOR i IN 1..10 LOOP
  DELETE FROM dying WHERE id % 10 = i - 1 AND id <= 300; COMMIT;
  PERFORM count(v) FROM dying WHERE v > 0; COMMIT;
  INSERT INTO dying SELECT j, j, '' FROM generate_series(1, 300) j WHERE j % 10 = i - 1; COMMIT;
END LOOP; END $$;
RESET enable_seqscan; RESET enable_bitmapscan;

-- multixacts of one session, subtransactions that abort, row locks on frozen pages
VACUUM (FREEZE) parent;
DO $$ BEGIN FOR i IN 1..150 LOOP
  BEGIN PERFORM 1 FROM parent WHERE id <= 20 FOR KEY SHARE; UPDATE parent SET v = i WHERE id = i;
    IF i % 3 = 0 THEN RAISE EXCEPTION 'undo'; END IF;
  EXCEPTION WHEN raise_exception THEN NULL; END; END LOOP; END $$;
SELECT count(*) FROM (SELECT id FROM parent WHERE id > 150 FOR SHARE) q;
VACUUM (FREEZE) parent;

-- a row locked while its newer version is not decided yet
BEGIN; UPDATE parent SET v = 9 WHERE id = 199; PREPARE TRANSACTION 'undecided';
SELECT id FROM parent WHERE id = 199 FOR KEY SHARE;
COMMIT PREPARED 'undecided';

BEGIN; INSERT INTO runs VALUES (100001, 1); SAVEPOINT a; UPDATE parent SET v = 9 WHERE id = 7; PREPARE TRANSACTION 'later';
BEGIN; INSERT INTO runs VALUES (100002, 1); PREPARE TRANSACTION 'undone';
CHECKPOINT;
ROLLBACK PREPARED 'undone';
COMMIT PREPARED 'later';

CREATE TABLE bulk (LIKE runs);
COPY (SELECT i, i FROM generate_series(1, 3000) i) TO '/dev/null';
BEGIN; TRUNCATE bulk; INSERT INTO bulk SELECT * FROM runs; COMMIT;
ALTER TABLE runs ADD COLUMN extra int DEFAULT 5;
CREATE INDEX runs_v ON runs (v);
CLUSTER runs USING runs_v;
VACUUM FULL churn;
VACUUM FULL pg_class;
REINDEX TABLE pg_attribute;
REFRESH MATERIALIZED VIEW mv;
ANALYZE;
CREATE DATABASE copied STRATEGY wal_log;
DROP TABLE wide;
VACUUM (FREEZE) pg_class, pg_attribute;
BEGIN; INSERT INTO runs VALUES (100003, 1); PREPARE TRANSACTION 'open';
";

/// Runs everything. `pgbench_scale` 1 makes 100,000 rows; `transactions` are per client.
pub fn run(cluster: &Cluster, transactions: u32) {
    let transactions = transactions.to_string();
    cluster.run("pgbench", &["-i", "-q", "-s", "1", "--foreign-keys"]);
    cluster.sql(TABLES);
    let copied: String = (1..=2000)
        .map(|i| format!("{i}\t{}\t{}\n", i % 13, "c".repeat(i % 90)))
        .collect();
    let rows = cluster.write("rows.tsv", &copied);
    let copy = format!(
        "CREATE TABLE loaded (a int, b int, c text);
CREATE INDEX ON loaded (b);
\\copy loaded FROM '{0}'
DELETE FROM loaded WHERE a % 2 = 0;
VACUUM loaded;
\\copy loaded FROM '{0}'
BEGIN;
CREATE TABLE frozen (LIKE loaded);
\\copy frozen FROM '{0}' WITH (FREEZE)
COMMIT;
UPDATE frozen SET b = b + 1 WHERE a % 50 = 0;
CREATE MATERIALIZED VIEW mv AS SELECT a, b FROM loaded;",
        rows.display()
    );
    cluster.sql(&copy);
    // Standard transactions, the ones above and a vacuum all run at the same time.
    let vacuum = cluster.write(
        "vacuum.sql",
        "SELECT format('VACUUM (%s) %I', o, t) FROM generate_series(1, 12) i, unnest(ARRAY['parent', 'child', 'keyed',
  'churn', 'parts', 'pgbench_branches', 'pgbench_tellers']) t, LATERAL (SELECT CASE WHEN i % 3 = 0 THEN 'FREEZE' ELSE
  'INDEX_CLEANUP ON' END) q (o) ORDER BY i \\gexec",
    );
    let mut vacuum = cluster.psql(&vacuum).spawn().expect("start psql");
    let scripts: Vec<String> = CONCURRENT
        .iter()
        .map(|(name, text)| {
            let script = cluster.write(name, text);
            script.display().to_string()
        })
        .collect();
    let mut args = vec!["-n", "-c", "6", "-j", "2", "-t", &transactions];
    args.extend(["-b", "tpcb-like", "--max-tries", "10"]);
    for script in &scripts {
        args.extend(["-f", script]);
    }
    let output = cluster.run("pgbench", &args);
    assert!(vacuum.wait().expect("wait for psql").success(), "vacuum");
    assert!(output.contains("failed transactions: 0 "), "{output}");
    cluster.sql(QUIET);
    cluster.sql(ALONE);
}
