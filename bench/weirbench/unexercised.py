"""Workloads for the kinds of WAL records that Postgres's own suites never write, or not with their settings."""

from __future__ import annotations

import contextlib
import subprocess
import time

from .cluster import Cluster
from .postgres import PG_BIN, SqlError, psql

# Kinds that a primary never writes, whatever runs on it, or that no reader of its WAL meets.
REASONS = {
    "XLOG/NOOP": "no version of Postgres has code that writes it",
    "XLOG/END_OF_RECOVERY": "written only by a standby as it becomes a primary, on a new Postgres timeline",
    "XLOG/FPI_FOR_HINT": "written only with data checksums or wal_log_hints, which Weir's clusters do not have; "
    "the reduced run in `make test` has them on and covers it",
    "Gist/ASSIGN_LSN": "written only with wal_level = minimal, which Weir's computes never have",
    "XLOG/OVERWRITE_CONTRECORD": "written only by crash recovery in place, which a Weir compute never does; "
    "decoding refuses WAL that was overwritten",
}

# `part` divides how many rows there are.
INDEXES = """
CREATE TABLE hashed (k int, pad text);
CREATE INDEX hashed_k ON hashed USING hash (k);
INSERT INTO hashed SELECT i % 97, repeat('h', 40) FROM generate_series(1, 60000 / :part) i;
DELETE FROM hashed WHERE k % 2 = 0;
VACUUM hashed;
INSERT INTO hashed SELECT i % 97, '' FROM generate_series(1, 30000 / :part) i;
DELETE FROM hashed WHERE k < 90;
VACUUM hashed;

CREATE TABLE tagged (id int, tags int[]);
CREATE INDEX tagged_fast ON tagged USING gin (tags) WITH (fastupdate = on, gin_pending_list_limit = 64);
CREATE INDEX tagged_slow ON tagged USING gin (tags) WITH (fastupdate = off);
INSERT INTO tagged SELECT i, ARRAY[i % 7, i % 1013, i] FROM generate_series(1, 40000 / :part) i;
DELETE FROM tagged WHERE id % 3 = 0;
VACUUM tagged;
DELETE FROM tagged WHERE id BETWEEN 2000 / :part AND 39000 / :part;
VACUUM tagged;
INSERT INTO tagged SELECT i, ARRAY[i % 7, i] FROM generate_series(1, 20000 / :part) i;
DELETE FROM tagged WHERE id < 19000 / :part;
VACUUM tagged;

CREATE TABLE shapes (id int, p point);
CREATE INDEX shapes_gist ON shapes USING gist (p);
CREATE INDEX shapes_quad ON shapes USING spgist (p);
CREATE INDEX shapes_kd ON shapes USING spgist (p kd_point_ops);
INSERT INTO shapes SELECT i, point((i * 7919) % 10007, (i * 10473) % 10009) FROM generate_series(1, 30000 / :part) i;
DELETE FROM shapes WHERE id % 4 <> 0;
VACUUM shapes;
DELETE FROM shapes WHERE id > 500 / :part;
VACUUM shapes;
INSERT INTO shapes SELECT i, point((i * 7919) % 10007, i) FROM generate_series(1, 20000 / :part) i;
DELETE FROM shapes;
VACUUM shapes;
VACUUM shapes;
INSERT INTO shapes SELECT i, point(i, i) FROM generate_series(1, 5000 / :part) i;

CREATE TABLE words (w text);
CREATE INDEX words_spgist ON words USING spgist (w);
INSERT INTO words SELECT md5((i / 3)::text) FROM generate_series(1, 20000 / :part) i;
INSERT INTO words SELECT repeat('prefix', i % 40) || i FROM generate_series(1, 20000 / :part) i;
DELETE FROM words WHERE w LIKE '%7%';
VACUUM words;
INSERT INTO words SELECT 'z' || md5(i::text) FROM generate_series(1, 5000 / :part) i;

CREATE TABLE ranges (id int, t text);
CREATE INDEX ranges_brin ON ranges USING brin (id, t) WITH (pages_per_range = 1, autosummarize = off);
INSERT INTO ranges SELECT i, 'a' FROM generate_series(1, 60000 / :part) i;
SELECT brin_summarize_new_values('ranges_brin');
UPDATE ranges SET t = repeat('b', 500) WHERE id % 100 = 0;
SELECT brin_desummarize_range('ranges_brin', 3);
SELECT brin_summarize_new_values('ranges_brin');
INSERT INTO ranges SELECT i, repeat('c', i % 1000) FROM generate_series(1, 20000 / :part) i;
SELECT brin_summarize_new_values('ranges_brin');
"""

