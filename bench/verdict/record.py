"""Record a trace: many stock Postgres under uneven load at the same time, every transaction's latency kept.

Each compute is a Postgres of its own, with a workload, a steady rate and a checkpoint distance drawn from the seed.
Bursts of extra load come at random times of its own, checkpoints and autovacuum as Postgres makes them, and
whatever else the machine does at the time is in the trace too: that is what controls are there to cancel.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from weirbench import tproc
from weirbench.postgres import PG_BIN, query, stock_postgres

from verdict import traces

SETTLE_SECONDS = 20
FILLED_AT_ONCE = 6


@dataclass(frozen=True)
class Load:
    """What one compute runs: rates are transactions a second, bursts are (start, seconds, extra rate)."""

    workload: str
    rate: float
    clients: int
    checkpoint_seconds: int
    bursts: tuple[tuple[float, int, float], ...]


def draw(rng: random.Random, index: int, seconds: int) -> Load:
    """Two computes in three run pgbench's own small transactions, the third the TPROC-C mix at a lower rate."""
    heavy = index % 3 == 2
    rate = rng.uniform(14, 26) if heavy else rng.uniform(40, 110)
    bursts: list[tuple[float, int, float]] = []
    at = rng.expovariate(1 / 90)
    while at < seconds - 10:
        length = rng.randint(4, 20)
        bursts.append((round(at, 1), length, round(rate * rng.uniform(0.3, 1.5), 1)))
        at += length + rng.expovariate(1 / 90)
    workload = "tproc-c" if heavy else rng.choice(("tpcb-like", "simple-update"))
    return Load(workload, round(rate, 1), 4, rng.choice((30, 30, 40, 60)), tuple(bursts))


def settings(load: Load) -> dict[str, str]:
    return {
        "checkpoint_timeout": f"{load.checkpoint_seconds}s",
        "max_wal_size": "'1GB'",
        "shared_buffers": "'32MB'",
        "max_connections": "30",
        "autovacuum_naptime": "10s",
        "autovacuum_vacuum_scale_factor": "0.05",
    }


def fill(uri: str, load: Load, scale: int) -> None:
    if load.workload == "tproc-c":
        tproc.load(uri, 1)
        return
    initialise = [str(PG_BIN / "pgbench"), "-i", "-q", "-s", str(scale), uri]
    subprocess.run(initialise, check=True, capture_output=True)


class Runner:
    """The load of one compute: one steady pgbench and one more for each burst."""

    def __init__(self, uri: str, load: Load, folder: Path, seed: int) -> None:
        self._uri, self._load, self._folder, self._seed = uri, load, folder, seed
        self._started: list[subprocess.Popen[bytes]] = []
        folder.mkdir()

    def run(self, began: float, seconds: int) -> None:
        self._pgbench("steady", self._load.rate, seconds + SETTLE_SECONDS)
        for number, (at, length, extra) in enumerate(self._load.bursts):
            time.sleep(max(0.0, began + at - time.time()))
            self._pgbench(f"burst-{number}", extra, length)
        for process in self._started:
            if process.wait(timeout=seconds + 120) != 0:
                raise RuntimeError(f"pgbench ended with status {process.returncode}: see {self._folder}")

    def _pgbench(self, name: str, rate: float, seconds: int) -> None:
        scripts = [f"-b{self._load.workload}"]
        if self._load.workload == "tproc-c":
            mix = (f"{tproc.FOLDER / 'mix' / script}.sql@{weight}" for script, weight in tproc.MIX.items())
            scripts = ["-Dwarehouses=1", *(f"-f{script}" for script in mix)]
        self._seed += 1
        command = [str(PG_BIN / "pgbench"), "-n", "-Mprepared", f"-c{self._load.clients}", "-j1", f"-T{seconds}"]
        command += [f"-R{rate:g}", "-l", f"--log-prefix={self._folder / name}", f"--random-seed={self._seed}"]
        with (self._folder / f"{name}.out").open("wb") as sink:
            process = subprocess.Popen(
                [*command, *scripts, self._uri], stdin=subprocess.DEVNULL, stdout=sink, stderr=sink
            )
        self._started.append(process)

    def latencies(self) -> tuple[list[float], list[float], int]:
        """When each transaction ended, how long it took in seconds, and how many failed."""
        logs = (log for log in self._folder.iterdir() if log.suffix != ".out")
        rows = [row for log in logs for row in tproc.parse_log(log.read_text(errors="replace").splitlines())]
        good = [row for row in rows if not row.failed]
        return [row.ended for row in good], [row.latency_ms / 1000 for row in good], len(rows) - len(good)


