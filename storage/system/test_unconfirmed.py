"""No commit is let go without a majority by Weir, and those that a client lets go itself are counted.

What each case means for the client and for others is described in docs/durability.md.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time

import psycopg
import psycopg.sql
import pytest
from harness import Compute, Engine, listening, metric, wait_for
from waiting import LET_GO, Observers, WaitingCommit, postgres_log, start_patient, visible
from workloads import AcknowledgedInserts

CANCELED = ("01000", "canceling wait for synchronous replication due to user request")
UNCONFIRMED = "weir_compute_commits_unconfirmed_total"


def lose_majority(engine: Engine) -> None:
    for safekeeper in engine.safekeepers[1:]:
        safekeeper.kill9()


def regain_majority(engine: Engine) -> None:
    for safekeeper in engine.safekeepers[1:]:
        safekeeper.start()


def unconfirmed(compute: Compute, **expected: int) -> None:
    """The agent's counters are these and no others, in its status and in its metrics."""
    counted = {"canceled": 0, "terminated": 0, "stopped": 0, **expected}
    wait_for(f"{counted} to be counted", lambda: compute.status()["commits_unconfirmed"] == counted, 20)
    for cause, count in counted.items():
        assert metric(compute, UNCONFIRMED, cause=cause) == count


# --- what clients do


def test_a_canceled_commit_is_told_as_success_visible_counted_and_can_be_lost(own: Engine) -> None:
    compute = start_patient(own)
    lose_majority(own)
    commit = WaitingCommit(compute, "INSERT INTO t VALUES (2)").until_it_waits()
    assert not visible(compute, 2)
    unconfirmed(compute)

    commit.connection.cancel()
    assert commit.told() == "success"
    assert commit.warnings == [CANCELED]
    assert visible(compute, 2)
    unconfirmed(compute, canceled=1)
    wait_for("nobody to wait", lambda: metric(compute, "weir_compute_commits_waiting") == 0)

    # The one safekeeper that has it goes away with the compute: nobody else knows of it.
    compute.kill9()
    own.safekeepers[0].kill9()
    regain_majority(own)
    again = own.compute(compute.timeline)
    assert visible(again, 1)
    assert not visible(again, 2)


def test_a_terminated_commit_is_told_nothing_and_visible_and_counted(own: Engine) -> None:
    compute = start_patient(own)
    lose_majority(own)
    commit = WaitingCommit(compute, "INSERT INTO t VALUES (2)").until_it_waits()
    assert compute.sql("SELECT pg_terminate_backend(%s)", commit.pid) == [(True,)]
    assert commit.told() != "success"
    wait_for("the row to be visible", lambda: visible(compute, 2))
    unconfirmed(compute, terminated=1)


def test_a_client_that_leaves_lets_nothing_go(own: Engine) -> None:
    compute = start_patient(own)
    lose_majority(own)
    observers = Observers(compute, 2).start()
    client = subprocess.Popen(["psql", "--no-psqlrc", "-c", "INSERT INTO t VALUES (2)", compute.uri])
    wait_for("its commit to wait", lambda: compute.status()["commits_waiting"])
    client.kill()
    client.wait(10)
    looks = observers.looks
    wait_for("the observers to look again", lambda: observers.looks > looks + 1000)
    assert not observers.seen.is_set()
    assert compute.status()["commits_waiting"] == 1
    observers.stop()
    regain_majority(own)
    wait_for("the commit to be confirmed", lambda: visible(compute, 2))
    unconfirmed(compute)


@pytest.mark.parametrize(
    ("before", "statements", "let_go"),
    [
        ([], ["INSERT INTO t VALUES (2)"], False),
        ([], ["BEGIN", "INSERT INTO t VALUES (2)", "COMMIT"], False),
        (["BEGIN", "INSERT INTO t VALUES (2)", "PREPARE TRANSACTION 'two'"], ["COMMIT PREPARED 'two'"], True),
        (
            ["CREATE PROCEDURE two() LANGUAGE plpgsql AS 'BEGIN INSERT INTO t VALUES (2); COMMIT; END'"],
            ["CALL two()"],
            True,
        ),
    ],
    ids=["statement", "transaction", "prepared", "procedure"],
)
def test_a_statement_timeout_ends_the_wait_only_where_the_commit_is_inside_a_statement(
    own: Engine, before: list[str], statements: list[str], let_go: bool
) -> None:
    compute = start_patient(own)
    with compute.connect() as session:
        for statement in before:
            session.execute(statement.encode())
    lose_majority(own)
    commit = WaitingCommit(compute, "SET statement_timeout = '2s'", *statements).until_it_waits()
    if let_go:
        assert commit.told() == "success"
        assert commit.warnings == [CANCELED]
        assert visible(compute, 2)
        unconfirmed(compute, canceled=1)
    else:
        time.sleep(4)
        assert commit.outcome is None
        assert not visible(compute, 2)
        regain_majority(own)
        assert commit.told() == "success"
        assert commit.warnings == []
        unconfirmed(compute)


