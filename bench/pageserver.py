"""What the pageserver costs: ingest, reads, and what it writes and keeps, on the WAL of real workloads.

A stock Postgres that starts from a project's own pages writes the WAL (`weirbench/recorded.py`); the pageserver takes
it in and serves it, in a process of its own (`storage/crates/pageserver/examples/bench`). Sections can be run one by
one (`--only`); each replaces its part of `results/pageserver.json`, and the targets are judged anew.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from weirbench import adaptive, charts, encrypted, growth, scan, targets, tproc
from weirbench.progress import say
from weirbench.recorded import SETTINGS, Recorded, program, run_json
from weirbench.spread import spread

ROOT = Path(__file__).resolve().parents[1]
RESULT = ROOT / "bench/results/pageserver.json"
CHART = ROOT / "docs/images/level-0.png"
MIB = 1 << 20
# Never reached: no image is made, nothing is compacted.
NEVER_IMAGE = 1 << 20
NEVER_COMPACT = 1000
# What is compared with what: images by the WAL alone, as storage has them that makes none; images by storage alone;
# and what a naive switch leaves behind. `fpw_on_loose` is Weir before the switch: both, with the loose threshold.
ARMS = {
    "fpw_on": ["--image-threshold", str(NEVER_IMAGE)],
    "fpw_on_loose": [],
    "fpw_off_pushdown": [],
    "fpw_off_no_pushdown": ["--image-threshold-pushdown", str(NEVER_IMAGE)],
}
# A quarter of the default: level 0 gathers and is compacted within a short workload as it is in a long one.
SMALLER_LAYERS = ["--checkpoint-distance-mib", "64"]
BOOTSTRAP = 2000
# What two layers in memory, their files and those of the last two take.
WARM_MIB = 896
# Reads of each page, for each round of everything else.
READ_ROUNDS = 10
# Latencies are of the clock: where it is allowed, they are measured before whatever else the machine does.
URGENT = ["nice", "-n", "-15"] if os.geteuid() == 0 else []
# One request at a time, on one processor: to wake another takes a virtual one longer than the read.
ON_ONE_PROCESSOR = ["taskset", "-c", str(max(os.sched_getaffinity(0))), *URGENT]


@dataclass
class Setting:
    """What is measured, and where it is kept meanwhile."""

    bench: Path
    folder: Path
    warehouses: int
    transactions: int
    copy_mb: int
    rounds: int
    pages: int
    growth_gb: list[float]
    recorded: dict[str, tuple[Recorded, list[str]]] = field(default_factory=dict)

    def tproc(self) -> dict[str, tuple[Recorded, list[str]]]:
        """TPROC-C with and without page images, from the same load: each with the ends of load and run."""
        if "fpw_on" not in self.recorded:
            loaded = Recorded.prepared(self.bench, self.folder / "fpw_off")
            loaded.start({"full_page_writes": "off"})
            say(f"TPROC-C: loading {self.warehouses} warehouse(s)")
            tproc.load(loaded.uri, self.warehouses)
            loaded.sql("VACUUM ANALYZE")
            begun = loaded.stop()
            with_images = loaded.copy(self.folder / "fpw_on")
            for name, cluster in (("fpw_off", loaded), ("fpw_on", with_images)):
                cluster.start({})
                cluster.switch(full_page_writes=name == "fpw_on")
                self.classes = cluster.classes()
                say(f"TPROC-C: 4 x {self.transactions} transactions, {name}")
                cluster.transactions(self.transactions, warehouses=self.warehouses)
                self.recorded[name] = (cluster, [begun, cluster.stop()])
        return self.recorded

    def bulk(self) -> tuple[Recorded, list[str]]:
        """A COPY into a table with a primary key, page images off."""
        if "copy" not in self.recorded:
            cluster = Recorded.prepared(self.bench, self.folder / "copy")
            say(f"COPY of {self.copy_mb} MB")
            self.recorded["copy"] = (cluster, [growth.grow(cluster, 0, self.copy_mb * growth.ROWS_PER_MB)])
        return self.recorded["copy"]

    def fresh(self, cluster: Recorded) -> Path:
        """The project as it was at the start, to take WAL in. To be removed by who asked."""
        objects = Path(tempfile.mkdtemp(prefix="objects-", dir=self.folder))
        shutil.copytree(cluster.objects, objects, dirs_exist_ok=True)
        return objects


def ingest(
    setting: Setting,
    cluster: Recorded,
    upto: Sequence[str],
    options: Sequence[str],
    keep: bool = False,
    pinned: Sequence[str] = (),
) -> Any:
    """One pageserver takes the WAL in; its figures by stretch, and the objects if they are to be kept."""
    objects = setting.fresh(cluster)
    command = [*pinned, setting.bench, "ingest", "--objects", objects, "--wal", cluster.wal]
    command += ["--upto", *upto, *options]
    try:
        result = run_json(command)
    except RuntimeError:
        shutil.rmtree(objects)
        raise
    if keep:
        return result, objects
    shutil.rmtree(objects)
    return result


def rate(stretch: dict[str, Any]) -> float:
    """MiB of WAL for each second of CPU time, until it is in durable level-0 layers."""
    return stretch["wal_bytes"] / MIB / stretch["cpu_seconds"]


def measure_ingest(setting: Setting) -> dict[str, Any]:
    """Ingest alone, then with what goes on in the background: images, then compaction too. Workloads in turn."""
    clusters = setting.tproc()
    bulk = setting.bulk()
    stretched = {"tproc_c": clusters["fpw_off"], "bulk_copy": bulk}
    with_images = ["--compaction-threshold", str(NEVER_COMPACT)]
    never = str(NEVER_IMAGE)
    alone = [*with_images, "--image-threshold", never, "--image-threshold-pushdown", never]
    beside = {"": alone, "_with_images": with_images, "_with_compaction": SMALLER_LAYERS}
    # What one core takes in is measured on one. What goes on beside it needs another, as it has one in service.
    runs = {
        workload + suffix: (found, len(found[1]) - 1, options, () if suffix else ON_ONE_PROCESSOR)
        for suffix, options in beside.items()
        for workload, found in stretched.items()
    }
    warm = ["--warm-mib", str(WARM_MIB)]
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in runs}
    for number in range(setting.rounds):
        for name, ((cluster, ends), stretch, options, pinned) in runs.items():
            result = ingest(setting, cluster, ends, [*options, *warm], pinned=pinned)
            found[name].append(result["stretches"][stretch])
            latest = found[name][-1]
            say(f"ingest {number + 1}, {name}: {rate(latest):.1f} MiB/s a core, level 0 {latest['l0_max']}")
    workloads = {}
    for name, stretches in found.items():
        workloads[name] = {
            "mib_s_per_core": spread([rate(it) for it in stretches], 2),
            "mib_s_wall": spread([it["wal_bytes"] / MIB / it["seconds"] for it in stretches], 2),
            # Of it, what the kernel took.
            "kernel_share": spread([it["kernel_seconds"] / it["cpu_seconds"] for it in stretches], 3),
            # With the images that ingest left for later, and whatever else follows.
            "mib_s_per_core_until_quiet": spread([rate(it["until_quiet"]) for it in stretches], 2),
            "image_bytes_per_wal_byte": spread([it["image_bytes"] / it["wal_bytes"] for it in stretches], 2),
            "wal_mib": round(stretches[0]["wal_bytes"] / MIB, 1),
            "l0_max": max(it["l0_max"] for it in stretches),
            "braked_ms": spread([it["braked_ms"] for it in stretches], 0),
            "bytes_written_per_wal_byte": spread([written(it["until_quiet"]) for it in stretches], 2),
            "stored_bytes_per_data_byte": spread([it["stored_bytes"] / it["data_bytes"] for it in stretches], 2),
        }
    rates = {
        f"ingest{suffix}_mib_s_per_core": {
            name: workloads[name + suffix]["mib_s_per_core"]["median"] for name in stretched
        }
        for suffix in beside
    }
    return {
        **rates,
        "l0_max": max(workloads[name]["l0_max"] for name in workloads if name.endswith("compaction")),
        "workloads": workloads,
        "ingest_stages": {name: stages(setting, cluster, ends) for name, (cluster, ends) in stretched.items()},
    }


def stages(setting: Setting, cluster: Recorded, ends: Sequence[str]) -> Any:
    """Where the time of ingest goes, nanoseconds a record; of the last stretch."""
    begun = ends[-2] if len(ends) > 1 else cluster.begun
    command = [setting.bench, "stages", "--wal", cluster.wal, "--from", begun, "--upto", ends[-1]]
    found = run_json(command)
    say(f"stages: {found}")
    return found


def written(stretch: dict[str, Any]) -> float:
    return (stretch["flushed_bytes"] + stretch["compacted_bytes"]) / stretch["wal_bytes"]


def measure_reads(setting: Setting) -> dict[str, Any]:
    """The three arms take their WAL in; then the same pages are read from each in turn."""
    clusters = setting.tproc()
    stores: dict[str, Path] = {}
    cost: dict[str, Any] = {}
    command: list[str | Path] = [*ON_ONE_PROCESSOR, setting.bench, "read", "--from", clusters["fpw_off"][1][0]]
    command += ["--pages", str(setting.pages), "--rounds", str(READ_ROUNDS * setting.rounds)]
    for name, options in ARMS.items():
        cluster, ends = clusters["fpw_on" if name.startswith("fpw_on") else "fpw_off"]
        result, stores[name] = ingest(setting, cluster, ends, [*options, *SMALLER_LAYERS], keep=True)
        stretch = result["stretches"][1]
        cost[name] = {
            "wal_bytes": stretch["wal_bytes"],
            "bytes_written": stretch["until_quiet"]["flushed_bytes"] + stretch["until_quiet"]["compacted_bytes"],
            "bytes_written_per_wal_byte": round(written(stretch["until_quiet"]), 2),
            "image_bytes": stretch["until_quiet"]["image_bytes"],
            "stored_bytes_per_data_byte": round(stretch["stored_bytes"] / stretch["data_bytes"], 3),
            "longest_chain": result["chains"]["longest"],
        }
        command += ["--arm", f"{name}={stores[name]},{cluster.wal},{ends[1]}"]
        say(f"arm {name}: {cost[name]}")
    for file, kind in setting.classes.items():
        command += ["--class", f"{file}={kind}"]
    try:
        warm = run_json(command)
        cold = run_json([*command, "--how", "cold"])
        hot = run_json([*command, "--how", "hot"])
    finally:
        for objects in stores.values():
            shutil.rmtree(objects)
    say("reads done")
    return {
        "read_p99_ratio_pushdown_vs_fpw_on": {name: ratio(of) for name, of in warm.items()},
        "read_p99_ratio_pushdown_vs_fpw_on_loose": {
            name: ratio(of, base="fpw_on_loose") for name, of in warm.items()
        },
        "read_p99_ratio_no_pushdown_vs_fpw_on": {name: ratio(of, "fpw_off_no_pushdown") for name, of in warm.items()},
        "getpage_hot_us": percentiles(flat(hot, "fpw_off_pushdown")),
        "getpage_us": {
            how: {name: {arm: percentiles(times(of, arm)) for arm in ARMS} for name, of in found.items()}
            for how, found in (("hot", hot), ("warm", warm), ("cold", cold))
        },
        "warm_us_by_chain_length": by_chain(warm),
        "arms": cost,
    }


def times(of: dict[str, Any], arm: str) -> np.ndarray:
    """Pages x rounds, microseconds."""
    return np.array(of["us"][arm])


def flat(found: dict[str, Any], arm: str) -> np.ndarray:
    return np.concatenate([times(of, arm).ravel() for of in found.values()])


def percentiles(values: np.ndarray) -> dict[str, float]:
    return {"p50": round(float(np.percentile(values, 50)), 1), "p99": round(float(np.percentile(values, 99)), 1)}


def ratio(of: dict[str, Any], arm: str = "fpw_off_pushdown", base: str = "fpw_on") -> dict[str, Any]:
    """p99 of one arm over another's, with a 95 % interval: pages are drawn anew, then the rounds of each, because the
    rounds of a page are not independent, and a class can have so few pages that they alone would tell nothing."""
    ours, theirs = times(of, arm), times(of, base)
    pages, rounds = ours.shape
    random = np.random.default_rng(1)
    drawn = []
    for _ in range(BOOTSTRAP):
        page = random.integers(0, pages, pages)[:, None]
        turn = random.integers(0, rounds, (pages, rounds))
        drawn.append(np.percentile(ours[page, turn], 99) / np.percentile(theirs[page, turn], 99))
    low, high = np.percentile(drawn, [2.5, 97.5])
    return {
        "ratio": round(float(np.percentile(ours, 99) / np.percentile(theirs, 99)), 3),
        "interval": [round(float(low), 3), round(float(high), 3)],
        "pages": len(ours),
        "chain_p99": {name: round(float(np.percentile(of["chain"][name], 99))) for name in (arm, base)},
    }


def by_chain(found: dict[str, Any]) -> dict[str, Any]:
    """Latency of all arms by the deltas that were applied."""
    bars: dict[str, list[float]] = {}
    for of in found.values():
        for arm in ARMS:
            for chain, rounds in zip(of["chain"][arm], of["us"][arm], strict=True):
                upto = 0 if chain == 0 else 1 << (chain - 1).bit_length()
                bars.setdefault(str(upto), []).extend(rounds)
    ordered = sorted(bars.items(), key=lambda bar: int(bar[0]))
    return {f"up_to_{upto}": {**percentiles(np.array(us)), "reads": len(us)} for upto, us in ordered}


def measure_scan(setting: Setting) -> dict[str, Any]:
    """A table from its first page to its last, from the disk: page by page, and with read-ahead."""
    cluster, ends = setting.bulk()
    result, objects = ingest(setting, cluster, ends, [], keep=True)
    del result
    try:
        cluster.start({})
        file = cluster.sql("SELECT pg_relation_filenode('bulk')")
        cluster.stop()
        return scan.measure(setting.bench, objects, file, setting.rounds, URGENT, say)
    finally:
        shutil.rmtree(objects)


def measure_growth(setting: Setting) -> dict[str, Any]:
    """One database that grows by COPY; each step's own figures, and a chart of level 0."""
    found = growth.measure(setting.bench, setting.folder / "growth", setting.growth_gb, URGENT, say)
    charts.level_0(found["l0_by_wal_mib"], CHART)
    return found


