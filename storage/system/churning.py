"""Everything that an engine is asked to make and to remove, in a loop, and what may not grow with it.

A cycle creates, fills, changes, truncates and drops tables on a compute that stays, makes a branch, at times with a
compute of its own, and deletes it, and at times makes and deletes a database and a whole tenant. After each cycle it
is counted what the programs hold in memory, on disk and in the object store. What has been removed must not be paid
for: after the first cycles no figure grows (`grown`).
"""

from __future__ import annotations

import contextlib
import itertools
import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import psycopg
from entries import entries
from harness import Compute, Engine, Process, Timeline, engine, metric, wait_for
from trends import rise

KIB = 1 << 10
MIB = 1 << 20
# Small layers and a short history, so that each cycle is flushed, compacted and forgotten within the next ones.
SETTINGS = {
    "checkpoint_distance_bytes": MIB,
    "checkpoint_timeout_ms": 1_000,
    "compaction_threshold": 4,
    "compaction_target_bytes": MIB,
    "history_window_seconds": 5,
}
#: Of the engine: finished WAL goes to the object store at once, and leaves it once it is durable as pages.
OFFLOADING = ["--object-store", "file://{objects}", "--offload-idle-seconds", "1", "--offload-keep-seconds", "1"]
#: Of the pageserver: caches that are full within the first cycles, and tombstones that go within the next ones.
CACHES = [
    *("--block-cache-mib=8", "--page-cache-mib=8", "--recent-layers-mib=8", "--memory-mib=64"),
    "--tombstone-seconds=5",
]
#: Of the programs: glibc counts as in use what a thread has freed and keeps for itself, up to hundreds of kilobytes,
#: which come together over hours. No thread keeps anything here, so that what grows is what nothing frees.
EXACT = {"GLIBC_TUNABLES": "glibc.malloc.tcache_count=0"}
#: Of the compute: what Postgres keeps of dropped relations is vacuumed soon, and is none of ours.
POSTGRES = {"autovacuum_naptime": "1s", "autovacuum_vacuum_cost_delay": "0", "max_wal_size": "64MB"}
TABLES = 12
ROWS = 400


@dataclass(frozen=True)
class Figure:
    """What is counted, in `unit`. From the middle third of a run to its last one, the median may grow by `share` of
    itself and `slack`: what noise and the time of a look make, far below what a leak makes in a long run. Over
    a long run its line may rise by `rise` with each cycle; None where the kernel or an allocator decides what
    stays."""

    name: str
    unit: str
    slack: float
    rise: float | None
    share: float = 0.1


#: Rises of what is counted one by one: one more in so many cycles.
ONE_IN_20 = 1 / 20
ONE_IN_50 = 1 / 50
# Memory that is in use, by the programs' own account: what the kernel has them hold grows for minutes without a leak,
# because an allocator keeps much of what is given back, a share for each thread.
FIGURES = (
    Figure("pageserver_allocated", "bytes", 12 * MIB, 4 * KIB),
    Figure("pageserver_versions", "bytes", 4 * MIB, 4 * KIB),
    Figure("pageserver_series", "series", 12, ONE_IN_50),
    Figure("pageserver_descriptors", "descriptors", 24, ONE_IN_50),
    Figure("pageserver_counted_pages", "pages", 64, ONE_IN_20),
    Figure("safekeepers_allocated", "bytes", 6 * MIB, 3 * KIB),
    Figure("safekeepers_series", "series", 12, ONE_IN_50),
    Figure("safekeepers_descriptors", "descriptors", 24, ONE_IN_50),
    Figure("agent_allocated", "bytes", 6 * MIB, 2 * KIB),
    Figure("index", "bytes", 4096, 1),
    Figure("layers", "layers", 6, ONE_IN_50),
    Figure("layer_bytes", "bytes", 2 * MIB, 8 * KIB),
    # What layers say of relations that are gone: of those whose drop is no history yet, and of those whose history is
    # too little to be worth a merge.
    Figure("relation_entries", "entries", 1500, 1),
    Figure("objects", "objects", 24, ONE_IN_50),
    Figure("object_bytes", "bytes", 8 * MIB, 8 * KIB),
    Figure("entries_of_pageserver", "entries", 8, ONE_IN_50),
    Figure("entries_of_safekeepers", "entries", 12, ONE_IN_50),
    Figure("entries_of_objects", "entries", 32, ONE_IN_50),
)
#: Of a run that is long enough for allocators to come to rest: memory as the kernel has it, too.
SOAK_FIGURES = (
    *FIGURES,
    Figure("pageserver_rss", "bytes", 24 * MIB, None),
    Figure("safekeepers_rss", "bytes", 12 * MIB, None),
    Figure("agent_rss", "bytes", 24 * MIB, None),
)
#: Cycles in each half of a run from which on a line is told from noise. What a cycle does repeats after 60.
LINE_CYCLES = 200
#: Memory in use is looked at so often for a sample, so many seconds apart.
LOOKS_AT_MEMORY = 3
BETWEEN_LOOKS = 0.2
Sample = dict[str, float]


