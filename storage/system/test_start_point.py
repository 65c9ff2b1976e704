"""What a compute started from stays readable for as long as it runs, however short the history window is."""

from __future__ import annotations

import time

from harness import Engine, lsn, wait_for
from workloads import SMALL_LAYERS, amcheck

WINDOW_SECONDS = 2


def test_first_looks_at_a_database_long_after_the_start_find_what_was_there(own: Engine) -> None:
    timeline = own.create_timeline()
    first = own.compute(timeline, databases=[{"name": name, "owner": "app"} for name in ("appdb", "quiet")])
    with first.connect(dbname="quiet") as session:
        for number in range(20):
            rows = "SELECT n, md5(n::text) FROM generate_series(1, 500) n"
            session.execute(f"CREATE TABLE t{number} AS {rows}".encode())
            session.execute(f"CREATE INDEX ON t{number} (n)".encode())
    first.suspend()

    # Nobody looks into the other database, not even to vacuum it.
    logs = {"RUST_LOG": "info,compute::agent::hold=debug"}
    compute = own.compute(timeline, environment=logs, settings={"autovacuum": "off"})
    start = compute.status()["start_lsn"]
    as_of_start = own.digest(timeline, start)
    own.configure_tenant(timeline.tenant, **SMALL_LAYERS, history_window_seconds=WINDOW_SECONDS)
    compute.sql("CREATE TABLE busy (id int)")
    compute.sql("CREATE TABLE locked AS SELECT 1 AS id")

    def is_past_the_start() -> bool:
        compute.sql("INSERT INTO busy SELECT generate_series(1, 2000)")
        time.sleep(0.3)
        return lsn(own.timeline_status(timeline)["oldest_lsn"]) > lsn(start) + (1 << 20)

    wait_for("the history to begin behind the start", is_past_the_start)
    # Everything of before is merged away that nobody holds.
    for _ in range(5):
        compute.sql("INSERT INTO busy SELECT generate_series(1, 2000)")
        own.storage.post(f"/v1/tenant/{timeline.tenant}/timeline/{timeline.id}/checkpoint").raise_for_status()
        time.sleep(1)
    status = own.timeline_status(timeline)
    assert status["start_held"] == start, status
    assert own.digest(timeline, start) == as_of_start, "everything as it was at the start, files and pages"
    # A pageserver that dies forgets no start.
    own.pageserver.kill9()
    own.pageserver.start()
    assert own.digest(timeline, start) == as_of_start
    assert compute.status()["state"] == "running"
    with compute.connect(dbname="quiet") as session:
        for number in range(20):
            rows = session.execute(f"SELECT count(*), count(DISTINCT md5) FROM t{number}".encode()).fetchone()
            assert rows == (500, 500)
    amcheck(compute, "quiet")
    # The first row that two transactions lock at once: nobody has looked into the folder of its members yet.
    with compute.connect() as one, compute.connect() as two:
        for session in (one, two):
            session.execute("BEGIN")
            session.execute("SELECT id FROM locked FOR SHARE")
        for session in (one, two):
            session.execute("COMMIT")
    assert compute.status()["restarts"] == 0
    # The hold outlasts two minutes because the agent renews it.
    wait_for("renewals", lambda: compute.process.tail(400).count("the start is held") >= 3, 30)
    compute.suspend()
