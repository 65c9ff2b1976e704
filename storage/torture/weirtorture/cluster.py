"""The processes of a trial, every one of them behind links that can be disturbed.

Five safekeepers run from the start; three of them found the log. Computes and the pageserver know all of them by the
addresses of links: the list says where to ask, the log says who counts.
"""

from __future__ import annotations

import secrets
import shutil
import subprocess
import tempfile
import threading
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from clocks import Clock
from disks import MountRefusedError, failing_while, small_disk, stuck_while
from harness import PG_BIN, Compute, Engine, Timeline, wait_for
from preload import together
from workloads import SMALL_LAYERS

from .namespaces import Node
from .programs import Network
from .schedule import FOUNDERS, SPARES

# Of a safekeeper's disk that is to be full, MiB: more than a trial writes, and little enough to be filled at once.
DISK_MIB = 256


def can_mount() -> bool:
    """Whether file systems of a trial's own can be made here."""
    where = Path(tempfile.mkdtemp(prefix="weir-torture-mount-"))
    try:
        with small_disk(where / "disk", 1):
            return True
    except (MountRefusedError, FileNotFoundError):
        return False
    finally:
        shutil.rmtree(where, ignore_errors=True)


def server_minor(bin_dir: Path) -> str:
    said = subprocess.run([bin_dir / "postgres", "--version"], capture_output=True, check=True, text=True).stdout
    return said.split()[2]


