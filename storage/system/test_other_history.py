"""WAL of another history is not ingested, whoever has it and however much of it there is.

The other log is a real one: a safekeeper and a pageserver on a copy of the object store let a compute write to the
same timeline, as where a control plane was restored from a backup and founded it again.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import Engine, Timeline, lsn, wait_for
from test_safekeeper_list import put

ROWS = "SELECT count(*), coalesce(sum(id), 0) FROM story"


@pytest.fixture
def beside() -> Iterator[Engine]:
    """Another installation, of one safekeeper, that is not started yet."""
    engine = Engine(Path(tempfile.mkdtemp(prefix="weir-system-")), safekeeper_count=1)
    try:
        yield engine
    finally:
        engine.close()


def terms(running: Engine, timeline: Timeline) -> list[int]:
    path = f"/v1/tenant/{timeline.tenant}/timeline/{timeline.id}/ingested"
    known = running.storage.get(path).raise_for_status().json()["terms"]
    return [entry["term"] for entry in known]


def write_beside(beside: Engine, own: Engine, timeline: Timeline) -> str:
    """Lets a log of the timeline's beginning go another way, far beyond its own; the address of who has it."""
    identifier = str(own.timeline_status(timeline)["system_identifier"])
    shutil.copytree(own.root / "objects", beside.root / "objects")
    beside.start()
    assert beside.create_on_safekeeper(0, timeline, identifier) == 201
    [address] = beside.wal_addresses()
    put(beside, timeline, [address])
    compute = beside.compute(timeline)
    compute.sql("CREATE TABLE story (id int)")
    compute.sql("INSERT INTO story SELECT generate_series(1, 200000)")
    end = compute.sql("SELECT pg_current_wal_flush_lsn()::text")[0][0]
    beside.wait_ingested(timeline, end)
    compute.suspend()
    return address


def test_another_history_is_not_ingested(own: Engine, beside: Engine) -> None:
    timeline = own.create_timeline()
    other = write_beside(beside, own, timeline)
    addresses = own.wal_addresses()
    compute = own.compute(timeline)
    compute.sql("CREATE TABLE story (id int)")
    compute.suspend()
    compute = own.compute(timeline)
    compute.sql("INSERT INTO story SELECT generate_series(1, 100)")
    end = compute.sql("SELECT pg_current_wal_flush_lsn()::text")[0][0]
    own.wait_ingested(timeline, end)
    known = terms(own, timeline)
    assert len(known) == 2, "of both computes"

    # It has most, and is not read; not even when everything was in memory, so that ingest begins from the beginning.
    assert own.timeline_status(timeline)["remote_consistent_lsn"] == timeline.start_lsn
    put(own, timeline, [other, *addresses])
    own.pageserver.kill9()
    own.pageserver.start()
    compute.sql("INSERT INTO story SELECT generate_series(101, 200)")
    end = compute.sql("SELECT pg_current_wal_flush_lsn()::text")[0][0]
    own.wait_ingested(timeline, end, 30)
    status = own.timeline_status(timeline)
    assert status["state"] == "active"
    [sick] = status["sick_safekeepers"]
    assert sick["safekeeper"] == other
    assert "another history" in sick["reason"]
    assert "delete" not in sick["reason"]
    assert lsn(status["last_record_lsn"]) < lsn(beside.safekeeper_status(0, timeline)["commit_lsn"])

    # Nor is it when there is nobody else: reads of what was ingested go on.
    digest = own.digest(timeline, end)
    put(own, timeline, [other])

    def stopped() -> str | None:
        status = own.timeline_status(timeline)
        return status["reason"] if status["state"] == "stopped" else None

    reason = wait_for("the timeline to stop", stopped, 30)
    assert f"{other}: another history" in reason
    assert own.digest(timeline, end) == digest
    oldest = beside.safekeeper_status(0, timeline)["oldest_lsn"]

    put(own, timeline, addresses)
    # The agent has noticed that storage stopped, and keeps writers waiting for it.
    is_writable = lambda: compute.sql("SHOW transaction_read_only") == [("off",)]  # noqa: E731
    wait_for("the compute to be writable", is_writable, 30)
    compute.sql("INSERT INTO story SELECT generate_series(201, 300)")
    end = compute.sql("SELECT pg_current_wal_flush_lsn()::text")[0][0]
    own.wait_ingested(timeline, end, 30)
    assert compute.sql(ROWS) == [(300, 45150)]
    assert terms(own, timeline) == known
    compute.suspend()
    assert own.compute(timeline).sql(ROWS) == [(300, 45150)]
    assert beside.safekeeper_status(0, timeline)["oldest_lsn"] == oldest, "what nobody read stays"
