"""How a suite's process is run: names resolve, what breaks off is told apart from failed tests, and nothing stays."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import places
import pytest
from places import Place, SuiteError, resolving

NOTHING = cast("Any", None)


@pytest.fixture
def hosts(tmp_path: Path) -> Path:
    path = tmp_path / "hosts"
    path.write_text("127.0.0.1 localhost\n127.0.0.1 stock.db.test\n")
    probe = subprocess.run(resolving(path, ["true"]), capture_output=True, text=True, timeout=30, check=False)
    if probe.returncode != 0:
        pytest.skip(f"this machine gives no mount namespace: {probe.stderr.strip()}")
    return path


def run(hosts: Path, script: str, *, seconds: float = 30.0, said: list[str] | None = None) -> str:
    """Runs a script of Python as a suite's; its output."""
    told: list[str] = [] if said is None else said
    place = Place(NOTHING, NOTHING, hosts, "stock", "suite", hosts.parent / "pgx-stock", told.append)
    command: Sequence[str] = [sys.executable, "-c", script]
    place.run(command, hosts.parent, {"PGHOST": "given"}, seconds=seconds, ended=lambda line: line.startswith("done"))
    return place.log.with_suffix(".log").read_text()


def test_a_name_of_the_servers_resolves_and_postgres_variables_are_those_given(
    hosts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGSERVICE", "somebody's")
    script = (
        "import os, socket; print(socket.gethostbyname('stock.db.test'));"
        "print(os.environ['PGHOST'], os.environ.get('PGSERVICE'))"
    )
    assert run(hosts, script).splitlines() == ["127.0.0.1", "given None"]


def test_failed_tests_are_a_result_and_any_other_status_is_not(hosts: Path) -> None:
    run(hosts, "raise SystemExit(1)")
    with pytest.raises(SuiteError, match=r"pgx-stock ended with status 4; its output is .*pgx-stock\.log"):
        run(hosts, "raise SystemExit(4)")


def test_a_suite_without_an_end_is_ended_with_all_it_started(hosts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "TOLD_EVERY_SECONDS", 0.5)
    script = (
        "import subprocess, time; child = subprocess.Popen(['sleep', '600']);"
        "open('child', 'w').write(str(child.pid)); print('done 1', flush=True); time.sleep(600)"
    )
    said: list[str] = []
    with pytest.raises(SuiteError, match="was not at its end after 3 s"):
        run(hosts, script, seconds=3.0, said=said)
    assert said[-1].startswith("  pgx-stock: 1 tests after")
    child = Path("/proc") / (hosts.parent / "child").read_text()
    deadline = time.monotonic() + 10
    # A process that has ended and was not waited for has no command line.
    while child.exists() and (child / "cmdline").read_bytes():
        assert time.monotonic() < deadline, "a process of the suite's is still there"
        time.sleep(0.05)
