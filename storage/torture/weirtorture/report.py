"""The result of many trials, as `bench/results/torture.json` has it."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

from .schedule import KINDS
from .trial import Result

UNAVAILABLE = (
    "longest time of a trial between two successive commits that clients were told of, less the time in it during "
    "which a majority of voters, the compute or the pageserver was away by a fault; recovery afterwards counts"
)


def percentile(values: list[float], share: float) -> float:
    """The smallest value that at least this share of all does not exceed; 0 of none."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else 0.0


def _words(entry: dict[str, Any]) -> str:
    """When a fault really began and ended, what it was, and where it was not done, why."""
    fault = entry["fault"]
    what = f"{fault['kind']} {fault['safekeepers']}" if fault["safekeepers"] else fault["kind"]
    details = "".join(f" {name}={value}" for name, value in fault["details"].items())
    outcome = "" if entry["outcome"] == "done" else f": {entry['outcome']}"
    return f"{entry['began']:.1f}-{entry['ended']:.1f} s {what}{details}{outcome}"


def summary(results: list[Result], seconds: float, revision: str, mounting: bool) -> dict[str, Any]:
    done = Counter(kind for result in results for kind in result.done)
    left_out = Counter(
        entry["fault"]["kind"] for result in results for entry in result.faults if entry["outcome"] != "done"
    )
    trials = Counter(kind for result in results for kind in set(result.done))
    waits = [result.unavailable_seconds for result in results]
    return {
        "trials": len(results),
        "clean": sum(result.clean for result in results),
        "acknowledged": sum(result.acknowledged for result in results),
        "unknown": sum(result.unknown for result in results),
        "lost": sum(len(result.lost) for result in results),
        "wrong": sum(len(result.wrong) for result in results),
        "undecided": sum(len(result.undecided) for result in results),
        "stuck": sum(bool(result.stuck) for result in results),
        "checked_operations": sum(result.history.get("operations", 0) for result in results),
        "unavailable_seconds_p50": percentile(waits, 0.5),
        "unavailable_seconds_p99": percentile(waits, 0.99),
        "unavailable_is": UNAVAILABLE,
        "by_fault": {
            kind: {"injected": done[kind], "trials": trials[kind], "left_out": left_out[kind]} for kind in KINDS
        },
        "load_seconds": seconds,
        "full_disks_can_be_made": mounting,
        "seeds": [result.seed for result in results],
        "not_clean": {
            str(result.seed): [*result.lost, *result.wrong, *result.undecided, *result.stuck][:20]
            for result in results
            if not result.clean
        },
        "each": [
            {
                "seed": result.seed,
                "postgres": result.postgres,
                "acknowledged": result.acknowledged,
                "unavailable_seconds": result.unavailable_seconds,
                "excused_seconds": result.excused_seconds,
                "faults": [_words(entry) for entry in result.faults],
            }
            for result in results
        ],
        "postgres_minors": sorted({result.postgres for result in results}),
        "revision": revision,
    }


def write(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=1) + "\n")
