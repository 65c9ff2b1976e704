"""`scripts/test`: run every check and test, keep all output, show what failed, account for the time."""

from __future__ import annotations

import argparse
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby

from . import history, results, setup
from .paths import LOGS, REPO, tool_environment
from .results import Count
from .run import Finished, duration, run_logged, say
from .suite import Step, steps

LEDGER = REPO / ".ledger"
BAR = 24
# Of a line of a failed step's output; its log has the whole.
LINE = 300
# Property tests draw the same cases in every run, so that a commit passes or fails and does not do both; `make soak`
# draws others.
SEED = "20261122"


@dataclass(frozen=True)
class Entry:
    step: Step
    seconds: float
    status: int
    count: Count
    failures: tuple[str, ...] = ()

    @property
    def good(self) -> bool:
        return self.status == 0 and self.count.failed == 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/test", description=__doc__)
    parser.add_argument("--fast", action="store_true", help="only the steps of `make check`")
    parser.add_argument("--long", action="store_true", help="only the steps of `make test-long`")
    parser.add_argument("--only", metavar="STEP", action="append", help="only this step (repeatable)")
    parser.add_argument("--skip", metavar="STEP", action="append", default=[], help="leave this step out")
    parser.add_argument("--no-setup", action="store_true", help="trust that everything is installed")
    parser.add_argument("--list", action="store_true", help="list the steps and stop")
    options = parser.parse_args()
    known = {step.name for step in steps()}
    unknown = sorted(set((options.only or []) + options.skip) - known)
    if unknown:
        parser.error(f"no such step: {', '.join(unknown)} (see --list)")
    if options.list:
        for step in steps():
            say(f"{step.name:15} {'fast' if step.fast else 'long' if step.long else '    '}  {step.what}")
        return 0
    chosen = choose(options)
    started = time.monotonic()
    checkout = history.checkout()
    if not options.no_setup:
        # Building the engine and the console is a step of the tests themselves, but of the long ones.
        built = set[str]() if options.long else {"storage", "console"}
        wanted = [step for step in setup.STEPS if step.name not in built]
        if setup.run_steps(wanted) != 0:
            return 1
    set_up = time.monotonic() - started
    minors = history.minors()
    say("Postgres " + ", ".join(minors.values()))
    entries = run_all(chosen)
    seconds = time.monotonic() - started
    if chosen == [step for step in steps() if not step.long]:
        keep(entries, checkout, minors, seconds)
    return report(entries, set_up, seconds, minors)


def choose(options: argparse.Namespace) -> list[Step]:
    """A step that is named is run, whatever else it belongs to."""
    if options.only:
        chosen = [step for step in steps() if step.name in options.only]
    else:
        chosen = [step for step in steps() if step.long == options.long and (step.fast or not options.fast)]
    return [step for step in chosen if step.name not in options.skip]


def keep(entries: list[Entry], checkout: history.Checkout, minors: dict[str, str], seconds: float) -> None:
    """A whole run is written down, whichever way it ended."""
    failed = [entry.step.name for entry in entries if not entry.good]
    history.append(
        history.Run(
            at=datetime.now(UTC).isoformat(timespec="seconds"),
            tree=checkout.tree,
            clean=checkout.clean,
            outcome="failed" if failed else "ok",
            failed=failed,
            minors=minors,
            seconds=round(seconds, 1),
        )
    )


def stages(chosen: list[Step]) -> list[list[list[Step]]]:
    """What follows each other: of each stage the lanes that run side by side, of each lane its steps in turn."""
    found: list[list[list[Step]]] = []
    for _, group in groupby(chosen, key=lambda step: bool(step.lane)):
        together = list(group)
        names = dict.fromkeys(step.lane for step in together)
        found.append([[step for step in together if step.lane == name] for name in names])
    return found


