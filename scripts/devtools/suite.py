"""The steps of `make test`, `make check` and `make test-long`, in the order in which a mistake shows soonest."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from . import results
from .paths import CACHE, E2E, FRONTEND, REPO, STORAGE, VENV
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
    # What `make test` has a short form of: a step of `make test-long` alone.
    long: bool = False
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
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


def _provider(command: str) -> list[str | os.PathLike[str]]:
    return [sys.executable, "-m", "devtools.terraform", command]


# Most of what these tests do is wait, for windows to pass and for servers to come back. A file's tests stay in one
# process, which has servers and databases of its own.
SIDE_BY_SIDE = ("-n", "2", "--dist", "loadfile")
# Tests whose promise `make test` checks in a shorter way: marked so in Python, named so in journeys, and asking for
# this variable in Rust.
LONG = {"WEIR_TEST_LONG": "1"}
WORKSPACE = ("--release", "--workspace", "--locked")
# Without examples, which are measurements: clippy checks that they compile.
RUST_TESTS = (*WORKSPACE, "--tests")


def steps() -> list[Step]:
    return [*_fast_steps(), *_build_steps(), *_stack_steps(), *_long_steps()]


def _fast_steps() -> list[Step]:
    checks = [
        Step("tidy", "house rules", [sys.executable, "-m", "devtools.tidy"], SCRIPTS),
        Step("ruff", "Python, lint", [_venv("ruff"), "check", "."]),
        Step("ruff-format", "Python, format", [_venv("ruff"), "format", "--check", "."]),
        Step("rustfmt", "Rust, format", ["cargo", "fmt", "--all", "--check"], STORAGE),
        Step("devtools", "the tests of this tool", _pytest("scripts/tests"), count=results.pytest),
        Step("containers", "the Compose file, alerts, dashboards", _pytest("docker/tests"), count=results.pytest),
        Step(
            "bench-unit",
            "the benchmark's arithmetic",
            _pytest("bench/tests", "--deselect", "bench/tests/test_stock.py"),
            count=results.pytest,
        ),
        Step("clients-unit", "how drivers' tests are compared", _pytest("storage/clients"), count=results.pytest),
        Step(
            "docs",
            "the documentation as a site, links and anchors",
            [_venv("mkdocs"), "build", "--site-dir", CACHE / "site"],
            environment={"NO_MKDOCS_2_WARNING": "1"},
        ),
        Step("openapi", "committed OpenAPI and client are current", [SCRIPTS / "gen", "--check"]),
        Step("console-lint", "the console, lint", ["npm", "run", "--silent", "lint"], FRONTEND),
        Step("console-format", "the console, format", ["npm", "run", "--silent", "format:check"], FRONTEND),
        Step("console-types", "the console, types", ["npm", "run", "--silent", "typecheck"], FRONTEND),
        Step("e2e-types", "the journeys, types", ["npx", "tsc", "--noEmit"], E2E),
        Step("provider-format", "the Terraform provider, format", _provider("format"), SCRIPTS),
        Step("provider-vet", "the Terraform provider, lint", _provider("vet"), SCRIPTS),
        Step("provider-test", "the Terraform provider, tests", _provider("test"), SCRIPTS, results.go),
    ]
    # As long as all checks together, on one processor.
    types = Step("pyright", "Python, types", [_venv("pyright"), "--pythonpath", _venv("python")])
    alone = Step("console-test", "the console, tests", ["npm", "test"], FRONTEND, results.vitest)
    lanes = [*((step, "checks") for step in checks), (types, "types"), (alone, "")]
    return [replace(step, lane=lane, fast=True) for step, lane in lanes]


def _build_steps() -> list[Step]:
    return [
        Step(
            "clippy",
            "Rust, lint",
            ["cargo", "clippy", *WORKSPACE, "--all-targets", "--", "-D", "warnings"],
            STORAGE,
            minutes=20,
        ),
        # With them the programs: what is compiled for tests is all that programs need.
        Step(
            "rust-build",
            "Rust, compiled",
            ["cargo", "test", *RUST_TESTS, "--no-run"],
            STORAGE,
            minutes=45,
        ),
        Step("storage-build", "Rust, programs", ["cargo", "build", *WORKSPACE], STORAGE, minutes=20),
        Step("console-build", "the console", ["npm", "run", "--silent", "build"], FRONTEND),
    ]


def _stack_steps() -> list[Step]:
    # Most of all this is waiting, for windows to pass and for servers to come back; three lanes of about the same
    # length keep two processors busy. Suites of different lanes take their ports from different ranges.
    system = Step(
        "system",
        "`weir up`, and kills under load",
        _pytest("e2e/system", "-m", "not long"),
        count=results.pytest,
        minutes=50,
    )
    rust = Step(
        "cargo-test",
        "Rust, tests",
        ["cargo", "test", *RUST_TESTS, "--no-fail-fast"],
        STORAGE,
        results.cargo,
        minutes=50,
    )
    backend = Step(
        "backend",
        "API, workflows",
        _pytest("backend/tests", "workflows/tests", *SIDE_BY_SIDE),
        count=results.pytest,
        minutes=50,
    )
    journeys = Step(
        "journeys", "the console in a browser", ["npx", "playwright", "test"], E2E, results.playwright, minutes=50
    )
    stock = Step(
        "tproc-c", "the workload on stock Postgres", _pytest("bench/tests/test_stock.py"), count=results.pytest
    )
    engine = Step(
        "engine",
        "the engine as processes",
        _pytest("storage/system", *SIDE_BY_SIDE),
        count=results.pytest,
        minutes=50,
    )
    torture = Step(
        "torture",
        "the engine under faults, clients' histories checked",
        # A trial waits most of the time, and has processes and a network of its own: each goes where there is room.
        _pytest("storage/torture", "-n", "2", "--dist", "loadgroup"),
        count=results.pytest,
        minutes=15,
    )
    # `backend`, `engine` and `torture` share a range of ports, and so a lane.
    lanes = {"stack": (system,), "control": (backend, engine, torture), "console": (journeys, stock, rust)}
    return [replace(step, lane=lane) for lane, chosen in lanes.items() for step in chosen]


def _long_steps() -> list[Step]:
    redo = ("--test", "oracle_minors", "--test", "oracle_versions")
    return [
        Step(
            "doc-tests",
            "Rust, examples in words",
            ["cargo", "test", *WORKSPACE, "--doc"],
            STORAGE,
            results.cargo,
            long=True,
        ),
        Step(
            "redo-long",
            "redo on each minor",
            ["cargo", "test", *WORKSPACE, "--no-fail-fast", *redo],
            STORAGE,
            results.cargo,
            long=True,
            environment=LONG,
            minutes=30,
        ),
        Step(
            "api-schema-long",
            "the API's description, bounds and chains of requests",
            _pytest("backend/tests/test_api_schema.py"),
            count=results.pytest,
            long=True,
            environment=LONG,
            minutes=60,
        ),
        Step(
            "torture-long",
            "the engine under faults, more seeds",
            [_venv("python"), "storage/torture/run.py", "--trials", "20", "--no-result"],
            long=True,
            minutes=40,
        ),
        Step(
            "clients-long",
            "drivers' own tests at a Weir and at a stock Postgres",
            [_venv("python"), "storage/clients/run.py"],
            long=True,
            minutes=60,
        ),
        Step(
            "system-long",
            "`weir up`, the long stories",
            _pytest("e2e/system", "-m", "long"),
            count=results.pytest,
            long=True,
            minutes=25,
        ),
        Step(
            "provider-long",
            "the Terraform provider, OpenTofu and a real Weir",
            _provider("acceptance"),
            SCRIPTS,
            results.pytest,
            long=True,
            minutes=40,
        ),
        Step(
            "demo-long",
            "the demo in a browser, four computes",
            ["npx", "playwright", "test", "demo-journey"],
            E2E,
            results.playwright,
            long=True,
            environment=LONG,
            minutes=25,
        ),
    ]
