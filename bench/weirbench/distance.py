"""One run of a fixed number of transactions on a fresh copy of a loaded Postgres, and what its WAL was made of.

The figures come from the WAL itself: `pg_walinspect` reads the records between two positions that `wal_keep_size`
keeps on disk. Nothing depends on how fast the machine was, but for where a checkpoint falls between two transactions.
"""

from __future__ import annotations

import os
import re
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .postgres import PG_BIN, free_port, query, unprivileged

MIB = 1 << 20

# TPC-B's statements as pgbench's built-in script has them, sent in one round trip: what is measured is bytes, and so
# more transactions fit into the time.
SCRIPT = r"""\set aid random(1, 100000 * :scale)
\set bid random(1, 1 * :scale)
\set tid random(1, 10 * :scale)
\set delta random(-5000, 5000)
\startpipeline
BEGIN;
UPDATE pgbench_accounts SET abalance = abalance + :delta WHERE aid = :aid;
SELECT abalance FROM pgbench_accounts WHERE aid = :aid;
UPDATE pgbench_tellers SET tbalance = tbalance + :delta WHERE tid = :tid;
UPDATE pgbench_branches SET bbalance = bbalance + :delta WHERE bid = :bid;
INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) VALUES (:tid, :bid, :aid, :delta, CURRENT_TIMESTAMP);
END;
\endpipeline
"""

# pgbench's own rows are mostly blanks, which compress to next to nothing; half of each account's filler is hex digits
# here, so that compressed images are not flattered.
ROWS = """INSERT INTO pgbench_branches (bid, bbalance) SELECT bid, 0 FROM generate_series(1, {scale}) AS bid;
INSERT INTO pgbench_tellers (tid, bid, tbalance) SELECT tid, (tid - 1) / 10 + 1, 0
FROM generate_series(1, 10 * {scale}) AS tid;
INSERT INTO pgbench_accounts (aid, bid, abalance, filler)
SELECT aid, (aid - 1) / 100000 + 1, 0, left(md5(aid::text) || md5((-aid)::text), 42)
FROM generate_series(1, 100000 * {scale}) AS aid"""

# What every arm and distance has alike. Durability is off because a benchmark's loss is no loss and it changes no
# byte of WAL; autovacuum and the clock's checkpoints are off because they would add WAL that depends on the time.
COMMON: Mapping[str, str] = {
    "listen_addresses": "''",
    "shared_buffers": "'512MB'",
    "min_wal_size": "'32MB'",
    "checkpoint_timeout": "'1d'",
    "checkpoint_completion_target": "0.9",
    "wal_level": "replica",
    "wal_keep_size": "'64GB'",
    "wal_init_zero": "off",
    "autovacuum": "off",
    "synchronous_commit": "off",
    "fsync": "off",
}

ARMS: Mapping[str, Mapping[str, str]] = {
    "full_page_writes": {"full_page_writes": "on", "wal_compression": "off"},
    "full_page_writes_lz4": {"full_page_writes": "on", "wal_compression": "lz4"},
    "pushdown": {"full_page_writes": "off", "wal_compression": "off"},
}


@dataclass(frozen=True)
class Load:
    """What every run does: `transactions` of `clients` together, on `scale` * 100,000 accounts."""

    scale: int
    transactions: int
    clients: int
    seed: int


@dataclass(frozen=True)
class Run:
    """The WAL of one run: `wal_bytes` is the distance between two positions, page headers and padding included;
    `image_bytes` and `record_bytes` are the page images, and the records without them."""

    arm: str
    max_wal_size_bytes: int
    transactions: int
    wal_bytes: int
    image_bytes: int
    record_bytes: int
    checkpoints: int
    seconds: float


class RunError(Exception):
    """A run that cannot be counted; the message says what was wrong."""


