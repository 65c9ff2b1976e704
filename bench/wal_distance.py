"""WAL volume against checkpoint distance: a fixed number of transactions on a stock Postgres, `max_wal_size` from
32 MB to 16 GB, with page images, with compressed page images and without them.

Fewer checkpoints mean fewer first changes of a page after one, so less WAL; no distance gets below what is written
without images at all. Repeats are interleaved: each round runs every distance of every arm once, in a new order.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from weirbench.distance import ARMS, COMMON, MIB, ROWS, SCRIPT, Load, Run, RunError, Template, series, template
from weirbench.report import table

RESULTS = Path(__file__).resolve().parent / "results" / "wal-distance.json"
# The control plane shows the curve beside a compute's own figures.
SHIPPED = Path(__file__).resolve().parents[1] / "backend" / "weir" / "computes" / "wal_distance.json"
DISTANCES = tuple(32 * MIB << step for step in range(10))
QUICK_DISTANCES = (32 * MIB, 128 * MIB, 1024 * MIB)
METHOD = (
    "Each run starts from a copy of the same loaded cluster, with a CHECKPOINT, and does the same seeded "
    "transactions. WAL bytes are the distance between the insert positions before and after; page images are counted "
    "by pg_walinspect in that stretch, checkpoints are those begun in it. checkpoint_timeout is one day, so that "
    "distance alone decides when a checkpoint comes. A point is the run with the median volume of its interleaved "
    "repeats."
)


def rounds(cluster: Template, distances: Sequence[int], done: list[Run], arguments: argparse.Namespace) -> list[Run]:
    """Whole rounds only, so that every point has as many repeats; no round is begun that the time does not allow."""
    order = [(arm, distance) for arm in ARMS for distance in distances]
    first = len(done) // len(order) + 1
    shuffle = random.Random(arguments.seed + first)  # noqa: S311  an order of runs
    runs = list(done)
    begun = time.monotonic()
    for number in range(first, arguments.repeats + 1):
        elapsed, made = time.monotonic() - begun, number - first
        if made and elapsed * (made + 1) / made > arguments.minutes * 60:
            print(f"{elapsed / 60:.1f} minutes are used: another round would take more than {arguments.minutes}")
            break
        shuffle.shuffle(order)
        for arm, distance in order:
            run = cluster.run(arm, distance)
            runs.append(run)
            print(
                f"round {number}: {arm:<20} {distance // MIB:>6} MB  {run.wal_bytes / run.transactions:>8,.0f} B/tx  "
                f"{run.checkpoints:>3} checkpoints  {run.seconds:.1f} s",
                flush=True,
            )
    return runs


def earlier(path: Path, now: dict[str, Any]) -> list[Run]:
    """The runs of an earlier result, to which more are added. They must have been made the same way."""
    document = json.loads(path.read_text())
    differing = [name for name, value in now.items() if name != "at" and document["settings"].get(name) != value]
    if differing:
        raise RunError(f"{path} cannot be resumed: it was measured with another {', '.join(differing)}")
    return [Run(**run) for run in document["runs"]]


def show(points: Sequence[dict[str, Any]]) -> str:
    arms = list(ARMS)
    by_distance: dict[int, dict[str, dict[str, Any]]] = {}
    for point in points:
        by_distance.setdefault(point["max_wal_size_bytes"], {})[point["arm"]] = point
    rows = [
        [
            f"{distance // MIB} MB",
            *(f"{by_arm[arm]['wal_bytes_per_transaction']:,.0f}" for arm in arms),
            *(str(by_arm[arm]["checkpoints"]) for arm in arms),
        ]
        for distance, by_arm in sorted(by_distance.items())
    ]
    heads = ["max_wal_size", *(f"{arm} B/tx" for arm in arms), *("checkpoints" for _ in arms)]
    return table("WAL bytes a transaction, and checkpoints of the run", heads, rows)


def settings(cluster: Template, load: Load, arguments: argparse.Namespace) -> dict[str, Any]:
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "cores": os.cpu_count(),
        "server_version": cluster.version,
        "scale": load.scale,
        "database_bytes": cluster.database_bytes,
        "transactions": load.transactions,
        "clients": load.clients,
        "seed": load.seed,
        "quick": arguments.quick,
        "postgres": {name: value.strip("'") for name, value in COMMON.items()},
        "arms": ARMS,
        "rows": ROWS,
        "script": SCRIPT,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=int, default=20)
    parser.add_argument("--transactions", type=int, default=100_000)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--seed", type=int, default=15)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--minutes", type=float, default=15, help="begin no round that would end after this")
    parser.add_argument("--resume", action="store_true", help="add repeats to those in the results, up to --repeats")
    parser.add_argument("--quick", action="store_true", help="three distances, once, a tenth of the transactions")
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.scale, arguments.transactions, arguments.repeats = 5, arguments.transactions // 10, 1
        if arguments.results == RESULTS:
            arguments.results = None
        if arguments.resume:
            parser.error("--quick has nothing to resume")
    load = Load(
        arguments.scale,
        arguments.transactions - arguments.transactions % arguments.clients,
        arguments.clients,
        arguments.seed,
    )
    # Ending early leaves neither a server nor its files.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended before it was done; nothing is written"))
    try:
        with template(load) as cluster:
            distances = QUICK_DISTANCES if arguments.quick else DISTANCES
            about = settings(cluster, load, arguments)
            done = earlier(arguments.results or RESULTS, about) if arguments.resume else []
            runs = rounds(cluster, distances, done, arguments)
    except RunError as error:
        sys.exit(f"the run was not clean: {error}")
    points = series(runs)
    print(show(points))
    if arguments.results is not None:
        document = {"settings": about, "method": METHOD, "series": points, "runs": [asdict(run) for run in runs]}
        for path in (arguments.results, *([SHIPPED] if arguments.results == RESULTS else [])):
            path.write_text(json.dumps(document, indent=2) + "\n")
            print(f"written to {path}")


if __name__ == "__main__":
    main()
