"""Watching a rollout over a simulated fleet from outside: members' times in the metadata store, the worker's memory,
the lengths of workflow histories, the console's pages.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
from temporalio.client import Client

CONSOLE_SCRIPT = Path(__file__).with_name("console_time.mjs")


def resident_mib(pid: int) -> float:
    """Resident memory of a process now, in MiB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"process {pid} has no VmRSS; it has ended")


def cpu_seconds(pid: int) -> float:
    """User and system time so far of a process, its ended children and its living ones."""
    own = _stat(Path(f"/proc/{pid}/stat"))
    if own is None:
        raise RuntimeError(f"process {pid} has ended")
    ticks = sum(int(field) for field in own[11:15])
    for entry in Path("/proc").glob("[0-9]*/stat"):
        child = _stat(entry)
        if child is not None and int(child[1]) == pid:
            ticks += int(child[11]) + int(child[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def _stat(path: Path) -> list[str] | None:
    """The fields after the command's name; None when the process is gone."""
    try:
        return path.read_text().rpartition(")")[2].split()
    except OSError:
        return None


@dataclass
class Sampler(threading.Thread):
    """The worker's memory each half second; the peak is what counts."""

    pid: int
    every: float = 0.5
    samples: list[float] = field(default_factory=list[float])

    def __post_init__(self) -> None:
        super().__init__(daemon=True)
        self._end = threading.Event()

    def __hash__(self) -> int:
        return id(self)

    def run(self) -> None:
        while not self._end.wait(self.every):
            try:
                self.samples.append(resident_mib(self.pid))
            except (OSError, RuntimeError):
                return

    def stop(self) -> float:
        """The peak in MiB. Raises when the worker ended meanwhile: a restarted one would look small."""
        self._end.set()
        self.join()
        self.samples.append(resident_mib(self.pid))
        return max(self.samples)


@dataclass(frozen=True)
class Progress:
    """How many members of a rollout have been switched, confirmed and taken back, and when first and last (seconds
    since the epoch; None for never)."""

    switched: int
    confirmed: int
    back: int
    first_switch: float | None
    last_switch: float | None
    last_confirm: float | None
    last_back: float | None


_PROGRESS = """
SELECT count(switched_at), count(confirmed_at), count(rolled_back_at),
       extract(epoch FROM min(switched_at))::float8, extract(epoch FROM max(switched_at))::float8,
       extract(epoch FROM max(confirmed_at))::float8, extract(epoch FROM max(rolled_back_at))::float8
FROM rollout_members WHERE rollout_id = %s
"""
_AROUND = """
SELECT extract(epoch FROM max(switched_at) FILTER (WHERE switched_at < to_timestamp(%(resume)s)))::float8,
       extract(epoch FROM min(switched_at) FILTER (WHERE switched_at >= to_timestamp(%(resume)s)))::float8
FROM rollout_members WHERE rollout_id = %(rollout)s
"""


class Store:
    """Read-only looks into the metadata store."""

    def __init__(self, database_url: str) -> None:
        self._connection = psycopg.connect(database_url.replace("+psycopg", ""), autocommit=True)

    def progress(self, rollout_id: str) -> Progress:
        row = self._connection.execute(_PROGRESS, (rollout_id,)).fetchone()
        assert row is not None  # noqa: S101  an aggregate has a row
        return Progress(*row)

    def around_pause(self, rollout_id: str, resumed_at: float) -> tuple[float | None, float | None]:
        """The last switch before a resume was asked for, and the first after it."""
        row = self._connection.execute(_AROUND, {"rollout": rollout_id, "resume": resumed_at}).fetchone()
        assert row is not None  # noqa: S101
        return row[0], row[1]

    def full_page_writes_off(self) -> int:
        row = self._connection.execute("SELECT count(*) FROM endpoints WHERE NOT full_page_writes").fetchone()
        assert row is not None  # noqa: S101
        return row[0]

    def close(self) -> None:
        self._connection.close()


def histories(address: str) -> dict[str, dict[str, int]]:
    """By workflow type: how many runs there were, and the longest history among them, in events and bytes."""

    async def read() -> dict[str, dict[str, int]]:
        client = await Client.connect(address)
        found: dict[str, dict[str, int]] = {}
        async for run in client.list_workflows():
            if not run.workflow_type.startswith(("rollout", "fleet_rol")):
                continue
            entry = found.setdefault(run.workflow_type, {"runs": 0, "longest_events": 0, "longest_bytes": 0})
            described = await client.get_workflow_handle(run.id, run_id=run.run_id).describe()
            info = described.raw_description.workflow_execution_info
            entry["runs"] += 1
            entry["longest_events"] = max(entry["longest_events"], int(info.history_length))
            entry["longest_bytes"] = max(entry["longest_bytes"], int(info.history_size_bytes))
        return found

    return asyncio.run(read())


def console_pages(url: str, api_key: str, pages: Sequence[dict[str, str]], e2e: Path) -> list[dict[str, Any]]:
    """Opens pages of the console in a headless Chromium, each several times; milliseconds until each shows its
    heading and its data, by the browser's own clock. See `console_time.mjs`."""
    request = {"url": url, "api_key": api_key, "pages": list(pages)}
    done = subprocess.run(
        ["node", str(CONSOLE_SCRIPT), str(e2e)],
        input=json.dumps(request),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"the console could not be timed: {done.stderr.strip()[-800:]}")
    return json.loads(done.stdout)


def wait(what: str, done: Any, seconds: float, every: float = 0.25) -> None:
    """Until `done()` is true; a TimeoutError that names what was waited for otherwise."""
    deadline = time.monotonic() + seconds
    while not done():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {seconds:.0f} s")
        time.sleep(every)
