"""What goes wrong, who notices, and the tests that show it: runs them, and renders the page of them.

The list is storage/system/bad_days.toml, the page docs/bad-days.md. Without an option the tests of the list run
(some minutes; programs have to be built), and the table says of each case whether its tests passed.
"""

from __future__ import annotations

import argparse
import ast
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

from .paths import REPO, VENV, tool_environment
from .run import say

SYSTEM = REPO / "storage" / "system"
LIST = SYSTEM / "bad_days.toml"
PAGE = REPO / "docs" / "bad-days.md"
RUN_MINUTES = 40
INTRODUCTION = """# Bad days

What happens when something goes wrong for one tenant, one disk or one process: what the user of that tenant sees,
what a neighbour on the same machines sees, and how it heals. Each line is shown by the tests that it links to;
`make bad-days` runs them. What a neighbour sees is *by design* where those tests have no neighbour in them. What a
commit means through all of this is in [durability](durability.md).

"""


@dataclass(frozen=True)
class Case:
    """One bad day. `show`: the tests that show it, as FILE::FUNCTION below storage/system. `by_design`: these tests
    have no neighbour in them."""

    group: str
    what: str
    tenant: str
    neighbour: str
    heals: str
    show: tuple[str, ...]
    by_design: bool = False


def cases(text: str) -> list[Case]:
    """The cases of the list, in its order. Raises ValueError for one that lacks a field or has no test."""
    found: list[Case] = []
    groups: list[dict[str, Any]] = tomllib.loads(text)["group"]
    for group in groups:
        for row in group["case"]:
            missing = {"what", "tenant", "neighbour", "heals", "show"} - row.keys()
            if missing or not row["show"]:
                raise ValueError(f"{row.get('what', row)}: lacks {', '.join(sorted(missing)) or 'a test'}")
            by_design = bool(row.get("by_design", False))
            words = row["what"], row["tenant"], row["neighbour"], row["heals"]
            found.append(Case(group["title"], *words, tuple(row["show"]), by_design))
    return found


def unknown_tests(listed: list[Case], folder: Path = SYSTEM) -> list[str]:
    """The tests of the list that no file has."""
    functions: dict[str, set[str]] = {}
    unknown: list[str] = []
    for test in dict.fromkeys(test for case in listed for test in case.show):
        file, _, name = test.partition("::")
        if file not in functions:
            path = folder / file
            tree = ast.parse(path.read_text()) if path.exists() else ast.Module([], [])
            functions[file] = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        if name not in functions[file]:
            unknown.append(test)
    return unknown


def page(listed: list[Case]) -> str:
    """The page in Markdown: a table for each group."""
    parts = [INTRODUCTION]
    for title in dict.fromkeys(case.group for case in listed):
        parts.append(
            f"## {title}\n\n| what happens | the tenant sees | a neighbour sees | how it heals | shown by |\n"
        )
        parts.append("|---|---|---|---|---|\n")
        for case in listed:
            if case.group == title:
                links = ", ".join(_link(test, number) for number, test in enumerate(case.show, 1))
                neighbour = f"*By design:* {case.neighbour}" if case.by_design else case.neighbour
                parts.append(f"| {case.what} | {case.tenant} | {neighbour} | {case.heals} | {links} |\n")
        parts.append("\n")
    return "".join(parts).rstrip("\n") + "\n"


def _link(test: str, number: int) -> str:
    file, _, name = test.partition("::")
    words = name.removeprefix("test_").replace("_", " ")
    return f'[{number}](../storage/system/{file} "{words}")'


def outcomes(report: Path) -> dict[str, bool]:
    """By FILE::FUNCTION, whether all of a function's runs passed; from pytest's JUnit report."""
    found: dict[str, bool] = {}
    for row in ET.parse(report).iter("testcase"):  # noqa: S314  pytest has just written it
        module = row.get("classname", "").rsplit(".", 1)[-1]
        test = f"{module}.py::{row.get('name', '').split('[', 1)[0]}"
        passed = not any(child.tag in ("failure", "error", "skipped") for child in row)
        found[test] = found.get(test, True) and passed
    return found


def run(listed: list[Case]) -> int:
    """Runs the tests of all cases, and prints how each case ended; 0 when all are shown."""
    tests = list(dict.fromkeys(str(SYSTEM / test) for case in listed for test in case.show))
    with tempfile.TemporaryDirectory(prefix="weir-bad-days-") as folder:
        report = Path(folder) / "report.xml"
        command = [str(VENV / "bin" / "python"), "-m", "pytest", "-q", f"--junitxml={report}", *tests]
        subprocess.run(command, cwd=REPO, env=tool_environment(), check=False, timeout=RUN_MINUTES * 60)
        ended = outcomes(report) if report.exists() else {}
    failed = 0
    for case in listed:
        shown = all(ended.get(test, False) for test in case.show)
        failed += not shown
        say(f"{'shown ' if shown else 'FAILED'}  {case.what}\n        tenant: {case.tenant}")
        say(f"        neighbour: {case.neighbour}\n        heals: {case.heals}")
    say(f"{len(listed) - failed} of {len(listed)} bad days are as the page says")
    return 1 if failed else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="bad_days", description=__doc__)
    parser.add_argument("--write", action="store_true", help="run nothing; render docs/bad-days.md")
    write: bool = parser.parse_args().write
    listed = cases(LIST.read_text())
    if write:
        PAGE.write_text(page(listed))
        return 0
    return run(listed)


if __name__ == "__main__":
    sys.exit(main())
