"""For how long clients did nothing, as the agent says it: what a compute is suspended by."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from harness import Compute, Engine, wait_for

#: What a look (four a second) and a busy machine may add, seconds.
SLACK = 1.0


@pytest.fixture(scope="module", name="compute")
def _compute(shared: Engine) -> Compute:
    compute = shared.compute(shared.create_timeline())
    compute.sql("CREATE TABLE t (i int)")
    return compute


def idle(compute: Compute) -> float:
    return wait_for("the agent to know", lambda: (s := compute.status())["idle_seconds"] is not None and s, 30)[
        "idle_seconds"
    ]


def assert_awake(compute: Compute, seconds: float = 3.0) -> None:
    """What was begun before is activity for as long as it goes on."""
    until = time.monotonic() + seconds
    time.sleep(SLACK)
    while time.monotonic() < until:
        assert idle(compute) < SLACK
        time.sleep(0.1)


def quiet_for(compute: Compute, seconds: float) -> None:
    wait_for(f"{seconds} s without activity", lambda: idle(compute) >= seconds, 60)


def test_a_compute_whose_sessions_wait_for_their_clients_is_idle(compute: Compute) -> None:
    with compute.connect() as session, compute.connect():
        session.execute("SELECT 1")
        begun = time.monotonic()
        quiet_for(compute, 3.0)
        assert time.monotonic() - begun > 3.0 - SLACK, "it was idle sooner than it can have been"
        session.execute("SELECT 1")
        wait_for("the statement to count", lambda: idle(compute) < 2.0, 10)


def test_a_statement_that_runs_keeps_a_compute_awake(compute: Compute) -> None:
    with compute.connect() as session, ThreadPoolExecutor(1) as client:
        running = client.submit(session.execute, "SELECT pg_sleep(4)")
        assert_awake(compute)
        running.result()


def test_a_session_idle_in_a_transaction_keeps_a_compute_awake(compute: Compute) -> None:
    with compute.connect(autocommit=False) as session:
        session.execute("INSERT INTO t VALUES (1)")
        assert_awake(compute)
        session.rollback()


def test_a_session_that_comes_and_goes_between_two_looks_is_activity(compute: Compute) -> None:
    quiet_for(compute, 2.0)
    psycopg.connect(compute.uri).close()
    wait_for("the session to count", lambda: idle(compute) < 1.5, 10)


def test_what_a_suspend_would_empty_is_counted_while_nobody_does_anything(compute: Compute) -> None:
    def unlogged() -> int:
        # Until the agent has seen the last statement.
        time.sleep(2 * SLACK)
        known = wait_for("a count", lambda: (s := compute.status())["unlogged_bytes"] is not None and s, 30)
        return known["unlogged_bytes"]

    assert unlogged() == 0
    compute.sql("CREATE UNLOGGED TABLE kept_here (i int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, t text)")
    assert unlogged() == 0, "an empty table holds nothing"
    compute.sql("INSERT INTO kept_here (t) SELECT repeat('x', 100) FROM generate_series(1, 1000)")
    # Not the count of before, which was made before the rows came.
    assert unlogged() > 100_000
    compute.sql("TRUNCATE kept_here")
    assert unlogged() == 0
    compute.sql("DROP TABLE kept_here")


def test_what_a_suspend_would_empty_is_told_by_table_and_is_empty_after_it(shared: Engine) -> None:
    compute = shared.compute(shared.create_timeline())
    told = lambda: compute.http.get("/unlogged").raise_for_status().json()  # noqa: E731
    assert told() == {"bytes": 0, "relations": [], "more": False}
    compute.sql("CREATE TABLE logged AS SELECT 1 AS i")
    compute.sql("CREATE UNLOGGED TABLE small (i int)")
    compute.sql("CREATE UNLOGGED TABLE large (i int PRIMARY KEY, t text)")
    compute.sql("INSERT INTO large SELECT i, repeat('x', 100) FROM generate_series(1, 20000) i")
    # Also while a client is in the midst of it: nobody has to be idle for this count.
    with compute.connect(autocommit=False) as session:
        session.execute("INSERT INTO small SELECT generate_series(1, 1000)")
        found = told()
        session.commit()
    by_table: dict[str, int] = {}
    for relation in found["relations"]:
        assert (relation["database"], relation["schema"]) == ("appdb", "public"), relation
        name = relation["table"] or relation["relation"]
        by_table[name] = by_table.get(name, 0) + relation["bytes"]
    assert list(by_table) == ["large", "small"]
    assert by_table["large"] > 2_000_000 > by_table["small"] > 0
    assert found["bytes"] == sum(by_table.values())
    compute.suspend()
    again = shared.compute(compute.timeline)
    counts = "SELECT (SELECT count(*) FROM logged), (SELECT count(*) FROM small), (SELECT count(*) FROM large)"
    assert again.sql(counts) == [(1, 0, 0)]
    assert again.http.get("/unlogged").json()["bytes"] == 0
    again.suspend()


def test_what_the_agent_does_is_nobodys_activity(compute: Compute) -> None:
    quiet_for(compute, 2.0)
    for path in ("/settings", "/synchronous_commit", "/metrics"):
        assert compute.http.get(path).status_code == 200, path
    assert idle(compute) >= 2.0
