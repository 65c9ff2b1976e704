"""A compute in a control group takes of its machine what its size allows, and its neighbours' share is left."""

from __future__ import annotations

import base64
import contextlib
import os
import time
from collections.abc import Generator
from pathlib import Path

import psycopg
import pytest
from harness import Compute, Engine, wait_for
from processes import members, namespace
from strangers import PYTHON, as_postgres

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes control groups")

# Of a range that nothing else on a machine has.
GREEDY = 52_006
GROUP = f"weir-test-{os.getpid()}"
NAMES = {"memory": "memory", "cpu": "cpu", "pids": "processes"}
# A quarter of a unit: 25 ms of 100 on processors, 637 processes, 1 GiB.
UNITS = 0.25
THREADS = """
import threading
stop, started = threading.Event(), 0
try:
    while started < 2000:
        threading.Thread(target=stop.wait, daemon=True).start()
        started += 1
except RuntimeError as error:
    print(started, error, flush=True)
stop.set()
"""
BURN = """
import time
begin = time.monotonic()
while time.monotonic() - begin < 3:
    pass
print(time.process_time())
"""


def packed(code: str) -> str:
    word = base64.b64encode(code.encode()).decode()
    return f"{PYTHON} -c \"import base64; exec(base64.b64decode('{word}'))\""


def own_groups() -> dict[str, str]:
    """The group of this process in each hierarchy of the first kind, by controller."""
    lines = (line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines())
    return {name: path for _, names, path in lines for name in names.split(",") if name in NAMES}


@pytest.fixture(name="made", scope="module")
def _made() -> Generator[dict[str, Path]]:
    """A group of the tests' own in each hierarchy whose root these processes are in: they leave no limits that
    somebody has put them under. By the agent's name of the controller."""
    made: dict[str, Path] = {}
    second = Path("/sys/fs/cgroup")
    if (second / "cgroup.subtree_control").exists():
        switched_on = set((second / "cgroup.subtree_control").read_text().split())
        in_root = "0::/" in Path("/proc/self/cgroup").read_text().splitlines()
        if in_root and switched_on & set(NAMES):
            (second / GROUP).mkdir()
            made = {name: second / GROUP for controller, name in NAMES.items() if controller in switched_on}
    for controller, path in own_groups().items():
        hierarchy = second / controller
        if path == "/" and hierarchy.is_mount() and NAMES[controller] not in made:
            with contextlib.suppress(OSError):
                (hierarchy / GROUP).mkdir()
                made[NAMES[controller]] = hierarchy / GROUP
    yield made
    for directory in set(made.values()):
        directory.rmdir()


def needs(made: dict[str, Path], name: str) -> Path:
    if name not in made:
        groups = {NAMES[controller]: path for controller, path in own_groups().items()}
        pytest.skip(f"the tests are in the group {groups.get(name, 'of the second kind')} of {name}, which they keep")
    return made[name]


@pytest.fixture(name="compute")
def _compute(shared: Engine, made: dict[str, Path]) -> Generator[Compute]:
    if not made:
        pytest.skip("this machine has no control groups that tests may make groups in")
    options = ["--cgroup", f"/{GROUP}"]
    compute = shared.compute(shared.create_timeline(), user=GREEDY, options=options, compute_units=UNITS)
    yield compute
    if compute.process.child is not None and compute.process.child.poll() is None:
        compute.suspend()


def test_the_server_and_all_it_starts_are_in_the_group_and_the_status_says_what_holds(
    compute: Compute, made: dict[str, Path]
) -> None:
    limits = compute.status()["limits"]
    assert (limits["memory_bytes"], limits["cpu_thousandths"], limits["processes"]) == (1 << 30, 250, 637)
    assert set(limits["in_force"]) >= set(made)
    missing = {entry["controller"]: entry["reason"] for entry in limits["missing"]}
    assert set(missing) | set(limits["in_force"]) == {"memory", "cpu", "processes", "io"}
    assert all(GROUP in reason for reason in missing.values()), missing
    of_compute = members(namespace(compute.postmaster))
    assert len(of_compute) > 5
    for directory in set(made.values()):
        inside = set((directory / compute.process.name / "cgroup.procs").read_text().split())
        assert {str(pid) for pid in members(namespace(compute.postmaster))} & inside
        assert str(compute.postmaster) in inside
        # The agent serves the volume: it must not stand still for what Postgres takes.
        assert compute.process.child is not None
        assert str(compute.process.child.pid) not in inside


