"""One writer per branch: a newer compute fences the older one out of writing and of reading."""

from __future__ import annotations

import threading

import psycopg
import pytest
from harness import Engine, wait_for
from workloads import ACK_TABLE, AcknowledgedInserts


def test_the_older_compute_is_fenced_and_acknowledges_nothing_more(own: Engine) -> None:
    timeline = own.create_timeline()
    old = own.compute(timeline)
    load = AcknowledgedInserts(old)
    load.start()
    wait_for("some acknowledged rows", lambda: load.count() > 50)

    new = own.compute(timeline)
    assert new.status()["term"] > 1

    def ended() -> bool:
        return old.process.child is not None and old.process.child.poll() is not None

    def fenced_or_ended() -> bool:
        return ended() or old.status()["state"] == "fenced"

    wait_for("the old compute to notice", fenced_or_ended)
    wait_for("the old Postgres to be gone", lambda: not _answers(old.port))
    load.stop()

    load.compute = new
    assert load.missing() == []
    # Nothing the old one did after the election may show: whatever is there beyond the acknowledged rows was in
    # flight, at most one row a worker for each broken connection.
    present = new.sql("SELECT count(*) FROM acknowledged")[0][0]
    assert present - load.count() <= load.workers * 2
    new.sql("INSERT INTO acknowledged VALUES (77, 1, 'new')")


def _answers(port: int) -> bool:
    try:
        psycopg.connect(host="127.0.0.1", port=port, user="app", dbname="appdb", connect_timeout=2).close()
    except psycopg.OperationalError as error:
        # A server that asks for a password is a server that answers.
        return "password" in str(error)
    return True


def test_without_a_majority_no_commit_returns_and_the_compute_stops_itself(own: Engine) -> None:
    compute = own.compute(own.create_timeline(), quorum_timeout_ms=4000)
    compute.sql(ACK_TABLE)
    own.safekeepers[0].kill9()
    compute.sql("INSERT INTO acknowledged VALUES (1, 1, 'two of three is a majority')")
    own.safekeepers[1].kill9()
    outcome: list[str] = []

    def insert() -> None:
        try:
            compute.sql("INSERT INTO acknowledged VALUES (1, 2, 'one of three is not')")
            outcome.append("acknowledged")
        except psycopg.Error as error:
            outcome.append(str(error))

    thread = threading.Thread(target=insert, daemon=True)
    thread.start()
    thread.join(30)
    assert outcome, "the insert neither failed nor was the compute stopped"
    assert outcome != ["acknowledged"]

    own.safekeepers[0].start()
    own.safekeepers[1].start()
    status = wait_for(
        "the compute to run again by itself", lambda: (s := compute.status())["state"] == "running" and s, 60
    )
    assert status["restarts"] >= 1
    assert compute.sql("SELECT count(*) FROM acknowledged WHERE number = 1") == [(1,)]


@pytest.mark.parametrize("what", ["pages", "bundle"])
def test_storage_refuses_an_old_term(own: Engine, what: str) -> None:
    timeline = own.create_timeline()
    old = own.compute(timeline)
    old.sql("CREATE TABLE t AS SELECT 1 AS id")
    old_term = old.status()["term"]
    old.suspend()
    new = own.compute(timeline)
    new.sql("INSERT INTO t VALUES (2)")
    own.wait_ingested(timeline, new.status()["commit_lsn"])
    if what == "bundle":
        path = f"/v1/tenant/{timeline.tenant}/timeline/{timeline.id}/bundle"
        answer = own.storage.get(path, params={"lsn": new.status()["start_lsn"], "term": old_term})
        assert answer.status_code == 409, answer.text
        assert answer.json()["code"] == "fenced"
    else:
        assert own.timeline_status(timeline)["max_term"] == new.status()["term"]
