"""The compute's agent: settings, refusals, and what it leaves behind."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psycopg
import psycopg.sql
import pytest
from harness import Compute, Engine, Timeline, metric, mounts_below, scram_verifier, wait_for


def test_a_spec_is_applied_whole_and_a_refused_one_changes_no_setting(shared: Engine) -> None:
    compute = shared.compute(shared.create_timeline())
    settings = compute.spec()["settings"]
    roles = [*compute.spec()["roles"], {"name": "other", "password": scram_verifier("x")}]
    databases = [*compute.spec()["databases"], {"name": "otherdb", "owner": "other"}]
    more = {"roles": roles, "databases": databases, "settings": {**settings, "work_mem": "8MB"}}
    assert compute.configure(**more) == (200, {"pending_restart": [], "failed": []})
    assert compute.sql("SHOW work_mem") == [("8MB",)]
    assert compute.sql("SELECT pg_get_userbyid(datdba) FROM pg_database WHERE datname = 'otherdb'") == [("other",)]

    for refused, why in (
        ({"work_mem": "lots"}, "work_mem"),
        ({"shared_buffers": "lots"}, "shared_buffers"),
        ({"nonsense": "1"}, "nonsense"),
        ({"fsync": "off"}, "fsync"),
        ({"wal_level": "logical"}, "wal_level"),
    ):
        code, answer = compute.configure(**{**more, "settings": {**settings, **refused}})
        assert code in (400, 422), answer
        assert why in answer["message"]
        assert compute.sql("SHOW work_mem") == [("8MB",)]

    code, answer = compute.configure(**{**more, "settings": {**settings, "shared_buffers": "32MB"}})
    assert (code, answer) == (200, {"pending_restart": ["shared_buffers"], "failed": []})
    # What leaves the spec stays: a list may lack some. Repeating that writes nothing.
    assert compute.configure()[0] == 200
    assert compute.sql("SELECT count(*) FROM pg_roles WHERE rolname = 'other'") == [(1,)]
    before = compute.status()["commit_lsn"]
    assert compute.configure()[0] == 200
    assert compute.status()["commit_lsn"] == before
    compute.suspend()


def test_who_waits_for_a_start_hears_of_its_end_and_where_its_time_went(shared: Engine) -> None:
    compute = shared.compute(shared.create_timeline(), wait=False)
    said = compute.http.get("/status", params={"wait_ms": 30_000}, timeout=60).raise_for_status().json()
    assert said["state"] == "running"
    start = said["start"]
    parts = ("layout_ms", "spawn_ms", "recover_ms", "answer_ms")
    # Each is rounded.
    assert abs(start["postgres_ms"] - sum(start[part] for part in parts)) <= len(parts)
    assert start["elect_ms"] + start["bundle_ms"] + start["postgres_ms"] <= start["total_ms"] + 3
    for part in ("recover", "answer", "apply"):
        assert metric(compute, "weir_compute_start_seconds", part=part) == start[f"{part}_ms"] / 1000 > 0
    # There is nothing to wait for any more.
    began = time.monotonic()
    assert compute.http.get("/status", params={"wait_ms": 30_000}).json()["state"] == "running"
    assert time.monotonic() - began < 10
    for nonsense in ("soon", "-1"):
        answer = compute.http.get("/status", params={"wait_ms": nonsense})
        assert (answer.status_code, answer.json()["code"]) == (400, "bad_request")
    compute.suspend()


def test_clients_are_tried_before_the_start_ends_only_with_settings_that_are_new(own: Engine) -> None:
    timeline = own.create_timeline()
    compute = own.compute(timeline, name="ep-tried")
    kept = compute.directory / "settings.good.json"
    assert kept.exists(), "other settings than none have to let clients in before they count as good"
    compute.suspend()
    compute = own.compute(timeline, name="ep-tried")
    assert compute.status()["start"]["trial_ms"] == 0
    assert compute.sql("SELECT 1") == [(1,)]
    compute.suspend()
    kept.unlink()
    # Without settings there is nothing to fall back from; that they let clients in is found behind the start.
    compute = own.compute(timeline, name="ep-tried", settings={"shared_buffers": "64MB", "max_connections": "60"})
    assert kept.exists()
    compute.suspend()


def test_writes_fail_at_once_with_the_reason_when_storage_has_stopped(own: Engine) -> None:
    compute = own.compute(own.create_timeline())
    compute.sql("CREATE TABLE t (id int)")
    with tempfile.TemporaryDirectory(prefix="weir-tablespace-") as directory:
        subprocess.run(["chown", "postgres", directory], check=True)
        with compute.admin() as session, compute.connect(autocommit=False) as writer:
            writer.execute("INSERT INTO t VALUES (0)")
            # Storage does not know tablespaces: it stops at the record.
            location = psycopg.sql.Literal(directory)
            session.execute(psycopg.sql.SQL("CREATE TABLESPACE beyond LOCATION {}").format(location))

            def refused() -> bool:
                try:
                    compute.sql("INSERT INTO t VALUES (1)")
                except psycopg.errors.ReadOnlySqlTransaction:
                    return True
                return False

            wait_for("writes to be refused", refused)
            # The session that is in a transaction is ended next.
            is_there = "SELECT count(*) FROM pg_stat_activity WHERE pid = %s"
            backend = writer.info.backend_pid
            wait_for("its session to be ended", lambda: session.execute(is_there, [backend]).fetchone() == (0,))
            with pytest.raises(psycopg.OperationalError):
                writer.execute("INSERT INTO t VALUES (2)")
        status = compute.status()
        assert status["state"] == "running"
        assert status["reason"].startswith("writes refused:")
        assert "tablespace" in status["reason"].lower()
        assert compute.sql("SELECT count(*) FROM t WHERE id IN (0, 2)") == [(0,)]
        compute.suspend()


def processes_of(compute: Compute) -> list[str]:
    found = []
    for entry in Path("/proc").iterdir():
        try:
            arguments = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if entry.name.isdigit() and int(entry.name) != os.getpid() and str(compute.directory).encode() in arguments:
            found.append(entry.name)
    return found


def test_nothing_is_left_of_a_killed_compute(own: Engine) -> None:
    compute = own.compute(own.create_timeline())
    assert processes_of(compute)
    compute.kill9()
    wait_for("every process of the compute to be gone", lambda: not processes_of(compute))
    assert mounts_below(own.root) == []
    assert list((compute.directory / "volume").iterdir()) == []


def test_sigterm_suspends(own: Engine) -> None:
    timeline = own.create_timeline()
    compute = own.compute(timeline)
    compute.sql("CREATE TABLE t AS SELECT n AS id, repeat('x', 200) AS f FROM generate_series(1, 20000) n")
    compute.sql("DELETE FROM t WHERE id % 2 = 0")
    compute.sql("VACUUM ANALYZE t")
    with compute.admin() as session:
        session.execute("CREATE EXTENSION pg_freespacemap")
        space = session.execute("SELECT sum(avail) FROM pg_freespace('t')").fetchone()
    assert space is not None
    assert space[0] > 0
    compute.process.signal(signal.SIGTERM)
    assert compute.process.wait(60) == 0
    again = own.compute(timeline)
    with again.admin() as session:
        assert session.execute("SELECT sum(avail) FROM pg_freespace('t')").fetchone() == space
        counted = session.execute("SELECT n_live_tup FROM pg_stat_all_tables WHERE relname = 't'").fetchone()
    assert counted == (10000,), "statistics survive a suspend"


def rows_of_a_kilobyte(compute: Compute, rows: int) -> None:
    """A table of about `rows` KB, and as much WAL: values stored as they are, in line."""
    compute.sql("CREATE TABLE t (id int PRIMARY KEY, f text)")
    compute.sql("ALTER TABLE t ALTER f SET STORAGE PLAIN")
    for first in range(1, rows + 1, 100_000):
        last = min(first + 99_999, rows)
        compute.sql(f"INSERT INTO t SELECT n, repeat(md5(n::text), 30) FROM generate_series({first}, {last}) n")


def pages_fetched(compute: Compute) -> float:
    """Pages that have come from storage so far, once no more are coming: the agent reports four times a second."""
    seen = [-1.0]

    def settled() -> bool:
        seen.append(metric(compute, "weir_compute_volume_pages_fetched_total"))
        time.sleep(1.2)
        return seen[-1] == seen[-2] > 0

    wait_for("pages to stop coming", settled)
    return seen[-1]


def timed_start(engine: Engine, timeline: Timeline) -> tuple[Compute, float]:
    """A new compute, and the milliseconds from its process's start to the answer to its first query."""
    began = time.perf_counter()
    compute = engine.compute(timeline)
    assert compute.sql("SELECT 1") == [(1,)]
    return compute, (time.perf_counter() - began) * 1000