def test_the_number_of_processes_ends_where_the_size_does(compute: Compute, made: dict[str, Path]) -> None:
    needs(made, "processes")
    (said,) = as_postgres(compute.admin(), packed(THREADS))
    started = int(said.split()[0])
    assert 300 < started < 637, said
    wait_for("sessions to begin again", lambda: compute.sql("SELECT 1") == [(1,)], 20)
    assert compute.status()["restarts"] == 0


def test_time_on_processors_ends_where_the_size_does(compute: Compute, made: dict[str, Path]) -> None:
    directory = needs(made, "cpu") / compute.process.name
    (said,) = as_postgres(compute.admin(), packed(BURN))
    # Alone on a processor it would be three seconds.
    assert float(said) < 1.2
    # It is the kernel that holds it back, and not others on a busy machine.
    whole = directory / "cpu.max"
    quota = whole.read_text().split()[0] if whole.exists() else (directory / "cpu.cfs_quota_us").read_text()
    assert int(quota) == 25_000


def values(made: dict[str, Path], compute: Compute) -> dict[str, int]:
    """What the kernel has for the compute: thousandths of a processor, its weight by a unit's, bytes, processes."""
    found: dict[str, int] = {}
    files = {
        "cpu": {"cpu.max": 100, "cpu.cfs_quota_us": 100},
        "weight": {"cpu.weight": 1, "cpu.shares": 10.24},
        "memory": {"memory.max": 1, "memory.limit_in_bytes": 1},
        "processes": {"pids.max": 1},
    }
    for name, known in files.items():
        directory = made.get("cpu" if name == "weight" else name)
        for file, scale in known.items():
            path = (directory or Path("/nowhere")) / compute.process.name / file
            if path.exists():
                found[name] = round(int(path.read_text().split()[0]) / scale)
    return found


def test_another_size_of_a_running_compute_is_another_share_of_the_machine(
    compute: Compute, made: dict[str, Path]
) -> None:
    def expected(units: float) -> dict[str, int]:
        whole = {"cpu": 1000, "weight": 100, "memory": 4 << 30, "processes": 500}
        beside = {"processes": 512}
        known = {**made, **({"weight": made["cpu"]} if "cpu" in made else {})}
        return {name: round(units * of) + beside.get(name, 0) for name, of in whole.items() if name in known}

    assert values(made, compute) == expected(UNITS)
    with compute.connect() as session:
        for units in (4.0, 0.5, 2.0, UNITS):
            code, answer = compute.configure(compute_units=units)
            assert code == 200, answer
            assert values(made, compute) == expected(units)
            limits = compute.status()["limits"]
            assert limits["cpu_thousandths"] == 1000 * units
            assert set(limits["in_force"]) >= set(made)
            # The same session goes on.
            assert session.execute("SELECT 1").fetchone() == (1,)
    # A spec that is refused leaves the size before.
    database = {"name": "kept", "owner": "nobody-has-this-name"}
    refused = {**compute.spec(), "compute_units": 4.0, "databases": [*compute.spec()["databases"], database]}
    assert compute.http.post("/configure", json=refused).status_code >= 400
    assert values(made, compute) == expected(UNITS)


def test_used_up_memory_is_said_and_means_a_new_start(compute: Compute, made: dict[str, Path]) -> None:
    needs(made, "memory")
    compute.sql("CREATE TABLE kept AS SELECT n FROM generate_series(1, 100) AS n")
    with compute.admin() as session:
        session.execute("SET work_mem = '2GB'")
        with pytest.raises(psycopg.OperationalError):
            session.execute("SELECT count(*) FROM generate_series(1, 200000000)")
    wait_for("another run", lambda: compute.status()["restarts"] == 1 and compute.status()["state"] == "running")
    assert "out of memory: the kernel ended" in compute.process.tail(400)
    assert compute.sql("SELECT count(*) FROM kept") == [(100,)]


def test_a_group_goes_with_its_compute_and_is_taken_up_after_a_crash(
    compute: Compute, made: dict[str, Path], shared: Engine
) -> None:
    directories = [directory / compute.process.name for directory in set(made.values())]
    compute.process.kill9()
    deadline = time.monotonic() + 30
    while any((directory / "cgroup.procs").read_text() for directory in directories):
        assert time.monotonic() < deadline, "processes are left in the group"
        time.sleep(0.1)
    again = shared.compute(
        compute.timeline,
        user=GREEDY,
        name=compute.process.name,
        options=["--cgroup", f"/{GROUP}"],
        compute_units=UNITS,
    )
    assert set(again.status()["limits"]["in_force"]) >= set(made)
    again.suspend()
    assert not [directory for directory in directories if directory.exists()]
