"""An object store that takes nothing for an hour: what goes on meanwhile, and how it heals.

The real programs, two tenants. The store of one is a file system of its own that is full to the last byte for
`--minutes`; both computes work on, and every commit that returns is remembered. Meanwhile the rows are read back, the
same old pages are read in storage again and again, and it is sampled what the pageserver holds in memory and the
safekeepers on disk. Layers are small, so that an hour is far past the point at which storage holds as many as it may
and takes no more WAL of the one tenant. Then there is room again: storage has to catch up in bounded time, and every
acknowledged row has to be there, also for computes and a pageserver that have nothing but the object store.

The result is `results/outage.json`: times in seconds, sizes in bytes.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import secrets
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psycopg
from weirbench.progress import say

ROOT = Path(__file__).resolve().parents[1]
RESULT = ROOT / "bench/results/outage.json"
sys.path.insert(0, str(ROOT / "storage/system"))

from disks import FULL, fill, small_disk  # noqa: E402
from harness import Compute, Engine, Timeline, engine, lsn, metric, wait_for  # noqa: E402
from workloads import AcknowledgedInserts, amcheck  # noqa: E402

LIMIT_MIB = 64
STORE_MIB = 512
# Small layers every few seconds: there is always something to store, and as many as may wait are there in minutes.
SETTINGS = {"checkpoint_distance_bytes": 1 << 20, "checkpoint_timeout_ms": 5_000}
# 1,280 bytes a row that do not compress to nothing.
FILLER = "(SELECT string_agg(md5(random()::text), '') FROM generate_series(1, 40))"
SAMPLE_SECONDS = 10.0
CAUGHT_UP_SECONDS = 120.0
# What may be ingested between two looks at everybody's memory, bytes.
SLACK = 24 << 20
CONTENT = "SELECT count(*), md5(string_agg(md5(filler), '' ORDER BY worker, number)) FROM acknowledged"


class WrongError(Exception):
    """A promise does not hold."""


def expect(holds: bool, what: str) -> None:
    if not holds:
        raise WrongError(what)


@dataclass
class Subject:
    """A tenant with its compute and its load."""

    name: str
    compute: Compute
    load: AcknowledgedInserts
    at: str = ""
    digest: str = ""

    @property
    def timeline(self) -> Timeline:
        return self.compute.timeline

    def read_back(self) -> None:
        """Some rows that are known to be there, by primary key."""
        with self.compute.connect() as connection:
            for worker, numbers in enumerate(self.load.acknowledged):
                for number in random.sample(range(1, len(numbers) + 1), min(5, len(numbers))):
                    if number in numbers:
                        query = "SELECT length(filler) FROM acknowledged WHERE worker = %s AND number = %s"
                        row = connection.execute(query, (worker, number)).fetchone()
                        expect(row == (1280,), f"{self.name}: row {worker}/{number} is {row}")

    def move(self, running: Engine, wait: bool) -> None:
        """The same on a compute that has no local copy of anything."""
        self.compute.suspend()
        self.compute = running.compute(self.timeline, wait=wait)
        self.load.compute = self.compute


@dataclass
class Seen:
    """What was seen while the store was full."""

    memory: int = 0
    layers: float = 0.0
    wal: int = 0
    failing: float = 0.0
    behind: int = 0
    held: int = 0
    slowest_digest: float = 0.0
    neighbour_slowest_ingest: float = 0.0
    reads: int = 0
    samples: list[dict[str, Any]] = field(default_factory=list)
    # What was wrong; the soak goes on, and fails at its end.
    wrong: list[str] = field(default_factory=list)


def resident(running: Engine) -> int:
    child = running.pageserver.child
    status = Path(f"/proc/{child.pid if child else 0}/status").read_text()
    return next(int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("VmRSS:"))


def wal_bytes(running: Engine, timeline: Timeline) -> int:
    """What the safekeeper that keeps most keeps of a timeline on disk."""

    def kept(keeper: Path) -> int:
        total = 0
        for path in keeper.rglob("*"):
            if timeline.id in path.parts:
                with contextlib.suppress(FileNotFoundError):
                    total += path.stat().st_blocks * 512 if path.is_file() else 0
        return total

    return max(kept(keeper) for keeper in running.root.glob("safekeeper-?"))


def checkpoint(running: Engine, timeline: Timeline) -> None:
    path = f"/v1/tenant/{timeline.tenant}/timeline/{timeline.id}/checkpoint"
    running.storage.post(path, timeout=CAUGHT_UP_SECONDS).raise_for_status()


def begin(running: Engine, name: str, tenant: str, workers: int, pause: float) -> Subject:
    compute = running.compute(running.create_timeline(tenant))
    running.storage.patch(f"/v1/tenant/{tenant}/config", json=SETTINGS).raise_for_status()
    load = AcknowledgedInserts(compute, workers, pause, FILLER)
    load.start()
    return Subject(name, compute, load)


def sample(running: Engine, full: Subject, healthy: Subject, seen: Seen, since: float) -> None:
    status = running.timeline_status(full.timeline)
    trouble = status["uploads_failing"]
    reason = trouble["reason"] if trouble else "nothing says that the store is full"
    expect(FULL in reason and "layer " in reason, reason)
    other = running.timeline_status(healthy.timeline)
    expect(other["uploads_failing"] is None, f"the neighbour: {other['uploads_failing']}")
    committed = lsn(full.compute.status()["commit_lsn"])
    behind = committed - lsn(status["last_record_lsn"])
    # The neighbour: what it has committed by now is read in storage soon.
    began = time.monotonic()
    running.wait_ingested(healthy.timeline, healthy.compute.status()["commit_lsn"], 30)
    seen.neighbour_slowest_ingest = max(seen.neighbour_slowest_ingest, time.monotonic() - began)
    for subject in (full, healthy):
        subject.read_back()
        began = time.monotonic()
        found = running.digest(subject.timeline, subject.at)
        seen.slowest_digest = max(seen.slowest_digest, time.monotonic() - began)
        expect(found == subject.digest, f"{subject.name}: pages at {subject.at} have changed")
        seen.reads += 1
    kept = [wal_bytes(running, it.timeline) for it in (full, healthy)]
    memory, layers = resident(running), metric(running.storage, "weir_pageserver_memory_layers_bytes")
    failing = metric(running.storage, "weir_pageserver_uploads_failing_seconds", timeline_id=full.timeline.id)
    now = {
        "seconds": round(time.monotonic() - since),
        "acknowledged": [full.load.count(), healthy.load.count()],
        "pageserver_bytes": memory,
        "layer_bytes": layers,
        "kept_wal_bytes": kept,
        "failing_seconds": failing,
        "behind_bytes": behind,
    }
    seen.samples.append(now)
    seen.memory, seen.layers = max(seen.memory, memory), max(seen.layers, layers)
    seen.wal, seen.failing = max(seen.wal, kept[0]), max(seen.failing, failing)
    seen.behind = max(seen.behind, behind)
    seen.held += behind > 1 << 20
    say(json.dumps(now))


def outage(running: Engine, full: Subject, healthy: Subject, ballast: Path, minutes: float) -> Seen:
    seen = Seen()
    for subject in (full, healthy):
        subject.at = running.timeline_status(subject.timeline)["last_record_lsn"]
        subject.digest = running.digest(subject.timeline, subject.at)
    fill(ballast)
    since = time.monotonic()
    wait_for("the status to say it", lambda: running.timeline_status(full.timeline)["uploads_failing"])
    moved = False
    while (elapsed := time.monotonic() - since) < minutes * 60:
        if not moved and elapsed > minutes * 30:
            say("the neighbour moves to a fresh compute, and a third tenant comes")
            healthy.move(running, wait=True)
            running.create_timeline()
            moved = True
        try:
            sample(running, full, healthy, seen, since)
        except (WrongError, AssertionError, OSError, httpx.HTTPError, psycopg.Error) as error:
            seen.wrong.append(f"after {elapsed:.0f} s: {error!r}")
            say(seen.wrong[-1])
        fill(ballast)
        time.sleep(SAMPLE_SECONDS)
    return seen


def start_while_full(running: Engine, full: Subject) -> dict[str, Any]:
    """A compute of the tenant whose store is full: it starts, or says why not, within half a minute."""
    full.move(running, wait=False)
    began, said = time.monotonic(), dict[str, Any]()
    while time.monotonic() - began < 30:
        with contextlib.suppress(httpx.HTTPError):
            said = full.compute.status()
        if said.get("state") in ("running", "failed") or said.get("reason"):
            break
        time.sleep(0.5)
    return {"seconds": round(time.monotonic() - began, 1), "state": said.get("state"), "reason": said.get("reason")}


def heal(running: Engine, full: Subject, ballast: Path) -> dict[str, float]:
    """Gives the room back; seconds until uploads go on, and until all that was committed by then is stored."""
    ballast.unlink()
    began = time.monotonic()
    wait_for("uploads to go on", lambda: running.timeline_status(full.timeline)["uploads_failing"] is None)
    uploads = time.monotonic() - began
    dead = full.compute.process.child is None or full.compute.process.child.poll() is not None
    if dead:
        full.compute = full.load.compute = running.compute(full.timeline)
    full.compute.wait_running(CAUGHT_UP_SECONDS)
    serving = time.monotonic() - began
    committed = full.compute.status()["commit_lsn"]
    wait_for(
        "storage to catch up",
        lambda: lsn(running.timeline_status(full.timeline)["remote_consistent_lsn"]) >= lsn(committed),
        CAUGHT_UP_SECONDS,
    )
    caught_up = time.monotonic() - began
    return {"uploads_go_on": round(uploads, 1), "compute_serves": round(serving, 1), "caught_up": round(caught_up, 1)}


def check(running: Engine, subjects: list[Subject]) -> dict[str, dict[str, Any]]:
    """Every acknowledged row, before and after all local state is thrown away; the content is the same."""
    before: dict[str, tuple[Any, ...]] = {}
    found: dict[str, dict[str, Any]] = {}
    for subject in subjects:
        subject.load.stop()
        expect(subject.load.missing() == [], f"{subject.name} has lost rows")
        (before[subject.name],) = subject.compute.sql(CONTENT)
        running.wait_ingested(subject.timeline, subject.compute.status()["commit_lsn"])
        checkpoint(running, subject.timeline)
        subject.compute.suspend()
    running.pageserver.kill9()
    shutil.rmtree(running.root / "pageserver")
    running.pageserver.start()
    for subject in subjects:
        same = running.digest(subject.timeline, subject.at) == subject.digest
        expect(same, f"{subject.name}: pages at {subject.at} have changed")
        subject.compute = subject.load.compute = running.compute(subject.timeline)
        missing = subject.load.missing()
        expect(missing == [], f"{subject.name} has lost {len(missing)} rows, such as {missing[:3]}")
        (after,) = subject.compute.sql(CONTENT)
        expect(after == before[subject.name], f"{subject.name}: rows have changed")
        amcheck(subject.compute)
        found[subject.name] = {
            "acknowledged": subject.load.count(),
            "found": after[0],
            "missing_after_reattach": len(missing),
            "longest_commit_seconds": round(subject.load.slowest, 2),
            "commit_errors": sorted(set(subject.load.errors))[:5],
        }
    return found


def run(minutes: float) -> dict[str, Any]:
    root = Path(tempfile.mkdtemp(prefix="weir-outage-"))
    tenants = [secrets.token_hex(16) for _ in range(2)]
    options = ["--memory-mib", str(LIMIT_MIB)]
    store = root / "objects" / tenants[0]
    with engine(root, pageserver_options=options) as running, small_disk(store, STORE_MIB) as ballast:
        full = begin(running, "store full", tenants[0], 4, 0.25)
        healthy = begin(running, "neighbour", tenants[1], 2, 0.5)
        wait_for("rows", lambda: min(full.load.count(), healthy.load.count()) > 100)
        say("the store is full from now on")
        seen = outage(running, full, healthy, ballast, minutes)
        errors = len(full.load.errors)
        started = start_while_full(running, full)
        say(f"a compute started while the store is full: {started}")
        healed = heal(running, full, ballast)
        say(f"healed: {healed}")
        commits = full.load.count()
        wait_for("commits to go on", lambda: full.load.count() > commits + 50)
        tenants_found = check(running, [full, healthy])
    if errors:
        seen.wrong.append(f"commits failed during the outage: {full.load.errors[:3]}")
    if seen.layers >= (LIMIT_MIB << 20) + SLACK:
        seen.wrong.append(f"layers in memory: {seen.layers / 1e6:.0f} MB")
    thinned = seen.samples[:: max(1, len(seen.samples) // 30)]
    return {
        "at": time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime()),
        "minutes": minutes,
        "wrong": seen.wrong,
        "tenants": tenants_found,
        "largest": {
            "pageserver_bytes": seen.memory,
            "memory_layers_bytes": seen.layers,
            "memory_limit_bytes": LIMIT_MIB << 20,
            "kept_wal_bytes": seen.wal,
            "uploads_failing_seconds": seen.failing,
            "ingest_behind_bytes": seen.behind,
            "digest_seconds": round(seen.slowest_digest, 2),
            "neighbour_ingest_seconds": round(seen.neighbour_slowest_ingest, 2),
        },
        "samples_with_ingest_held": f"{seen.held} of {len(seen.samples)}",
        "reads_of_old_pages": seen.reads,
        "compute_started_while_full": started,
        "seconds_after_room": healed,
        "samples": thinned,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60.0, help="how long the store takes nothing (60)")
    parser.add_argument("--out", type=Path, default=RESULT)
    arguments = parser.parse_args()
    result = run(arguments.minutes)
    arguments.out.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps({**result, "samples": len(result["samples"])}, indent=2))
    return 1 if result["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
