"""A branch that has reached its storage quota is a full disk to Postgres: nothing else stops, and room heals it."""

from __future__ import annotations

import psycopg
import pytest
from harness import Compute, Engine, metric, wait_for

ROOM = 20 << 20
INSERT = "INSERT INTO t SELECT n, repeat('x', 900) FROM generate_series(1, 5000) n"


def set_quota(compute: Compute, quota: int | None) -> None:
    code, answer = compute.configure(storage_quota_bytes=quota)
    assert code == 200, answer


def writes_through(compute: Compute) -> bool:
    return metric(compute, "weir_compute_volume_write_back") == 0


def fill(compute: Compute) -> None:
    def insert_much() -> None:
        for _ in range(20):
            compute.sql(INSERT)

    with pytest.raises(psycopg.errors.DiskFull, match=r"could not extend file.*No space left on device"):
        insert_much()


def test_a_full_branch_says_disk_full_and_heals_by_a_larger_quota_or_by_less_data(shared: Engine) -> None:
    compute = shared.compute(shared.create_timeline())
    compute.sql("CREATE TABLE t (id int, filler text)")
    compute.sql("CREATE TABLE other AS SELECT generate_series(1, 1000) AS id")
    shared.wait_ingested(compute.timeline, compute.status()["commit_lsn"])

    def size() -> int:
        return shared.timeline_status(compute.timeline)["current_logical_size"]

    quota = size() + ROOM
    # Growth can be refused only while writes go through: the compute starts anew for that as it comes near a quota.
    assert not writes_through(compute)
    set_quota(compute, quota)
    wait_for("writes to go through", lambda: compute.status()["restarts"] == 1)
    compute.wait_running()
    assert writes_through(compute)
    assert compute.sql("SELECT count(*) FROM other") == [(1000,)]
    fill(compute)
    log = compute.process.tail(400)
    assert "disk full" in log
    assert str(quota) in log
    shared.wait_ingested(compute.timeline, compute.status()["commit_lsn"])
    # Full is full, and not much earlier: system catalogs may go a little beyond.
    assert quota - (1 << 20) < size() < quota + (1 << 20)

    # Reads, changes in place and deletions go on.
    assert compute.sql("SELECT count(*) FROM other") == [(1000,)]
    compute.sql("DELETE FROM other WHERE id > 500")
    assert compute.sql("SELECT count(*) FROM other") == [(500,)]

    set_quota(compute, quota + ROOM)
    compute.sql(INSERT)
    fill(compute)
    # The smaller one again: full at once, until data goes.
    set_quota(compute, quota)
    fill(compute)
    compute.sql("DELETE FROM t")
    with compute.admin() as connection:
        connection.execute("VACUUM t")
    compute.sql(INSERT)
    # A table is emptied into new files, whose empty indexes need a little room.
    fill(compute)
    compute.sql("TRUNCATE t")
    compute.sql(INSERT)
    assert compute.sql("SELECT count(*) FROM t") == [(5000,)]
    compute.suspend()
