"""Faults of networks, clocks and stored WAL do what they say: else a storm of them would prove nothing."""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from clocks import Clock
from disks import stuck_while
from harness import engine
from preload import together
from weirtorture import apart, programs
from weirtorture.namespaces import APART, OUTSIDE, Node, can_separate, own_network

HOURS = 30

# Run in a network of its own: what reaches a server behind a wire, and what comes back.
_CUT_WIRES = """
import socket, subprocess, sys, time
from weirtorture.namespaces import Node
node = Node(3)
node.start()
server = '''
import socket, sys
listener = socket.create_server((sys.argv[1], 7))
while True:
    near, _ = listener.accept()
    print("accepted", flush=True)
    near.settimeout(1)
    try:
        print("received", near.recv(1).decode(), flush=True)
        near.sendall(b"x")
    except TimeoutError:
        pass
'''
far = subprocess.Popen(
    [*node.launcher, sys.executable, "-c", server, node.address], stdout=subprocess.PIPE, text=True
)
def answered():
    try:
        with socket.create_connection((node.address, 7), timeout=1) as near:
            near.sendall(b"a")
            return near.recv(1) == b"x"
    except OSError:
        return False
try:
    deadline = time.monotonic() + 20
    while not answered() and time.monotonic() < deadline:
        time.sleep(0.05)
    print("whole", answered())
    for what in ("there", "back", "both"):
        node.lose(what)
        print(what, answered())
        node.heal()
        print("healed", answered())
    # What was sent while the wire was cut arrives once it is whole: packets were lost, the connection was not.
    with socket.create_connection((node.address, 7), timeout=5) as near:
        node.lose("there")
        near.sendall(b"b")
        time.sleep(0.3)
        node.heal()
        print("late", near.recv(1) == b"x")
finally:
    far.kill()
    node.close()
"""


def test_a_cut_wire_loses_what_it_says_in_the_direction_it_says() -> None:
    if not can_separate():
        pytest.skip("no network namespace can be made here; the proxy cuts off safekeepers instead")
    command = [*APART, "sh", "-ec", 'ip link set lo up; exec "$@"', "sh", sys.executable, "-c", _CUT_WIRES]
    path = os.pathsep.join(sys.path)
    environment = {**os.environ, OUTSIDE: own_network(), "PYTHONPATH": path}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "whole True",
        *("there False", "healed True", "back False", "healed True", "both False", "healed True"),
        "late True",
    ]


def test_the_machines_own_network_is_never_touched() -> None:
    with pytest.raises(RuntimeError, match="own network"):
        Node(1).start()


@pytest.mark.parametrize("lost", ["there", "back"])
def test_a_link_that_is_frozen_one_way_carries_the_other(lost: str) -> None:
    programs.build()
    echo = (
        "import socket\nlistener = socket.create_server(('127.0.0.1', 0))\n"
        "print(listener.getsockname()[1], flush=True)\nnear, _ = listener.accept()\n"
        "while data := near.recv(9):\n    print(data.decode(), flush=True)\n    near.sendall(data)\n"
    )
    network = programs.Network(1)
    network.start()
    with subprocess.Popen([sys.executable, "-c", echo], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            address = network.open("somebody", "server", f"127.0.0.1:{server.stdout.readline().strip()}")
            host, port = address.split(":")
            with socket.create_connection((host, int(port)), timeout=0.5) as near:
                rule = network.begin("", ("server",), **{f"frozen_{lost}": True})
                near.sendall(b"a")
                with pytest.raises(TimeoutError):
                    near.recv(1)
                arrived = bool(select.select([server.stdout], [], [], 5 if lost == "back" else 0)[0])
                assert arrived == (lost == "back")
                network.end(rule)
                near.settimeout(10)
                assert near.recv(1) == b"a"
        finally:
            server.kill()
            network.close()


def test_a_moved_clock_is_the_wall_clock_of_one_program_alone(tmp_path: Path) -> None:
    clock = Clock(tmp_path, "one")
    environment = {**os.environ, **together(stuck_while(tmp_path, tmp_path / "never"), clock.environment)}
    look = "import time, sys\nfor _ in sys.stdin: print(time.time(), time.monotonic(), flush=True)"
    with subprocess.Popen(
        [sys.executable, "-c", look], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        for hours in (0, HOURS, -HOURS, 0):
            clock.move(hours * 3600)
            program.stdin.write("\n")
            program.stdin.flush()
            wall, monotonic = map(float, program.stdout.readline().split())
            assert wall - time.time() == pytest.approx(hours * 3600, abs=10)
            assert monotonic == pytest.approx(time.monotonic(), abs=10)
        program.stdin.close()


@pytest.mark.parametrize("hours", [HOURS, -HOURS])
def test_a_compute_whose_clock_jumps_goes_on_committing(hours: int) -> None:
    """Postgres has the agent's clock, and takes no jump of it for a proposer that has gone silent for good."""
    root = Path(tempfile.mkdtemp(prefix="weir-torture-"))
    with engine(root) as running:
        clock = Clock(root, "compute")
        compute = running.compute(running.create_timeline(), environment=clock.environment)
        compute.sql("CREATE TABLE written (at timestamptz)")
        clock.move(hours * 3600)
        ((shown,),) = compute.sql("SELECT extract(epoch FROM clock_timestamp())::float8")
        assert shown - time.time() == pytest.approx(hours * 3600, abs=30)
        for _ in range(20):
            compute.sql("INSERT INTO written VALUES (clock_timestamp())")
        clock.move(0)
        for _ in range(20):
            compute.sql("INSERT INTO written VALUES (clock_timestamp())")
        assert compute.sql("SELECT count(*) FROM written") == [(40,)]


def test_a_trial_says_that_namespaces_were_not_there(tmp_path: Path) -> None:
    """The proxy cuts the safekeeper off then, and the result does not claim more."""
    machine = apart.Machine(mounting=False, namespaces=False)
    result = apart.run(machine, 3, 4, tmp_path / "kept", only=("node_partition",))
    assert (result.clean, result.namespaces, result.done) == (True, False, ["node_partition"]), result.words()


def test_damaged_wal_of_a_safekeeper_is_found_and_repaired_within_a_trial(tmp_path: Path) -> None:
    """Across the wires of a trial's own networks, where there are some."""
    result = apart.run(apart.Machine.observe(), 3, 4, tmp_path / "kept", only=("safekeeper_wal_damaged",))
    assert (result.clean, result.done) == (True, ["safekeeper_wal_damaged"]), f"{result.words()} {result.stuck}"
