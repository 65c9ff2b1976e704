"""Nothing that a user can have Postgres write wedges the user's timeline, or is noticed by another tenant.

Each case is what a user of a compute can do with SQL alone. Behind it the timeline takes, stores and serves what
comes next, a compute starts from storage again, and meanwhile a small commit of a neighbour is ingested as always,
and the neighbour's pages are read. No task keeps an async worker: a program whose task does ends, and the test fails.
"""

from __future__ import annotations

import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from harness import STALLS_VARIABLE, Compute, Engine, engine, metric, wait_for

MEMORY_MIB = 256
# How long a neighbour's commit may take to be ingested meanwhile, seconds. The machine of the test is as busy with
# the large record as with the neighbour.
PATIENCE = 10.0
SUBTRANSACTIONS = 4_400_000

SUBTRANSACT = """
CREATE PROCEDURE subtransact(n int) LANGUAGE plpgsql AS $$
BEGIN
  FOR i IN 1..n LOOP
    BEGIN INSERT INTO t VALUES (i); EXCEPTION WHEN division_by_zero THEN NULL; END;
  END LOOP;
END $$
"""


@pytest.fixture(scope="module")
def running() -> Iterator[Engine]:
    root = Path(tempfile.mkdtemp(prefix="weir-system-"))
    with engine(root, pageserver_options=["--memory-mib", str(MEMORY_MIB)]) as running:
        yield running


def compute(running: Engine) -> Compute:
    started = running.compute(running.create_timeline())
    started.sql("CREATE TABLE t (id int)")
    return started