def test_what_a_client_writes_into_the_log_can_raise_the_count_and_never_lower_it(own: Engine) -> None:
    compute = start_patient(own)
    for words in (f"x\nWARNING:  {CANCELED[1]}", "y" * 3_000_000):
        statement = psycopg.sql.SQL("DO {}").format(f"BEGIN RAISE WARNING {words!r}; END".replace("\\n", "\n"))
        compute.sql(statement.as_string(None))
    unconfirmed(compute)
    lose_majority(own)
    commit = WaitingCommit(
        compute, "SET client_min_messages = 'error'", "SET application_name = 'a\tb'", "INSERT INTO t VALUES (2)"
    ).until_it_waits()
    commit.connection.cancel()
    assert commit.told() == "success"
    assert commit.warnings == [], "the client does not want to know, and is told success"
    unconfirmed(compute, canceled=1)


# --- what Weir does


def test_a_lost_majority_stops_postgres_as_a_whole(own: Engine) -> None:
    compute = start_patient(own, quorum_timeout_ms=4000)
    lose_majority(own)
    observers = Observers(compute, 2).start()
    commit = WaitingCommit(compute, "INSERT INTO t VALUES (2)").until_it_waits()
    assert commit.told() != "success"
    observers.until_the_end()
    unconfirmed(compute, stopped=1)
    assert LET_GO not in postgres_log(compute)
    regain_majority(own)
    wait_for("the compute to run again", lambda: compute.status()["state"] == "running")


def test_a_suspend_waits_for_commits_and_lets_none_go(own: Engine) -> None:
    compute = start_patient(own)
    lose_majority(own)
    observers = Observers(compute, 2).start()
    commit = WaitingCommit(compute, "INSERT INTO t VALUES (2)").until_it_waits()
    began = time.monotonic()
    compute.http.post("/terminate", json={"mode": "suspend"}).raise_for_status()
    time.sleep(2)
    assert commit.outcome is None
    assert compute.status()["state"] == "stopping"
    assert compute.process.wait(60) == 0
    assert time.monotonic() - began < 25
    assert commit.told() != "success"
    observers.until_the_end()
    assert LET_GO not in postgres_log(compute)
    assert "commits still wait for a majority" in compute.process.tail()


def test_a_suspend_is_clean_once_the_commits_that_wait_are_confirmed(own: Engine) -> None:
    compute = start_patient(own)
    lose_majority(own)
    commit = WaitingCommit(compute, "INSERT INTO t VALUES (2)").until_it_waits()
    compute.http.post("/terminate", json={"mode": "suspend"}).raise_for_status()
    time.sleep(1)
    regain_majority(own)
    assert commit.told() == "success"
    assert compute.process.wait(60) == 0
    assert "suspended without a clean end" not in compute.process.tail()
    assert visible(own.compute(compute.timeline), 2)


def test_a_suspend_under_load_is_clean_and_quick(own: Engine) -> None:
    compute = start_patient(own)
    load = AcknowledgedInserts(compute, workers=8)
    load.start()
    wait_for("acknowledged rows", lambda: load.count() > 500)
    began = time.monotonic()
    compute.suspend()
    assert time.monotonic() - began < 10
    assert "suspended without a clean end" not in compute.process.tail()
    load.stop()
    load.compute = own.compute(compute.timeline)
    assert load.missing() == []


