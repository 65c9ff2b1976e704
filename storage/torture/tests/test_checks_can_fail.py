"""The checks find what they are there for: planted in histories, and in a database behind the clients' back."""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import Compute, Engine, engine
from weirtorture import programs
from weirtorture.checks import Findings, check_content, check_history, check_indexes, read_content
from weirtorture.clients import SCHEMA, Load
from weirtorture.history import FAILED, OK, UNKNOWN, History, Operation
from weirtorture.schedule import FOUNDERS, Fault, Schedule
from weirtorture.trial import Trial

# The fixtures of a module are made once.
pytestmark = pytest.mark.xdist_group("checks")


@pytest.fixture(scope="module", autouse=True)
def program() -> None:
    programs.build()


def operation(client: int, begin: int, end: int, outcome: str = OK, **part: Any) -> Operation:
    return Operation(client, [part], begin, end, outcome)


def write(client: int, begin: int, end: int, value: int, outcome: str = OK) -> Operation:
    return operation(client, begin, end, outcome, kind="register", op="write", key=1, value=value)


def read(client: int, begin: int, end: int, seen: int) -> Operation:
    return operation(client, begin, end, kind="register", op="read", key=1, seen=seen)


def append(client: int, begin: int, end: int, value: int, after: list[int], outcome: str = OK) -> Operation:
    return operation(client, begin, end, outcome, kind="list", op="append", key=1, value=value, list=after)


def read_list(client: int, begin: int, end: int, items: list[int]) -> Operation:
    return operation(client, begin, end, kind="list", op="read", key=1, list=items)


def verdict(tmp_path: Path, *operations: Operation) -> Findings:
    findings = Findings()
    check_history(History(list(operations)), tmp_path / "history.jsonl", tmp_path, findings)
    assert findings.undecided == []
    return findings


GOOD = {
    "one after the other": [write(1, 0, 10, 5), read(2, 11, 12, 5)],
    "side by side, seen late": [write(1, 0, 10, 5), read(2, 1, 2, 0), read(2, 3, 12, 5)],
    "unknown and seen": [write(1, 0, 10, 5, UNKNOWN), read(2, 20, 22, 0), read(2, 30, 32, 5)],
    "unknown and never seen": [write(1, 0, 10, 5, UNKNOWN), read(2, 20, 22, 0)],
    "failed and not seen": [write(1, 0, 10, 5, FAILED), read(2, 20, 22, 0)],
    "a list": [append(1, 0, 10, 5, [5]), append(2, 2, 12, 6, [5, 6]), read_list(3, 20, 21, [5, 6])],
    "a list, unknown": [append(1, 0, 10, 5, [], UNKNOWN), append(2, 20, 30, 6, [5, 6])],
}
WRONG = {
    "an acknowledged write is lost": [write(1, 0, 10, 5), read(2, 11, 12, 0)],
    "a stale read": [write(1, 0, 10, 5), write(1, 11, 20, 6), read(2, 21, 22, 5)],
    "reads go back": [write(1, 0, 100, 5), read(2, 10, 20, 5), read(3, 30, 40, 0)],
    "an unknown write is seen and then gone": [
        write(1, 0, 10, 5, UNKNOWN),
        read(2, 20, 22, 5),
        read(2, 30, 32, 0),
    ],
    "a write that failed is seen": [write(1, 0, 10, 5, FAILED), read(2, 20, 22, 5)],
    "a value that nobody wrote": [read(2, 20, 22, 7)],
    "an acknowledged append is lost": [append(1, 0, 10, 5, [5]), read_list(2, 11, 12, [])],
    "two histories": [append(1, 0, 10, 5, [5]), append(2, 11, 20, 6, [6])],
    "appended twice": [append(1, 0, 10, 5, [5]), read_list(2, 11, 12, [5, 5])],
    "lists in another order": [
        append(1, 0, 10, 5, [5]),
        append(2, 11, 20, 6, [5, 6]),
        read_list(2, 21, 22, [6, 5]),
    ],
}


@pytest.mark.parametrize("name", GOOD)
def test_a_history_with_an_explanation_passes(tmp_path: Path, name: str) -> None:
    assert verdict(tmp_path, *GOOD[name]).clean


@pytest.mark.parametrize("name", WRONG)
def test_a_history_without_an_explanation_is_found(tmp_path: Path, name: str) -> None:
    findings = verdict(tmp_path, *WRONG[name])
    assert len(findings.wrong) == 1
    assert list(tmp_path.glob("*.html")), "there is a picture of it"


