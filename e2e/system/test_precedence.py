"""Where there are too few processors, services come before computes, and computes share them by their size."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Generator
from pathlib import Path

import pytest
from stack import Stack, running_stack

from weir.kit import cgroups

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "storage" / "system"))

from processes import here

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes control groups")
GROUP = f"/weir-e2e-{os.getpid()}"
SERVICES = ("safekeeper-1", "safekeeper-2", "safekeeper-3", "pageserver", "proxy")
CONTROL = ("postgres", "temporal", "api", "worker", "prometheus")


@pytest.fixture(name="folder", scope="module")
def _folder() -> Generator[Path]:
    """A control group of the tests' own, in the hierarchy that has processors."""
    root = cgroups.places("/").get("cpu")
    lines = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    own = next((path for _, names, path in lines if "cpu" in names.split(",")), lines[-1][2])
    if root is None or own != "/":
        pytest.skip(f"the tests are in the group {own} of processors, which they keep")
    made = root / GROUP.lstrip("/")
    made.mkdir()
    yield made
    for below in sorted(path for path in made.iterdir() if path.is_dir()):
        with contextlib.suppress(OSError):
            below.rmdir()
    made.rmdir()


@pytest.fixture(name="grouped", scope="module")
def _grouped(folder: Path) -> Generator[Stack]:
    with running_stack({"WEIR_COMPUTE_CGROUP": f"/{folder.name}"}) as running:
        yield running


def inside(directory: Path) -> set[int]:
    return {int(pid) for pid in (directory / "cgroup.procs").read_text().split()}


def weight(directory: Path) -> float:
    """By that of a compute of one unit."""
    if (directory / "cpu.weight").exists():
        return int((directory / "cpu.weight").read_text()) / 100
    return int((directory / "cpu.shares").read_text()) / 1024


def test_the_kernel_has_services_agents_and_computes_in_groups_by_what_they_weigh(
    grouped: Stack, folder: Path
) -> None:
    database = grouped.api().create_database("weighed", {})
    services, control, compute = (folder / name for name in ("services", "control", database.compute_id))
    agent = folder / f"{database.compute_id}.agent"
    assert {grouped.pid(name) for name in SERVICES} <= inside(services)
    assert {grouped.pid(name) for name in CONTROL} <= inside(control)
    assert inside(agent) == {grouped.compute_pid(database.compute_id)}
    lock = grouped.home / "computes" / database.compute_id / "pgdata/postmaster.pid"
    postmaster = here(grouped.compute_pid(database.compute_id), int(lock.read_text().split()[0]))
    assert postmaster in inside(compute)
    assert [weight(group) for group in (services, control, agent, compute)] == [10, 2, 2, 1]
    # A service that its supervisor starts again is where it was.
    grouped.kill("safekeeper-1")
    assert grouped.pid("safekeeper-1") in inside(services)
    grouped.suspend_compute(database)
    assert not compute.exists()
    assert not agent.exists()
    grouped.down()
    assert [path.name for path in folder.iterdir() if path.is_dir()] == []
