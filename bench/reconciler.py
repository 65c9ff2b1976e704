"""Rounds of the reconciler over 10,000 suspended projects, in which nothing is to be done: how long each takes. That
is what the reconciler costs for as long as the installation stands.

The code is the worker's, with the runtime that starts real computes; the metadata store is a Postgres of the bench's
own, filled by bulk inserts; what computes leave on disk lies on disk. No compute runs, and storage is a process that
answers with lists as long as real ones. Rounds are of three kinds: one that looks at the next 500 computes, one that
ends a walk round the fleet and looks for what deleted endpoints left, and one that compares logs, projects or tenants
with storage as well, which the worker begins with every 30 s.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sqlalchemy import select
from weirbench import reconciler_seed as seed
from weirbench.cluster import Cluster
from weirbench.progress import say

from weir import admin
from weir.config import Settings, get_settings
from weir.logging import configure
from weir.projects.models import Project
from weir.recovery.description import describe, revision
from weir_workflows.common.resources import Resources, open_resources
from weir_workflows.reconciler.activities import COMPUTES_A_ROUND, ReconcilerActivities, Round

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "bench" / "results" / "reconciler.json"
PROJECTS = 10_000
STORAGE_ROUNDS = 12
TARGET_SECONDS = 2.0
NOTHING = Round([], [], [], [], [])


def set_environment(home: Path, database_url: str, storage_url: str) -> Settings:
    keepers = range(1, seed.SAFEKEEPERS + 1)
    os.environ.update(
        {
            "WEIR_HOME": str(home),
            "WEIR_DATABASE_URL": database_url,
            "WEIR_PAGESERVER_HTTP": storage_url,
            "WEIR_SAFEKEEPERS_HTTP": ",".join(f"{storage_url}/{number}" for number in keepers),
            "WEIR_SAFEKEEPERS_WAL": ",".join(f"127.0.0.1:{number}" for number in keepers),
        }
    )
    get_settings.cache_clear()
    return get_settings()


async def revisions(resources: Resources) -> dict[str, str]:
    async with resources.database.transaction() as session:
        projects = (await session.scalars(select(Project))).all()
        return {ident: revision(document) for ident, document in (await describe(session, projects)).items()}


async def fill(home: Path, database_url: str, fleet: list[seed.Seeded]) -> dict[str, str]:
    settings = set_environment(home, database_url, "http://127.0.0.1:9")
    await admin.migrate()
    seed.fill_database(database_url, fleet)
    seed.fill_disk(settings.computes_dir, fleet)
    async with open_resources(settings) as resources:
        return await revisions(resources)


async def rounds(settings: Settings, projects: int) -> dict[str, list[tuple[float, float]]]:
    """Seconds of each round by its kind, and those of them in which this process computed, after a walk of the checks
    that makes connections and copies the server. Raises when a round did anything:
    then it was not the one that is meant."""
    took: dict[str, list[tuple[float, float]]] = {"part": [], "end_of_walk": [], "storage": []}
    async with open_resources(settings) as resources:
        activities = ReconcilerActivities(resources)

        async def one(kind: str | None, *, storage: bool) -> None:
            if not activities._checks:  # noqa: SLF001
                activities._next_storage_check = 0.0 if storage else time.monotonic() + 3_600  # noqa: SLF001
            begun, computed = time.monotonic(), time.process_time()
            done = await activities.reconcile()
            seconds = time.monotonic() - begun, time.process_time() - computed
            if done != NOTHING:
                raise RuntimeError(f"a round that was to find nothing did {done}")
            if kind is not None:
                took[kind].append(seconds)

        await one(None, storage=True)
        while activities._checks:  # noqa: SLF001
            await one(None, storage=False)
        for _ in range(-(-projects // COMPUTES_A_ROUND) + 1):
            await one("part" if activities._seen_to else "end_of_walk", storage=False)  # noqa: SLF001
        for _ in range(STORAGE_ROUNDS):
            await one("storage", storage=True)
    return took


def measure(projects: int) -> dict[str, Any]:
    fleet = seed.fleet_of(projects)
    with tempfile.TemporaryDirectory(prefix="weir-reconciler-") as folder:
        base = Path(folder)
        base.chmod(0o755)
        (base / "store").mkdir()
        store = Cluster(base / "store", {"fsync": "off", "shared_buffers": "'256MB'"})
        store.start()
        try:
            url = store.uri.replace("postgresql:", "postgresql+psycopg:")
            documents = asyncio.run(fill(base / "home", url, fleet))
            say(f"{projects} projects filled in")
            with seed.storage(seed.listings(fleet, documents)) as storage_url:
                took = asyncio.run(rounds(set_environment(base / "home", url, storage_url), projects))
        finally:
            store.stop()
    figures = {kind: _figures(seconds) for kind, seconds in took.items() if seconds}
    for kind, found in figures.items():
        say(
            f"  {kind}: median {found['median_seconds']:.3f} s, longest {found['longest_seconds']:.3f} s, of which "
            f"{found['longest_cpu_seconds']:.3f} s on a processor"
        )
    return {"projects": projects, "rounds": figures}


def _figures(took: list[tuple[float, float]]) -> dict[str, Any]:
    """`longest_cpu_seconds`: of the longest round. What is beyond it was waited, for answers or for a processor."""
    seconds = [wall for wall, _ in took]
    return {
        "median_seconds": statistics.median(seconds),
        "longest_seconds": max(seconds),
        "longest_cpu_seconds": max(took)[1],
        "each": [round(value, 4) for value in seconds],
    }


def longest(of: Mapping[str, Any]) -> float:
    return max(found["longest_seconds"] for found in of["rounds"].values())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--projects", type=int, nargs="+", default=[PROJECTS // 4, PROJECTS])
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--no-result", action="store_true", help="print only")
    arguments = parser.parse_args()
    configure()
    load_before = os.getloadavg()[0]
    series = [measure(projects) for projects in arguments.projects]
    held = longest(series[-1]) <= TARGET_SECONDS
    say(f"longest round {longest(series[-1]):.2f} s, target {TARGET_SECONDS:g} s: {'held' if held else 'MISSED'}")
    if not arguments.no_result:
        commit = subprocess.run(
            ["git", "-C", str(ROOT), "rev-parse", "HEAD"], capture_output=True, text=True, check=False
        ).stdout.strip()
        document = {
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
            "commit": commit,
            "machine": {
                "cores": os.cpu_count(),
                "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
                "python": platform.python_version(),
                # Of everything measured here, beside whatever else runs: below 0 it comes before others.
                "niceness": os.getpriority(os.PRIO_PROCESS, 0),
                "processes": sum(name.isdigit() for name in os.listdir("/proc")),  # noqa: PTH208
                "load_before": load_before,
                "load_after": os.getloadavg()[0],
            },
            "settings": {
                "runtime": "local; all computes suspended, none runs",
                "metadata_store": "Postgres of the system, on the same machine, fsync off",
                "storage": "a process that serves lists of all tenants and logs",
            },
            "target_seconds": TARGET_SECONDS,
            "target_held_at_largest": held,
            "series": series,
        }
        arguments.results.write_text(json.dumps(document, indent=2) + "\n")
        say(f"written to {arguments.results}")
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
