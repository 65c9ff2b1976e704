"""The steps of `make test` and `make check`, in the order in which a mistake shows soonest."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from . import results
from .paths import E2E, FRONTEND, REPO, STORAGE, VENV
from .results import Count

SCRIPTS = REPO / "scripts"


@dataclass(frozen=True)
class Step:
    name: str
    what: str
    command: Sequence[str | os.PathLike[str]]
    cwd: Path = REPO
    count: Callable[[str, int], Count] = results.single
    fast: bool = False
    minutes: float = 10
    # Steps that follow each other and have lanes: each lane's steps in turn, the lanes side by side.
    lane: str = ""

    @property
    def exists(self) -> bool:
        return self.cwd.is_dir()


def _venv(program: str) -> Path:
    return VENV / "bin" / program


def _pytest(*arguments: str) -> list[str | os.PathLike[str]]:
    return [_venv("pytest"), "-q", "--durations=5", *arguments]


# Most of what these tests do is wait, for windows to pass and for servers to come back. A file's tests stay in one
# process, which has servers and databases of its own.
SIDE_BY_SIDE = ("-n", "2", "--dist", "loadfile")


def steps() -> list[Step]:
    return [*_fast_steps(), *_storage_steps(), *_python_steps(), *_stack_steps()]


def _fast_steps() -> list[Step]:
    return [
        Step("tidy", "house rules", [sys.executable, "-m", "devtools.tidy"], SCRIPTS, fast=True),
        Step("ruff", "Python, lint", [_venv("ruff"), "check", "."], fast=True),
        Step("ruff-format", "Python, format", [_venv("ruff"), "format", "--check", "."], fast=True),
        Step("pyright", "Python, types", [_venv("pyright"), "--pythonpath", _venv("python")], fast=True),
        Step("devtools", "the tests of this tool", _pytest("scripts/tests"), count=results.pytest, fast=True),
        Step(
            "bench-unit",
            "the benchmark's arithmetic",
            _pytest("bench/tests", "--deselect", "bench/tests/test_stock.py"),
            count=results.pytest,
            fast=True,
        ),
        Step("openapi", "committed OpenAPI and client are current", [SCRIPTS / "gen", "--check"], fast=True),
        Step("rustfmt", "Rust, format", ["cargo", "fmt", "--all", "--check"], STORAGE, fast=True),
        Step("console-lint", "the console, lint", ["npm", "run", "--silent", "lint"], FRONTEND, fast=True),
        Step("console-types", "the console, types", ["npm", "run", "--silent", "typecheck"], FRONTEND, fast=True),
        Step("console-test", "the console, tests", ["npm", "test"], FRONTEND, results.vitest, fast=True),
        Step("e2e-types", "the journeys, types", ["npx", "tsc", "--noEmit"], E2E, fast=True),
    ]


def _storage_steps() -> list[Step]:
    release = ("--release", "--workspace", "--locked")
    return [
        Step(
            "clippy",
            "Rust, lint",
            ["cargo", "clippy", *release, "--all-targets", "--", "-D", "warnings"],
            STORAGE,
            minutes=20,
        ),
        Step(
            "cargo-test",
            "Rust, tests",
            ["cargo", "test", *release, "--no-fail-fast"],
            STORAGE,
            results.cargo,
            minutes=30,
        ),
        Step("storage-build", "Rust, programs", ["cargo", "build", *release], STORAGE, minutes=20),
    ]


def _python_steps() -> list[Step]:
    return [
        Step(
            "backend",
            "API, workflows",
            _pytest("backend/tests", "workflows/tests", *SIDE_BY_SIDE),
            count=results.pytest,
            minutes=25,
        ),
        Step("console-build", "the console", ["npm", "run", "--silent", "build"], FRONTEND),
    ]


def _stack_steps() -> list[Step]:
    # Two lanes of about the same length: most of both is waiting, for windows to pass and for servers to come back.
    return [
        Step(
            "engine",
            "the engine as processes",
            _pytest("storage/system", *SIDE_BY_SIDE),
            count=results.pytest,
            minutes=25,
            lane="engine",
        ),
        Step(
            "system",
            "`weir up`, and kills under load",
            _pytest("e2e/system"),
            count=results.pytest,
            minutes=25,
            lane="engine",
        ),
        Step(
            "tproc-c",
            "the workload on stock Postgres",
            _pytest("bench/tests/test_stock.py"),
            count=results.pytest,
            lane="console",
        ),
        Step(
            "journeys",
            "the console in a browser",
            ["npx", "playwright", "test"],
            E2E,
            results.playwright,
            minutes=25,
            lane="console",
        ),
    ]
