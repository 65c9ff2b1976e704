"""Processes named so that a recycled pid is never taken for the one that was started.

A process is known by pid, start time in clock ticks since boot, and boot id; all three must match before
anything is sent to it.
"""

import os
import signal
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path


def boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _stat(pid: int) -> tuple[str, int] | None:
    """State letter and start ticks, or None when there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The command may hold spaces and parentheses; everything after the last one is regular.
    fields = text[text.rindex(")") + 2 :].split()
    return fields[0], int(fields[19])


def _threads(pid: int) -> int:
    try:
        return len(os.listdir(f"/proc/{pid}/task"))  # noqa: PTH208  a count, not paths
    except (FileNotFoundError, ProcessLookupError):
        return 0


@dataclass(frozen=True)
class ProcessId:
    pid: int
    start_ticks: int
    boot: str

    @classmethod
    def of_running(cls, pid: int) -> "ProcessId | None":
        stat = _stat(pid)
        return None if stat is None else cls(pid, stat[1], boot_id())

    @classmethod
    def parse(cls, text: str) -> "ProcessId | None":
        parts = text.split()
        if len(parts) != 3 or not parts[0].isdigit() or not parts[1].isdigit():
            return None
        return cls(int(parts[0]), int(parts[1]), parts[2])

    def text(self) -> str:
        return f"{self.pid} {self.start_ticks} {self.boot}\n"

    def alive(self, boot: str | None = None) -> bool:
        """A zombie has done its last work and counts as dead, once its threads have too: a killed process keeps
        its ports until the last of them is gone. `boot`: what `boot_id` says, for who looks at many."""
        if self.boot != (boot or boot_id()):
            return False
        stat = _stat(self.pid)
        if stat is None or stat[1] != self.start_ticks or stat[0] == "X":
            return False
        return stat[0] != "Z" or _threads(self.pid) > 1

    def signal(self, number: signal.Signals) -> None:
        if self.alive():
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)


def find_by_arguments(arguments: Collection[str]) -> dict[str, ProcessId]:
    """Of each argument that a living process has, such a process. Looks once at every process of the machine, however
    many are asked for."""
    wanted = {argument.encode(): argument for argument in arguments}
    found: dict[str, ProcessId] = {}
    for name in os.listdir("/proc") if wanted else ():  # noqa: PTH208  names, thousands of them
        if not name.isdigit():
            continue
        try:
            given = Path(f"/proc/{name}/cmdline").read_bytes().split(b"\0")[1:]
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
        for argument in wanted.keys() & given:
            process = ProcessId.of_running(int(name))
            if process is not None and process.alive():
                found.setdefault(wanted[argument], process)
    return found