@dataclass
class Cluster:
    root: Path
    seed: int
    full_page_writes: bool
    # Numbers of the safekeepers with a small disk of their own.
    small: tuple[int, ...] = ()
    pg_bin_dir: Path = PG_BIN
    # What commits wait for.
    durability: str = "flush"
    # Whether each safekeeper gets a network of its own.
    namespaces: bool = False
    nodes: dict[int, Node] = field(default_factory=dict[int, Node])
    # By the names of processes: each one's own.
    clocks: dict[str, Clock] = field(default_factory=dict[str, Clock])
    computes: list[Compute] = field(default_factory=list[Compute])
    # Computes that clients have used; the last one is the one they are to use.
    _given_out: list[Compute] = field(default_factory=list[Compute])
    _stack: ExitStack = field(default_factory=ExitStack)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def start(self) -> None:
        self.network = Network(self.seed)
        self.network.start()
        self._stack.callback(self.network.close)
        faults = self.root / "faults"
        faults.mkdir()
        self.engine = Engine(self.root, safekeeper_count=len(FOUNDERS + SPARES))
        for number in FOUNDERS + SPARES:
            self.engine.safekeeper_environments[number] = together(
                stuck_while(faults, faults / f"stuck-{number}"),
                failing_while(faults, self.disk(number), faults / f"fails-{number}"),
                self._clock(f"safekeeper-{number}"),
            )
            if self.namespaces:
                self._separate(number)
        self.engine.pageserver_environment = self._clock("pageserver")
        for number in self.small:
            self._stack.enter_context(small_disk(self.disk(number), DISK_MIB))
        self._stack.callback(self.engine.close)
        self.engine.start()
        self.timeline = self._create_timeline()

    def close(self) -> None:
        self._stack.close()

    def _clock(self, name: str) -> dict[str, str]:
        clock = self.clocks[name] = Clock(self.root / "faults", name)
        return clock.environment

    def _separate(self, number: int) -> None:
        node = self.nodes[number] = Node(number)
        self._stack.callback(node.close)
        node.start()
        self.engine.safekeeper_hosts[number] = node.address
        self.engine.safekeeper_launchers[number] = node.launcher

    def disk(self, number: int) -> Path:
        return self.root / f"safekeeper-{number}"

    def sick_disk(self, number: int, how: str) -> Path:
        """While this file is there, the disk of that safekeeper `fails`, or is `stuck`."""
        return self.root / "faults" / f"{how}-{number}"

    def safekeeper(self, number: int) -> Any:
        return self.engine.safekeepers[number - 1]

    # --- the log

    def links(self, near: str) -> list[str]:
        """Addresses of all safekeepers for somebody, by links of his own."""
        return [
            self.network.open(near, f"safekeeper-{number}", address)
            for number, address in enumerate(self.engine.wal_addresses(), 1)
        ]

    def _create_timeline(self) -> Timeline:
        engine, tenant = self.engine, secrets.token_hex(16)
        engine.storage.put(f"/v1/tenant/{tenant}", json={}).raise_for_status()
        engine.storage.patch(f"/v1/tenant/{tenant}/config", json=SMALL_LAYERS).raise_for_status()
        body: dict[str, Any] = {
            "new_timeline_id": secrets.token_hex(16),
            "pg_version": 15,
            "safekeepers": self.links("pageserver"),
        }
        answer = engine.storage.post(f"/v1/tenant/{tenant}/timeline", json=body).raise_for_status().json()
        self.system_identifier = str(answer["system_identifier"])
        timeline = Timeline(tenant, body["new_timeline_id"], answer["start_lsn"])
        founders = [self.identity(number) for number in FOUNDERS]
        for number in FOUNDERS:
            self._create_log(number, timeline, founders=founders)
        return timeline

    def identity(self, number: int) -> dict[str, Any]:
        url = f"http://{self.engine.host(number)}:{self.engine.http_ports[number - 1]}/v1/disk"
        return httpx.get(url, timeout=5).raise_for_status().json()

    def _create_log(self, number: int, timeline: Timeline, **role: Any) -> None:
        body = {
            "start_lsn": timeline.start_lsn,
            "system_identifier": self.system_identifier,
            "pg_version": 15,
            **role,
        }
        httpx.post(self.engine.safekeeper_url(number - 1, timeline), json=body, timeout=10).raise_for_status()

    def learner(self, number: int) -> dict[str, Any]:
        """The name of the log on a safekeeper, which is made an empty learner where there is none."""
        url = self.engine.safekeeper_url(number - 1, self.timeline)
        answer = httpx.get(url, timeout=5)
        if answer.status_code == 404:
            self._create_log(number, self.timeline, learner=True)
            answer = httpx.get(url, timeout=5)
        return answer.raise_for_status().json()["member"]

    # --- computes

    def current(self) -> Compute:
        return self._given_out[-1]

    def give_out(self, compute: Compute) -> None:
        with self._lock:
            self._given_out.append(compute)

    def follow(self) -> None:
        """Clients go to another compute when theirs has been fenced: to the one that runs, of the highest term.

        A compute that was being started anew when another one took over takes over from that one in turn.
        """
        if self._state(self.current())[0] not in ("fenced", "exited"):
            return
        running = [compute for compute in self.computes if self._state(compute)[0] == "running"]
        if running:
            self.give_out(max(running, key=lambda compute: self._state(compute)[1]))

    def _state(self, compute: Compute) -> tuple[str, int]:
        """Its agent's word and its term; `exited` when the agent has ended by itself."""
        if compute.process.child is None or ((code := compute.process.child.poll()) is not None and code >= 0):
            return "exited", 0
        try:
            status = compute.status()
        except httpx.HTTPError:
            return "silent", 0
        return status["state"], status["term"] or 0

    def new_compute(self) -> Compute:
        """Another compute of the timeline, whose agent is there; it need not run yet, or ever."""
        with self._lock:
            name = f"compute-{len(self.computes) + 1}"
            pages = f"127.0.0.1:{self.engine.page_port}"
            http = f"127.0.0.1:{self.engine.pageserver_http_port}"
            compute = self.engine.compute(
                self.timeline,
                wait=False,
                environment=self._clock(name),
                safekeepers=self.links(name),
                pageserver={
                    "pages": self.network.open(f"{name} pages", "pageserver", pages),
                    "http": f"http://{self.network.open(f'{name} http', 'pageserver', http)}",
                },
                pg_bin_dir=str(self.pg_bin_dir),
                full_page_writes=self.full_page_writes,
                durability=self.durability,
                settings={"checkpoint_timeout": "30s", "max_wal_size": "64MB"},
            )
            self.computes.append(compute)
            return compute

    def name(self, compute: Compute) -> str:
        return f"compute-{self.computes.index(compute) + 1}"

    def wait_running(self, compute: Compute, seconds: float) -> None:
        wait_for("the compute to run", lambda: compute.status()["state"] == "running", seconds)

    def address_for(self, compute: Compute, number: int) -> str:
        """Where this compute reaches that safekeeper."""
        return self.network.address(self.name(compute), f"safekeeper-{number}")