@contextlib.contextmanager
def churning(root: Path) -> Iterator[Engine]:
    """An engine for `Churn`."""
    safekeepers = dict.fromkeys((1, 2, 3), EXACT)
    with engine(
        root,
        pageserver_options=CACHES,
        pageserver_environment=EXACT,
        safekeeper_options=OFFLOADING,
        safekeeper_environments=safekeepers,
    ) as running:
        yield running


def grown(samples: Sequence[Mapping[str, float]], figures: Sequence[Figure] = FIGURES) -> list[str]:
    """The figures that grow, each with its medians, from samples in the order of time. The first third, in which
    caches fill, says nothing. Raises ValueError for fewer than nine samples: three thirds of at least three."""
    third = len(samples) // 3
    if third < 3:
        raise ValueError(f"{len(samples)} samples are too few to tell growth from noise; run longer")
    found: list[str] = []
    for figure in figures:
        middle = statistics.median(sample[figure.name] for sample in samples[-2 * third : -third])
        last = statistics.median(sample[figure.name] for sample in samples[-third:])
        if last > middle * (1 + figure.share) + figure.slack:
            found.append(f"{figure.name} grew from {middle:,.0f} to {last:,.0f} {figure.unit}")
    return found


def lines(samples: Sequence[Mapping[str, float]], figures: Sequence[Figure] = SOAK_FIGURES) -> Sample:
    """By how much each figure rises with each cycle, in all of the run. Raises ValueError for fewer samples than two
    halves of `LINE_CYCLES`."""
    if not are_enough_for_lines(samples):
        raise ValueError(f"{len(samples)} samples are too few to tell a line from noise; run longer")
    return {figure.name: rise([sample[figure.name] for sample in samples]) for figure in figures}


def are_enough_for_lines(samples: Sequence[Mapping[str, float]]) -> bool:
    return len(samples) >= 2 * LINE_CYCLES


def rising(found: Mapping[str, float], figures: Sequence[Figure] = SOAK_FIGURES) -> list[str]:
    """The figures of which `lines` found that they rise by more than they may."""
    return [
        f"{figure.name} rises by {found[figure.name]:,.2f} {figure.unit} a cycle, more than {figure.rise:,.2f}"
        for figure in figures
        if figure.rise is not None and found[figure.name] > figure.rise
    ]