# Kinds that need a page to be full of entries that scans found dead, or empty in the middle of its tree.
RARE = """
CREATE TABLE dying (id int, v int);
CREATE INDEX dying_v ON dying USING hash (v);
CREATE TABLE dying_points (id int, p point);
CREATE INDEX dying_p ON dying_points USING gist (p);
SET enable_seqscan = off; SET enable_bitmapscan = off;
DO $$ BEGIN FOR i IN 1..8 LOOP
  INSERT INTO dying SELECT j, j % 4 FROM generate_series(1, 800) j; COMMIT;
  DELETE FROM dying WHERE id % 4 <> 0; COMMIT;
  FOR k IN 0..3 LOOP PERFORM count(*) FROM dying WHERE v = k; END LOOP; COMMIT;
  INSERT INTO dying_points SELECT i * 1000 + j, point(j % 40, j / 40) FROM generate_series(1, 800) j; COMMIT;
  DELETE FROM dying_points WHERE id % 3 <> 0; COMMIT;
  PERFORM count(p) FROM dying_points WHERE p <@ box '(-1,-1),(2000,2000)'; COMMIT;
END LOOP; END $$;
RESET enable_seqscan; RESET enable_bitmapscan;

CREATE TABLE posted (id int, tags int[]);
INSERT INTO posted SELECT i, '{1}' FROM generate_series(1, 30000) i;
CREATE INDEX posted_tags ON posted USING gin (tags) WITH (fastupdate = off);
INSERT INTO posted SELECT i, '{1}' FROM generate_series(30001, 32500) i;
DELETE FROM posted WHERE id < 22000;
VACUUM posted;
SELECT pg_current_xact_id();
VACUUM posted;

CREATE TABLE few (id int, p point);
CREATE INDEX few_p ON few USING spgist (p);
INSERT INTO few SELECT i, point(i, i) FROM generate_series(1, 9) i;
DELETE FROM few WHERE id > 4;
VACUUM few;
"""

# What a superuser can write without a change of data.
MARKERS = """
SELECT pg_create_restore_point('oracle');
SELECT pg_switch_wal();
SELECT pg_backup_start('oracle', true);
SELECT pg_backup_stop(false);
SELECT pg_logical_emit_message(false, 'oracle', 'loose');
SELECT pg_logical_emit_message(true, 'oracle', 'in a transaction');
SELECT pg_replication_origin_create('oracle');
SELECT pg_replication_origin_session_setup('oracle');
BEGIN;
SELECT pg_replication_origin_xact_setup('0/1', now());
CREATE TABLE replicated (i int);
COMMIT;
SELECT pg_replication_origin_session_reset();
SELECT pg_replication_origin_advance('oracle', '0/100');
SELECT pg_replication_origin_drop('oracle');
"""


