"""Reading how many tests passed and failed out of what the test programs print."""

from __future__ import annotations

import re
from dataclasses import dataclass

_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")

# pytest's summary, the lines that explain an assertion and the members of a group of exceptions; cargo's tests,
# panics and compile errors; Go's tests and where they say why; tsc, vitest and Playwright's lists of failures.
_FAILURE = re.compile(
    r"(FAILED|ERROR) \S+|E {3,}\S|\s*\| [\w.]+(Error|Warning|Exception): |test \S.* \.\.\. FAILED$"
    r"|.* panicked at |error(\[E\d+\])?: |.*: error TS\d+"
    r"|\s*--- FAIL: |\s+\w+_test\.go:\d+: |\S+\.go:\d+:\d+: "
    r"|\s*(FAIL|Error:|AssertionError) ?\S|\s+\d+\) \[|stopped: not finished"
)


@dataclass(frozen=True)
class Count:
    passed: int = 0
    failed: int = 0

    def __add__(self, other: Count) -> Count:
        return Count(self.passed + other.passed, self.failed + other.failed)


def single(_text: str, status: int) -> Count:
    """A check that has no parts: it counts as one."""
    return Count(1, 0) if status == 0 else Count(0, 1)


def cargo(text: str, status: int) -> Count:
    found = re.findall(r"^test result: \w+\. (\d+) passed; (\d+) failed", _ANSI.sub("", text), re.MULTILINE)
    return _at_least_one(Count(sum(int(p) for p, _ in found), sum(int(f) for _, f in found)), status)


def go(text: str, status: int) -> Count:
    """Of `go test -v`: tests and their parts; what is skipped counts for nothing."""
    found = re.findall(r"^\s*--- (PASS|FAIL): ", _ANSI.sub("", text), re.MULTILINE)
    return _at_least_one(Count(found.count("PASS"), found.count("FAIL")), status)


def pytest(text: str, status: int) -> Count:
    # The last summary line: `=== 1 failed, 41 passed, 2 errors in 3.21s ===`, without the frame under -q.
    lines = [line for line in _ANSI.sub("", text).splitlines() if re.search(r"\bin \d+[.\d]*s\b", line)]
    return _at_least_one(_words(lines[-1]) if lines else Count(), status)


def vitest(text: str, status: int) -> Count:
    lines = [line for line in _ANSI.sub("", text).splitlines() if re.match(r"\s*Tests\s+\d", line)]
    return _at_least_one(_words(lines[-1]) if lines else Count(), status)


def playwright(text: str, status: int) -> Count:
    plain = _ANSI.sub("", text)
    passed = sum(int(n) for n in re.findall(r"^\s+(\d+) passed", plain, re.MULTILINE))
    failed = sum(
        int(n) for n in re.findall(r"^\s+(\d+) (?:failed|flaky|interrupted|did not run)", plain, re.MULTILINE)
    )
    return _at_least_one(Count(passed, failed), status)


def failures(text: str, most: int = 40) -> list[str]:
    """The lines of an output that name what failed and why, in its order: what a reader looks for first."""
    found = [line.strip() for line in _ANSI.sub("", text).splitlines() if _FAILURE.match(line)]
    return list(dict.fromkeys(found))[:most]


def _words(line: str) -> Count:
    def number(word: str) -> int:
        return sum(int(n) for n in re.findall(rf"(\d+) {word}", line))

    return Count(number("passed"), number("failed") + number("errors?\\b"))


def _at_least_one(count: Count, status: int) -> Count:
    """A failure that names no failed test is still one, and a run of no test has proven nothing."""
    if status != 0 and count.failed == 0:
        return Count(count.passed, 1)
    if status == 0 and count == Count():
        return Count(0, 1)
    return count
