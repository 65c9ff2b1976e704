"""Services come before computes: what the kernel has of it, for programs that were started as `weir up` starts
them."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Generator
from dataclasses import replace
from pathlib import Path

import pytest

from weir.cli import installation as installations
from weir.cli import precedence
from weir.cli.installation import Installation
from weir.cli.services import services, supervisor_config
from weir.kit import cgroups

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes control groups")
GROUP = f"/weir-precedence-{os.getpid()}"


@pytest.fixture(name="made")
def _made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Installation:
    for name in [name for name in os.environ if name.startswith("WEIR_")]:
        monkeypatch.delenv(name)
    return installations.create(tmp_path / "home", 17400)


@pytest.fixture(name="grouped")
def _grouped(made: Installation) -> Generator[Installation]:
    """The installation with a control group of the tests' own, in the hierarchy that has processors."""
    root = cgroups.places("/").get("cpu")
    if root is None:
        pytest.skip("this machine has no control groups of processors that tests may make groups in")
    own = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    inside = next((path for _, names, path in own if "cpu" in names.split(",")), None) or own[-1][2]
    if inside != "/":
        pytest.skip(f"the tests are in the group {inside} of processors, which they keep")
    folder = root / GROUP.lstrip("/")
    try:
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error}")
    try:
        yield replace(made, compute_cgroup=GROUP)
    finally:
        for below in folder.iterdir():
            if below.is_dir():
                below.rmdir()
        folder.rmdir()


@pytest.fixture(name="run")
def _run() -> Generator[Callable[[list[str]], subprocess.Popen[bytes]]]:
    started: list[subprocess.Popen[bytes]] = []

    def run(command: list[str]) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.communicate(timeout=10)


def weight(directory: Path) -> float:
    """By the weight of a compute of one unit."""
    if (directory / "cpu.weight").exists():
        return int((directory / "cpu.weight").read_text()) / 100
    return int((directory / "cpu.shares").read_text()) / 1024


@as_root
def test_what_services_start_is_in_their_group_from_its_first_moment_on(
    grouped: Installation, run: Callable[[list[str]], subprocess.Popen[bytes]]
) -> None:
    assert precedence.words(grouped, "pageserver") == [], "there is no group yet"
    precedence.prepare(grouped)
    below = cgroups.places(GROUP)["cpu"]
    assert (weight(below / "services"), weight(below / "control")) == (10, 2)
    shell = ["/bin/sh", "-c", "sleep 60 & echo $!; wait"]
    for service, group in {"safekeeper-2": "services", "proxy": "services", "api": "control"}.items():
        process = run([*precedence.words(grouped, service), *shell])
        assert process.stdout is not None
        child = process.stdout.readline().decode().strip()
        inside = (below / group / "cgroup.procs").read_text().split()
        assert {str(process.pid), child} <= set(inside), "the program has the process id that was started"
        os.kill(int(child), 9)
        process.wait(10)
    config = json.loads(supervisor_config(grouped, services(grouped)))["processes"]
    for service in ("safekeeper-1", "pageserver", "proxy"):
        assert str(below / "services") in config[service]["entrypoint"]
    assert str(below / "control") in config["api"]["entrypoint"]
    precedence.remove(grouped)
    assert [path.name for path in below.iterdir() if path.is_dir()] == []


@as_root
def test_groups_of_services_are_removed_once_the_last_process_has_left_them(
    grouped: Installation,
    run: Callable[[list[str]], subprocess.Popen[bytes]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    below = cgroups.places(GROUP)["cpu"]

    def left_by(seconds: int) -> list[str]:
        precedence.prepare(grouped)
        process = run([*precedence.words(grouped, "api"), "/bin/sh", "-c", f"echo; exec sleep {seconds}"])
        assert process.stdout is not None
        process.stdout.readline()
        precedence.remove(grouped)
        return [path.name for path in below.iterdir() if path.is_dir()]

    assert left_by(seconds=1) == []
    assert "still in" not in capsys.readouterr().out
    monkeypatch.setattr(precedence, "_LEAVING_SECONDS", 0.2)
    assert left_by(seconds=60) == ["control"]
    assert str(below / "control") in capsys.readouterr().out


@as_root
def test_an_agents_group_weighs_more_than_a_compute_and_goes_with_it(
    grouped: Installation, run: Callable[[list[str]], subprocess.Popen[bytes]]
) -> None:
    precedence.prepare(grouped)
    first = cgroups.weighed(GROUP, cgroups.SERVICES)
    name = cgroups.agents("ep-quiet-river-a1b2c3")
    groups = cgroups.weigh(GROUP, name, cgroups.AGENT_WEIGHT)
    assert 1 < weight(groups["cpu"]) < weight(first[0])
    process = run(["/bin/sleep", "60"])
    cgroups.enter(groups.values(), process.pid)
    assert (groups["cpu"] / "cgroup.procs").read_text().split() == [str(process.pid)]
    assert not cgroups.remove(GROUP, "ep-quiet-river-a1b2c3"), "a group with a process in it stays"
    process.kill()
    process.wait(10)
    assert cgroups.remove(GROUP, "ep-quiet-river-a1b2c3")
    assert not groups["cpu"].exists()


@as_root
def test_without_a_group_the_services_session_is_preferred(
    run: Callable[[list[str]], subprocess.Popen[bytes]],
) -> None:
    if not cgroups.is_shared_by_session():
        pytest.skip("the kernel has no autogroups")
    process = run(["/bin/sleep", "60"])
    assert cgroups.prefer_session(process.pid)
    assert Path(f"/proc/{process.pid}/autogroup").read_text().split()[-1] == "-5"
    assert Path("/proc/self/autogroup").read_text().split()[-1] != "-5", "of that session alone"


def test_a_group_that_is_not_entered_keeps_nothing_from_starting(tmp_path: Path) -> None:
    command = [*precedence.entering([tmp_path / "nowhere"]), "/bin/echo", "started", "--", "two words"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    assert done.stdout == "started -- two words\n"
    assert f"{tmp_path}/nowhere was not entered" in done.stderr


def test_nothing_is_made_where_no_group_is_named(made: Installation) -> None:
    precedence.prepare(made)
    assert precedence.words(made, "pageserver") == []
    assert precedence.entering([]) == []
    assert cgroups.weigh("", "services", 1000) == {}


def test_a_hierarchy_without_weights_is_left_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A group of the first kind for disks has no weight on most kernels."""
    mounts = tmp_path / "mountinfo"
    mount = tmp_path / "blkio"
    (mount / "weir").mkdir(parents=True)
    mounts.write_text(f"35 31 0:32 / {mount} rw,relatime shared:7 - cgroup cgroup rw,blkio\n")
    monkeypatch.setattr(cgroups, "_MOUNTS", mounts)
    assert cgroups.weigh("/weir", "services", 1000) == {}
    assert list((mount / "weir").iterdir()) == []


def test_what_has_no_precedence_says_why(made: Installation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "Weir is not run by root" in precedence.missing(made)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(cgroups, "is_shared_by_session", lambda: False)
    assert "the kernel has no autogroups" in precedence.missing(made)
    monkeypatch.setattr(cgroups, "is_shared_by_session", lambda: True)
    assert precedence.missing(made) == ""
