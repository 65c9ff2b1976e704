"""A trial in a process of its own: in a network of its own, too, where the kernel and our rights allow one.

Whoever wants a trial uses `run`, from as many threads as it likes; the other half, `python -m weirtorture.apart`, is
what it starts. A trial whose process ends without a result has no verdict, and says so.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

from harness import PG_BIN

from .cluster import can_mount, server_minor
from .namespaces import APART, OUTSIDE, can_separate, is_apart, own_network
from .schedule import Schedule, draw
from .trial import Result, Trial

HERE = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Machine:
    """What trials can do here."""

    mounting: bool
    namespaces: bool

    @classmethod
    def observe(cls) -> Machine:
        return cls(can_mount(), can_separate())


def run(
    machine: Machine, seed: int, seconds: float, keep: Path, pg_bin_dir: Path = PG_BIN, only: tuple[str, ...] = ()
) -> Result:
    plan = draw(seed, seconds, mounting=machine.mounting, only=only)
    command = [
        *(APART if machine.namespaces else []),
        *(sys.executable, "-m", "weirtorture.apart"),
        *("--seed", str(seed), "--seconds", str(seconds), "--keep", str(keep), "--pg-bin-dir", str(pg_bin_dir)),
        *(["--mounting"] if machine.mounting else []),
        *(["--namespaces"] if machine.namespaces else []),
        *(word for kind in only for word in ("--only", kind)),
    ]
    path = os.pathsep.join([str(HERE), str(HERE.parent / "system"), os.environ.get("PYTHONPATH", "")])
    (keep / "result.json").unlink(missing_ok=True)
    with _process(command, {**os.environ, "PYTHONPATH": path, OUTSIDE: own_network()}) as process:
        said, _ = process.communicate()
    return _result(keep, plan, server_minor(pg_bin_dir), f"the trial ended with {process.returncode}: {said[-2000:]}")


@contextlib.contextmanager
def _process(command: list[str], environment: dict[str, str]) -> Generator[subprocess.Popen[str]]:
    """Asked to end, not killed, when whoever waits for it is interrupted: it leaves no process and no mount."""
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(120)


def _result(keep: Path, plan: Schedule, postgres: str, otherwise: str) -> Result:
    try:
        return Result(**json.loads((keep / "result.json").read_text()))
    except (OSError, json.JSONDecodeError):
        return Result(plan.seed, postgres, plan.as_json(), stuck=[otherwise])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--keep", type=Path, required=True)
    parser.add_argument("--pg-bin-dir", type=Path, required=True)
    parser.add_argument("--mounting", action="store_true")
    parser.add_argument("--namespaces", action="store_true")
    parser.add_argument("--only", action="append", default=[])
    chosen = parser.parse_args()
    if chosen.namespaces:
        if not is_apart():
            raise SystemExit("this process has the machine's own network, which stays as it is")
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    plan = draw(chosen.seed, chosen.seconds, mounting=chosen.mounting, only=tuple(chosen.only))
    Trial(plan, chosen.keep, chosen.pg_bin_dir, namespaces=chosen.namespaces).run()
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    raise SystemExit(main())