class Workload:
    """What is run on the cluster besides the suites."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def script(self, text: str, database: str = "postgres", *, part: int = 1) -> None:
        path = self.cluster.folder / "script.sql"
        path.write_text(text)
        options = ["-o", "/dev/null", "-v", f"part={part}", "-f", str(path)]
        psql(self.cluster.database(database), *options, timeout=1800)

    def indexes(self, part: int = 1) -> None:
        """Every kind of record of every kind of index, on a database of its own."""
        self.script("DROP DATABASE IF EXISTS workload")
        self.script("CREATE DATABASE workload STRATEGY file_copy")
        self.script(INDEXES, "workload", part=part)

    def seeds(self) -> None:
        """A little of everything that has a fuzz target."""
        self.indexes(part=10)
        self.script(RARE, "workload")
        self.script(
            "CREATE SEQUENCE counter; SELECT nextval('counter') FROM generate_series(1, 100);"
            "CREATE EXTENSION bloom; CREATE TABLE blooming (a int, b int);"
            "CREATE INDEX blooming_ab ON blooming USING bloom (a, b);"
            "INSERT INTO blooming SELECT i, i % 10 FROM generate_series(1, 2000) i;"
            "DELETE FROM blooming WHERE a % 3 = 0; VACUUM blooming;",
            "workload",
        )

    def unexercised(self) -> None:
        self.indexes()
        self.script(RARE, "workload")
        self.script(MARKERS, "workload")
        self.switch_images()
        self.multixacts()
        self.many_transactions()
        self.truncate_slrus()

    def switch_images(self) -> None:
        """Full page writes on and off again while the server runs."""
        for value in ("on", "off"):
            self.cluster.sql(f"ALTER SYSTEM SET full_page_writes = {value}")
            self.cluster.sql("SELECT pg_reload_conf()")
            time.sleep(2)
        # postgresql.auto.conf would stand above the settings of later phases.
        self.cluster.sql("ALTER SYSTEM RESET full_page_writes")
        self.cluster.sql("SELECT pg_reload_conf()")

    def multixacts(self) -> None:
        """Enough multixacts for a second page of each kind: a row locked, and changed by a subtransaction."""
        self.script(
            "CREATE TABLE locked (id int PRIMARY KEY, v int);"
            "INSERT INTO locked SELECT i, 0 FROM generate_series(1, 3000) i;"
            "DO $$ BEGIN FOR i IN 1..3000 LOOP"
            "  PERFORM 1 FROM locked WHERE id = i FOR KEY SHARE;"
            "  BEGIN UPDATE locked SET v = v + 1 WHERE id = i;"
            "  EXCEPTION WHEN division_by_zero THEN NULL; END;"
            " END LOOP; END $$",
            "workload",
        )

    def many_transactions(self) -> None:
        """More transaction ids than a segment of statuses holds; nearly all of subtransactions, which are cheap."""
        self.script(
            "CREATE TABLE counted (i int);"
            "DO $$ BEGIN FOR i IN 1..22 LOOP FOR j IN 1..50000 LOOP"
            "  BEGIN PERFORM pg_logical_emit_message(true, 'o', ''); EXCEPTION WHEN division_by_zero THEN NULL; END;"
            " END LOOP; COMMIT; END LOOP; END $$;"
            "DO $$ BEGIN FOR i IN 1..200 LOOP BEGIN INSERT INTO counted VALUES (i);"
            " EXCEPTION WHEN division_by_zero THEN NULL; END; END LOOP; END $$",
            "workload",
        )

    def truncate_slrus(self) -> None:
        """Freezes every database, so that old segments of statuses, timestamps and multixacts go."""
        self.script("UPDATE pg_database SET datallowconn = true WHERE datname = 'template0'; CHECKPOINT;")
        freeze = [str(PG_BIN / "vacuumdb"), "--all", "--freeze", "--quiet"]
        freeze += ["-h", str(self.cluster.folder), "-p", str(self.cluster.port), "-U", "postgres"]
        for _ in range(2):
            subprocess.run(freeze, check=True, capture_output=True, timeout=1800)
        self.script("UPDATE pg_database SET datallowconn = false WHERE datname = 'template0'; CHECKPOINT;")

    def logical(self) -> None:
        """Records written only for logical decoding."""
        self.script("SELECT pg_create_logical_replication_slot('oracle', 'test_decoding')", "workload")
        self.script(
            "CREATE TABLE decoded (id int PRIMARY KEY, v text);"
            "INSERT INTO decoded SELECT i, repeat('d', i % 300) FROM generate_series(1, 3000) i;"
            "UPDATE decoded SET v = v || 'x' WHERE id % 3 = 0;"
            "DELETE FROM decoded WHERE id % 5 = 0;"
            "BEGIN; SAVEPOINT a; ALTER TABLE decoded ADD COLUMN n int; RELEASE a; COMMIT;"
            "ALTER TABLE decoded ALTER COLUMN n TYPE bigint;"
            "CREATE TABLE catalog_like (i int) WITH (user_catalog_table = true);"
            "INSERT INTO catalog_like VALUES (1); UPDATE catalog_like SET i = 2;"
            "VACUUM FULL pg_class;"
            "TRUNCATE decoded;",
            "workload",
        )

    def drop_slots(self) -> None:
        for _ in range(20):
            with contextlib.suppress(SqlError):
                self.script("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE NOT active")
            if self.cluster.sql("SELECT count(*) FROM pg_replication_slots") == "0":
                return
            time.sleep(0.5)
        raise RuntimeError("replication slots stay active")

    def with_images(self) -> None:
        """The same kinds of pages from images that redo restores, compressed one way or the other."""
        self.script("DROP DATABASE IF EXISTS workload")
        self.script("CREATE DATABASE workload STRATEGY wal_log")
        self.script(INDEXES.replace("VACUUM words;", "VACUUM words; CHECKPOINT;"), "workload", part=10)
        self.script("CHECKPOINT; VACUUM; CHECKPOINT;", "workload")
