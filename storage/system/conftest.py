"""Fixtures of the engine's system tests."""

from __future__ import annotations

import gc
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from disks import MountRefusedError
from harness import STALLS_OF_TESTS, STALLS_VARIABLE, Engine, engine

# No test passes in which a task keeps an async worker of a storage program.
os.environ.setdefault(STALLS_VARIABLE, STALLS_OF_TESTS)


def _root() -> Path:
    # Below /tmp, because Postgres runs unprivileged and must be able to reach it.
    return Path(tempfile.mkdtemp(prefix="weir-system-"))


@pytest.fixture
def say(record_property: Callable[[str, object], None]) -> Callable[[str], None]:
    """A figure for whoever reads the output, shown at its end also where tests run side by side."""
    return lambda text: record_property("said", text)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    """A test that needs a file system of its own is skipped where there can be none."""
    try:
        return (yield)
    except MountRefusedError as error:
        pytest.skip(f"mounting is not allowed here: {error}")


def pytest_collection_finish() -> None:
    """What lives as long as the tests do is left out of collections, so that one after each test costs little."""
    gc.collect()
    gc.freeze()


def pytest_runtest_teardown() -> None:
    """A test that leaves a socket, a connection or a process open in a circle of references fails itself. Without
    this a later test fails, whichever runs when Python looks for circles."""
    gc.collect()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    said = [
        text
        for reports in terminalreporter.stats.values()
        for report in reports
        if isinstance(report, pytest.TestReport) and report.when == "call"
        for name, text in report.user_properties
        if name == "said"
    ]
    for text in said:
        terminalreporter.write_line(str(text))


@pytest.fixture(scope="module")
def shared() -> Iterator[Engine]:
    """One engine for the tests of a module that break nothing."""
    with engine(_root()) as running:
        yield running


@pytest.fixture
def own() -> Iterator[Engine]:
    """An engine of the test's own, to kill parts of."""
    with engine(_root()) as running:
        yield running
