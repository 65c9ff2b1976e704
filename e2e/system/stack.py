"""A whole Weir of a test's own: `weir up` in a temporary directory, on ports nobody else uses."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))

from weirbench.api import Database, Weir

from weir.cli import installation
from weir.cli.supervisor import Supervisor

T = TypeVar("T")
WEIR = Path(sys.executable).parent / "weir"
SPAN = 500
# Of the ports of an installation, from its first one.
_OFFSETS = (0, 2, 10, 20, 21, 22, 23, 30, 32, 33, *range(101, 120), 200, 201, 300, 301)


def free_port_base() -> int:
    """Where a whole block of ports is free: above those of the tests that start single programs and of the control
    plane's, below those of the journeys. All of them may run at the same time."""
    for _ in range(200):
        base = random.randrange(26000, 28000, SPAN)  # noqa: S311  no secret
        if all(_is_free(base + offset) for offset in _OFFSETS):
            return base
    raise RuntimeError("no block of free ports was found")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def wait_for(what: str, probe: Callable[[], T | None], seconds: float = 180.0) -> T:
    deadline = time.monotonic() + seconds
    while True:
        found = probe()
        if found:
            return found
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {seconds:.0f} s; last seen: {found!r}")
        time.sleep(0.1)


class Stack:
    """One installation, driven as an operator drives it."""

    def __init__(self, home: Path, extra: dict[str, str] | None = None) -> None:
        self.home = home
        self.port_base = free_port_base()
        self.environment = {**os.environ, "WEIR_HOME": str(home), **(extra or {})}

    def weir(self, *arguments: str, timeout: float = 300) -> subprocess.CompletedProcess[str]:
        """Run the command line; never raises for a failure, whose text the caller wants to see."""
        return subprocess.run(
            [str(WEIR), *arguments],
            env=self.environment,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=timeout,
            check=False,
        )

    def up(self) -> str:
        first = not (self.home / "weir.toml").exists()
        arguments = ["up", *(["--port-base", str(self.port_base)] if first else [])]
        result = self.weir(*arguments)
        assert result.returncode == 0, result.stdout + result.stderr + self.logs()
        return result.stdout

    def down(self) -> str:
        result = self.weir("down")
        assert result.returncode == 0, result.stdout + result.stderr
        return result.stdout

    def status(self) -> dict[str, Any]:
        return json.loads(self.weir("status", "--json").stdout)

    def process(self, name: str) -> dict[str, Any]:
        return next(entry for entry in self.status()["processes"] if entry["name"] == name)

    def pid(self, name: str) -> int:
        return int(self.process(name)["pid"])

    def compute_pid(self, compute_id: str) -> int:
        return int((self.home / "computes" / compute_id / "pid").read_text().split()[0])

    def kill(self, name: str) -> None:
        """kill -9 a service and wait until the supervisor has it healthy again, as another process."""
        before = self.process(name)
        os.kill(before["pid"], signal.SIGKILL)

        def again() -> bool:
            now = self.process(name)
            return now["pid"] != before["pid"] and now["health"] == "healthy"

        wait_for(f"{name} to be healthy again", again)

    def stop(self, name: str) -> None:
        """Have the supervisor stop a service, and wait until its process is gone."""
        pid = self.pid(name)
        self._supervisor().stop_service(name)
        wait_for(f"{name} to be gone", lambda: not Path(f"/proc/{pid}").exists(), 60)

    def start(self, name: str) -> None:
        """Have the supervisor start a service that was stopped, and wait until it is healthy."""
        self._supervisor().restart_service(name)
        wait_for(f"{name} to be healthy", lambda: self.process(name)["health"] == "healthy", 60)

    def lose_disk(self, number: int) -> None:
        """A stopped safekeeper's disk is replaced by an empty one: it runs again, and has lost everything."""
        shutil.rmtree(self.home / f"safekeeper-{number}")
        (self.home / f"safekeeper-{number}").mkdir(mode=0o700)
        self.start(f"safekeeper-{number}")

    def suspend_compute(self, database: Database) -> None:
        api = self.api()
        endpoint = f"/projects/{database.project_id}/endpoints/{database.compute_id}"
        api.wait_operations(api.request("POST", f"{endpoint}/suspend")["operations"])

    def start_compute(self, database: Database) -> None:
        """Ask for it; `wait_for_compute` waits until it runs."""
        self.api().request("POST", f"/projects/{database.project_id}/endpoints/{database.compute_id}/start")

    def wait_for_compute(self, database: Database) -> None:
        api = self.api()
        wait_for("the branch to run again", lambda: api.compute(database.compute_id)["state"] == "active", 180)

    def _supervisor(self) -> Supervisor:
        return Supervisor(installation.load(self.home))

    def api(self) -> Weir:
        return Weir(f"http://127.0.0.1:{self.port_base}", (self.home / "secrets" / "api_key").read_text().strip())

    def logs(self) -> str:
        """The ends of all logs, for a failure's message."""
        ends: list[str] = []
        for path in [*(self.home / "log").glob("*.log"), *(self.home / "computes").glob("*/log")]:
            lines = path.read_text(errors="replace").splitlines()[-15:]
            ends.append(f"--- {path}\n" + "\n".join(line[:400] for line in lines))
        return "\n".join(ends)

    def remains(self) -> list[str]:
        """Processes and mounts that belong to this installation, by the kernel's account."""
        found: list[str] = []
        needle = f"WEIR_HOME={self.home}".encode()
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            try:
                marked = needle in (entry / "environ").read_bytes().split(b"\0")
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
                inside = str((entry / "cwd").readlink()).startswith(str(self.home))
            except OSError:
                continue
            if command and (marked or inside or f"{self.home}/" in command):
                found.append(f"pid {entry.name}: {command[:120]}")
        mounts = Path("/proc/self/mountinfo").read_text()
        found += [line.split()[4] for line in mounts.splitlines() if line.split()[4].startswith(str(self.home))]
        return found


@contextmanager
def running_stack(
    extra: dict[str, str] | None = None, prepare: Callable[[Path], None] | None = None
) -> Generator[Stack]:
    """A stack that is up, and gone afterwards whatever happened: by `weir down`, or by force. `prepare` is given its
    directory before anything is started."""
    # Below /tmp with a short name: Postgres runs unprivileged, and sockets have short paths.
    folder = Path(tempfile.mkdtemp(prefix="weir-e2e-", dir="/tmp"))
    folder.chmod(0o711)
    stack = Stack(folder / "home", extra)
    try:
        if prepare is not None:
            prepare(stack.home)
        stack.up()
        yield stack
    finally:
        result = stack.weir("down", "--immediate")
        if result.returncode != 0:
            _end_by_force(stack)
        shutil.rmtree(folder, ignore_errors=True)


def _end_by_force(stack: Stack) -> None:
    for line in stack.remains():
        if line.startswith("pid "):
            try:
                os.kill(int(line.split()[1].rstrip(":")), signal.SIGKILL)
            except ProcessLookupError:
                continue
