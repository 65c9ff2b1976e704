"""`scripts/soak`: the property tests and the simulation, again and again, each round with a seed of its own.

`make test` uses one seed, so that a commit passes or fails and does not do both. What that seed does not reach is
looked for here. A failing case of a property test is written beside the test, where every later run repeats it."""

from __future__ import annotations

import argparse
import random
import time
from pathlib import Path

from . import races
from .paths import LOGS, REPO, STORAGE, VENV, tool_environment
from .run import duration, run_logged, say

# Crates whose tests draw their inputs.
CRATES = ("layers", "wal-decode", "wal-redo", "compute", "sim")
CASES = 2000
SIMULATIONS = 500


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10, help="stop after the round that reaches this (10)")
    parser.add_argument("--seed", type=int, help="run one round with this seed, as a failing round printed it")
    parser.add_argument(
        "--races",
        action="store_true",
        help=f"instead: the engine's tests {races.TIMES} times beside busy loops, to find those that race",
    )
    parser.add_argument("--times", type=int, default=races.TIMES, help=f"with --races: rounds ({races.TIMES})")
    parser.add_argument("--crate", action="append", help="with --races: only tests of this crate (repeatable)")
    parser.add_argument("--system", action="store_true", help="with --races: the tests of storage/system as well")
    options = parser.parse_args()
    if options.races:
        return races.run(options.times, options.crate or races.CRATES, options.system)
    started, rounds = time.monotonic(), 0
    while True:
        seed = random.SystemRandom().randrange(2**32) if options.seed is None else options.seed
        rounds += 1
        failed = run_round(seed)
        if failed is not None:
            say(f"Failed with seed {seed}; again: scripts/soak --seed {seed}. All output: {failed}")
            return 1
        spent = time.monotonic() - started
        if options.seed is not None or spent >= options.minutes * 60:
            say(f"{rounds} rounds in {duration(spent)}, nothing found")
            return 0


def run_round(seed: int) -> Path | None:
    """One round. Gives the log of what failed, if something did."""
    environment = tool_environment() | {
        "PROPTEST_RNG_SEED": str(seed),
        "PROPTEST_CASES": str(CASES),
        "WEIR_SIM_FIRST_SEED": str(seed),
        "WEIR_SIM_SEEDS": str(SIMULATIONS),
    }
    crates = [argument for crate in CRATES for argument in ("-p", crate)]
    rust = ["cargo", "test", "--release", "--locked", "--tests", *crates]
    python = [
        VENV / "bin" / "pytest",
        "-q",
        f"--hypothesis-seed={seed}",
        "--hypothesis-profile=default",
        "-m",
        "hypothesis",
        "workflows/tests",
    ]
    for name, command, cwd in (("soak-rust", rust, STORAGE), ("soak-python", python, REPO)):
        say(f"seed {seed}: {name}")
        result = run_logged(command, LOGS / f"{name}.log", cwd=cwd, environment=environment, timeout=60 * 60)
        if result.status != 0:
            say(result.tail(40))
            return result.log
    return None