@dataclass
class Churn:
    """The loop on one engine, which the caller has from `churning`."""

    engine: Engine
    say: Callable[[str], None]
    cycles: int = 0
    samples: list[Sample] = field(default_factory=list)
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def __post_init__(self) -> None:
        self.main = self.engine.create_timeline()
        self.engine.configure_tenant(self.main.tenant, **SETTINGS)
        self.compute = self.engine.compute(self.main, environment=EXACT, settings=POSTGRES)
        self.compute.sql("CREATE TABLE kept (i int PRIMARY KEY, t text)")
        self.compute.sql("INSERT INTO kept SELECT i, md5(i::text) FROM generate_series(1, 2000) i")
        self.begun = time.monotonic()

    def run(self, seconds: float, fewest: int = 0) -> None:
        """Whole cycles until the time is over, and so many at least: a busy machine makes few in that time."""
        until = self.begun + seconds
        while time.monotonic() < until or self.cycles < fewest:
            self.cycle()

    def cycle(self) -> None:
        self.cycles += 1
        self._tables(self.compute, TABLES)
        self._branch(with_compute=self.cycles % 4 == 0)
        if self.cycles % 3 == 0:
            self._database()
        if self.cycles % 5 == 0:
            self._tenant()
        self._kept()
        self._rest()
        sample = {"at": time.monotonic() - self.begun, **self._look()}
        self.samples.append(sample)
        if self.cycles % 10 == 0:
            self.say(
                f"cycle {self.cycles}: {sample['objects']:.0f} objects, index {sample['index']:,.0f} bytes, "
                f"pageserver {sample['pageserver_allocated'] / MIB:.0f} MiB in use of "
                f"{sample['pageserver_rss'] / MIB:.0f}, {sample['pageserver_series']:.0f} series"
            )

    def _tables(self, compute: Compute, count: int) -> None:
        # Never a name again: a branch is made where the pageserver is, which may lack the last drop of its parent.
        names = [f"t_{next(self._numbers)}" for _ in range(count)]
        with compute.connect() as session:
            for name in names:
                session.execute(f"CREATE TABLE {name} (i int PRIMARY KEY, t text)".encode())
                session.execute(
                    f"INSERT INTO {name} SELECT i, repeat(md5(i::text), 8) FROM generate_series(1, {ROWS}) i".encode()
                )
            for number, name in enumerate(names):
                session.execute(f"UPDATE {name} SET t = md5(t) WHERE i % 3 = 0".encode())
                if number % 2 == 0:
                    session.execute(f"TRUNCATE {name}".encode())
                    session.execute(f"INSERT INTO {name} VALUES (1, 'again')".encode())
            session.execute(f"DROP TABLE {', '.join(names)}".encode())

    def _branch(self, *, with_compute: bool) -> None:
        branch = self.engine.branch(self.main)
        if with_compute:
            compute = self.engine.compute(branch, settings=POSTGRES)
            self._tables(compute, 2)
            self._end(compute)
        self._delete_timeline(branch)

    def _end(self, compute: Compute) -> None:
        compute.suspend()
        compute.http.close()
        self.engine.computes.remove(compute)

    def _database(self) -> None:
        name = f"db_{self.cycles}"
        with self.compute.admin() as session:
            session.execute(f"CREATE DATABASE {name}".encode())
            session.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())

    def _tenant(self) -> None:
        timeline = self.engine.create_timeline()
        compute = self.engine.compute(timeline, settings=POSTGRES)
        self._tables(compute, 2)
        self._end(compute)
        self._delete_timeline(timeline)
        self.engine.storage.delete(f"/v1/tenant/{timeline.tenant}").raise_for_status()

    def _delete_timeline(self, timeline: Timeline) -> None:
        """At the pageserver and its logs, in either order: as the control plane does it, the pageserver is first."""
        path = f"/v1/tenant/{timeline.tenant}/timeline/{timeline.id}"
        logs_first = self.cycles % 2 == 0
        if logs_first:
            self._delete_logs(timeline)
        self.engine.storage.delete(path).raise_for_status()
        if not logs_first:
            self._delete_logs(timeline)

    def _delete_logs(self, timeline: Timeline) -> None:
        for number in range(len(self.engine.safekeepers)):
            httpx.delete(self.engine.safekeeper_url(number, timeline), timeout=30).raise_for_status()

    def _kept(self) -> None:
        """What stays is whole, however much went around it."""
        [(count, total)] = self.compute.sql("SELECT count(*), sum(length(t)) FROM kept")
        if (count, total) != (2000, 2000 * 32):
            raise AssertionError(f"the table that stays has {count} rows of {total} characters")

    def _rest(self) -> None:
        """What was written is ingested and stored, so that samples are of the same moment of a cycle."""
        with self.compute.admin() as session:
            row = session.execute("SELECT pg_current_wal_flush_lsn()::text").fetchone()
        assert row is not None
        self.engine.wait_ingested(self.main, row[0])
        path = f"/v1/tenant/{self.main.tenant}/timeline/{self.main.id}/checkpoint"
        self.engine.storage.post(path).raise_for_status()

    # --- what is counted

    def _allocated(self) -> Sample:
        """Bytes in use of each part, the least of a few looks: a piece of WAL of 16 MiB that is on its way to the
        store is in use for a moment, and what leaks is in use at each look."""
        looks: list[Sample] = []
        for number in range(LOOKS_AT_MEMORY):
            time.sleep(BETWEEN_LOOKS if number else 0)
            looks.append(
                {
                    "pageserver_allocated": _in_use(self.engine.storage.get("/metrics").text),
                    "safekeepers_allocated": sum(map(_in_use, self._metrics_of_safekeepers())),
                    "agent_allocated": _in_use(self.compute.http.get("/metrics").text),
                }
            )
        return _least(looks)

    def _metrics_of_safekeepers(self) -> list[str]:
        return [httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=10).text for port in self.engine.http_ports]

    def _look(self) -> Sample:
        engine = self.engine
        objects = list(_files(engine.root / "objects"))
        own = engine.root / "objects" / self.main.tenant / self.main.id
        path = f"/v1/tenant/{self.main.tenant}/timeline/{self.main.id}/chains"
        counted = engine.storage.get(path).raise_for_status().json()["pages"]
        status = engine.timeline_status(self.main)
        members = self._metrics_of_safekeepers()
        folders = [engine.root / f"safekeeper-{number}" for number in range(1, len(members) + 1)]
        return {
            **self._allocated(),
            "pageserver_rss": _rss(engine.pageserver),
            "pageserver_versions": metric(engine.storage, "weir_pageserver_memory_bytes"),
            "pageserver_series": _series(engine.storage.get("/metrics").text),
            "pageserver_descriptors": _descriptors(engine.pageserver),
            "pageserver_counted_pages": sum(bar["count"] for bar in counted),
            "safekeepers_rss": sum(map(_rss, engine.safekeepers)),
            "safekeepers_series": sum(map(_series, members)),
            "safekeepers_descriptors": sum(map(_descriptors, engine.safekeepers)),
            "agent_rss": _rss(self.compute.process),
            "index": max((size for file, size in objects if file.is_relative_to(own / "index")), default=0),
            "layers": status["layers"]["delta"] + status["layers"]["image"],
            "layer_bytes": status["layers"]["bytes"],
            "relation_entries": len(entries(engine, self.main)),
            "objects": len(objects),
            "object_bytes": sum(size for _, size in objects),
            "entries_of_pageserver": _entries(engine.root / "pageserver"),
            # A safekeeper remembers for good which logs it has ever held, so that none made again in a lost one's
            # place votes: a byte for each, and the only thing that grows.
            "entries_of_safekeepers": sum(_entries(folder) - _entries(folder / "held") for folder in folders),
            "entries_of_objects": _entries(engine.root / "objects"),
        }


