"""Decoding WAL beside `pg_waldump --stats`, on the same segments.

Ours runs on one core and on all of them, and reads the files both ways it can: mapped, so that records are decoded
where they lie, and piece by piece, as pg_waldump does. A mapping is the least where the files lie in huge pages; in
pages of 4 KB each of them is a fault, and costs more than its copy.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import shutil
import statistics
import subprocess
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weirbench.postgres import PG_BIN
from weirbench.spread import spread

# How ours reads the files, and what has it do so.
READINGS: dict[str, list[str]] = {"mapped": ["--mapped"], "pieces": []}


def pinned(core: int, command: Sequence[str]) -> list[str]:
    return ["taskset", "-c", str(core), *command]


def ratio(theirs: Sequence[float], ours: Sequence[float]) -> float:
    return round(statistics.median(theirs) / statistics.median(ours), 2)


@dataclass(frozen=True)
class Cpu:
    """CPU seconds of a whole program, its start included: its own, and the kernel's, which mostly reads files. And
    seconds by the clock."""

    own: float
    kernel: float
    clock: float

    @property
    def all(self) -> float:
        return self.own + self.kernel


def cpu_of(command: Sequence[str], wanted: str) -> tuple[Cpu, str]:
    """What a whole program took, and what it printed."""
    earlier, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=1800)
    later, ended = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    if wanted not in done.stdout:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr}")
    return Cpu(later.ru_utime - earlier.ru_utime, later.ru_stime - earlier.ru_stime, ended - begun), done.stdout


@contextlib.contextmanager
def in_huge_pages(folder: Path, at: Path) -> Generator[Path | None]:
    """A copy of a folder's files in memory of huge pages, at a new folder; None where those may not be mounted."""
    at.mkdir()
    size = sum(file.stat().st_size for file in folder.rglob("*")) + (256 << 20)
    mount = ["mount", "-t", "tmpfs", "-o", f"huge=always,size={size},mode=755", "tmpfs", str(at)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        yield None
        return
    try:
        # Only the files: directories would take a huge page each.
        for file in folder.iterdir():
            if file.is_file():
                shutil.copy(file, at)
        yield at
    finally:
        subprocess.run(["umount", str(at)], check=True)


class Decoding:
    """Rounds of ours and pg_waldump's, each in turn."""

    def __init__(self, replay: Path, wal: Path, start: str, core: int, huge: bool) -> None:
        self.huge = huge
        self._command = [str(replay), "stats", str(wal), "--from", start]
        self._waldump = [str(PG_BIN / "pg_waldump"), "--stats", "-p", str(wal), "-s", start]
        self._core = core
        self._cores = len(os.sched_getaffinity(0))
        self._theirs: list[Cpu] = []
        # By how the files are read: on one core, and on all.
        self._one: dict[str, list[Cpu]] = {reading: [] for reading in READINGS}
        self._all: dict[str, list[Cpu]] = {reading: [] for reading in READINGS}

    def round(self, end: str) -> str:
        """One of each up to `end`, all of which must count the same records; says how long they took."""
        theirs, printed = cpu_of(pinned(self._core, [*self._waldump, "-e", end]), "Total")
        self._theirs.append(theirs)
        total = re.search(r"^Total\s+(\d+)", printed, re.MULTILINE)
        counted = {"pg_waldump": int(total[1]) if total else None}
        for reading, options in READINGS.items():
            command = [*self._command, *options]
            one, text = cpu_of(pinned(self._core, command), "records")
            self._one[reading].append(one)
            counted[f"{reading}, one core"] = json.loads(text)["records"]
            everywhere, text = cpu_of([*command, "--threads", str(self._cores)], "records")
            self._all[reading].append(everywhere)
            counted[f"{reading}, {self._cores} cores"] = json.loads(text)["records"]
        if len(set(counted.values())) != 1:
            raise RuntimeError(f"not all count the same records: {counted}")
        one, everywhere = self._one[self.reading][-1], self._all[self.reading][-1]
        return (
            f"decode {one.all:.3f} s, pg_waldump {theirs.all:.3f} s; "
            f"by the clock {everywhere.clock:.3f} s on {self._cores} cores, pg_waldump {theirs.clock:.3f} s"
        )

    @property
    def reading(self) -> str:
        """How ours reads where the two are compared: what is less for files that lie as these do."""
        return "mapped" if self.huge else "pieces"

    def ratios(self, reading: str) -> dict[str, float]:
        theirs, one = self._theirs, self._one[reading]
        return {
            "decode_ratio_vs_pg_waldump": ratio([c.clock for c in theirs], [c.clock for c in self._all[reading]]),
            "decode_ratio_one_core": ratio([c.all for c in theirs], [c.all for c in one]),
            "decode_ratio_without_kernel": ratio([c.own for c in theirs], [c.own for c in one]),
        }

    def cpu_seconds(self) -> list[float]:
        """CPU seconds of ours on one core, one for each round, read as `reading` says."""
        return [cpu.all for cpu in self._one[self.reading]]

    def report(self, wal_bytes: int) -> dict[str, Any]:
        return {
            "read": self.reading,
            "cores": self._cores,
            "pg_waldump_cpu_seconds": spread([cpu.all for cpu in self._theirs]),
            "pg_waldump_kernel_seconds": spread([cpu.kernel for cpu in self._theirs]),
            "pg_waldump_clock_seconds": spread([cpu.clock for cpu in self._theirs]),
            **{f"ours_{reading}": self._ours(reading, wal_bytes / 1e6) for reading in READINGS},
        }

    def _ours(self, reading: str, megabytes: float) -> dict[str, Any]:
        one, clock = self._one[reading], [cpu.clock for cpu in self._all[reading]]
        return {
            **self.ratios(reading),
            "cpu_seconds": spread([cpu.all for cpu in one]),
            "kernel_seconds": spread([cpu.kernel for cpu in one]),
            "all_cores_clock_seconds": spread(clock),
            "mb_per_second": round(megabytes / statistics.median(cpu.all for cpu in one)),
            "all_cores_mb_per_second": round(megabytes / statistics.median(clock)),
        }