def test_a_start_fetches_what_it_reads_however_big_the_database_is(
    shared: Engine, say: Callable[[str], None]
) -> None:
    fetched: dict[str, dict[str, float]] = {}
    for name, rows in (("10 MB", 10_000), ("1 GB", 1_000_000)):
        timeline = shared.create_timeline()
        compute = shared.compute(timeline, full_page_writes=False)
        rows_of_a_kilobyte(compute, rows)
        [(size,)] = compute.sql("SELECT pg_database_size('appdb')")
        assert size > rows * 1000
        compute.suspend()
        for _ in range(2):
            compute, to_first_query_ms = timed_start(shared, timeline)
            start = compute.status()["start"]
            pages = pages_fetched(compute)
            say(
                f"{name} ({size / 2**20:.0f} MiB): start to first query {to_first_query_ms:.0f} ms "
                f"(the agent's part {start['total_ms']} ms), {pages:.0f} pages fetched"
            )
            # One row by its key: the way down the index, its page, and what the catalogs say of the table.
            assert compute.sql(f"SELECT length(f) FROM t WHERE id = {rows // 2}") == [(960,)]
            one_row = pages_fetched(compute) - pages
            assert one_row > 0, "the row cannot have been here already"
            fetched[name] = {"start": pages, "one row": one_row}
            compute.suspend()
    small, big = fetched["10 MB"], fetched["1 GB"]
    assert big["start"] <= small["start"] + 32, fetched
    assert big["one row"] <= small["one row"] + 32, fetched
    assert big["start"] + big["one row"] < 600, fetched