def _least(samples: Sequence[Mapping[str, float]]) -> Sample:
    return {name: min(sample[name] for sample in samples) for name in samples[0]}


def settled(churn: Churn, seconds: float = 60.0) -> None:
    """Waits until the object store has nothing of what was deleted, not even WAL that came there afterwards."""
    wait_for("the store to have the timeline that stays and nothing else", lambda: not list(foreign(churn)), seconds)


def foreign(churn: Churn) -> Iterator[Path]:
    """Objects, relative to the store, of other timelines than the one that stays. Documents of its tenant and those
    at the top are none."""
    folder, main = churn.engine.root / "objects", churn.main
    for file, _ in _files(folder):
        path = file.relative_to(folder)
        is_document = len(path.parts) == 1 or (path.parts[0] == main.tenant and len(path.parts) == 2)
        if not is_document and path.parts[:2] != (main.tenant, main.id):
            yield path


def _files(folder: Path) -> Iterator[tuple[Path, int]]:
    """With sizes; one that goes meanwhile is not there."""
    for place, _, names in os.walk(folder):
        for name in names:
            file = Path(place) / name
            try:
                yield file, file.stat().st_size
            except FileNotFoundError:
                continue


def _entries(folder: Path) -> int:
    return sum(len(folders) + len(names) for _, folders, names in os.walk(folder))


def _proc(process: Process) -> Path:
    assert process.child is not None
    return Path("/proc") / str(process.child.pid)


def _rss(process: Process) -> int:
    lines = (_proc(process) / "status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS:"))


def _in_use(metrics: str) -> float:
    """Bytes that a program has allocated, by its metrics. Raises ValueError where it does not say."""
    for line in metrics.splitlines():
        if line.startswith("weir_allocated_bytes "):
            return float(line.split()[1])
    raise ValueError("a program does not export weir_allocated_bytes; build it anew")


def _descriptors(process: Process) -> int:
    return len(list((_proc(process) / "fd").iterdir()))


def _series(text: str) -> int:
    return sum(1 for line in text.splitlines() if line and not line.startswith("#"))


#: What ends a run that something stopped.
FAILURES = (httpx.HTTPError, psycopg.Error, TimeoutError, AssertionError, RuntimeError, OSError)
