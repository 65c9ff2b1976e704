"""A run is written down with the tree and the minors that it proves something about."""

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from devtools import history, system, testing
from devtools.history import Checkout
from devtools.results import Count
from devtools.suite import Step

POLICY = """postgresql-15:
  Installed: {installed}
  Candidate: {candidate}
  Version table:
     15.20-0+deb12u1 500
"""


@pytest.mark.parametrize(
    ("installed", "candidate", "expected"),
    [
        ("15.18-0+deb12u1", "15.20-0+deb12u1", "15.20-0+deb12u1"),
        ("15.20-0+deb12u1", "15.20-0+deb12u1", None),
        ("(none)", "15.20-0+deb12u1", "15.20-0+deb12u1"),
        ("15.18-0+deb12u1", "(none)", None),
    ],
)
def test_an_upgrade_is_due_when_the_candidate_is_another(installed: str, candidate: str, expected: str | None):
    assert system.newer_candidate(POLICY.format(installed=installed, candidate=candidate)) == expected


def test_a_policy_of_a_package_nobody_knows_asks_for_nothing():
    assert system.newer_candidate("N: Unable to locate package postgresql-15") is None


def test_the_minor_of_the_installed_server_is_found():
    major, minor = history.minors()["15"].split(".")
    assert major == "15"
    assert int(minor) >= system.OLDEST_POSTGRES_MINOR


def test_a_whole_run_adds_a_line_that_names_tree_outcome_and_minors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(history, "HISTORY", tmp_path / "cache" / "tests.jsonl")
    good = testing.Entry(Step("good", "", ["true"]), 1.0, 0, Count(1, 0))
    bad = testing.Entry(Step("bad", "", ["false"]), 1.0, 1, Count(0, 1))
    testing.keep([good], Checkout("4b825dc6", True), {"15": "15.20"}, 2.04)
    testing.keep([good, bad], Checkout("4b825dc6", False), {"15": "15.18"}, 3.0)
    first, second = map(json.loads, history.HISTORY.read_text().splitlines())
    at = first.pop("at")
    assert at.startswith("20")
    assert at.endswith("+00:00")
    assert first == {
        "tree": "4b825dc6",
        "clean": True,
        "outcome": "ok",
        "failed": [],
        "minors": {"15": "15.20"},
        "seconds": 2.0,
    }
    assert (second["outcome"], second["failed"], second["clean"]) == ("failed", ["bad"], False)
