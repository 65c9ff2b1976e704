"""Compute runtime `local`: each compute is a `weir-compute` process of this machine.

A compute is started in a session of its own, so that it outlives the worker that started it, and is known
afterwards by what lies in its directory: `spec.json`, `pid` (see `process`), `log`. Nothing here remembers
anything: a worker that was just started knows as much as one that has run for a year.

A crash between starting a process and writing its pid leaves a process that is found by its arguments, for which all
processes of the machine are looked at; not so for a compute of which it was seen that it has none, and that nobody
has started since (`at_rest`). A compute that dies hard leaves a dead mount, which `clean` removes.
"""

import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Collection, Generator, Iterable
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import structlog

from weir.config import Settings
from weir.kit import cgroups
from weir.kit.http import bracketed
from weir.tls import parts as tls_parts
from weir.tokens import parts
from weir.tokens.bearer import signer_for
from weir.tokens.keys import key_set_file
from weir_workflows.runtime import environment
from weir_workflows.runtime.process import ProcessId, boot_id, find_by_arguments
from weir_workflows.runtime.servers import Servers
from weir_workflows.runtime.users import Users

log = structlog.get_logger()

# What the agent inherits the lock of its user as.
_LOCK_DESCRIPTOR = 3
# In a compute's folder while it is known to have no process.
_AT_REST = "at_rest"
LOG_LIMIT_BYTES = 64 * 1024 * 1024
_ID_CHARACTERS = set("abcdefghijklmnopqrstuvwxyz0123456789-")


class BusyError(Exception):
    """Another activity works on the same compute."""