@contextmanager
def unmoved(running: Engine) -> Iterator[None]:
    """A neighbour that commits and has pages read all the while, and notices nothing."""
    neighbour = compute(running)
    done, slowest = threading.Event(), [0.0]

    def commit() -> None:
        commits = 0
        while not done.wait(0.1):
            neighbour.sql("INSERT INTO t VALUES (1)")
            began = time.monotonic()
            running.wait_ingested(neighbour.timeline, neighbour.status()["commit_lsn"], 60)
            slowest[0] = max(slowest[0], time.monotonic() - began)
            commits += 1
            if commits % 10 == 0:
                running.digest(neighbour.timeline)

    thread = threading.Thread(target=commit, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join(90)
    assert not thread.is_alive()
    assert slowest[0] < PATIENCE, f"a neighbour's commit took {slowest[0]:.1f} s to be ingested"
    neighbour.suspend()


def goes_on(running: Engine, of: Compute) -> Compute:
    """The timeline takes and stores what follows, and a compute that starts anew from storage has it."""
    of.sql("INSERT INTO t VALUES (-1)")
    running.wait_ingested(of.timeline, of.status()["commit_lsn"], 180)
    timeline = f"/v1/tenant/{of.timeline.tenant}/timeline/{of.timeline.id}"
    running.storage.post(f"{timeline}/checkpoint", timeout=180).raise_for_status()
    of.suspend()
    again = running.compute(of.timeline)
    assert again.sql("SELECT count(*) FROM t WHERE id = -1") == [(1,)]
    return again


@pytest.mark.parametrize("mib", [300, 1100])
def test_a_logical_message_of_any_size(running: Engine, mib: int) -> None:
    """1,100 MiB is more than Postgres 15 could read itself: a prefix and a text of less than a gigabyte each."""
    user = compute(running)
    with unmoved(running):
        prefix, text = mib // 2, mib - mib // 2
        user.sql("SELECT pg_logical_emit_message(true, repeat('p', %s << 20), repeat('x', %s << 20))", prefix, text)
        again = goes_on(running, user)
    again.suspend()
    used = metric(running.storage, "weir_pageserver_memory_layers_bytes")
    assert used < MEMORY_MIB << 20


def test_a_prepared_transaction_with_millions_of_subtransactions(running: Engine) -> None:
    user = compute(running)
    user.sql(SUBTRANSACT)
    with unmoved(running):
        with user.connect(autocommit=False) as session:
            session.execute("CALL subtransact(%s)", (SUBTRANSACTIONS,))
            session.execute("PREPARE TRANSACTION 'large'")
        again = goes_on(running, user)
        assert again.sql("SELECT gid FROM pg_prepared_xacts") == [("large",)]
        again.sql("COMMIT PREPARED 'large'")
        assert again.sql("SELECT count(*) FROM t WHERE id > 0") == [(SUBTRANSACTIONS,)]
        again.sql("DELETE FROM t WHERE id = -1")
        again = goes_on(running, again)
    assert again.sql("SELECT count(*) FROM pg_prepared_xacts") == [(0,)]
    assert again.sql("SELECT count(*) FROM t WHERE id > 0") == [(SUBTRANSACTIONS,)]
    again.suspend()


def test_thousands_of_relations_go_in_one_transaction(running: Engine) -> None:
    tables = 3000
    user = compute(running)
    user.sql(
        f"DO $$ BEGIN FOR i IN 1..{tables} LOOP EXECUTE format('CREATE TABLE t%s (id int)', i); END LOOP; END $$"
    )
    with unmoved(running):
        user.sql(f"DO $$ BEGIN FOR i IN 1..{tables} LOOP EXECUTE format('DROP TABLE t%s', i); END LOOP; END $$")
        again = goes_on(running, user)
    assert again.sql("SELECT count(*) FROM pg_class WHERE relname ~ '^t[0-9]+$'") == [(0,)]
    again.suspend()


def test_sixty_four_thousand_files_of_relations_go_in_one_transaction(running: Engine) -> None:
    """A table that is emptied gets a new file: nobody needs so many tables to drop so many files. Within
    subtransactions, since the file of its own subtransaction is emptied in place."""
    tables, times = 512, 128
    user = compute(running)
    create = "EXECUTE format('CREATE TABLE t%s (id int)', i)"
    user.sql(f"DO $$ BEGIN FOR i IN 1..{tables} LOOP {create}; END LOOP; END $$")
    with unmoved(running):
        user.sql(
            f"""DO $$ BEGIN FOR i IN 1..{times} LOOP FOR j IN 1..{tables} LOOP
              BEGIN EXECUTE format('TRUNCATE t%s', j); EXCEPTION WHEN division_by_zero THEN NULL; END;
            END LOOP; END LOOP; END $$"""
        )
        again = goes_on(running, user)
    assert again.sql("SELECT count(*) FROM pg_class WHERE relname ~ '^t[0-9]+$'") == [(tables,)]
    again.suspend()


def test_a_panic_in_a_task_ends_the_pageserver() -> None:
    root = Path(tempfile.mkdtemp(prefix="weir-system-"))
    panics = {"WEIR_CRASH_POINT": "flush.frozen", "WEIR_CRASH_BY": "panic"}
    with engine(root, pageserver_environment=panics) as running:
        timeline = running.create_timeline()
        running.configure_tenant(timeline.tenant, checkpoint_timeout_ms=200)
        running.compute(timeline, wait=False)
        assert running.pageserver.wait(60) == -signal.SIGABRT
        log = running.pageserver.tail(60)
        for part in ("panic", "flush.frozen", "the program ends here"):
            assert part in log, log


def test_a_task_that_keeps_a_worker_is_counted_and_ends_an_armed_pageserver() -> None:
    # Where ingest reports how far it is.
    stalls = {"WEIR_CRASH_POINT": "feedback.before", "WEIR_CRASH_BY": "stall"}
    root = Path(tempfile.mkdtemp(prefix="weir-system-"))
    with engine(root, pageserver_environment=stalls | {STALLS_VARIABLE: ""}) as running:
        compute = running.compute(running.create_timeline())
        compute.sql("CREATE TABLE t (i int)")
        count = lambda: metric(running.storage, "weir_worker_stalls_total", task="ingest")  # noqa: E731
        assert wait_for("the stall to be counted", count, 30) >= 1
        longest = metric(running.storage, "weir_worker_longest_stall_seconds", task="ingest")
        assert 0.02 < longest < 10.0, longest
        assert running.stalls() == []
        compute.suspend()
    root = Path(tempfile.mkdtemp(prefix="weir-system-"))
    # Armed as in every test.
    armed = Engine(root, pageserver_environment=stalls)
    try:
        armed.start()
        armed.compute(armed.create_timeline(), wait=False)
        assert armed.pageserver.wait(60) == -signal.SIGABRT
    finally:
        with pytest.raises(AssertionError, match=r"pageserver: worker stalled.*task ingest"):
            armed.close()
