"""What encryption costs ingest: the same WAL taken in with it and without it, in turn."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from weir.cli.encryption import named, render

from .spread import spread

# With the setting on and off: options of the measuring program, by arm.
Ingest = Callable[[str, list[str]], Mapping[str, Any]]


def key_file(folder: Path) -> Path:
    """A key file of one key, for this measurement alone."""
    path = folder / "storage_keys"
    path.touch(mode=0o600)
    path.write_text(render([named(secrets.token_bytes(32))]))
    return path


def measure(folder: Path, workloads: list[str], rounds: int, ingest: Ingest) -> dict[str, Any]:
    """`ingest` takes the WAL of a workload in with these options, and answers with the figures of the stretch."""
    arms = {"off": [], "on": ["--key-file", str(key_file(folder))]}
    found: dict[str, Any] = {}
    for workload in workloads:
        seconds: dict[str, list[float]] = {name: [] for name in arms}
        wal_bytes = 0
        for number in range(rounds):
            # Who is first in one round is second in the next.
            for name in sorted(arms, reverse=bool(number % 2)):
                stretch = ingest(workload, arms[name])
                wal_bytes = stretch["wal_bytes"]
                seconds[name].append(stretch["cpu_seconds"])
        found[workload] = compared(seconds, wal_bytes)
    return {"encryption": found}


def compared(seconds: Mapping[str, list[float]], wal_bytes: int) -> dict[str, Any]:
    """CPU seconds of both arms, round by round, and by how much the one with encryption is above the other."""
    ratios = [on / off - 1 for on, off in zip(seconds["on"], seconds["off"], strict=True)]
    return {
        "wal_mib": round(wal_bytes / (1 << 20), 1),
        "cpu_seconds": {name: spread(values, 3) for name, values in seconds.items()},
        "cost": spread(ratios, 4),
    }
