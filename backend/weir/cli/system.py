"""What the kernel knows about an installation: its processes, its mounts, who holds a port."""

import ctypes
import os
import socket
import subprocess
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

SERVICE_VARIABLE = "WEIR_SERVICE"
# Has the password of the metadata database.
DATABASE_VARIABLE = "WEIR_DATABASE_URL"


@dataclass(frozen=True)
class Process:
    pid: int
    service: str
    session: int
    command: str

    @property
    def is_compute(self) -> bool:
        return "weir-compute" in self.command or self.command.startswith("postgres")


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat after the command's name; empty when the process is gone."""
    text = _read(Path(f"/proc/{pid}/stat")).decode(errors="replace")
    return text.rpartition(")")[2].split()


def is_alive(pid: int) -> bool:
    fields = _stat(pid)
    return bool(fields) and fields[0] not in {"Z", "X"}


def start_ticks(pid: int) -> int | None:
    fields = _stat(pid)
    return int(fields[19]) if len(fields) > 19 else None


def command_of(pid: int) -> str:
    return _read(Path(f"/proc/{pid}/cmdline")).replace(b"\0", b" ").decode(errors="replace").strip()


def processes_of(home: Path) -> list[Process]:
    """Every process that was started for this installation, known by the marks in its environment."""
    wanted = f"WEIR_HOME={home}".encode()
    found: list[Process] = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        marks = _read(entry / "environ").split(b"\0")
        if wanted not in marks:
            continue
        service = next((m.partition(b"=")[2] for m in marks if m.startswith(SERVICE_VARIABLE.encode() + b"=")), None)
        fields = _stat(int(entry.name))
        if service is None or not fields or fields[0] in {"Z", "X"}:
            continue
        pid = int(entry.name)
        found.append(Process(pid, service.decode(), int(fields[3]), command_of(pid)))
    return found


def mounts_below(folder: Path) -> list[Path]:
    """Mount points below a folder, deepest first."""
    prefix = f"{folder}/"
    points = [line.split()[4] for line in _read(Path("/proc/self/mountinfo")).decode().splitlines()]
    decoded = [point.encode().decode("unicode_escape") for point in points]
    return sorted((Path(point) for point in decoded if point.startswith(prefix)), reverse=True)


def unmount(point: Path) -> None:
    """Detach a mount whose server may be dead, so nothing may be asked of it."""
    subprocess.run(["umount", "--lazy", str(point)], check=False, capture_output=True, timeout=30)
    if point in mounts_below(point.parent):
        subprocess.run(["fusermount3", "-u", "-z", str(point)], check=False, capture_output=True, timeout=30)


def end(pids: Iterable[int], signal: int) -> None:
    for pid in pids:
        try:
            os.kill(pid, signal)
        except (ProcessLookupError, PermissionError):
            continue


def wait_gone(pids: Iterable[int], seconds: float) -> list[int]:
    """Wait until processes have ended; returns those that have not."""
    deadline = time.monotonic() + seconds
    left = list(pids)
    while left and time.monotonic() < deadline:
        left = [pid for pid in left if is_alive(pid)]
        if left:
            time.sleep(0.05)
    return [pid for pid in left if is_alive(pid)]


def landlock_version() -> int:
    """Of the kernel's Landlock; 0: it has none, or none that is switched on."""
    libc = ctypes.CDLL(None, use_errno=True)
    # landlock_create_ruleset(NULL, 0, LANDLOCK_CREATE_RULESET_VERSION), of one number on all processors.
    return max(int(libc.syscall(444, None, ctypes.c_size_t(0), 1)), 0)


def port_is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As servers do: a connection in TIME_WAIT does not keep the port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def holder_of(port: int) -> str | None:
    """Who listens on a port, for the message: `pid 123 (command)`; None when that cannot be known."""
    inodes: set[str] = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in _read(Path(table)).decode().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and int(fields[1].rpartition(":")[2], 16) == port:
                inodes.add(f"socket:[{fields[9]}]")
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and inodes & _links(entry / "fd"):
            return f"pid {entry.name} ({command_of(int(entry.name))[:80]})"
    return None


def _links(folder: Path) -> set[str]:
    """Where the links in a folder point; those that vanish while being looked at are left out."""
    found: set[str] = set()
    try:
        entries = list(folder.iterdir())
    except OSError:
        return found
    for entry in entries:
        with suppress(OSError):
            found.add(str(entry.readlink()))
    return found
