"""Talking to process-compose, which keeps the services running.

It listens on a Unix socket in a directory that only its owner may enter: whoever can talk to a supervisor can
have it run anything.
"""

import os
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from weir.cli import precedence, system
from weir.cli.errors import CliError
from weir.cli.installation import Installation

_SOCKET_PATH_LIMIT = 107


@dataclass(frozen=True)
class State:
    """One service as the supervisor sees it."""

    name: str
    status: str
    ready: bool
    has_probe: bool
    pid: int
    restarts: int
    age_seconds: float
    exit_code: int

    @property
    def is_running(self) -> bool:
        return self.status in {"Running", "Launched", "Launching", "Restarting"}

    @property
    def is_good(self) -> bool:
        """Healthy, or done with its one task, which is what a process without a probe is there for."""
        if self.status == "Scheduled":
            return True
        if self.status == "Completed":
            return self.exit_code == 0
        return self.status == "Running" and self.ready

    @property
    def health(self) -> str:
        if self.status == "Completed":
            return "done" if self.exit_code == 0 else f"failed ({self.exit_code})"
        if self.status in {"Pending", "Restarting", "Terminating", "Error", "Skipped"}:
            return self.status.lower()
        if self.status == "Running":
            return "healthy" if self.ready else "starting" if self.has_probe else "running"
        return self.status.lower()


class Supervisor:
    def __init__(self, installation: Installation) -> None:
        if len(os.fsencode(installation.socket)) > _SOCKET_PATH_LIMIT:
            raise CliError(f"The path {installation.socket} is too long for a socket; choose a shorter WEIR_HOME.")
        self.installation = installation
        transport = httpx.HTTPTransport(uds=str(installation.socket))
        self._client = httpx.Client(transport=transport, base_url="http://supervisor", timeout=60)

    @property
    def _pid_file(self) -> Path:
        return self.installation.run_dir / "supervisor.pid"

    def pid(self) -> int | None:
        """The pid of the running supervisor. The start time beside it tells it from a later process of that pid."""
        try:
            pid, ticks = map(int, self._pid_file.read_text().split())
        except (OSError, ValueError):
            return None
        return pid if system.start_ticks(pid) == ticks and system.is_alive(pid) else None

    def session(self) -> int | None:
        """The session of the last supervisor, running or not: its services belong to it."""
        try:
            return int(self._pid_file.read_text().split()[0])
        except (OSError, ValueError, IndexError):
            return None

    def start(self, config: str) -> None:
        """Start the supervisor in a session of its own, so that it outlives this command and its terminal."""
        path = self.installation.run_dir / "services.json"
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)  # it holds the password
        with os.fdopen(descriptor, "w") as file:
            file.write(config)
        self.installation.socket.unlink(missing_ok=True)
        command = [
            *precedence.words(self.installation, "supervisor"),
            str(self.installation.tool("process-compose")),
            *("up", "--config", str(path), "--disable-dotenv", "--tui=false", "--keep-project", "--ordered-shutdown"),
            *("--unix-socket", str(self.installation.socket)),
            *("--log-file", str(self.installation.log_file("supervisor"))),
        ]
        environment = {**self.installation.environment(), system.SERVICE_VARIABLE: "supervisor"}
        environment["PC_CONFIG"] = str(self.installation.run_dir)
        # Services inherit what the supervisor has; those that are told the password have it from their entry.
        environment.pop(system.DATABASE_VARIABLE, None)
        errors = self.installation.log_file("supervisor-errors")
        with errors.open("wb") as sink:
            process = subprocess.Popen(
                command,
                env=environment,
                cwd=self.installation.home,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=sink,
                start_new_session=True,
                # What services make is their own, unless they say otherwise.
                umask=0o077,
            )
        precedence.prefer(self.installation, process.pid)
        self._pid_file.write_text(f"{process.pid} {system.start_ticks(process.pid)}\n")
        deadline = time.monotonic() + 20
        while not self.answers():
            if process.poll() is not None or time.monotonic() > deadline:
                text = errors.read_text(errors="replace").strip()[-2000:]
                raise CliError(f"The supervisor did not start (status {process.poll()}): {text or 'no message'}")
            time.sleep(0.05)

    def answers(self) -> bool:
        try:
            return self._client.get("/live", timeout=5).is_success
        except httpx.HTTPError:
            return False

    def states(self) -> dict[str, State]:
        try:
            answer = self._client.get("/processes")
            answer.raise_for_status()
        except httpx.HTTPError as error:
            raise CliError(f"The supervisor does not answer on {self.installation.socket}: {error}") from None
        return {entry["name"]: _state(entry) for entry in answer.json()["data"]}

    def stop_service(self, name: str) -> None:
        """Stop a service; returns when its process is gone."""
        try:
            self._command("PATCH", f"/process/stop/{name}")
        except CliError:
            if not self._is_stopped(name):
                raise

    def restart_service(self, name: str) -> None:
        """Stop a service, if it runs, and start it."""
        path = f"/process/restart/{name}"
        try:
            self._command("POST", path)
        except CliError:
            if not self._is_stopped(name):
                raise
            self._command("POST", path)

    def _is_stopped(self, name: str) -> bool:
        """Whether a service is stopped although the supervisor's answer to a stop was an error.

        process-compose (1.87) begins to wait for the end of a process after it has signalled it. It misses the
        end of a process that is quicker, waits for the whole time that the service has to stop, and then fails
        to kill it: `no such process`. A restart ends there, with the service stopped.
        """
        state = self.states().get(name)
        return state is not None and state.status == "Completed"

    def _command(self, method: str, path: str) -> None:
        try:
            answer = self._client.request(method, path)
        except httpx.HTTPError as error:
            raise CliError(f"The supervisor does not answer: {error}") from None
        if answer.is_error:
            raise CliError(f"The supervisor refused {path}: {answer.text}")

    def stop(self, seconds: float) -> bool:
        """Ask the supervisor to stop its services in reverse order and then itself; False when it takes too long."""
        pid = self.pid()
        if pid is None:
            return True
        os.kill(pid, signal.SIGTERM)
        return not system.wait_gone([pid], seconds)

    def forget(self) -> None:
        self._pid_file.unlink(missing_ok=True)
        self.installation.socket.unlink(missing_ok=True)


def _state(entry: Mapping[str, Any]) -> State:
    return State(
        name=entry["name"],
        status=entry["status"],
        ready=entry["is_ready"] == "Ready",
        has_probe=entry["has_ready_probe"],
        pid=entry["pid"],
        restarts=entry["restarts"],
        age_seconds=entry["age"] / 1e9,
        exit_code=entry["exit_code"],
    )
