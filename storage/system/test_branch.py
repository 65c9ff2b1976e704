"""Branches share the past and nothing else."""

from __future__ import annotations

import time
from datetime import UTC, datetime

from harness import Engine
from workloads import amcheck


def now_text() -> str:
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")


def test_a_branch_sees_its_past_and_neither_side_sees_the_other(shared: Engine) -> None:
    parent = shared.compute(shared.create_timeline())
    parent.sql("CREATE TABLE t AS SELECT n AS id, 'old' AS who FROM generate_series(1, 1000) n")
    parent.sql("CREATE INDEX ON t (id)")
    at_first = parent.status()["commit_lsn"]
    time.sleep(0.05)
    when_first = now_text()
    time.sleep(0.05)
    parent.sql("UPDATE t SET who = 'parent'")
    parent.sql("DROP INDEX t_id_idx")
    shared.wait_ingested(parent.timeline, parent.status()["commit_lsn"])

    head = shared.compute(shared.branch(parent.timeline))
    past = shared.compute(shared.branch(parent.timeline, ancestor_start_lsn=at_first))
    then = shared.compute(shared.branch(parent.timeline, ancestor_timestamp=when_first))
    assert head.sql("SELECT DISTINCT who FROM t") == [("parent",)]
    for compute in (past, then):
        assert compute.sql("SELECT DISTINCT who FROM t") == [("old",)]
        assert compute.sql("SELECT count(*) FROM pg_indexes WHERE indexname = 't_id_idx'") == [(1,)]
        amcheck(compute)

    head.sql("UPDATE t SET who = 'branch'")
    parent.sql("DELETE FROM t WHERE id > 500")
    assert parent.sql("SELECT count(*), min(who) FROM t") == [(500, "parent")]
    assert head.sql("SELECT count(*), min(who) FROM t") == [(1000, "branch")]
    assert past.sql("SELECT count(*), min(who) FROM t") == [(1000, "old")]
    identifiers = {
        c.sql("SELECT system_identifier FROM pg_control_system()")[0][0] for c in (parent, head, past, then)
    }
    assert len(identifiers) == 4, "a branch must never pass for its parent"
    for compute in (parent, head, past, then):
        compute.suspend()


def test_a_branch_of_a_branch_reads_through_both(shared: Engine) -> None:
    first = shared.compute(shared.create_timeline())
    first.sql("CREATE TABLE t AS SELECT generate_series(1, 2000) AS id")
    shared.wait_ingested(first.timeline, first.status()["commit_lsn"])
    second = shared.compute(shared.branch(first.timeline))
    second.sql("DELETE FROM t WHERE id > 1000")
    shared.wait_ingested(second.timeline, second.status()["commit_lsn"])
    third = shared.compute(shared.branch(second.timeline))
    third.sql("INSERT INTO t VALUES (-1)")
    assert third.sql("SELECT count(*), min(id), max(id) FROM t") == [(1001, -1, 1000)]
    assert second.sql("SELECT count(*), min(id) FROM t") == [(1000, 1)]
    assert first.sql("SELECT count(*) FROM t") == [(2000,)]
    amcheck(third)
    for compute in (first, second, third):
        compute.suspend()


def test_a_branch_copies_nothing(shared: Engine) -> None:
    parent = shared.compute(shared.create_timeline())
    parent.sql("CREATE TABLE big AS SELECT n, repeat('x', 500) AS filler FROM generate_series(1, 60000) n")
    status = parent.status()
    shared.wait_ingested(parent.timeline, status["commit_lsn"])
    branch = shared.branch(parent.timeline)
    layers = shared.timeline_status(branch)["layers"]
    size = shared.timeline_status(parent.timeline)["current_logical_size"]
    assert size > 30_000_000
    assert layers["bytes"] < 1_000_000, f"the branch of {size} bytes holds {layers} of its own"
    parent.suspend()