class Template:
    """A loaded cluster below a temporary directory, copied for each run so that all begin alike."""

    def __init__(self, folder: Path, load: Load) -> None:
        self._folder = folder
        self._load = load
        self._data = folder / "template"
        (folder / "script.sql").write_text(SCRIPT)
        words = ["-U", "postgres", "--auth=trust", "--no-sync", "--no-locale", "--encoding=UTF8"]
        self._call(str(PG_BIN / "initdb"), "-D", str(self._data), *words)
        with self._server(self._data, {**COMMON, "max_wal_size": "'4GB'"}) as uri:
            load_step = [str(PG_BIN / "pgbench"), "-i", "-q", "-s", str(load.scale)]
            self._call(*load_step, "-I", "dt", uri)
            query(uri, ROWS.format(scale=load.scale), timeout=600)
            self._call(*load_step, "-I", "vp", uri)
            query(uri, "CREATE EXTENSION pg_walinspect")
            self.version = query(uri, "SHOW server_version")
            self.database_bytes = int(query(uri, "SELECT pg_database_size(current_database())"))
        for segment in sorted((self._data / "pg_wal").glob("[0-9A-F]" * 24))[:-1]:
            # Not needed by a cluster that was shut down, and copied with each run otherwise.
            segment.unlink()

    def _call(self, *command: str, timeout: float = 900) -> str:
        done = subprocess.run(
            [*unprivileged(), *command],
            cwd=self._folder,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        if done.returncode != 0:
            raise RunError(f"{Path(command[0]).name} failed: {done.stderr.strip()[-2000:]}")
        return done.stdout

    @contextmanager
    def _server(self, data: Path, settings: Mapping[str, str]) -> Generator[str]:
        port = free_port()
        options = {**settings, "port": str(port), "unix_socket_directories": f"'{self._folder}'"}
        (data / "postgresql.auto.conf").write_text("".join(f"{name} = {value}\n" for name, value in options.items()))
        control = [str(PG_BIN / "pg_ctl"), "-D", str(data), "-w", "-t", "120"]
        self._call(*control, "-l", str(self._folder / "log"), "start")
        try:
            yield f"postgresql://postgres@/postgres?host={self._folder}&port={port}"
        finally:
            self._call(*control, "-m", "fast", "stop")

    def run(self, arm: str, max_wal_size_bytes: int) -> Run:
        """Postgres and the WAL it keeps are gone when this returns."""
        data = self._folder / "run"
        settings = {**COMMON, **ARMS[arm], "max_wal_size": f"'{max_wal_size_bytes // MIB}MB'"}
        try:
            shutil.copytree(self._data, data)
            if os.geteuid() == 0:
                self._own(data)
            with self._server(data, settings) as uri:
                before = _checkpoint(uri)
                start = query(uri, "SELECT pg_current_wal_insert_lsn()")
                begun = time.monotonic()
                self._drive(uri)
                seconds = time.monotonic() - begun
                end = _flushed(uri)
                records, images, wal = _volume(uri, start, end)
                checkpoints = _checkpoint(uri) - before - 1
                return Run(
                    arm, max_wal_size_bytes, self._load.transactions, wal, images, records, checkpoints, seconds
                )
        finally:
            shutil.rmtree(data, ignore_errors=True)

    def _own(self, data: Path) -> None:
        data.chmod(0o700)
        for folder, _, files in os.walk(data):
            shutil.chown(folder, "postgres", "postgres")
            for name in files:
                shutil.chown(Path(folder) / name, "postgres", "postgres")

    def _drive(self, uri: str) -> None:
        load = self._load
        each = load.transactions // load.clients
        output = self._call(
            str(PG_BIN / "pgbench"), "-n", "-M", "prepared", "-s", str(load.scale), "-c", str(load.clients),
            "-t", str(each), "-f", str(self._folder / "script.sql"), f"--random-seed={load.seed}", uri,
        )  # fmt: skip
        processed = re.search(r"transactions actually processed: (\d+)/(\d+)", output)
        if processed is None or processed[1] != processed[2] or int(processed[1]) != load.transactions:
            raise RunError(f"pgbench did not do all {load.transactions} transactions:\n{output}")


def _flushed(uri: str) -> str:
    """The end of the WAL written so far, once it is on disk, where `pg_walinspect` reads it."""
    end = query(uri, "SELECT pg_current_wal_insert_lsn()")
    deadline = time.monotonic() + 30
    while query(uri, f"SELECT pg_current_wal_flush_lsn() >= '{end}'") != "t":
        if time.monotonic() > deadline:
            raise RunError(f"the WAL up to {end} was not flushed within 30 s")
        time.sleep(0.05)
    return end


def _volume(uri: str, start: str, end: str) -> tuple[int, int, int]:
    """Bytes of records without page images, of page images, and of all the WAL from `start` to `end`."""
    rows = query(
        uri,
        "SELECT coalesce(sum(record_size), 0), coalesce(sum(fpi_size), 0), "  # noqa: S608  the server's own LSNs
        f"pg_wal_lsn_diff('{end}', '{start}') FROM pg_get_wal_stats('{start}', '{end}')",
    )
    records, images, wal = (int(float(value)) for value in rows.split("|"))
    if not 0 <= wal - records - images <= wal // 20:
        raise RunError(
            f"{records} + {images} bytes of records do not explain {wal} bytes of WAL from {start} to {end}"
        )
    return records, images, wal


def _checkpoint(uri: str) -> int:
    """Makes a checkpoint, behind any that is under way, and returns how many have begun so far, this one included.

    It is begun ones that cost images, and the checkpointer hands in its count a little after it answers."""
    counted = "SELECT checkpoints_req + checkpoints_timed FROM pg_stat_bgwriter"
    before = int(query(uri, counted))
    query(uri, "CHECKPOINT")
    deadline, last = time.monotonic() + 30, before
    while True:
        time.sleep(0.2)
        now = int(query(uri, counted))
        if now > before and now == last:
            return now
        if time.monotonic() > deadline:
            raise RunError("the checkpointer did not count a checkpoint within 30 s of making it")
        last = now


@contextmanager
def template(load: Load) -> Generator[Template]:
    """A template in a temporary directory that is removed afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="weir-distance-"))
    try:
        if os.geteuid() == 0:
            shutil.chown(folder, "postgres", "postgres")
        yield Template(folder, load)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def series(runs: Iterable[Run]) -> list[dict[str, Any]]:
    """One point for each distance and arm: the run with the median WAL volume, whose parts so add up, and the
    smallest and largest volume of its repeats. By arm, then distance."""
    points: dict[tuple[str, int], list[Run]] = {}
    for run in runs:
        points.setdefault((run.arm, run.max_wal_size_bytes), []).append(run)
    order = list(ARMS)
    chosen: list[dict[str, Any]] = []
    for _, repeats in sorted(points.items(), key=lambda item: (order.index(item[0][0]), item[0][1])):
        chosen.append(_point(repeats))
    return chosen


def _point(repeats: Sequence[Run]) -> dict[str, Any]:
    by_volume = sorted(repeats, key=lambda run: run.wal_bytes)
    median = by_volume[(len(by_volume) - 1) // 2]
    figures = asdict(median)
    figures.pop("seconds")
    return {
        **figures,
        "wal_bytes_per_transaction": round(median.wal_bytes / median.transactions, 1),
        "image_bytes_per_transaction": round(median.image_bytes / median.transactions, 1),
        "wal_bytes_min": by_volume[0].wal_bytes,
        "wal_bytes_max": by_volume[-1].wal_bytes,
        "repeats": len(by_volume),
        "seconds_median": round(statistics.median(run.seconds for run in repeats), 2),
    }
