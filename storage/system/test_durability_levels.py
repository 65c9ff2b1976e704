"""Each level of durability waits for what it says, survives what it says, and is chosen where it says."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from disks import stuck_while
from harness import Engine
from waiting import WaitingCommit, start_patient, visible

LEVELS = {"off": "off", "receive": "remote_write", "flush": "on", "apply": "remote_apply"}


@pytest.fixture
def stuck(own: Engine) -> Path:
    """While this file is there, no safekeeper's fsync returns."""
    there = own.root / "stuck"
    environment = stuck_while(own.root, there)
    for safekeeper in own.safekeepers:
        safekeeper.stop()
        safekeeper.environment |= environment
        safekeeper.start()
    return there


@contextlib.contextmanager
def majority_lost(engine: Engine) -> Iterator[None]:
    for safekeeper in engine.safekeepers[1:]:
        safekeeper.kill9()
    yield
    for safekeeper in engine.safekeepers[1:]:
        safekeeper.start()


@contextlib.contextmanager
def pageserver_lost(engine: Engine) -> Iterator[None]:
    engine.pageserver.kill9()
    yield
    engine.pageserver.start()


@contextlib.contextmanager
def disks_stuck(there: Path) -> Iterator[None]:
    there.touch()
    try:
        yield
    finally:
        there.unlink()


@pytest.mark.parametrize(
    ("level", "waits_for"),
    [
        ("off", set()),
        ("receive", {"majority"}),
        ("flush", {"majority", "disks"}),
        ("apply", {"majority", "disks", "pageserver"}),
    ],
)
@pytest.mark.parametrize("chosen_by", ["spec", "session"])
def test_a_level_waits_for_what_it_says_and_for_nothing_else(
    own: Engine, stuck: Path, level: str, waits_for: set[str], chosen_by: str
) -> None:
    compute = start_patient(own, **({"durability": level} if chosen_by == "spec" else {}))
    choose = [] if chosen_by == "spec" else [f"SET synchronous_commit = {LEVELS[level]}"]
    trouble = {
        "majority": lambda: majority_lost(own),
        "disks": lambda: disks_stuck(stuck),
        "pageserver": lambda: pageserver_lost(own),
    }
    for row, (missing, lost) in enumerate(trouble.items(), start=10):
        commit = WaitingCommit(compute, *choose, f"INSERT INTO t VALUES ({row})")
        assert commit.told() == "success", "nothing is missing yet"
        with lost():
            commit = WaitingCommit(compute, *choose, f"INSERT INTO t VALUES ({-row})")
            if missing in waits_for:
                commit.until_it_waits()
                time.sleep(1)
                assert commit.outcome is None, f"{level} did not wait for the {missing}"
                assert not visible(compute, -row)
            else:
                assert commit.told() == "success"
                assert visible(compute, -row)
        assert commit.told() == "success"
        assert commit.warnings == []


def test_receive_survives_the_death_of_every_process(own: Engine, stuck: Path) -> None:
    compute = start_patient(own, durability="receive")
    with disks_stuck(stuck):
        compute.sql("INSERT INTO t VALUES (2)")
        for process in [compute.process, *own.safekeepers, own.pageserver]:
            process.kill9()
    for process in [own.pageserver, *own.safekeepers]:
        process.start()
    assert visible(own.compute(compute.timeline), 2)


def test_off_can_lose_what_it_acknowledged_and_nothing_older(own: Engine) -> None:
    compute = start_patient(own, durability="off")
    compute.sql("INSERT INTO t VALUES (2)")
    compute.suspend()
    compute = own.compute(compute.timeline, durability="off", quorum_timeout_ms=600_000)
    assert visible(compute, 2)
    own.safekeepers[0].kill9()
    own.safekeepers[1].kill9()
    compute.sql("INSERT INTO t VALUES (3)")
    compute.kill9()
    own.safekeepers[2].kill9()
    own.safekeepers[0].start()
    own.safekeepers[1].start()
    again = own.compute(compute.timeline)
    assert visible(again, 2)
    assert not visible(again, 3)


def test_what_roles_and_databases_choose_is_told(shared: Engine) -> None:
    compute = shared.compute(shared.create_timeline())

    def told() -> list[tuple[str | None, str | None, str]]:
        answer = compute.http.get("/synchronous_commit", timeout=10).json()
        assert answer["more"] is False
        return [(row["role"], row["database"], row["synchronous_commit"]) for row in answer["chosen"]]

    assert told() == []
    with compute.admin() as session:
        session.execute("CREATE ROLE batch")
        session.execute("CREATE DATABASE ledger")
        session.execute("ALTER ROLE batch SET work_mem = '8MB'")
        session.execute("ALTER ROLE batch SET synchronous_commit = off")
        session.execute("ALTER DATABASE ledger SET Synchronous_Commit = remote_apply")
        session.execute("ALTER ROLE batch IN DATABASE ledger SET synchronous_commit = remote_write")
    # Those below the default first.
    assert told() == [
        ("batch", None, "off"),
        ("batch", "ledger", "remote_write"),
        (None, "ledger", "remote_apply"),
    ]
    with compute.admin() as session:
        session.execute("DROP DATABASE ledger")
        session.execute("DROP ROLE batch")
    assert told() == []


def test_the_level_is_the_spec_s_unless_a_setting_or_a_session_says_otherwise(shared: Engine) -> None:
    compute = shared.compute(shared.create_timeline())
    assert compute.sql("SHOW synchronous_commit") == [("on",)]
    for level, value in LEVELS.items():
        assert compute.configure(durability=level)[0] == 200
        assert compute.sql("SHOW synchronous_commit") == [(value,)]
        assert compute.http.get("/status", timeout=10).json()["synchronous_commit"] == value
    settings = {"synchronous_commit": "off"}
    assert compute.configure(durability="apply", settings=settings)[0] == 200
    assert compute.sql("SHOW synchronous_commit") == [("off",)]
    assert compute.http.get("/status", timeout=10).json()["synchronous_commit"] == "off"
    code, answer = compute.configure(durability="none")
    assert code == 400
    assert "durability" in answer["message"] or "receive" in answer["message"]
    assert compute.sql("SHOW synchronous_commit") == [("off",)]
    assert compute.configure()[0] == 200
    with compute.connect() as session:
        session.execute("SET synchronous_commit = remote_write")
        assert session.execute("SHOW synchronous_commit").fetchone() == ("remote_write",)
    assert compute.sql("SHOW synchronous_commit") == [("on",)]
