"""Fixed image thresholds and the adaptive mode, on three workloads in which reads come while WAL comes in.

Each arm takes in the same WAL from the same state, in steps, and is asked for the same pages at the same positions:
the misses of a simulated compute (`storage/crates/pageserver/examples/bench/accesses.rs`). All arms are in one
process, and are read in turn at each step: a process as a whole can be a fifth faster than the next one that does the
same. What is judged is the 99th percentile of a read's time, times the bytes written meanwhile by flushes and
compactions.

The workloads were fixed before the adaptive mode was tuned; changing one of them means judging it anew.
"""

from __future__ import annotations

import math
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from . import tproc
from .postgres import PG_BIN
from .recorded import Recorded, run_json

THRESHOLDS = (8, 16, 32, 64, 128, 256)
ADAPTIVE = "adaptive"
# Deltas that make an image; None: as the adaptive mode has it.
ARMS: dict[str, int | None] = {**{f"fixed_{number}": number for number in THRESHOLDS}, ADAPTIVE: None}
NO_WORSE = 1.1


@dataclass(frozen=True)
class Workload:
    """`load` and `run` write the WAL; `table` is what queries look at; `shape`: `bench mixed --help`."""

    load: Callable[[Recorded], None]
    run: Callable[[Recorded], None]
    table: str | None
    shape: tuple[str, ...]


def _load_items(cluster: Recorded) -> None:
    cluster.sql(
        "CREATE TABLE item (id int PRIMARY KEY, views int NOT NULL, body text NOT NULL) WITH (fillfactor = 90)"
    )
    cluster.sql(
        "INSERT INTO item SELECT i, 0, md5(i::text) || md5((i * 31)::text) || repeat('weir ', 24) "
        "FROM generate_series(1, 200000) i"
    )
    cluster.sql("VACUUM ANALYZE")


def _count_views(cluster: Recorded) -> None:
    """Popular rows lie all over the table: a few pages get most of the updates."""
    script = cluster.folder / "socket/views.sql"
    script.write_text(
        "\\set id permute(random_zipfian(1, 200000, 1.1), 200000)\n"
        "UPDATE item SET views = views + 1 WHERE id = :id;\n"
    )
    _pgbench(cluster, script, clients=2, each=15000)


def _load_orders(cluster: Recorded) -> None:
    tproc.load(cluster.uri, 1)
    cluster.sql("VACUUM ANALYZE")


def _order(cluster: Recorded) -> None:
    cluster.transactions(2500, warehouses=1)


def _load_log(cluster: Recorded) -> None:
    cluster.sql("CREATE TABLE log (id bigserial PRIMARY KEY, at timestamptz NOT NULL, source int, line text)")


def _append(cluster: Recorded) -> None:
    """Commits of 500 rows; a row at a time in the WAL, as any INSERT that is not a COPY."""
    cluster.sql(
        "DO $$ BEGIN FOR i IN 1..160 LOOP INSERT INTO log (at, source, line) "
        "SELECT now(), j % 40, md5(j::text) || md5((j * 7 + i)::text) FROM generate_series(1, 500) j; "
        "COMMIT; END LOOP; END $$"
    )


WORKLOADS = {
    # Item pages are looked up five times as often as one is updated; half of the lookups are where the updates are.
    "hot_writes": Workload(_load_items, _count_views, "item", ("--lookups", "150000")),
    "tproc_c": Workload(_load_orders, _order, None, ()),
    "append_scans": Workload(_load_log, _append, "log", ("--scans", "16")),
}


def _pgbench(cluster: Recorded, script: Path, *, clients: int, each: int) -> None:
    command = [str(PG_BIN / "pgbench"), "-n", "-M", "prepared", "-c", str(clients), "-j", "1", "-t", str(each)]
    command += ["--random-seed=1", "-f", str(script), cluster.uri]
    subprocess.run(command, capture_output=True, check=True, timeout=3600)


@dataclass
class Recording:
    cluster: Recorded
    settled: Path
    begun: str
    end: str
    shape: list[str]


def record(bench: Path, folder: Path, name: str) -> Recording:
    """The workload's WAL, and the state its run begins with."""
    workload = WORKLOADS[name]
    cluster = Recorded.prepared(bench, folder / name)
    settings = {"full_page_writes": "off", "autovacuum": "off", "max_wal_size": "4GB"}
    try:
        cluster.start(settings)
        workload.load(cluster)
        begun = cluster.stop()
        cluster.start(settings)
        workload.run(cluster)
        shape = list(workload.shape)
        if workload.table is not None:
            shape += ["--relation", cluster.sql(f"SELECT pg_relation_filenode('{workload.table}')")]
    finally:
        end = cluster.stop()
    settled = folder / name / "settled"
    shutil.copytree(cluster.objects, settled)
    run_json([bench, "settle", "--objects", settled, "--wal", cluster.wal, "--upto", begun])
    return Recording(cluster, settled, begun, end, shape)


