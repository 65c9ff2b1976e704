"""Whoever runs programs with a server's rights connects to nobody, and listens at the server's own port."""

from __future__ import annotations

import base64
import json
import os
import socket
from collections.abc import Generator
from contextlib import ExitStack

import pytest
from harness import Compute, Engine, wait_for
from strangers import PYTHON, as_postgres, beyond_this_kernel, run

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives computes users of their own")

# Of a range that nothing else on a machine has.
MALLORY = 52_006
# Ways by which bytes could leave.
WAYS = (
    "a port of loopback",
    "the same without waiting",
    "the same of IPv6",
    "the same with a first packet of data",
    "the same with a first packet, asked for before",
    "the agent",
    "its own Postgres",
    "a datagram",
    "a datagram by a name",
    "a connection of many paths",
    "a name without a file",
)
LISTENS = "a listener at another port"
TRIES = """
import errno, json, socket
IPV4, IPV6, STREAM = socket.AF_INET, socket.AF_INET6, socket.SOCK_STREAM
def connects(address, family=IPV4, protocol=0, waits=True):
    with socket.socket(family, STREAM, protocol) as tried:
        tried.settimeout(5 if waits else 0)
        tried.connect(address)
def sends_first(address):
    with socket.socket() as tried:
        tried.sendto(b"out", 0x20000000, address)
def sends_first_asked(address):
    with socket.socket() as tried:
        tried.setsockopt(socket.IPPROTO_TCP, 30, 1)
        tried.connect(address)
        tried.send(b"out")
def sends_datagram(address):
    with socket.socket(IPV4, socket.SOCK_DGRAM) as tried:
        tried.sendto(b"out", address)
def sends_datagram_by(name):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as tried:
        tried.sendto(b"out", name)
def listens(port):
    with socket.socket() as tried:
        tried.bind(("127.0.0.1", port))
HERE = ("127.0.0.1", PORT)
WAYS = {
    "a port of loopback": lambda: connects(HERE),
    "the same without waiting": lambda: connects(HERE, waits=False),
    "the same of IPv6": lambda: connects(("::1", PORT6), IPV6),
    "the same with a first packet of data": lambda: sends_first(HERE),
    "the same with a first packet, asked for before": lambda: sends_first_asked(HERE),
    "the agent": lambda: connects(("127.0.0.1", AGENT)),
    "its own Postgres": lambda: connects(("127.0.0.1", OWN)),
    "a datagram": lambda: sends_datagram(("127.0.0.1", DATAGRAMS)),
    "a datagram by a name": lambda: sends_datagram_by(NAMED_DATAGRAMS),
    "a connection of many paths": lambda: connects(HERE, protocol=262),
    "a name without a file": lambda: connects(NAME, socket.AF_UNIX),
    "a listener at another port": lambda: listens(0),
}
def outcome(way):
    try:
        way()
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error))
    return "done"
print(json.dumps({name: outcome(way) for name, way in WAYS.items()}))
"""


@pytest.fixture(name="compute", scope="module")
def _compute(shared: Engine) -> Compute:
    return shared.compute(shared.create_timeline(), user=MALLORY)


@pytest.fixture(name="tries")
def _tries(compute: Compute) -> Generator[str]:
    """A program that tries each way, to listeners that are there."""
    name = f"weir-test-{os.getpid()}-{compute.port}"
    with ExitStack() as opened:
        ports: dict[str, int] = {}
        for variable, family, address in (("PORT", socket.AF_INET, "127.0.0.1"), ("PORT6", socket.AF_INET6, "::1")):
            listener = opened.enter_context(socket.socket(family))
            listener.bind((address, 0))
            listener.listen(16)
            ports[variable] = listener.getsockname()[1]
        datagrams = opened.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        datagrams.bind(("127.0.0.1", 0))
        named = opened.enter_context(socket.socket(socket.AF_UNIX))
        named.bind(f"\0{name}")
        named.listen(16)
        by_name = opened.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
        by_name.bind(f"\0{name}-datagrams")
        agent = compute.http.base_url.port or 0
        ports |= {"DATAGRAMS": datagrams.getsockname()[1], "OWN": compute.port, "AGENT": agent}
        said = [f"{variable} = {port}" for variable, port in ports.items()]
        said += [f"NAME = '\\0{name}'", f"NAMED_DATAGRAMS = '\\0{name}-datagrams'"]
        code = "\n".join([*said, TRIES])
        yield f"import base64; exec(base64.b64decode('{base64.b64encode(code.encode()).decode()}'))"


def test_no_way_leads_out_of_a_server(compute: Compute, tries: str) -> None:
    (told,) = as_postgres(compute.admin(), f'{PYTHON} -c "{tries}"')
    outcomes = json.loads(told)
    listens = outcomes.pop(LISTENS)
    assert outcomes == dict.fromkeys(WAYS, "EPERM")
    assert listens == ("done" if "own_port" in beyond_this_kernel() else "EACCES")


def test_the_same_user_outside_of_a_compute_gets_through(compute: Compute, tries: str) -> None:
    """So that it is the walls of the compute that refuse, and the test above could fail."""
    done = run(MALLORY, PYTHON, "-c", tries)
    assert done.returncode == 0, done.stderr
    outcomes = json.loads(done.stdout)
    assert outcomes.keys() == {*WAYS, LISTENS}
    assert not {"EACCES", "EPERM"} & set(outcomes.values()), outcomes
    through = {name for name, outcome in outcomes.items() if outcome in {"done", "EINPROGRESS"}}
    assert {"a port of loopback", "the same with a first packet of data", "a datagram"} <= through
    assert {"its own Postgres", "the agent", "a name without a file", "a datagram by a name", LISTENS} <= through


def test_who_connects_to_the_server_is_served_before_and_after_a_restart(compute: Compute) -> None:
    assert compute.sql("SELECT 1") == [(1,)]
    before = compute.status()["restarts"]
    os.kill(compute.postmaster, 9)
    wait_for("another run", lambda: compute.status()["restarts"] == before + 1)
    wait_for("the run", lambda: compute.status()["state"] == "running")
    assert compute.sql("SELECT 1") == [(1,)]
    in_force = compute.status()["confinement"]["in_force"]
    assert {"few_system_calls", "own_port"} - set(beyond_this_kernel()) <= set(in_force)