def test_refused_writes_leave_commits_that_wait_alone(own: Engine) -> None:
    compute = start_patient(own)
    with tempfile.TemporaryDirectory(prefix="weir-tablespace-") as directory:
        subprocess.run(["chown", "postgres", directory], check=True)
        with compute.admin() as session:
            # Storage does not know tablespaces: it stops at the record.
            location = psycopg.sql.Literal(directory)
            session.execute(psycopg.sql.SQL("CREATE TABLESPACE beyond LOCATION {}").format(location))
        wait_for("writes to be refused", lambda: metric(compute, "weir_compute_writes_refused") == 1)
        lose_majority(own)

        def waits() -> WaitingCommit | None:
            # The refusal ends it if it comes between the two.
            commit = WaitingCommit(compute, "BEGIN READ WRITE; INSERT INTO t VALUES (2); COMMIT")
            time.sleep(0.2)
            return commit if commit.outcome is None else None

        commit = wait_for("a commit to wait all the same", waits)
        commit.until_it_waits()
        time.sleep(3)
        assert commit.outcome is None, "the refusal ended a session whose commit waited"
        assert not visible(compute, 2)
        assert LET_GO not in postgres_log(compute)
        regain_majority(own)
        assert commit.told() == "success"
        unconfirmed(compute)


@pytest.mark.parametrize("end", ["killed", "fenced"])
def test_an_agent_that_dies_or_is_fenced_shows_nobody_what_waited(own: Engine, end: str) -> None:
    compute = start_patient(own)
    observers = Observers(compute, 2).start()
    # Nobody new gets in while the agent stands still: what a session opens may have to come from the volume.
    connection = compute.connect()
    # An agent that stands still confirms nothing, however well its safekeepers are.
    compute.process.signal(signal.SIGSTOP)
    commit = WaitingCommit(compute, "INSERT INTO t VALUES (2)", connection=connection)
    looks = observers.looks
    wait_for("the observers to look again", lambda: observers.looks > looks + 1000)
    assert commit.outcome is None
    if end == "killed":
        compute.process.kill9()
    else:
        newer = own.compute(compute.timeline)
        assert visible(newer, 1)
        compute.process.signal(signal.SIGCONT)
    assert commit.told() != "success"
    observers.until_the_end()
    wait_for("Postgres to be gone", lambda: not listening(compute.port))
    assert LET_GO not in postgres_log(compute)


def test_a_postmaster_that_does_not_react_is_stopped_without_letting_a_commit_go(own: Engine) -> None:
    compute = start_patient(own)
    lose_majority(own)
    observers = Observers(compute, 2).start()
    commit = WaitingCommit(compute, "INSERT INTO t VALUES (2)").until_it_waits()
    os.kill(compute.postmaster, signal.SIGSTOP)
    compute.http.post("/terminate", json={"mode": "immediate"}).raise_for_status()
    assert commit.told() != "success"
    observers.until_the_end()
    assert compute.process.wait(30) == 0


def test_a_killed_postmaster_acknowledges_nothing(own: Engine) -> None:
    compute = start_patient(own)
    lose_majority(own)
    commit = WaitingCommit(compute, "INSERT INTO t VALUES (2)").until_it_waits()
    os.kill(compute.postmaster, signal.SIGKILL)
    assert commit.told() != "success"
    unconfirmed(compute, stopped=1)
    regain_majority(own)
    wait_for("a new start", lambda: compute.status()["restarts"] == 1)
    compute.wait_running()


@pytest.mark.parametrize("names", ["''", "'somebody'"])
def test_a_superuser_who_takes_the_proposer_away_stops_the_compute(own: Engine, names: str) -> None:
    compute = start_patient(own)
    with compute.admin() as session:
        session.execute(f"ALTER SYSTEM SET synchronous_standby_names = {names}".encode())
        session.execute("SELECT pg_reload_conf()")
    wait_for("a new start", lambda: compute.status()["restarts"] == 1, 20)
    status = compute.wait_running()
    assert status["term"] == 2
    with compute.admin() as session:
        assert session.execute("SHOW synchronous_standby_names").fetchone() == ("weir_proposer",)
    assert "synchronous_standby_names was changed" in compute.process.tail(200)
    compute.sql("INSERT INTO t VALUES (3)")


@pytest.mark.parametrize("setting", ["log_min_messages", "lc_messages"])
def test_no_setting_hides_unconfirmed_commits_from_the_agent(own: Engine, setting: str) -> None:
    value = {"log_min_messages": "debug1", "lc_messages": "de_DE.UTF-8"}[setting]
    compute = start_patient(own, settings={"autovacuum": "off", setting: value})
    assert compute.sql("SHOW lc_messages") == [("C",)]
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        compute.sql(f"SET {setting} = 'panic'")
    lose_majority(own)
    commit = WaitingCommit(compute, "INSERT INTO t VALUES (2)").until_it_waits()
    commit.connection.cancel()
    assert commit.told() == "success"
    unconfirmed(compute, canceled=1)
