"""`make torture-control`: trials one after the other on one Weir, one seed each, and what came of them.

The Weir is one of its own, in a temporary directory; it is gone afterwards. What trials that are not clean leave
behind is kept below --keep: histories, results, logs.

    e2e/system/storm/run.py --seed 17 --trials 1     the changes and kills of one seed again
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPO = HERE.parents[2]
sys.path[:0] = [str(HERE.parent), *(str(REPO / part) for part in ("bench", "storage/torture", "storage/system"))]

from stack import Stack, running_stack  # noqa: E402
from weirtorture import programs  # noqa: E402

from storm.schedule import CHANGES, SAFEKEEPERS, VICTIMS, draw  # noqa: E402
from storm.trial import Result, Trial  # noqa: E402

RESULT = REPO / "bench/results/torture_control.json"
# Fewer trials than these are a look at something, no result to keep.
MANY = 10


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)  # noqa: T201


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", "-n", type=int, default=30, help="how many (30)")
    parser.add_argument("--seed", type=int, default=1, help="of the first trial; the next ones count on (1)")
    parser.add_argument("--keep", type=Path, default=Path(tempfile.gettempdir()) / "weir-storm", help="artefacts")
    parser.add_argument("--show", action="store_true", help="print the schedules and run nothing")
    return parser.parse_args()


def summary(results: list[Result]) -> dict[str, object]:
    """As `bench/results/torture_control.json` has it."""
    killed: Counter[str] = Counter()
    changes: Counter[str] = Counter()
    for result in results:
        killed.update(result.killed)
        changes.update(words.split()[0] for words in result.changes)
    describe = ["git", "-C", str(REPO), "describe", "--always", "--dirty", "--abbrev=12"]
    return {
        "trials": len(results),
        "clean": sum(result.clean for result in results),
        "acknowledged": sum(result.acknowledged for result in results),
        "unknown": sum(result.unknown for result in results),
        "lost": sum(len(result.lost) for result in results),
        "wrong": sum(len(result.wrong) for result in results),
        "undecided": sum(len(result.undecided) for result in results),
        "stuck": sum(bool(result.stuck) for result in results),
        "broken_requests": sum(result.broken_requests for result in results),
        "failed_operations": sum(len(result.failed_operations) for result in results),
        "killed": {victim: killed[victim] for victim in VICTIMS},
        "changes": {change: changes[change] for change in CHANGES},
        "revision": subprocess.run(describe, capture_output=True, text=True, check=True).stdout.strip(),
        "each": [result.__dict__ for result in results],
    }


def keep_logs(stack: Stack, keep: Path) -> None:
    for log in [*(stack.home / "log").glob("*.log"), *(stack.home / "computes").glob("*/log")]:
        shutil.copy(log, keep / f"{log.parent.name}-{log.name}")


def main() -> int:
    chosen = options()
    plans = [draw(seed) for seed in range(chosen.seed, chosen.seed + chosen.trials)]
    if chosen.show:
        for plan in plans:
            say(f"seed {plan.seed}: " + "; ".join(change.words() for change in plan.changes))
        return 0
    programs.build()
    results: list[Result] = []
    say(f"{len(plans)} trials; artefacts below {chosen.keep}")
    with running_stack({"WEIR_SAFEKEEPERS_COUNT": str(SAFEKEEPERS)}) as stack:
        for plan in plans:
            say(f"seed {plan.seed}: " + "; ".join(change.words() for change in plan.changes))
            keep = chosen.keep / f"seed-{plan.seed}"
            shutil.rmtree(keep, ignore_errors=True)
            result = Trial(stack, plan, keep).run()
            results.append(result)
            say(result.words())
            for text in [*result.found(), *result.failed_operations][:10]:
                say(f"    {text}")
            if result.clean:
                shutil.rmtree(keep, ignore_errors=True)
            else:
                keep_logs(stack, keep)
                say(f"    kept: {keep}")
            if chosen.trials >= MANY:
                RESULT.write_text(json.dumps(summary(results), indent=1) + "\n")
    clean = sum(result.clean for result in results)
    say(f"{len(results)} trials, {clean} of them clean")
    return 0 if clean == len(results) else 1


if __name__ == "__main__":
    raise SystemExit(main())