def checkpoints(uri: str) -> int:
    return int(query(uri, "SELECT checkpoints_timed + checkpoints_req FROM pg_stat_bgwriter"))


def autovacuums(uri: str) -> int:
    return int(query(uri, "SELECT sum(autovacuum_count) FROM pg_stat_user_tables"))


def record(path: Path, computes: int, seconds: int, scale: int, seed: int) -> None:
    rng = random.Random(seed)  # noqa: S311  no secret
    loads = [draw(rng, index, seconds) for index in range(computes)]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="weir-record-")))
        uris = [stack.enter_context(stock_postgres(settings(load))) for load in loads]
        with ThreadPoolExecutor(FILLED_AT_ONCE) as pool:
            for filled in [pool.submit(fill, uri, load, scale) for uri, load in zip(uris, loads, strict=True)]:
                filled.result()
        runners = [
            Runner(uri, load, folder / str(index), seed * 1000 + index * 40)
            for index, (uri, load) in enumerate(zip(uris, loads, strict=True))
        ]
        print(f"{path.stem}: {computes} computes are filled; {seconds} s of load begin", flush=True)
        began = time.time() + SETTLE_SECONDS
        before = [(checkpoints(uri), autovacuums(uri)) for uri in uris]
        with ThreadPoolExecutor(len(runners)) as pool:
            for running in [pool.submit(runner.run, began, seconds) for runner in runners]:
                running.result()
        after = [(checkpoints(uri), autovacuums(uri)) for uri in uris]
        intervals = seconds // traces.SECONDS
        found = [runner.latencies() for runner in runners]
    counts = np.stack(
        [traces.histograms(np.asarray(ended) - began, np.asarray(took), intervals) for ended, took, _ in found]
    )
    meta = {
        "began": datetime.fromtimestamp(began, UTC).isoformat(timespec="seconds"),
        "seconds": seconds,
        "seed": seed,
        "pgbench_scale": scale,
        "postgres": subprocess.run([PG_BIN / "postgres", "-V"], capture_output=True, text=True, check=True).stdout,
        "cores": os.cpu_count(),
        "computes": [
            asdict(load)
            | {"transactions": int(histogram.sum()), "failed": failed}
            | {"checkpoints": later[0] - earlier[0], "autovacuums": later[1] - earlier[1]}
            for load, histogram, (_, _, failed), earlier, later in zip(
                loads, counts, found, before, after, strict=True
            )
        ],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    traces.save(path, meta, counts)
    print(f"{path.stem}: {counts.sum()} transactions, {path.stat().st_size} bytes", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", help="the trace's name: the file is traces/NAME.npz")
    parser.add_argument("--computes", type=int, default=16)
    parser.add_argument("--seconds", type=int, default=720)
    parser.add_argument("--scale", type=int, default=10, help="of the databases that pgbench fills")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--nice", type=int, default=5, help="how far to stand back for others on the machine")
    arguments = parser.parse_args()
    os.nice(arguments.nice)
    record(
        traces.FOLDER / f"{arguments.name}.npz",
        arguments.computes,
        arguments.seconds,
        arguments.scale,
        arguments.seed,
    )


if __name__ == "__main__":
    main()