class LocalRuntime:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.servers = Servers(settings)
        self.users = Users(settings.compute_user_range)
        # Children of this process, kept so that they are reaped when they end.
        self._children: set[int] = set()
        self._exit_codes: dict[int, int] = {}

    def directory(self, compute_id: str) -> Path:
        if not compute_id or set(compute_id) - _ID_CHARACTERS:
            raise ValueError(f"{compute_id!r} is not a compute id")
        return self._settings.computes_dir / compute_id

    def _spec_path(self, compute_id: str) -> Path:
        return self.directory(compute_id) / "spec.json"

    @contextmanager
    def exclusive(self, compute_id: str) -> Generator[int]:
        """One actor a compute: an activity that lost its worker's heartbeat may still be running beside its
        repetition. The kernel releases the lock with the process that holds it, and with all that were given the
        descriptor that this yields."""
        directory = self.directory(compute_id)
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise BusyError(f"another activity works on compute {compute_id}") from error
            yield descriptor
        finally:
            os.close(descriptor)

    def process(self, compute_id: str) -> ProcessId | None:
        """The living process of a compute."""
        return self.processes([compute_id]).get(compute_id)

    def processes(self, compute_ids: Iterable[str]) -> dict[str, ProcessId]:
        """The living process of each compute that has one. Looks once at the machine's processes for all of them, and
        only where one is not known by its pid file."""
        self._reap()
        boot = boot_id()
        found: dict[str, ProcessId] = {}
        unknown: dict[str, str] = {}
        for compute_id in compute_ids:
            directory = self.directory(compute_id)
            try:
                known = ProcessId.parse((directory / "pid").read_text())
            except (FileNotFoundError, NotADirectoryError):
                known = None
                if not directory.is_dir():
                    continue
            if known is not None and known.alive(boot):
                found[compute_id] = known
            elif known is not None or not (directory / _AT_REST).exists():
                unknown[str(self._spec_path(compute_id))] = compute_id
        for path, process in find_by_arguments(unknown).items():
            found[unknown[path]] = process
        return found

    def write_spec(self, compute_id: str, spec: dict[str, Any]) -> None:
        _replace(self._spec_path(compute_id), json.dumps(spec, indent=2) + "\n")

    def spawn(self, compute_id: str, spec: dict[str, Any]) -> ProcessId:
        """Starts the process. Call under `exclusive`, with no living process."""
        directory = self.directory(compute_id)
        (directory / _AT_REST).unlink(missing_ok=True)
        self.write_spec(compute_id, spec)
        self._rotate_log(directory / "log")
        arguments = [
            str(self._settings.bin_dir / "weir-compute"),
            "--spec",
            str(self._spec_path(compute_id)),
            "--dir",
            str(directory),
            "--listen-http",
            agent_address(spec["listen"], spec["port"] + 1),
            *self._token_arguments(directory, spec),
            *self._tls_arguments(compute_id),
        ]
        if self._settings.compute_cgroup:
            arguments += ["--cgroup", self._settings.compute_cgroup]
        with self.users.taken(directory) as user:
            inherited: list[tuple[Any, ...]] = []
            if user is not None:
                number, lock = user
                arguments += ["--user", str(number)]
                inherited = [(os.POSIX_SPAWN_DUP2, lock, _LOCK_DESCRIPTOR)]
            # Not `subprocess`, whose objects insist on outliving what they started.
            pid = os.posix_spawn(
                arguments[0],
                arguments,
                environment.of_agent(os.environ),
                setsid=True,
                file_actions=[
                    *inherited,
                    (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                    (os.POSIX_SPAWN_OPEN, 1, str(directory / "log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
                    (os.POSIX_SPAWN_DUP2, 1, 2),
                ],
            )
        self._children.add(pid)
        self._weigh(compute_id, pid)
        started = ProcessId.of_running(pid)
        if started is None:
            raise RuntimeError(f"compute {compute_id} ended as it was started; see {directory / 'log'}")
        _replace(directory / "pid", started.text())
        return started

    def _weigh(self, compute_id: str, pid: int) -> None:
        """Takes the agent out of the services' control group, which it has from this process, into one of its own: it
        works for one tenant alone. Postgres, which the agent starts later, gets another one."""
        group = self._settings.compute_cgroup
        weighed = cgroups.weigh(group, cgroups.agents(compute_id), cgroups.AGENT_WEIGHT)
        try:
            cgroups.enter(weighed.values(), pid)
        except OSError as error:
            log.warning("agent_not_weighed", compute_id=compute_id, error=str(error))

    def _token_arguments(self, directory: Path, spec: dict[str, Any]) -> list[str]:
        """Makes the compute's token; none where the installation has no keys."""
        signer = signer_for(self._settings)
        if signer is None:
            return []
        part = parts.compute(directory, spec)
        parts.record(self._settings.home, spec)
        parts.renew(signer.key(), [part], time.time())
        return ["--token-keys", str(key_set_file(self._settings.keys_home)), "--token", str(part.file)]

    def _tls_arguments(self, compute_id: str) -> list[str]:
        """Makes the compute's certificate; none where parts speak plain TCP."""
        if self._settings.tls_file is None:
            return []
        part = tls_parts.compute(self._settings.home, compute_id)
        tls_parts.make(self._settings.home, part)
        return ["--tls", str(part.file)]

    def clean(self, compute_id: str) -> bool:
        """Removes what a dead compute left: its pid file, its mounts and its control groups; and closes its folder to
        the user it had. Call under `exclusive`, with no living process. True if there was anything to remove."""
        directory = self.directory(compute_id)
        self.users.close(directory)
        found = cgroups.remove(self._settings.compute_cgroup, compute_id)
        for mount in reversed(mounts_below(directory)):
            found = True
            _unmount(mount)
        pid_file = directory / "pid"
        if pid_file.exists():
            found = True
            pid_file.unlink(missing_ok=True)
        with suppress(FileNotFoundError):
            (directory / _AT_REST).touch(mode=0o600)
        return found

    def remove(self, compute_id: str) -> None:
        """Deletes a dead compute's directory; never through a mount."""
        self.clean(compute_id)
        directory = self.directory(compute_id)
        left = mounts_below(directory)
        if left:
            raise RuntimeError(f"{left[0]} is still mounted, so the directory of {compute_id} is not deleted")
        shutil.rmtree(directory, ignore_errors=True)
        parts.forget(self._settings.home, compute_id)
        tls_parts.forget(self._settings.home, compute_id)

    def known(self) -> list[str]:
        """Ids of computes that have a directory here."""
        try:
            with os.scandir(self._settings.computes_dir) as entries:
                return sorted(entry.name for entry in entries if entry.is_dir())
        except FileNotFoundError:
            return []

    def untidy(self, compute_ids: Iterable[str]) -> set[str]:
        """Those of which `clean` would remove something, if they are dead. Reads the table of mounts once."""
        base = os.path.realpath(self._settings.computes_dir)
        mounted = {point.relative_to(base).parts[0] for point in mounts_below(Path(base)) if str(point) != base}
        return {
            compute_id
            for compute_id in compute_ids
            if compute_id in mounted or (self.directory(compute_id) / "pid").exists()
        }

    def spec(self, compute_id: str) -> dict[str, Any] | None:
        try:
            return json.loads(self._spec_path(compute_id).read_text())
        except (FileNotFoundError, ValueError):
            return None

    def keep_servers(self, wanted: Collection[str]) -> list[str]:
        """Copies what is installed, and removes copies that neither a wish nor a living compute's spec names."""
        self.servers.copy_installed()
        running = [self.spec(compute_id) for compute_id in self.processes(self.known())]
        of_specs = {self.servers.version_of(Path(spec["pg_bin_dir"])) for spec in running if spec is not None}
        return self.servers.remove_unused({*wanted, *(version for version in of_specs if version is not None)})

    def log_tail(self, compute_id: str, lines: int = 5) -> str:
        path = self.directory(compute_id) / "log"
        try:
            with path.open("rb") as file:
                file.seek(max(0, path.stat().st_size - 8192))
                text = file.read().decode(errors="replace")
        except FileNotFoundError:
            return ""
        return "\n".join(text.strip().splitlines()[-lines:])

    def kill(self, process: ProcessId) -> None:
        process.signal(signal.SIGKILL)
        self._reap()

    def terminate(self, process: ProcessId) -> None:
        process.signal(signal.SIGTERM)

    def _reap(self) -> None:
        for pid in list(self._children):
            try:
                ended, status = os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:
                self._children.discard(pid)
                continue
            if ended:
                self._children.discard(pid)
                self._exit_codes[pid] = os.waitstatus_to_exitcode(status)

    def how_it_ended(self, process: ProcessId) -> str:
        """For messages; only the worker that started a process learns its exit code."""
        self._reap()
        code = self._exit_codes.get(process.pid)
        return "it ended" if code is None else f"it ended with code {code}"

    @staticmethod
    def _rotate_log(path: Path) -> None:
        if path.exists() and path.stat().st_size > LOG_LIMIT_BYTES:
            path.replace(path.with_suffix(".1"))


def agent_address(host: str, port: int) -> str:
    """Where an agent listens: it takes addresses only, while a compute may be known by its host's name. Raises
    OSError for a name that leads nowhere."""
    address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][4][0]
    return f"{bracketed(str(address))}:{port}"


def _replace(path: Path, text: str) -> None:
    """Whole or not at all, for processes that look. After a crash of the machine nothing runs, and what these files
    say is not asked for: a client that waits for a start need not wait for the disk."""
    temporary = path.with_name(f".{path.name}.new")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    temporary.replace(path)


def mounts_below(directory: Path) -> list[Path]:
    """Mount points at or below a directory, outermost first. Read from the kernel's table: asking the file
    system itself would hang or fail on a dead FUSE mount."""
    base = os.path.realpath(directory)
    found: list[Path] = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        point = line.split()[4].encode().decode("unicode_escape")
        if point == base or point.startswith(base + "/"):
            found.append(Path(point))
    return sorted(found)


def _unmount(path: Path) -> None:
    for command in (["umount", "-l", str(path)], ["fusermount3", "-u", "-z", str(path)]):
        if shutil.which(command[0]) is None:
            continue
        if subprocess.run(command, capture_output=True, check=False).returncode == 0:
            return
    raise RuntimeError(f"{path} cannot be unmounted; unmount it by hand: umount -l {path}")
