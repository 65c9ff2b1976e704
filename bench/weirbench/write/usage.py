"""What the processes of an arm use: CPU time, bytes they have the kernel write, and the machine's context switches.

All of it by /proc (proc(5)). A process counts with its descendants, also with those that have ended and been waited
for: their CPU time is in `cutime` and `cstime` of their parent, their bytes in its `io`. A descendant that is itself
the first process of another group counts there alone.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_PROC = Path("/proc")


@dataclass(frozen=True)
class Usage:
    """Since the beginning of each process. `cpu_seconds` and `written_bytes` by group of processes."""

    cpu_seconds: Mapping[str, float]
    written_bytes: Mapping[str, int]
    # Of the whole machine since it was started.
    context_switches: int
    machine_user_seconds: float
    machine_system_seconds: float
    machine_idle_seconds: float

    def since(self, before: Usage) -> Usage:
        return Usage(
            {group: value - before.cpu_seconds[group] for group, value in self.cpu_seconds.items()},
            {group: value - before.written_bytes[group] for group, value in self.written_bytes.items()},
            self.context_switches - before.context_switches,
            self.machine_user_seconds - before.machine_user_seconds,
            self.machine_system_seconds - before.machine_system_seconds,
            self.machine_idle_seconds - before.machine_idle_seconds,
        )


@dataclass(frozen=True)
class _Stat:
    parent: int
    cpu_ticks: int


def _stats() -> dict[int, _Stat]:
    found: dict[int, _Stat] = {}
    for entry in _PROC.iterdir():
        if not entry.name.isdigit():
            continue
        try:
            text = (entry / "stat").read_text()
        except OSError:
            continue  # it has ended meanwhile
        # The program's name is in parentheses, and may have spaces and parentheses of its own.
        fields = text[text.rindex(")") + 2 :].split()
        found[int(entry.name)] = _Stat(int(fields[1]), sum(map(int, fields[11:15])))
    return found


def _tree(roots: Sequence[int], stats: Mapping[int, _Stat], others: Collection[int]) -> list[int]:
    children: dict[int, list[int]] = {}
    for pid, stat in stats.items():
        children.setdefault(stat.parent, []).append(pid)
    found: list[int] = []
    left = [pid for pid in roots if pid in stats]
    while left:
        pid = left.pop()
        found.append(pid)
        left.extend(child for child in children.get(pid, []) if child not in others)
    return found


def _written(pid: int) -> int:
    try:
        lines = (_PROC / str(pid) / "io").read_text().splitlines()
    except OSError:
        return 0
    return next(int(line.split()[1]) for line in lines if line.startswith("write_bytes:"))


def measure(groups: Mapping[str, Sequence[int]]) -> Usage:
    """`groups`: the first processes of each group, by pid."""
    stats = _stats()
    cpu: dict[str, float] = {}
    written: dict[str, int] = {}
    first = {pid for roots in groups.values() for pid in roots}
    for group, roots in groups.items():
        pids = _tree(roots, stats, first)
        cpu[group] = sum(stats[pid].cpu_ticks for pid in pids) / _TICKS_PER_SECOND
        written[group] = sum(map(_written, pids))
    lines = (_PROC / "stat").read_text().splitlines()
    user, nice, system, idle, iowait, irq, softirq = (int(word) for word in lines[0].split()[1:8])
    switches = next(int(line.split()[1]) for line in lines if line.startswith("ctxt "))
    return Usage(
        cpu,
        written,
        switches,
        (user + nice) / _TICKS_PER_SECOND,
        (system + irq + softirq) / _TICKS_PER_SECOND,
        (idle + iowait) / _TICKS_PER_SECOND,
    )


def wait_until_idle(share: float = 0.9, seconds: float = 60.0) -> bool:
    """Until the machine was idle by this share for a second; whether it became so in time."""
    cores = os.cpu_count() or 1
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        before = measure({})
        time.sleep(1)
        if measure({}).since(before).machine_idle_seconds >= share * cores:
            return True
    return False
