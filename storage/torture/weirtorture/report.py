"""The result of many trials, as `bench/results/torture.json` has it.

Everything in it is counted from `each`, which has one entry a trial; so results of the same code are added to each
other by putting their entries together.
"""

from __future__ import annotations

import hashlib
import json
import math
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

from .schedule import KINDS
from .trial import Result

# What a trial's outcome depends on, from the root of the repository.
CODE = ("storage/Cargo.lock", "storage/crates", "storage/system", "storage/torture")
UNAVAILABLE = (
    "longest time of a trial between two successive commits that clients were told of, less the time in it during "
    "which a majority of voters, the compute or the pageserver was away by a fault; recovery afterwards counts"
)


def percentile(values: list[float], share: float) -> float:
    """The smallest value that at least this share of all does not exceed; 0 of none."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else 0.0


def code_version(repository: Path) -> str | None:
    """Of the engine and of its torture, as committed; None where files differ from what is committed."""
    git = ["git", "-C", str(repository)]
    changed = subprocess.run([*git, "status", "--porcelain", "--", *CODE], capture_output=True, check=True).stdout
    if changed:
        return None
    trees = [*git, "rev-parse", *(f"HEAD:{part}" for part in CODE)]
    return hashlib.sha256(subprocess.run(trees, capture_output=True, check=True).stdout).hexdigest()[:12]


def _words(entry: dict[str, Any]) -> str:
    """When a fault really began and ended, what it was, and where it was not done, why."""
    fault = entry["fault"]
    what = f"{fault['kind']} {fault['safekeepers']}" if fault["safekeepers"] else fault["kind"]
    details = "".join(f" {name}={value}" for name, value in fault["details"].items())
    outcome = "" if entry["outcome"] == "done" else f": {entry['outcome']}"
    return f"{entry['began']:.1f}-{entry['ended']:.1f} s {what}{details}{outcome}"


def entry(result: Result) -> dict[str, Any]:
    """What is kept of one trial."""
    left_out = Counter(it["fault"]["kind"] for it in result.faults if it["outcome"] != "done")
    return {
        "seed": result.seed,
        "postgres": result.postgres,
        "namespaces": result.namespaces,
        "acknowledged": result.acknowledged,
        "unknown": result.unknown,
        "checked_operations": result.history.get("operations", 0),
        "unavailable_seconds": result.unavailable_seconds,
        "excused_seconds": result.excused_seconds,
        "done": dict(sorted(Counter(result.done).items())),
        "left_out": dict(sorted(left_out.items())),
        "faults": [_words(it) for it in result.faults],
        **{what: getattr(result, what) for what in ("lost", "wrong", "undecided", "stuck")},
    }


def _clean(trial: dict[str, Any]) -> bool:
    return not (trial["lost"] or trial["wrong"] or trial["undecided"] or trial["stuck"])


def added(before: dict[str, Any] | None, new: list[dict[str, Any]], facts: dict[str, Any]) -> list[dict[str, Any]]:
    """The entries of an earlier result of the same code, with trials of the same length, and the new ones.

    A seed that was run again counts once more: a trial that was not clean is never taken back by one that is.
    """
    if before is None or facts["code"] is None:
        return new
    if any(before.get(name) != facts[name] for name in ("code", "load_seconds")):
        return new
    return [*before["each"], *new]


def summary(each: list[dict[str, Any]], facts: dict[str, Any]) -> dict[str, Any]:
    """`facts` are what holds for all trials: `code`, `revision`, `load_seconds`, what the machine allows, remarks."""
    waits = [trial["unavailable_seconds"] for trial in each]

    def total(what: str) -> int:
        return sum(trial[what] if isinstance(trial[what], int) else len(trial[what]) for trial in each)

    return {
        "trials": len(each),
        "clean": sum(_clean(trial) for trial in each),
        "acknowledged": total("acknowledged"),
        "unknown": total("unknown"),
        "lost": total("lost"),
        "wrong": total("wrong"),
        "undecided": total("undecided"),
        "stuck": sum(bool(trial["stuck"]) for trial in each),
        "checked_operations": total("checked_operations"),
        "unavailable_seconds_p50": percentile(waits, 0.5),
        "unavailable_seconds_p99": percentile(waits, 0.99),
        "unavailable_is": UNAVAILABLE,
        "by_fault": {
            kind: {
                "injected": sum(trial["done"].get(kind, 0) for trial in each),
                "trials": sum(kind in trial["done"] for trial in each),
                "left_out": sum(trial["left_out"].get(kind, 0) for trial in each),
            }
            for kind in KINDS
        },
        "trials_with_namespaces": sum(trial["namespaces"] for trial in each),
        "seeds": [trial["seed"] for trial in each],
        "not_clean": {
            str(trial["seed"]): [*trial["lost"], *trial["wrong"], *trial["undecided"], *trial["stuck"]][:20]
            for trial in each
            if not _clean(trial)
        },
        "postgres_minors": sorted({trial["postgres"] for trial in each}),
        **facts,
        "each": each,
    }


def read(path: Path) -> dict[str, Any] | None:
    """An earlier result, or none."""
    return json.loads(path.read_text()) if path.exists() else None


def write(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=1) + "\n")