def measure_upload(setting: Setting) -> dict[str, Any]:
    """Uploads side by side over one after the other, on a store of which every call takes a while."""
    del setting
    found = run_json([*URGENT, program("blob", "upload_pipeline")])
    return {
        # That of the size of layer for which it is least.
        "upload_pipeline_speedup": min(it["speedup"]["median"] for it in found["by_size"]),
        "uploads": found,
    }


def measure_adaptive(setting: Setting) -> dict[str, Any]:
    return adaptive.measure(setting.bench, setting.folder, setting.rounds, URGENT, say)


def measure_encryption(setting: Setting) -> dict[str, Any]:
    """Ingest alone, on one processor, into layers that are encrypted and into such that are not."""
    clusters = {"tproc_c": setting.tproc()["fpw_off"], "bulk_copy": setting.bulk()}
    alone = ["--compaction-threshold", str(NEVER_COMPACT), "--warm-mib", str(WARM_MIB)]
    alone += ["--image-threshold", str(NEVER_IMAGE), "--image-threshold-pushdown", str(NEVER_IMAGE)]

    def take_in(workload: str, options: list[str]) -> dict[str, Any]:
        cluster, ends = clusters[workload]
        result = ingest(setting, cluster, ends, [*alone, *options], pinned=ON_ONE_PROCESSOR)
        stretch = result["stretches"][len(ends) - 1]
        say(f"{workload} {'encrypted' if options else 'plain'}: {rate(stretch):.1f} MiB/s a core")
        return stretch

    return encrypted.measure(setting.folder, list(clusters), setting.rounds, take_in)


