"""What became of a suite's tests, and where two runs of it differ."""

from __future__ import annotations

import fnmatch
import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PASSED, FAILED, SKIPPED, ABSENT = "passed", "failed", "skipped", "was not run"
# It was begun and has no end: its program panicked or was ended, and what came after it was not run.
BROKE_OFF = "broke off"


@dataclass(frozen=True)
class Outcomes:
    """By the test's name."""

    of: Mapping[str, str]

    def number(self, outcome: str) -> int:
        return sum(1 for one in self.of.values() if one == outcome)

    def summary(self) -> str:
        always = (PASSED, FAILED, SKIPPED)
        shown = always if BROKE_OFF not in self.of.values() else (*always, BROKE_OFF)
        return ", ".join(f"{self.number(outcome)} {outcome}" for outcome in shown)


def read_junit(path: Path) -> Outcomes:
    """A run's results as pytest writes them. A test that passed and whose end failed has failed. Raises ValueError
    for a file without tests: such a run has shown nothing."""
    found: dict[str, str] = {}
    # Written by a program of ours, on this machine.
    for case in ET.parse(path).getroot().iter("testcase"):  # noqa: S314
        tags = {child.tag for child in case}
        outcome = FAILED if tags & {"failure", "error"} else SKIPPED if "skipped" in tags else PASSED
        name = f"{case.get('classname', '')}::{case.get('name', '')}"
        # One test can have two entries, of itself and of its end.
        if found.get(name) != FAILED:
            found[name] = outcome
    if not found:
        raise ValueError(f"{path} has no tests")
    return Outcomes(found)


def read_go(path: Path) -> Outcomes:
    """A run's results as `go test -json` writes them. A test that was begun and not ended, as when its package
    panicked, broke off. Raises ValueError for a file without tests."""
    ends = {"run": BROKE_OFF, "pass": PASSED, "fail": FAILED, "skip": SKIPPED}
    found: dict[str, str] = {}
    for line in path.read_text(errors="replace").splitlines():
        event = json.loads(line) if line.startswith("{") else {}
        outcome = ends.get(event.get("Action", ""))
        if outcome is not None and "Test" in event:
            # Some tests are named after a folder that is another one in each run.
            name = re.sub(r"/tmp/\w+/\d+/", "/tmp/", event["Test"])  # noqa: S108
            found[f"{event['Package']}::{name}"] = outcome
    if not found:
        raise ValueError(f"{path} has no tests")
    return Outcomes(found)


@dataclass(frozen=True)
class Difference:
    """Tests that go otherwise at a Weir, as patterns, and why."""

    suites: Sequence[str]
    way: str
    tests: Sequence[str]
    reason: str


@dataclass(frozen=True)
class LeftOut:
    """Tests that are run nowhere, by the names that the suite's runner takes, and why."""

    suites: Sequence[str]
    tests: Sequence[str]
    reason: str


def _literal(pattern: str) -> str:
    """A pattern in which * alone has a meaning: names of tests have brackets."""
    return pattern.replace("[", "[[]").replace("?", "[?]")


@dataclass(frozen=True)
class Known:
    differences: Sequence[Difference]
    left_out: Sequence[LeftOut]

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Known:
        """Of the file's content. Raises ValueError for an entry that lacks something, or its reason."""
        if unknown := set(document) - {"difference", "left_out"}:
            raise ValueError(f"what is known has `difference` and `left_out`, and not {', '.join(sorted(unknown))}")
        differences = (_whole(one, {"suites", "way", "tests", "reason"}) for one in document.get("difference", []))
        left_out = (_whole(one, {"suites", "tests", "reason"}) for one in document.get("left_out", []))
        return cls([Difference(**one) for one in differences], [LeftOut(**one) for one in left_out])

    def of_way(self, suite: str, way: str) -> list[Difference]:
        return [one for one in self.differences if one.way == way and suite in one.suites]

    def of_suite(self, suite: str) -> list[LeftOut]:
        return [one for one in self.left_out if suite in one.suites]


def _whole(entry: Mapping[str, Any], wanted: set[str]) -> Mapping[str, Any]:
    if set(entry) != wanted or not entry["reason"].strip() or not entry["tests"] or not entry["suites"]:
        raise ValueError(f"an entry has {', '.join(sorted(wanted))}, none of them empty; this one has not: {entry}")
    return entry


def differing(stock: Outcomes, other: Outcomes) -> list[str]:
    """The tests that do not go as at the stock server, known or not."""
    return [test for test in sorted({*stock.of, *other.of}) if stock.of.get(test) != other.of.get(test)]


def compare(stock: Outcomes, other: Outcomes, known: Iterable[Difference], *, stale: bool) -> list[str]:
    """What is wrong, a line each: tests that go otherwise than at the stock server without a known reason and, where
    `stale` says so, known differences that are none any more."""
    known = list(known)
    lines: list[str] = []
    used: set[tuple[int, str]] = set()
    for test in differing(stock, other):
        there, here = stock.of.get(test, ABSENT), other.of.get(test, ABSENT)
        reasons = [
            (number, pattern)
            for number, one in enumerate(known)
            for pattern in one.tests
            if fnmatch.fnmatchcase(test, _literal(pattern))
        ]
        used.update(reasons)
        if not reasons:
            lines.append(f"{test} {here}, and {there} at the stock server")
    if stale:
        lines += [
            f"the known difference {pattern} is none any more"
            for number, one in enumerate(known)
            for pattern in one.tests
            if (number, pattern) not in used
        ]
    return lines


def table(found: Mapping[str, Mapping[str, Outcomes]]) -> str:
    """Markdown, a row for each suite that has results of the stock server: tests that passed by each way, those that
    failed or were skipped at the stock server, and how many differ by each other way."""
    rows = ["| suite | stock | direct | pooler | failed or skipped at stock | other, direct | other, pooler |"]
    rows.append("|---|---|---|---|---|---|---|")
    for suite, ways in found.items():
        stock = ways.get("stock")
        if stock is None:
            continue
        passed = [str(ways[way].number(PASSED)) if way in ways else "" for way in ("stock", "direct", "pooler")]
        rest = f"{stock.number(FAILED)}, {stock.number(SKIPPED)}"
        other = [str(len(differing(stock, ways[way]))) if way in ways else "" for way in ("direct", "pooler")]
        rows.append(f"| {' | '.join([suite, *passed, rest, *other])} |")
    return "\n".join(rows)