def test_one_mistake_among_a_thousand_operations_is_found(tmp_path: Path) -> None:
    chance, history, value = random.Random(1), [], 0  # noqa: S311
    for number in range(1000):
        begin = number * 10
        if chance.random() < 0.5:
            value = number
            history.append(write(number % 8, begin, begin + 15, value))
            history.append(read(8, begin + 16, begin + 17, value))
        else:
            history.append(read(number % 8, begin, begin + 5, value))
    histories = [it for it in history if it.parts[0]["op"] == "write" or it.client != 8 or it.call % 10 == 6]
    assert verdict(tmp_path, *histories).clean
    reads = [it for it in histories if it.parts[0]["op"] == "read" and it.parts[0]["seen"]]
    reads[len(reads) // 2].parts[0]["seen"] = reads[0].parts[0]["seen"]
    assert verdict(tmp_path, *histories).wrong


@pytest.fixture(scope="module")
def loaded() -> Iterator[tuple[Engine, Compute, History]]:
    """What clients wrote within a few seconds without any fault."""
    with engine(Path(tempfile.mkdtemp(prefix="weir-torture-"))) as running:
        compute = running.compute(running.create_timeline())
        with compute.connect() as session:
            session.execute(SCHEMA.encode())
        load = Load(1, lambda: compute)
        load.start()
        time.sleep(3)
        load.stop()
        yield running, compute, load.history


def checked(compute: Compute, written: History, tmp_path: Path) -> Findings:
    findings, history = Findings(), History(list(written.operations))
    check_content(history, read_content(compute, history), findings)
    check_indexes(compute, findings)
    check_history(history, tmp_path / "history.jsonl", tmp_path, findings)
    return findings


LAST_LIST = "(SELECT min(key) FROM lists)"
BEHIND_THEIR_BACK: dict[str, tuple[str, Callable[[Findings], bool]]] = {
    "a row is deleted": (
        "DELETE FROM inserted WHERE ctid = (SELECT min(ctid) FROM inserted)",
        lambda found: len(found.lost) == 1 and found.wrong == [],
    ),
    "a row is doubled": (
        "INSERT INTO inserted SELECT * FROM inserted LIMIT 1",
        lambda found: found.lost == [] and "2 times" in found.wrong[0],
    ),
    "a row of nobody": (
        "INSERT INTO inserted VALUES (99, 1, '')",
        lambda found: "nobody wrote it" in found.wrong[0],
    ),
    "money is made": (
        "UPDATE accounts SET balance = balance + 1 WHERE id = 3",
        lambda found: "add up to" in found.wrong[0],
    ),
    "the last value of a list is gone": (
        f"UPDATE lists SET items = trim_array(items, 1) WHERE key = {LAST_LIST}",
        lambda found: len(found.lost) == 1 and any("no order" in text for text in found.wrong),
    ),
    "a register is put back": (
        "UPDATE registers SET value = 0 WHERE key = 0",
        lambda found: found.lost == [] and "register 0: no order" in found.wrong[0],
    ),
}


def test_what_clients_wrote_without_faults_is_clean(loaded: tuple[Engine, Compute, History], tmp_path: Path) -> None:
    _, compute, written = loaded
    findings = checked(compute, written, tmp_path)
    assert findings.clean, findings
    assert len(written.acknowledged()) > 100


@pytest.mark.parametrize("name", BEHIND_THEIR_BACK)
def test_what_is_done_behind_the_clients_back_is_found(
    loaded: tuple[Engine, Compute, History], tmp_path: Path, name: str
) -> None:
    running, compute, written = loaded
    statement, is_found = BEHIND_THEIR_BACK[name]
    branch = running.compute(running.branch(compute.timeline))
    with branch.connect() as session:
        session.execute(statement.encode())
    findings = checked(branch, written, tmp_path)
    branch.suspend()
    assert is_found(findings), findings


def test_a_trial_finds_commits_that_did_not_wait_for_a_majority(tmp_path: Path) -> None:
    """With `durability` off, what is acknowledged while no safekeeper is within reach is lost with the compute."""
    faults = (Fault("links_closed", 1.0, 5.0, FOUNDERS), Fault("compute_killed", 4.0, 0.2))
    result = Trial(Schedule(1, 7.0, True, faults), tmp_path / "kept", durability="off").run()
    assert result.done.count("links_closed") == result.done.count("compute_killed") == 1
    assert result.stuck == []
    assert len(result.lost) > 10, result.words()
    assert any("no order of its" in text for text in result.wrong), result.words()
    assert (tmp_path / "kept" / "safekeeper-1").is_dir(), "the disks are kept for whoever looks for the cause"