SECTIONS: dict[str, Callable[[Setting], dict[str, Any]]] = {
    "ingest": measure_ingest,
    "reads": measure_reads,
    "scan": measure_scan,
    "growth": measure_growth,
    "upload": measure_upload,
    "adaptive": measure_adaptive,
    "encryption": measure_encryption,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=list(SECTIONS), nargs="+", default=list(SECTIONS))
    parser.add_argument("--warehouses", type=int, default=2)
    parser.add_argument("--transactions", type=int, default=20_000, help="of each of four clients")
    parser.add_argument("--copy-mb", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--pages", type=int, default=300, help="read of each class")
    parser.add_argument("--growth-gb", type=float, nargs="+", default=[0.1, 0.3, 1.0, 3.0, 10.0])
    parser.add_argument("--program", type=Path, help="the measuring program, instead of building it")
    parser.add_argument("--out", type=Path, default=RESULT)
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="weir-pageserver-bench-"))
    folder.chmod(0o755)
    setting = Setting(
        bench=arguments.program or program(),
        folder=folder,
        warehouses=arguments.warehouses,
        transactions=arguments.transactions,
        copy_mb=arguments.copy_mb,
        rounds=arguments.rounds,
        pages=arguments.pages,
        growth_gb=arguments.growth_gb,
    )
    report: dict[str, Any] = json.loads(arguments.out.read_text()) if arguments.out.exists() else {}
    try:
        for name in arguments.only:
            begun, load = time.monotonic(), os.getloadavg()[0]
            report.update(SECTIONS[name](setting))
            report.setdefault("sections", {})[name] = {
                "at": time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime()),
                "seconds": round(time.monotonic() - begun),
                "load_average_before": load,
                "load_average_after": os.getloadavg()[0],
                "priority_of_reads": int(URGENT[-1]) if URGENT else 0,
                "warehouses": setting.warehouses,
                "transactions": 4 * setting.transactions,
                "copy_mb": setting.copy_mb,
                "rounds": setting.rounds,
                "postgres": SETTINGS,
            }
            report["targets_held"] = targets.held(report)
            arguments.out.write_text(json.dumps(report, indent=2) + "\n")
    finally:
        for cluster, _ in setting.recorded.values():
            cluster.stop()
        shutil.rmtree(folder, ignore_errors=True)
    print(json.dumps(report["targets_held"], indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
