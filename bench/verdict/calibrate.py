"""How often verdicts are wrong, on recorded traces: `make bench-verdict`.

Constants of the policy were chosen on the trace(s) named in `CHOSEN_ON`; every figure reported is of the others. A
false alarm is a regression called on a compute to which nothing was done; a planted regression is caught when a
compute or the wave's test calls it before the third wave begins. What merely holds is counted apart: it neither
promotes nor is it caught.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

# Many small products: threads of the linear algebra library would only wait for each other.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

from verdict.slices import NOTHING, Planted
from verdict.traces import SECONDS, Trace, load_all
from verdict.trials import (
    CANARIES,
    LOOKS,
    SECOND_WAVE,
    Fleet,
    Group,
    Judged,
    Share,
    disjoint,
    fleet,
    groups,
    judge_group,
)
from weir_workflows.rollout.verdict import DEFAULT_POLICY, Policy
from weir_workflows.rollout.verdict.compute import METHOD as COMPUTE_METHOD
from weir_workflows.rollout.verdict.wave import METHOD as WAVE_METHOD

RESULT = Path(__file__).resolve().parents[1] / "results" / "verdict.json"
CHOSEN_ON = ("session-1",)
HEADLINE_SECONDS = 120
WINDOW_SECONDS = (HEADLINE_SECONDS, 240, 60)
PLANTED = (NOTHING, Planted("whole", 1.25), Planted("tail", 1.25), Planted("tail", 1.5))
GROUP_SIZE = 5
FLEETS = 400
# A wave is drawn from several moments of several traces; a single trace of long windows has too few.
FEWEST_MOMENTS = 6
SEED = 20260101


@dataclass(frozen=True)
class Task:
    group: Group
    planted: Planted
    policy: Policy
    alone: bool


# Read by forked workers: handing traces to each of them would take longer than judging.
_tasks: list[Task] = []


def _run(index: int) -> Judged:
    task = _tasks[index]
    return judge_group(task.group, task.planted, task.policy, alone=task.alone)


def run(tasks: list[Task], processes: int) -> list[Judged]:
    _tasks[:] = tasks
    with get_context("fork").Pool(processes) as pool:
        return pool.map(_run, range(len(tasks)), chunksize=4)


@dataclass(frozen=True)
class Row:
    """One kind of trial: windows of so many seconds, and what was planted."""

    window_seconds: int
    planted: Planted
    alone: bool
    regress: Share
    passed: Share
    fleets: list[Fleet]
    disjoint: int

    def of_fleets(self, name: str) -> Share:
        return Share(sum(bool(getattr(one, name)) for one in self.fleets), len(self.fleets))

    @property
    def disjoint_fleets(self) -> int:
        """Fleets are redrawn from the same judged slices; so many share none."""
        return max(1, self.disjoint // (CANARIES + SECOND_WAVE))

    @property
    def promoted(self) -> Share:
        return Share(sum(one.wave_answer == "pass" and not one.stopped for one in self.fleets), len(self.fleets))

    def as_json(self) -> dict[str, Any]:
        entry: dict[str, Any] = {
            "window_seconds": self.window_seconds,
            "planted": {"shape": self.planted.shape, "ratio": self.planted.ratio},
            "controls": "none" if self.alone else "concurrent",
            "per_compute": {
                "n": self.regress.of,
                "n_disjoint": self.disjoint,
                "regress": _numbers(self.regress, self.disjoint),
                "pass": _numbers(self.passed, self.disjoint),
            },
        }
        if self.fleets:
            entry["two_waves"] = {
                "n": len(self.fleets),
                "n_disjoint": self.disjoint_fleets,
                "stopped": _numbers(self.of_fleets("stopped"), self.disjoint_fleets),
                "stopped_by_a_compute": _numbers(self.of_fleets("by_compute"), self.disjoint_fleets),
                "stopped_by_the_wave": _numbers(self.of_fleets("by_wave"), self.disjoint_fleets),
                "held": _numbers(self.of_fleets("held"), self.disjoint_fleets),
                "promoted": _numbers(self.promoted, self.disjoint_fleets),
            }
        return entry


def _numbers(share: Share, of: int) -> dict[str, Any]:
    low, high = share.wilson(of)
    return {"rate": round(share.rate, 4), "wilson95": [round(low, 4), round(high, 4)]}


def measure(
    found: Sequence[Trace], seconds: int, planted: Planted, policy: Policy, processes: int, *, alone: bool = False
) -> Row:
    intervals = seconds // SECONDS
    rng = np.random.default_rng([SEED, seconds])
    made = groups(
        found, intervals, GROUP_SIZE, step=max(15, intervals // 4), repeats=_repeats(intervals, planted), rng=rng
    )
    judged = run([Task(group, planted, policy, alone) for group in made], processes)
    verdicts = [outcome for one in judged for outcome in one.outcomes]
    return Row(
        seconds,
        planted,
        alone,
        regress=Share(sum(verdict.verdict == "regress" for verdict in verdicts), len(verdicts)),
        passed=Share(sum(verdict.verdict == "pass" for verdict in verdicts), len(verdicts)),
        fleets=[] if alone or len({one.key for one in judged}) < FEWEST_MOMENTS else _fleets(judged, policy),
        disjoint=disjoint(found, intervals),
    )


def _fleets(judged: Sequence[Judged], policy: Policy) -> list[Fleet]:
    return [fleet(judged, np.random.default_rng([SEED, number]), policy) for number in range(FLEETS)]


def _repeats(intervals: int, planted: Planted) -> int:
    """Longer windows fit at fewer moments, so more draws are made at each; false alarms are rare, so more again."""
    return max(1, intervals // 40) * (3 if planted == NOTHING else 1)


def table(rows: Sequence[Row]) -> str:
    head = ("window", "planted", "controls", "computes", "regress", "pass", "stopped", "computes", "wave", "held")
    lines = ["{:>7} {:>11} {:>9} | {:>8} {:>8} {:>7} | {:>8} {:>8} {:>7} {:>7} {:>8}".format(*head, "promoted")]
    for row in rows:
        what = "nothing" if row.planted.shape == "none" else f"{row.planted.shape} +{row.planted.ratio - 1:.0%}"
        line = (
            f"{row.window_seconds:>5} s {what:>11} {'none' if row.alone else '6 of 11':>9} | {row.regress.of:>8} "
            f"{row.regress.rate:>8.2%} {row.passed.rate:>7.1%} |"
        )
        if row.fleets:
            shares = [row.of_fleets(name).rate for name in ("stopped", "by_compute", "by_wave", "held")]
            line += " {:>8.1%} {:>8.1%} {:>7.1%} {:>7.1%}".format(*shares) + f" {row.promoted.rate:>8.1%}"
        lines.append(line)
    return "\n".join(lines)


def document(rows: Sequence[Row], found: Sequence[Trace], seconds: float) -> dict[str, Any]:
    headline = [row for row in rows if row.window_seconds == HEADLINE_SECONDS and not row.alone]
    nothing = next(row for row in headline if row.planted == NOTHING)
    quarter = [row for row in headline if row.planted.ratio == 1.25]
    hardest = min(quarter, key=lambda row: row.of_fleets("stopped").rate)
    return {
        "false_alarm_rate": round(nothing.regress.rate, 4),
        "caught_rate": round(hardest.of_fleets("stopped").rate, 4),
        "method": f"Per compute: {COMPUTE_METHOD}. Per wave: {WAVE_METHOD}.",
        "headline": {
            "window_seconds": HEADLINE_SECONDS,
            "false_alarm_wilson95": _numbers(nothing.regress, nothing.disjoint)["wilson95"],
            "caught_wilson95": _numbers(hardest.of_fleets("stopped"), hardest.disjoint_fleets)["wilson95"],
            "caught_shape": hardest.planted.shape,
            "pass_rate_of_unchanged_computes": round(nothing.passed.rate, 4),
            "promotion_rate_of_unchanged_fleets": round(nothing.promoted.rate, 4),
        },
        "waves": {"canaries": CANARIES, "second": SECOND_WAVE},
        "looks": list(LOOKS),
        "traces": {"chosen_on": list(CHOSEN_ON), "reported_on": [trace.name for trace in found]},
        "seed": SEED,
        "rows": [row.as_json() for row in rows],
        "seconds": round(seconds, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--chosen", action="store_true", help="look at the traces constants are chosen on; write nothing"
    )
    parser.add_argument("--windows", type=int, nargs="+", default=list(WINDOW_SECONDS), help="seconds")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--draws", type=int, default=200, help="bootstrap draws for each window")
    arguments = parser.parse_args()
    began = time.monotonic()
    found = [trace for trace in load_all() if (trace.name in CHOSEN_ON) == arguments.chosen]
    if not found:
        sys.exit("there are no traces to report on: bench/verdict/record.py makes them")
    policy = replace(DEFAULT_POLICY, draws=arguments.draws)
    rows: list[Row] = []
    for seconds in arguments.windows:
        rows += [measure(found, seconds, planted, policy, arguments.processes) for planted in PLANTED]
        rows.append(measure(found, seconds, NOTHING, policy, arguments.processes, alone=True))
        print(table(rows[-len(PLANTED) - 1 :]), flush=True)
        if not arguments.chosen and any(row.window_seconds == HEADLINE_SECONDS for row in rows):
            result = document(rows, found, time.monotonic() - began)
            RESULT.write_text(json.dumps(result, indent=2) + "\n")
            print(f"false alarms {result['false_alarm_rate']:.2%}, caught {result['caught_rate']:.1%}: {RESULT.name}")


if __name__ == "__main__":
    main()
