"""A compute's processes are in a PID namespace: they see no others, and none outlives the first of them."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Generator
from pathlib import Path

import pytest
from harness import Compute, Engine, wait_for
from processes import children, members, namespace, number_inside
from strangers import as_postgres, beyond_this_kernel

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes namespaces")

# Of a range that nothing else on a machine has.
ALICE, BOB = 52_004, 52_005
KILL = 1 << 5


@pytest.fixture(name="compute")
def _compute(shared: Engine) -> Generator[Compute]:
    compute = shared.compute(shared.create_timeline(), user=ALICE)
    yield compute
    if compute.process.child is not None and compute.process.child.poll() is None:
        compute.suspend()


def init_of(compute: Compute) -> int:
    assert compute.process.child is not None
    (init,) = children(compute.process.child.pid)
    return init


def field(pid: int, name: str) -> str:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(line.split(":", 1)[1].strip() for line in lines if line.startswith(f"{name}:"))


def leave_behind(compute: Compute) -> None:
    """Starts a program that no session waits for, and that is deaf to what asks it to end."""
    script = "trap '' TERM HUP INT QUIT; while :; do sleep 0.2; done"
    as_postgres(compute.admin(), f'setsid sh -c "{script}" >/dev/null 2>&1 </dev/null & echo left')


def test_a_server_sees_its_own_processes_by_numbers_of_their_own(compute: Compute, shared: Engine) -> None:
    other = shared.compute(shared.create_timeline(), user=BOB)
    listed = {int(name) for name in as_postgres(compute.admin(), "ls /proc") if name.isdigit()}
    init = init_of(compute)
    inside = {number_inside(pid) for pid in members(namespace(init))}
    assert namespace(init) not in (namespace(os.getpid()), namespace(init_of(other)))
    with compute.connect() as session, compute.admin() as superuser:
        # What is logged, what views show and what /proc says is one number.
        own = session.execute("SELECT pg_backend_pid()").fetchone()
        assert own is not None
        assert compute.here(own[0]) in members(namespace(init))
        assert number_inside(compute.here(own[0])) == own[0]
        known = superuser.execute("SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid()").fetchall()
        assert {pid for (pid,) in known} <= {number_inside(pid) for pid in members(namespace(init))}
    assert len(listed & inside) > 5, "its own processes are there"
    # The init is another user's, which hidepid hides; of the machine's there is none.
    assert 1 not in listed
    assert len(listed - inside) <= 3, "the shell and the program that listed them have ended meanwhile"
    for stranger in (other.postmaster, init_of(other), os.getpid()):
        said = as_postgres(compute.admin(), f"kill -0 {stranger} 2>&1; echo ended $?")
        assert "No such process" in said[0], said
        assert said[-1] == "ended 1"
    other.suspend()


def test_the_init_is_out_of_the_servers_reach_and_has_the_right_to_signal_alone(compute: Compute) -> None:
    init = init_of(compute)
    assert int(field(init, "CapEff"), 16) == int(field(init, "CapPrm"), 16) == KILL
    assert field(init, "Uid").split() == ["0"] * 4
    assert (field(init, "Seccomp"), field(init, "NoNewPrivs")) == ("2", "1")
    said = as_postgres(compute.admin(), "for name in KILL TERM QUIT STOP; do kill -$name 1 2>&1; done; echo ended $?")
    assert len([line for line in said if "not permitted" in line]) == 4, said
    assert compute.sql("SELECT 1") == [(1,)]
    assert compute.status()["restarts"] == 0


def test_a_killed_agent_takes_everything_with_it_that_its_server_started(compute: Compute) -> None:
    leave_behind(compute)
    space = namespace(init_of(compute))
    assert any(number_inside(pid) for pid in members(space))
    compute.process.kill9()
    wait_for("the namespace to be empty", lambda: not members(space), 30)


def test_a_suspend_takes_what_a_session_has_left_behind(compute: Compute) -> None:
    leave_behind(compute)
    space = namespace(init_of(compute))
    assert len(members(space)) > 5
    compute.suspend()
    assert not members(space), "before the agent ended, whose user another compute may have next"


def test_an_agent_that_dies_while_its_server_stands_still_takes_it_along(compute: Compute) -> None:
    space = namespace(init_of(compute))
    os.kill(compute.postmaster, signal.SIGSTOP)
    compute.process.kill9()
    wait_for("the namespace to be empty", lambda: not members(space), 30)


def test_orphans_are_reaped_and_no_crash_to_the_server(compute: Compute) -> None:
    init = init_of(compute)
    orphan = "(sh -c 'sleep 0.2; exit 7' >/dev/null 2>&1 &)"
    as_postgres(compute.admin(), f"for n in 1 2 3 4 5; do {orphan}; done; echo left")
    as_postgres(compute.admin(), "(sh -c 'kill -SEGV $$' >/dev/null 2>&1 &); echo left")

    def reaped() -> bool:
        of_init = children(init)
        return len(of_init) == 1 and compute.postmaster in of_init

    wait_for("orphans to be reaped", reaped, 20)
    assert compute.sql("SELECT 1") == [(1,)]
    assert compute.status()["restarts"] == 0


@pytest.mark.parametrize("whose", ["init", "postmaster"])
def test_a_killed_first_process_means_a_new_start_and_the_log_says_what_ended(compute: Compute, whose: str) -> None:
    before = members(namespace(init_of(compute)))
    compute.sql("CREATE TABLE kept AS SELECT n FROM generate_series(1, 100) AS n")
    os.kill(init_of(compute) if whose == "init" else compute.postmaster, signal.SIGKILL)
    wait_for("another run", lambda: compute.status()["restarts"] == 1 and compute.status()["state"] == "running")
    assert re.search("Postgres ended with signal 9", compute.process.tail(400))
    # The kernel may give the next namespace the same number.
    assert not before & members(namespace(init_of(compute)))
    assert compute.sql("SELECT count(*) FROM kept") == [(100,)]
    missing = compute.status()["confinement"]["missing"]
    assert [entry["measure"] for entry in missing] == beyond_this_kernel()
