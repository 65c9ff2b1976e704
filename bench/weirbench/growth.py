"""One database that grows by COPY, and its pageserver's figures at each size.

The WAL comes in pieces: what the pageserver has made durable is deleted before Postgres writes more, so that the disk
holds the database, what storage makes of it, and one piece.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .dialogue import Dialogue
from .recorded import Recorded

MIB = 1 << 20
# Of the table, between two stops of Postgres.
PIECE_MB = 1000
# 200 bytes a row in the heap, half of them the same in each row.
ROWS_PER_MB = 4600
# Rows that lie in a file on their way.
ROWS_AT_A_TIME = 256 * ROWS_PER_MB
LINE = (
    "SELECT i, (i::bigint * 7919) % 1000003, md5(i::text) || md5((i::bigint * 31)::text), repeat('weir ', 16) "
    "FROM generate_series({first}, {last}) i"
)


def grow(cluster: Recorded, done: int, upto: int) -> str:
    """Rows `done` + 1 to `upto` by COPY; where the WAL ends. The table is made first if there is none."""
    cluster.start({"full_page_writes": "off", "max_wal_size": "4GB"})
    if done == 0:
        cluster.sql("CREATE TABLE bulk (id bigint PRIMARY KEY, k int, digest text, pad text)")
    path = cluster.folder / "socket/rows"
    while done < upto:
        last = min(upto, done + ROWS_AT_A_TIME)
        cluster.sql(f"COPY ({LINE.format(first=done + 1, last=last)}) TO '{path}'")
        cluster.sql(f"COPY bulk FROM '{path}'")
        done = last
    path.unlink(missing_ok=True)
    return cluster.stop()


def pieces(sizes_mb: Sequence[int]) -> list[tuple[int, bool]]:
    """Sizes to grow to in turn, and whether each ends a step."""
    found: list[tuple[int, bool]] = []
    at = 0
    for size in sizes_mb:
        while at + PIECE_MB < size:
            at += PIECE_MB
            found.append((at, False))
        at = size
        found.append((at, True))
    return found


def segment_of(lsn: str) -> str:
    """The WAL segment of 16 MiB that holds a position, without its timeline."""
    high, low = (int(part, 16) for part in lsn.split("/"))
    return f"{high:08X}{low >> 24:08X}"


def forget_wal(wal: Path, upto: str) -> None:
    """Deletes the segments before the one that holds `upto`, but for the last: the checkpoint that Postgres starts
    from may begin there."""
    keep = segment_of(upto)
    for file in sorted(file for file in wal.iterdir() if len(file.name) == 24 and file.name[8:] < keep)[:-1]:
        file.unlink()


def row(size_mb: int, step: dict[str, Any]) -> dict[str, Any]:
    """One step of the series."""
    written = step["until_quiet"]["flushed_bytes"] + step["until_quiet"]["compacted_bytes"]
    return {
        "table_gb": size_mb / 1000,
        "data_gb": round(step["data_bytes"] / 1e9, 3),
        "ingest_mib_s_per_core": round(step["wal_bytes"] / MIB / step["cpu_seconds"], 1),
        "ingest_mib_s_wall": round(step["wal_bytes"] / MIB / step["seconds"], 1),
        "l0_max": step["l0_max"],
        "bytes_written_per_wal_byte": round(written / step["wal_bytes"], 2),
        "stored_bytes_per_data_byte": round(step["stored_bytes"] / step["data_bytes"], 3),
        "getpage_us": {
            how: {"p50": round(float(np.percentile(us, 50)), 1), "p99": round(float(np.percentile(us, 99)), 1)}
            for how, us in step["getpage_us"].items()
        },
    }


def measure(
    bench: Path, folder: Path, sizes_gb: Sequence[float], urgent: Sequence[str], progress: Callable[[str], None]
) -> dict[str, Any]:
    """The series, and how many level-0 layers there were as WAL came in. RuntimeError if the pageserver ends before
    it."""
    cluster = Recorded.prepared(bench, folder)
    series = []
    level_0: list[list[int]] = []
    done, relation, peak = 0, "", 0
    try:
        with Dialogue([*urgent, bench, "grow", "--objects", cluster.objects, "--wal", cluster.wal]) as server:
            for size, ends_step in pieces([round(gb * 1000) for gb in sizes_gb]):
                progress(f"COPY up to {size} MB")
                end = grow(cluster, done * ROWS_PER_MB, size * ROWS_PER_MB)
                done = size
                server.ask(f"take {end}")
                peak = max(peak, used(folder))
                forget_wal(cluster.wal, end)
                if not ends_step:
                    continue
                relation = relation or relation_of(cluster)
                step = server.ask(f"settle {relation}")
                level_0 += step["l0"]
                figures = row(size, step)
                peak = max(peak, used(folder))
                series.append({**figures, "disk_gb_at_most": round(peak / 1e9, 2)})
                progress(f"growth: {series[-1]}")
            server.end()
    finally:
        cluster.stop()
    shutil.rmtree(folder)
    first = level_0[0][0]
    return {
        "growth": series,
        "l0_by_wal_mib": [[round((lsn - first) / MIB, 1), count] for lsn, count in level_0],
    }


def relation_of(cluster: Recorded) -> str:
    """The table's file number."""
    cluster.start({})
    number = cluster.sql("SELECT pg_relation_filenode('bulk')")
    cluster.stop()
    return number


def used(folder: Path) -> int:
    """Bytes on the disk below a directory."""
    done = subprocess.run(["du", "-s", "-B1", str(folder)], capture_output=True, text=True, check=True)
    return int(done.stdout.split()[0])
