"""Writes that the kernel hands to the volume later.

What is lost with them is never anything acknowledged, what is read is what was written, and a page that cannot be
kept ends the run instead of being read as it was before.
"""

from __future__ import annotations

import contextlib
import secrets
import tempfile
from pathlib import Path

import psycopg
import pytest
from disks import small_disk
from harness import Compute, Engine, engine, metric, wait_for
from workloads import amcheck

ROWS = 2000
INSERT = f"INSERT INTO t SELECT n, repeat('x', 300) FROM generate_series(1, {ROWS}) n"


def is_written_back(compute: Compute) -> bool:
    return metric(compute, "weir_compute_volume_write_back") == 1


def test_what_was_acknowledged_survives_a_compute_that_dies_with_pages_not_handed_over(shared: Engine) -> None:
    compute = shared.compute(shared.create_timeline())
    assert is_written_back(compute)
    compute.sql("CREATE TABLE t (id int, filler text)")
    compute.sql("CREATE INDEX ON t (id)")
    for _ in range(5):
        compute.sql(INSERT)
    with compute.admin() as connection:
        # Pages leave Postgres for the kernel, and some of them go no further.
        connection.execute("CHECKPOINT")
    compute.sql("UPDATE t SET filler = 'y' WHERE id % 3 = 0")
    compute.kill9()
    again = shared.compute(compute.timeline)
    assert again.sql("SELECT count(*), count(*) FILTER (WHERE filler = 'y') FROM t") == [(5 * ROWS, 5 * (ROWS // 3))]
    amcheck(again)
    # What this compute writes back, storage has too: audits read pages through the mount and compare.
    again.sql(INSERT)
    with again.admin() as connection:
        connection.execute("CHECKPOINT")
    wait_for("audits", lambda: metric(again, "weir_compute_audit_reads_total", result="equal") > 20)
    assert metric(again, "weir_compute_audit_reads_total", result="mismatch") == 0
    again.suspend()
    # The clean end read the kernel's pages: the free space map it has kept finds room where rows were deleted.
    last = shared.compute(compute.timeline)
    assert last.sql("SELECT count(*) FROM t") == [(6 * ROWS,)]
    last.suspend()


def test_a_compute_writes_through_where_that_is_asked_for(shared: Engine) -> None:
    compute = shared.compute(shared.create_timeline(), environment={"WEIR_WRITE_THROUGH": "true"})
    assert not is_written_back(compute)
    compute.sql("CREATE TABLE t (id int, filler text)")
    compute.sql(INSERT)
    assert compute.sql("SELECT count(*) FROM t") == [(ROWS,)]
    compute.suspend()


def test_a_page_that_the_local_disk_cannot_keep_ends_the_run_and_the_next_one_says_disk_full() -> None:
    root = Path(tempfile.mkdtemp(prefix="weir-system-"))
    with engine(root) as running:
        name = f"ep-{secrets.token_hex(4)}"
        with small_disk(running.compute_directory(name), 320):
            # Unlogged rows fill the volume and no WAL.
            compute = running.compute(running.create_timeline(), name=name, settings={"max_wal_size": "64MB"})
            compute.sql("CREATE TABLE t (id int, filler text)")
            compute.sql(INSERT)
            compute.sql("CREATE UNLOGGED TABLE much (id int, filler text)")
            assert is_written_back(compute)
            with contextlib.suppress(psycopg.Error):
                fill(compute)
            wait_for("the next run", lambda: compute.status()["restarts"] > 0)
            compute.wait_running()
            assert not is_written_back(compute)
            assert "the compute starts anew and writes through" in compute.process.tail(2000)
            assert compute.sql("SELECT count(*) FROM t") == [(ROWS,)]
            with pytest.raises(psycopg.errors.DiskFull, match="No space left on device"):
                fill(compute)
            compute.http.post("/terminate", json={"mode": "immediate"})
            compute.process.wait(30)
        elsewhere = running.compute(compute.timeline)
        assert elsewhere.sql("SELECT count(*) FROM t") == [(ROWS,)]
        elsewhere.suspend()


def fill(compute: Compute) -> None:
    for _ in range(10):
        compute.sql("INSERT INTO much SELECT n, repeat('x', 900) FROM generate_series(1, 60000) n")
