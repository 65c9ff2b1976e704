"""What became of a suite's tests, and where two runs of it differ."""

from __future__ import annotations

import fnmatch
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PASSED, FAILED, SKIPPED, ABSENT = "passed", "failed", "skipped", "was not run"


@dataclass(frozen=True)
class Outcomes:
    """By the test's name."""

    of: Mapping[str, str]

    def summary(self) -> str:
        counts = Counter(self.of.values())
        return ", ".join(f"{counts[outcome]} {outcome}" for outcome in (PASSED, FAILED, SKIPPED))


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


@dataclass(frozen=True)
class Difference:
    """Tests that go otherwise through the proxy, as patterns, and why."""

    drivers: Sequence[str]
    way: str
    tests: Sequence[str]
    reason: str


def _literal(pattern: str) -> str:
    """A pattern in which * alone has a meaning: names of tests have brackets."""
    return pattern.replace("[", "[[]").replace("?", "[?]")


@dataclass(frozen=True)
class Known:
    all: Sequence[Difference]

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Known:
        """Of the file's content. Raises ValueError for an entry that lacks something, or its reason."""
        differences: list[Difference] = []
        for entry in document.get("difference", []):
            has_all = set(entry) == {"drivers", "way", "tests", "reason"}
            if not has_all or not entry["reason"].strip() or not entry["tests"]:
                raise ValueError(f"a known difference has drivers, way, tests and reason; this one has not: {entry}")
            differences.append(Difference(**entry))
        return cls(differences)

    def of_way(self, driver: str, way: str) -> list[Difference]:
        return [one for one in self.all if one.way == way and driver in one.drivers]


def compare(stock: Outcomes, other: Outcomes, known: Iterable[Difference], *, stale: bool) -> list[str]:
    """What is wrong, a line each: tests that go otherwise than at the stock server without a known reason and, where
    `stale` says so, known differences that are none any more."""
    known = list(known)
    lines: list[str] = []
    used: set[tuple[int, str]] = set()
    for test in sorted({*stock.of, *other.of}):
        there, here = stock.of.get(test, ABSENT), other.of.get(test, ABSENT)
        if there == here:
            continue
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