def run_arms(
    bench: Path, recording: Recording, arms: Mapping[str, int | None], first: int, priority: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """One round, by arm; the arm that reads first at the first step is the `first`th. Clients and servers on one
    processor, background work on the others."""
    *others, ours = sorted(os.sched_getaffinity(0))
    folder = Path(tempfile.mkdtemp(prefix="arms-", dir=recording.cluster.folder))
    command: list[str | Path] = ["taskset", "-c", str(ours), *priority, bench, "mixed", *recording.shape]
    command += ["--wal", recording.cluster.wal, "--from", recording.begun, "--upto", recording.end]
    command += [f"--first={first}", *(f"--background={processor}" for processor in others)]
    try:
        for name, threshold in arms.items():
            shutil.copytree(recording.settled, folder / name)
            command.append(f"--arm={name}={folder / name}" + ("" if threshold is None else f",{threshold}"))
        found = run_json(command)
    finally:
        shutil.rmtree(folder)
    return {name: {**of, "model": found["model"]} for name, of in found["arms"].items()}


def figures(rounds: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Of one arm on one workload. Each read counts with the median of its rounds: what else the machine did in one of
    them falls out, and what it costs by itself stays."""
    times = np.median(np.array([it["us"] for it in rounds]), axis=0)
    replayed = np.median(np.array([it["replayed"] for it in rounds]), axis=0)
    model = rounds[0]["model"]
    modelled = model["request"] + model["page"] * np.array(rounds[0]["pages"]) + replayed
    total = float(np.median([it["written_bytes"] for it in rounds]))
    p99 = float(np.percentile(times, 99))
    by_round = [float(np.percentile(it["us"], 99)) for it in rounds]
    return {
        "p50_us": round(float(np.percentile(times, 50)), 1),
        "p99_us": round(p99, 1),
        "p99_us_by_round": [round(it, 1) for it in by_round],
        "bytes_written": round(total),
        "product": round(p99 * total / 1e6, 1),
        "modelled_product": round(float(np.percentile(modelled, 99)) * total / 1e6, 1),
        "replayed_p99": round(float(np.percentile(replayed, 99))),
        "replayed_mean": round(float(replayed.mean()), 2),
        "pages_p99": round(float(np.percentile(rounds[0]["pages"], 99))),
        "requests": len(times),
    }


def costs(found: dict[str, dict[str, dict[str, Any]]]) -> dict[str, Any]:
    """What one of the slowest requests costs beyond replay, and a delta of the longest chains, by workload: the line
    through the fixed arms, 99th percentile of a request's time over that of the deltas it replays. The arms are asked
    for the same pages at the same moments and differ in nothing else. `in_deltas`, as `layers::weigh` counts, is None
    where longer chains made no request slower."""
    fitted = {}
    for name, arms in found.items():
        fixed = [of for arm, of in arms.items() if arm != ADAPTIVE]
        replayed, us = ([of[figure] for of in fixed] for figure in ("replayed_p99", "p99_us"))
        delta, request = (float(it) for it in np.polyfit(replayed, us, 1))
        fitted[name] = {
            "pages": max(of["pages_p99"] for of in arms.values()),
            "request_us": round(request, 1),
            "delta_us": round(delta, 3),
            "in_deltas": round(request / delta) if delta > 0 else None,
        }
    return fitted


def judged(found: dict[str, dict[str, dict[str, Any]]]) -> dict[str, Any]:
    """`found`: by workload, then arm. Adds each arm's ratio to the best fixed one, and what was promised."""
    return {"workloads": found, **promise(found, "product"), "modelled": promise(found, "modelled_product")}


def promise(found: dict[str, dict[str, dict[str, Any]]], product: str) -> dict[str, Any]:
    """Whether the adaptive arm is no worse than the best fixed one anywhere, and better than each over all."""
    ratios, means = {}, {}
    for name, arms in found.items():
        best = min(of[product] for arm, of in arms.items() if arm != ADAPTIVE)
        ratios[name] = {arm: round(of[product] / best, 3) for arm, of in arms.items()}
    for arm in next(iter(found.values())):
        products = [arms[arm][product] for arms in found.values()]
        means[arm] = math.exp(sum(math.log(it) for it in products) / len(products))
    worst = max(of[ADAPTIVE] for of in ratios.values())
    best = min(value for arm, value in means.items() if arm != ADAPTIVE)
    return {
        "ratio_to_best_fixed": ratios,
        "geometric_mean": {arm: round(value, 1) for arm, value in means.items()},
        "worst_ratio_to_best_fixed": worst,
        "mean_ratio_to_best_fixed": round(means[ADAPTIVE] / best, 3),
        "held": worst <= NO_WORSE and means[ADAPTIVE] < best,
    }


def measure(
    bench: Path, folder: Path, rounds: int, priority: Sequence[str], progress: Callable[[str], None]
) -> dict[str, Any]:
    """All workloads, one after the other."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    model: dict[str, int] = {}
    for name in WORKLOADS:
        recording = record(bench, folder, name)
        progress(f"recorded {name}: WAL {recording.begun} to {recording.end}")
        runs: dict[str, list[dict[str, Any]]] = {arm: [] for arm in ARMS}
        for number in range(rounds):
            for arm, run in run_arms(bench, recording, ARMS, number, priority).items():
                runs[arm].append(run)
            progress(f"{name}: round {number + 1}")
        found[name] = {arm: figures(of) for arm, of in runs.items()}
        model = runs[ADAPTIVE][0]["model"]
        for arm, of in found[name].items():
            progress(f"{name} {arm}: {of}")
        shutil.rmtree(recording.cluster.folder)
    weighed = {"used": model, "measured": costs(found)}
    progress(f"costs: {weighed}")
    return {"adaptive": {**judged(found), "costs": weighed}}
