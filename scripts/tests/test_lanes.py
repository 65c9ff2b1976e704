"""Steps in lanes run side by side, each lane in order, and none outlives a lane that broke. Which steps a run has."""

import sys
from argparse import Namespace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from devtools import testing
from devtools.suite import Step, steps


def step(name: str, script: str, lane: str = "") -> Step:
    return Step(name, name, [sys.executable, "-c", script], lane=lane)


@pytest.fixture(autouse=True)
def _ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(testing, "LEDGER", tmp_path)


def test_lanes_run_side_by_side_and_each_in_its_order(tmp_path: Path):
    # Each of two lanes waits for what the other one does: in a row neither would end.
    wait = "import pathlib, sys, time\nwhile not pathlib.Path({!r}).exists(): time.sleep(0.01)"
    touch = "import pathlib; pathlib.Path({!r}).touch()"
    one, two = str(tmp_path / "one"), str(tmp_path / "two")
    entries = testing.run_all(
        [
            step("before", "pass"),
            step("one", touch.format(one), "first"),
            step("waits for two", wait.format(two), "first"),
            step("waits for one", wait.format(one), "second"),
            step("two", touch.format(two), "second"),
            step("after", f"import os; assert os.path.exists({two!r})"),
        ]
    )
    assert [entry.step.name for entry in entries] == [
        "before",
        "one",
        "waits for two",
        "waits for one",
        "two",
        "after",
    ]
    assert all(entry.good for entry in entries)


def test_a_failed_step_is_counted_and_the_rest_goes_on():
    entries = testing.run_all(
        [step("bad", "raise SystemExit(3)", "first"), step("good", "pass", "second"), step("last", "pass")]
    )
    assert [entry.good for entry in entries] == [False, True, True]


def test_what_failed_is_said_before_the_end_of_an_output_that_is_full_of_logs(capsys: pytest.CaptureFixture[str]):
    script = "print('E   assert 1 == 2')\nfor _ in range(100): print('a log line')\nraise SystemExit(1)"
    testing.run_all([step("bad", script)])
    said = capsys.readouterr().out
    assert 0 < said.index("> E   assert 1 == 2") < said.index("| a log line")


def test_a_lane_that_breaks_stops_the_other(monkeypatch: pytest.MonkeyPatch):
    def broken(*_: object) -> None:
        raise RuntimeError("no room for the ledger")

    monkeypatch.setattr(testing, "say_outcome", broken)
    with pytest.raises(RuntimeError, match="no room"):
        testing.run_all([step("short", "pass", "first"), step("long", "import time; time.sleep(60)", "second")])


def chosen(*, fast: bool = False, long: bool = False, only: list[str] | None = None, skip: tuple[str, ...] = ()):
    options = Namespace(fast=fast, long=long, only=only, skip=list(skip))
    return [step.name for step in testing.choose(options)]


def test_each_step_is_of_make_test_or_of_make_test_long():
    usual, long = chosen(), chosen(long=True)
    assert sorted(usual + long) == sorted(step.name for step in steps())
    assert long
    assert set(chosen(fast=True)) < set(usual)


def test_a_step_that_is_named_runs_whatever_it_belongs_to():
    assert chosen(only=["system-long", "tidy"]) == ["tidy", "system-long"]
    assert "tidy" not in chosen(skip=("tidy",))


def test_a_step_has_its_own_environment(tmp_path: Path):
    script = "import os; assert os.environ['WEIR_TEST_LONG'] == '1' and os.environ['PROPTEST_RNG_SEED']"
    entries = testing.run_all(
        [Step("long", "long", [sys.executable, "-c", script], environment={"WEIR_TEST_LONG": "1"})]
    )
    assert entries[0].good