def run_all(chosen: list[Step]) -> list[Entry]:
    entries: dict[str, Entry] = {}
    number = {step.name: f"[{number}/{len(chosen)}]" for number, step in enumerate(chosen, 1)}
    for lanes in stages(chosen):
        stop = threading.Event()

        def run_lane(lane: list[Step], stop: threading.Event = stop, beside: bool = len(lanes) > 1) -> None:
            for step in lane:
                entries[step.name] = run_step(step, number[step.name], stop, beside)

        if len(lanes) == 1:
            run_lane(lanes[0])
            continue
        with ThreadPoolExecutor(len(lanes)) as pool:
            try:
                for ended in as_completed([pool.submit(run_lane, lane) for lane in lanes]):
                    ended.result()
            finally:
                stop.set()
    return [entries[step.name] for step in chosen]


def run_step(step: Step, number: str, stop: threading.Event, beside: bool) -> Entry:
    say(f"{number} {step.name}: {step.what}")
    if not step.exists:
        say(f"      FAILED: {step.cwd} does not exist")
        return Entry(step, 0.0, 1, Count(0, 1))
    result = run_logged(
        step.command,
        LEDGER / "output" / f"{step.name}.log",
        beside=step.name if beside else "",
        cancelled=stop,
        cwd=step.cwd,
        environment={"PROPTEST_RNG_SEED": SEED, **tool_environment(), **step.environment},
        timeout=step.minutes * 60,
    )
    text = result.log.read_text(errors="replace")
    failures = tuple(results.failures(text)) if result.status else ()
    entry = Entry(step, result.seconds, result.status, step.count(text, result.status), failures)
    say_outcome(entry, result, f"{step.name} " if beside else "")
    return entry


def say_outcome(entry: Entry, result: Finished, name: str) -> None:
    tests = f", {entry.count.passed} passed" if entry.step.count.__name__ != "single" else ""
    if entry.good:
        say(f"      {name}ok{tests} ({duration(entry.seconds)})")
        return
    say(f"      {name}FAILED{tests}, {entry.count.failed} failed, status {entry.status} ({duration(entry.seconds)})")
    # First, because a test that logged much fills the end of the output with it.
    for line in entry.failures:
        say("      > " + line[:LINE])
    say("      ---- the end of its output; all of it: " + str(result.log))
    for line in result.tail(40).splitlines():
        say("      | " + line[:LINE])


def report(entries: list[Entry], set_up: float, total: float, minors: dict[str, str]) -> int:
    """The ledger: where the time went, step by step, what it ran on, and one line that says how it ended.

    `total`, seconds, is what passed; steps that ran side by side add up to more."""
    say()
    say(f"Where the time went, on Postgres {', '.join(minors.values())}")
    rows = [("set-up", set_up, "ok", "")]
    for entry in entries:
        tests = (
            ""
            if entry.step.count.__name__ == "single"
            else f"{entry.count.passed}/{entry.count.passed + entry.count.failed}"
        )
        rows.append((entry.step.name, entry.seconds, "ok" if entry.good else "FAILED", tests))
    for name, seconds, outcome, tests in rows:
        share = seconds / total if total else 0.0
        bar = "#" * round(share * BAR)
        say(f"  {name:15} {duration(seconds):>13}  {share:5.1%}  {bar:{BAR}}  {outcome:6}  {tests}")
    say(f"  {'total':15} {duration(total):>13}")
    for lanes in stages([entry.step for entry in entries]):
        if len(lanes) > 1:
            said = " | ".join(", ".join(step.name for step in lane) for lane in lanes)
            say(f"  side by side: {said}")
    LEDGER.mkdir(exist_ok=True)
    document = {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": round(total, 1),
        "minors": minors,
        "steps": [{"name": n, "seconds": round(s, 1), "outcome": o, "tests": t} for n, s, o, t in rows],
    }
    (LEDGER / "ledger.json").write_text(json.dumps(document, indent=2) + "\n")
    overall = sum((entry.count for entry in entries), Count())
    failed = [entry.step.name for entry in entries if not entry.good]
    for entry in entries:
        # Last, so that whoever sees the end of the output alone still sees what broke.
        for line in entry.failures:
            say(f"  {entry.step.name}: {line[:LINE]}")
    if failed:
        say(f"Failed: {', '.join(failed)}. Output of every step: {LEDGER / 'output'}, of set-up: {LOGS}")
    say(f"{overall.passed} passed, {overall.failed} failed")
    return 1 if failed else 0
