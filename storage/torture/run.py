"""`make torture`: trials, --jobs at a time, one seed each, and what came of them.

Trials stop at --minutes, whatever is left. They are added to the result that is there when that is of the same code
and of trials of the same length; else it is replaced. Either is said at the start. What a trial that is not clean
leaves behind is kept below --keep: its history, schedule, logs of all programs, the safekeepers' disks and the
object store.

    storage/torture/run.py --seed 17 --trials 1     the storm of one seed again
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPO = HERE.parents[1]
sys.path[:0] = [str(HERE), str(HERE.parent / "system")]

from harness import PG_BIN, default_bin_dir  # noqa: E402
from weirtorture import apart, programs  # noqa: E402
from weirtorture.cluster import server_minor  # noqa: E402
from weirtorture.report import added, code_version, entry, read, summary, write  # noqa: E402
from weirtorture.schedule import KINDS, Schedule, draw  # noqa: E402
from weirtorture.trial import Result  # noqa: E402

RESULT = REPO / "bench/results/torture.json"
# Fewer trials than these are a look at something, no result to keep.
MANY = 50


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)  # noqa: T201


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", "-n", type=int, default=200, help="how many (200)")
    parser.add_argument("--seed", type=int, default=1, help="of the first trial; the next ones count on (1)")
    parser.add_argument("--seconds", type=float, default=20, help="of load and faults in each trial (20)")
    parser.add_argument("--jobs", type=int, default=1, help="trials side by side, which makes each one slower (1)")
    parser.add_argument("--minutes", type=float, default=360, help="after which no further trial begins (360)")
    parser.add_argument("--only", action="append", default=[], choices=sorted(KINDS), help="only faults of this kind")
    usual = (
        f"where the result goes ({RESULT.relative_to(REPO)}; below --keep when there are fewer than {MANY} trials)"
    )
    parser.add_argument("--result", type=Path, help=usual)
    parser.add_argument("--remark", default="", help="kept in the result: what else the machine did")
    parser.add_argument("--no-result", action="store_true", help="write no result")
    parser.add_argument("--keep", type=Path, default=Path(tempfile.gettempdir()) / "weir-torture", help="artefacts")
    parser.add_argument("--keep-all", action="store_true", help="artefacts of trials that are clean, too")
    parser.add_argument("--show", action="store_true", help="print the schedules and run nothing")
    return parser.parse_args()


def servers(folder: Path) -> list[Path]:
    """The minors of Postgres 15 that are here, where the user that runs Postgres can read them."""
    found = [PG_BIN]
    cache = Path(os.environ.get("WEIR_CACHE", Path.home() / ".cache/weir"))
    for home in sorted(cache.glob("postgres-15.*")):
        if server_minor(home / "bin") not in {server_minor(known) for known in found}:
            shutil.copytree(home, folder / home.name, symlinks=True)
            found.append(folder / home.name / "bin")
    return found


def replay(result: Result) -> str:
    return f"replay: make torture N=1 SEED={result.seed}  (Postgres {result.postgres})"


class Book:
    """The result file, written after each trial."""

    def __init__(self, chosen: argparse.Namespace, machine: apart.Machine) -> None:
        usual = RESULT if chosen.trials >= MANY else chosen.keep / "torture.json"
        self.file: Path | None = None if chosen.no_result else chosen.result or usual
        describe = ["git", "-C", REPO, "describe", "--always", "--dirty", "--abbrev=12"]
        self.facts = {
            "load_seconds": chosen.seconds,
            "full_disks_can_be_made": machine.mounting,
            "partitions_of_nodes": "network namespaces" if machine.namespaces else "the proxy's links",
            "jobs": chosen.jobs,
            "remark": chosen.remark,
            "code": code_version(REPO),
            "revision": subprocess.run(describe, capture_output=True, text=True, check=True).stdout.strip(),
        }
        self.before = read(self.file) if self.file else None
        self.results: list[Result] = []
        known = len((self.before or {}).get("each", []))
        kept = len(added(self.before, [], self.facts))
        self.said = (
            f"adds to the {kept} trials of" if kept else f"replaces the {known} trials of" if known else "begins"
        )

    def add(self, result: Result) -> None:
        self.results.append(result)
        if self.file is None:
            return
        each = added(self.before, [entry(it) for it in self.results], self.facts)
        write(self.file, summary(each, self.facts))


def main() -> int:
    chosen = options()
    machine = apart.Machine.observe()
    only = tuple(chosen.only)
    seeds = range(chosen.seed, chosen.seed + chosen.trials)
    plans = [draw(seed, chosen.seconds, mounting=machine.mounting, only=only) for seed in seeds]
    if chosen.show:
        for plan in plans:
            say(f"seed {plan.seed}:\n" + "\n".join(f"    {fault.words()}" for fault in plan.faults))
        return 0
    programs.build()
    chosen.keep.mkdir(parents=True, exist_ok=True)
    book = Book(chosen, machine)
    say(f"{len(plans)} trials; programs of {default_bin_dir()}; revision {book.facts['revision']}")
    say(f"artefacts below {chosen.keep}")
    if not chosen.no_result:
        say(f"the result {book.said} {book.file}")
    if not machine.mounting:
        say("no file system can be mounted here: no disk will be full")
    if not machine.namespaces:
        say("no network namespace can be made here: the proxy cuts off safekeepers instead")
    run_all(plans, chosen, machine, book)
    clean = sum(result.clean for result in book.results)
    say(f"{len(book.results)} trials, {clean} of them clean")
    return 0 if book.results and clean == len(book.results) else 1


def run_all(plans: list[Schedule], chosen: argparse.Namespace, machine: apart.Machine, book: Book) -> None:
    """Whoever is asked to end begins no further trial; those that run end by themselves, with no process and no mount
    left."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    until = time.monotonic() + chosen.minutes * 60
    one = threading.Lock()
    with tempfile.TemporaryDirectory(prefix="weir-torture-servers-") as folder:
        Path(folder).chmod(0o755)
        minors = servers(Path(folder))

        def trial(plan: Schedule) -> None:
            if stop.is_set() or time.monotonic() > until:
                return
            say(f"seed {plan.seed}: " + "; ".join(fault.words() for fault in plan.faults))
            keep = chosen.keep / f"seed-{plan.seed}"
            only, minor = tuple(chosen.only), minors[plan.seed % len(minors)]
            result = apart.run(machine, plan.seed, chosen.seconds, keep, minor, only)
            with one:
                report(result, keep, chosen.keep_all)
                book.add(result)

        with ThreadPoolExecutor(chosen.jobs) as pool:
            list(pool.map(trial, plans))
    if left := len(plans) - len(book.results):
        why = "it was asked to end" if stop.is_set() else f"the {chosen.minutes:.0f} minutes are over"
        say(f"{why}: {left} trials are not run")


def report(result: Result, keep: Path, keep_all: bool) -> None:
    """What came of it; artefacts of a clean trial go unless all are wanted."""
    say(result.words())
    for text in [*result.lost, *result.wrong, *result.undecided, *result.stuck][:10]:
        say(f"    {text}")
    if result.clean and not keep_all:
        shutil.rmtree(keep, ignore_errors=True)
    else:
        say(f"    kept: {keep}; {replay(result)}")


if __name__ == "__main__":
    raise SystemExit(main())
