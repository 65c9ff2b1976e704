"""Half an hour of creating and removing everything an engine has: nothing that was removed may be paid for.

The real programs, one tenant that stays, and a loop of tables, branches, computes, databases and tenants that come
and go (`storage/system/churning.py`). The command fails when a figure grows from the middle third to the last, or
rises by a line in both halves and over all of the run.

The result is `results/churn.json`, and `results/churn.png` draws it: sizes in bytes, times in seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULT = ROOT / "bench/results/churn.json"
sys.path.insert(0, str(ROOT / "storage/system"))

from churning import (  # noqa: E402
    FAILURES,
    LINE_CYCLES,
    SOAK_FIGURES,
    Churn,
    are_enough_for_lines,
    churning,
    grown,
    lines,
    rising,
    settled,
)
from weirbench.charts import churn as chart  # noqa: E402
from weirbench.progress import say  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=1800.0)
    parser.add_argument("--remark", default="", help="what else the machine did, for the result")
    parser.add_argument("--result", type=Path, default=RESULT)
    arguments = parser.parse_args()
    churn: Churn | None = None
    stopped: str | None = None
    root = Path(tempfile.mkdtemp(prefix="weir-churn-"))
    with churning(root) as running:
        try:
            churn = Churn(running, say)
            churn.run(arguments.seconds)
            settled(churn)
        except FAILURES as error:
            stopped = f"{type(error).__name__}: {error}"
    if churn is None:
        say(f"It did not begin: {stopped}")
        return 1
    try:
        found = grown(churn.samples, SOAK_FIGURES)
    except ValueError as error:
        found, stopped = [], stopped or str(error)
    by_cycle: dict[str, float] | None = None
    if are_enough_for_lines(churn.samples):
        by_cycle = lines(churn.samples)
        found += rising(by_cycle)
    else:
        say(f"{churn.cycles} cycles show no line: that takes {2 * LINE_CYCLES}")
    result = document(churn, found, stopped, arguments.remark, by_cycle)
    arguments.result.write_text(json.dumps(result, indent=1) + "\n")
    if churn.samples:
        chart(
            churn.samples,
            [(figure.name, figure.unit) for figure in SOAK_FIGURES],
            arguments.result.with_suffix(".png"),
        )
    for line in [*found, *([f"It stopped: {stopped}"] if stopped else [])]:
        say(line)
    say(f"{churn.cycles} cycles; {'nothing grows' if not found and not stopped else 'it has failed'}")
    return 1 if found or stopped else 0


def document(
    churn: Churn, found: list[str], stopped: str | None, remark: str, by_cycle: dict[str, float] | None
) -> dict[str, Any]:
    return {
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {"cpus": os.cpu_count(), "kernel": platform.release()},
        "remark": remark,
        "cycles": churn.cycles,
        "grown": found,
        "stopped": stopped,
        "rise_per_cycle": by_cycle and {name: round(value, 3) for name, value in by_cycle.items()},
        "tolerance": {
            figure.name: {"share": figure.share, "slack": figure.slack, "rise_per_cycle": figure.rise}
            for figure in SOAK_FIGURES
        },
        "samples": [{name: round(value, 1) for name, value in sample.items()} for sample in churn.samples],
    }


if __name__ == "__main__":
    sys.exit(main())
