"""kill -9 of every process, one at a time, under TPROC-C load: nothing acknowledged is lost, invariants hold."""

from __future__ import annotations

import os
import signal
from collections.abc import Generator
from pathlib import Path

import indexes
import pytest
from ledger import Ledger
from processes import here
from stack import Stack, wait_for
from weirbench import tproc
from weirbench.api import Database
from weirbench.postgres import SqlError, query

RATE = 20.0
# Whose death a session must not notice: they are not in the path of a commit, or two others carry it.
UNNOTICED = ("api", "worker", "temporal", "prometheus", "postgres", "pageserver", "safekeeper-1", "safekeeper-3")


@pytest.fixture(scope="module")
def loaded(stack: Stack) -> Database:
    database = stack.api().create_database("under-fire", {"checkpoint_timeout": "30s", "max_wal_size": "1GB"})
    tproc.load(database.uri, 1)
    return database


@pytest.fixture
def load(loaded: Database, tmp_path: Path) -> Generator[tproc.Driver]:
    driver = tproc.Driver(loaded.uri, tmp_path / "load", warehouses=1, clients=2, rate=RATE, seconds=600)
    try:
        wait_for("the load to run", lambda: driver.running and _sessions(loaded) >= 2)
        yield driver
    finally:
        driver.kill()


def _sessions(database: Database) -> int:
    return int(query(database.uri, "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'pgbench'"))


def check_everything(stack: Stack, database: Database, ledger: Ledger) -> None:
    assert ledger.acknowledged, "nothing was ever acknowledged: the test has tested nothing"
    assert ledger.missing() == []
    assert tproc.violations(database.uri) == []
    assert indexes.complaints(stack, database) == []


@pytest.mark.parametrize("victim", UNNOTICED)
def test_the_load_does_not_notice_the_death_of(victim: str, stack: Stack, loaded: Database, load: tproc.Driver):
    ledger = Ledger(loaded.uri)
    ledger.start()
    before = tproc.new_orders(loaded.uri)
    stack.kill(victim)
    wait_for("new orders after it", lambda: tproc.new_orders(loaded.uri) > before + 10)
    summary = load.finish()
    ledger.finish()
    assert (summary.status, summary.failed, summary.aborted_clients) == (0, 0, 0), summary.text
    assert ledger.interruptions == 0
    check_everything(stack, loaded, ledger)


def test_work_asked_for_while_temporal_is_dead_is_done_when_it_is_back(stack: Stack, loaded: Database):
    pid = stack.pid("temporal")
    os.kill(pid, signal.SIGKILL)
    made = stack.api().request("POST", "/projects", {"project": {"name": "asked-early"}})
    assert made["project"]["id"]
    stack.api().wait_operations(made["operations"], timeout=120)
    stack.api().delete_project(made["project"]["id"])


def _killed_and_back(stack: Stack, database: Database, pid: int) -> None:
    """Kill a process of the compute; it must come back as a new start, in a new term, without being asked."""
    before = stack.api().compute(database.compute_id)["term"]
    os.kill(pid, signal.SIGKILL)

    def back() -> bool:
        compute = stack.api().compute(database.compute_id)
        if compute["state"] != "active" or compute["term"] is None or compute["term"] <= before:
            return False
        try:
            return query(database.uri, "SELECT 1", timeout=10) == "1"
        except SqlError:
            return False

    wait_for("the compute to run in a new term", back)


def test_a_killed_compute_starts_again_with_everything_acknowledged(
    stack: Stack, loaded: Database, load: tproc.Driver
):
    ledger = Ledger(loaded.uri)
    ledger.start()
    wait_for("some promises", lambda: len(ledger.acknowledged) > 200)
    acknowledged = tproc.new_orders(loaded.uri)
    _killed_and_back(stack, loaded, stack.compute_pid(loaded.compute_id))
    promised = len(ledger.acknowledged)
    wait_for("promises from the new start", lambda: len(ledger.acknowledged) > promised + 100)
    ledger.finish()
    assert ledger.interruptions > 0, "the compute was killed, but nobody noticed"
    assert tproc.new_orders(loaded.uri) >= acknowledged
    check_everything(stack, loaded, ledger)


def test_one_killed_backend_means_a_new_start_never_recovery_in_place(
    stack: Stack, loaded: Database, load: tproc.Driver
):
    ledger = Ledger(loaded.uri)
    ledger.start()
    wait_for("some promises", lambda: len(ledger.acknowledged) > 100)
    sql = "SELECT pid FROM pg_stat_activity WHERE application_name = 'pgbench' LIMIT 1"
    session = here(stack.compute_pid(loaded.compute_id), int(query(loaded.uri, sql)))
    _killed_and_back(stack, loaded, session)
    ledger.finish()
    check_everything(stack, loaded, ledger)
