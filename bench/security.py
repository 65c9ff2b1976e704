"""What Weir's protection costs: writes and starts with it and without it, in turn.

Makes two installations of its own, which run side by side and go at the end. `on` has what a new installation has,
and control groups where this machine lets it make some: TLS between parts, users of their own for services and
computes, groups for computes. `off` has all of that switched off by settings. Tokens, filters of system calls and
namespaces have no switch, and are on in both; the result says what the kernel did of them in each arm.

Each round runs pgbench's TPC-B and simple update with each number of clients in both arms, one right after the other,
and wakes a suspended database of each a few times; who is first in one round is second in the next. One arm works at
a time, the other one idles. Ratios are of runs of the same round, so that what else the machine does meets both arms
alike; figures are medians over the rounds, with least and most. Promised are at most 5 % of transactions a second for
each workload, and at most 50 ms of a start until the first row.

The compute's size is that of the machine, so that what is measured is a control group's cost, not its limit. Run as
root: without root there are no users and no groups, and TLS alone is compared. Needs no Weir that runs, and a
machine that does nothing else.

    make bench-security                                   # about 12 minutes
    bench/security.py --rounds 2 --seconds 3 --wakes 2    # whether it works: 3 minutes

Results: bench/results/security.json. Exit code 1: the measurement broke off, or a promise was not kept.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import psycopg
from wake import first_row
from weirbench import security
from weirbench.api import ApiError, Weir
from weirbench.parts import client
from weirbench.postgres import SqlError
from weirbench.progress import say
from weirbench.report import table
from weirbench.scale_stack import ScaleStack, running
from weirbench.security import OFF, ON, SWITCHES, Start
from weirbench.write.arms import SETTINGS, Arm, WeirArms
from weirbench.write.usage import wait_until_idle
from weirbench.write.workloads import Run, Workload, pgbench, prepare

from weir.cli import installation as installations
from weir.cli.errors import CliError
from weir.cli.installation import Installation
from weir.config import MOST_CU
from weir.tokens.bearer import signer_of
from weir.tokens.mint import Grant, Right

RESULTS = Path(__file__).resolve().parent / "results" / "security.json"
PORTS_EACH = 500
CORES = os.cpu_count() or 1
# An installation idles at about a tenth of a processor, and there are two.
IDLE_SHARE, IDLE_SECONDS = 0.75, 10.0
SMALL = "CREATE TABLE small AS SELECT 1 AS n; SELECT n FROM small"


@dataclass(frozen=True)
class Side:
    """An arm's installation: `arm` is where it is written to, `uri` and `wakes` the database that is woken, by the
    proxy, and its endpoint's path."""

    weir: Weir
    arm: Arm
    uri: str
    wakes: str
    # What the compute's agent says of its walls and limits.
    walls: Mapping[str, Any]


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=8, help="of each run of pgbench (8)")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 16], help="of pgbench (1 16)")
    parser.add_argument("--wakes", type=int, default=4, help="of each arm in each round; 0 leaves starts out (4)")
    parser.add_argument("--scale", type=int, default=10, help="of pgbench's tables (10: 150 MB)")
    parser.add_argument("--port-base", type=int, default=29000, help="of the first installation (29000)")
    parser.add_argument("--folder", type=Path, default=Path("/var/tmp"), help="where both lie (/var/tmp)")  # noqa: S108
    parser.add_argument("--remark", default="", help="what else the machine did, for the result")
    parser.add_argument("--results", type=Path, default=RESULTS)
    return parser.parse_args()


@contextmanager
def control_group() -> Generator[str]:
    """The name of a group for computes that is this program's own; empty where it may make none."""
    if os.geteuid() != 0:
        yield ""
        return
    name, made = f"weir-security-{os.getpid()}", list[Path]()
    try:
        for parent in security.group_parents(Path("/proc/self/cgroup").read_text(), Path("/sys/fs/cgroup")):
            if not (parent / "cgroup.procs").exists():
                continue  # no hierarchy is mounted there
            try:
                (parent / name).mkdir()
            except OSError as error:
                say(f"no control group in {parent}: {error.strerror}")
                continue
            made.append(parent / name)
        yield f"/{name}" if made else ""
    finally:
        for folder in made:
            try:
                for left in [path for path in folder.iterdir() if path.is_dir()]:
                    left.rmdir()  # of a compute whose agent could not
                folder.rmdir()
            except OSError as error:
                say(f"{folder} is left: {error.strerror}")


@contextmanager
def side(name: str, home: Path, port_base: int, group: str) -> Generator[Side]:
    """An installation with protection on or off, up, with what is measured loaded."""
    installation = installations.create(home, port_base)
    units = float(min(CORES, MOST_CU))
    changes: dict[tuple[str, str], bool | int | str] = {("computes", "max_cu"): int(units)}
    if name == OFF:
        changes |= {setting: off for setting, (off, _) in SWITCHES.items()}
    else:
        changes |= {("security", "tls"): True, ("computes", "cgroup"): group}
    installation.config_file.write_text(security.with_settings(installation.config_file.read_text(), changes))
    environment = {**os.environ, "WEIR_HOME": str(home)}
    with ExitStack() as stack:
        say(f"{name}: starting a Weir in {home}")
        stack.enter_context(running(ScaleStack(home, environment)))
        installation = installations.load(home)
        weir = Weir(installation.api_url, installation.api_key_file.read_text().strip())
        own = WeirArms(installation).arm(name, pushdown=False, units=units if units > 1 else None)
        arm = stack.enter_context(own)
        made = weir.request("POST", "/projects", {"project": {"name": "woken"}})
        weir.wait_operations(made["operations"])
        uri, endpoint = made["connection_uris"][0]["connection_uri"], made["endpoints"][0]["id"]
        first_row(uri, SMALL)
        path = f"/projects/{made['project']['id']}/endpoints/{endpoint}"
        yield Side(weir, arm, uri, path, walls(installation, endpoint))


def walls(installation: Installation, endpoint: str) -> dict[str, Any]:
    """What keeps this compute in, by its agent's own account, and whether its parts speak TLS."""
    spec = json.loads((installation.home / "computes" / endpoint / "spec.json").read_text())
    signer = signer_of(installation.home)
    headers = {}
    if signer is not None:
        token = signer.for_requests(Grant("benchmark", (f"compute/{endpoint}",), (Right.MANAGE,)))
        headers["Authorization"] = f"Bearer {token}"
    with client(installation, f"agent:{endpoint}", spec["port"] + 1) as agent:
        status = agent.get("/status", headers=headers).raise_for_status().json()
    return {
        "tls": installation.has_tls,
        "tokens": signer is not None,
        "service_users": installation.own_users.numbers is not None,
        "confinement": status.get("confinement"),
        "limits": status.get("limits"),
    }


def wake(of: Side) -> float:
    """Milliseconds until a client of the suspended database has its row."""
    of.weir.wait_operations(of.weir.request("POST", f"{of.wakes}/suspend")["operations"])
    return first_row(of.uri)


def measure(chosen: argparse.Namespace) -> int:
    if chosen.rounds < 1:
        raise RuntimeError("--rounds is how often everything is measured; give 1 or more")
    for _, variable in SWITCHES.values():
        if os.environ.pop(variable, None) is not None:
            say(f"{variable} is left out: it would decide for both installations")
    workloads = [
        pgbench(name, clients, "-b", script)
        for clients in chosen.clients
        for name, script in (("tpcb", "tpcb-like"), ("simple update", "simple-update"))
    ]
    runs, starts, found = list[Run](), list[Start](), dict[str, Any]()
    # A short name, since sockets have short paths; computes run as other users below it.
    folder = Path(tempfile.mkdtemp(prefix="weir-security-", dir=chosen.folder))
    folder.chmod(0o711)
    try:
        with control_group() as group, ExitStack() as stack:
            sides = {
                name: stack.enter_context(side(name, folder / name, chosen.port_base + n * PORTS_EACH, group))
                for n, name in enumerate((ON, OFF))
            }
            for name, of in sides.items():
                say(f"{name}: loading")
                prepare(of.arm, chosen.scale)
            for number in range(1, chosen.rounds + 1):
                one_round(number, sides, workloads, chosen, runs, starts)
                # After each round, so that a run that is broken off leaves what was measured.
                found = document(chosen, sides, runs, starts)
                chosen.results.write_text(json.dumps(found, indent=1) + "\n")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    rows = security.lines(found["workloads"], found["starts"])
    print(table("protection, off and on", ["", "off", "on", "on beside off", "promise"], rows))
    say(f"the promises are {'kept' if found['verdict']['kept'] else 'NOT kept'}; written to {chosen.results}")
    return 0 if found["verdict"]["kept"] else 1


def one_round(
    number: int,
    sides: Mapping[str, Side],
    workloads: Sequence[Workload],
    chosen: argparse.Namespace,
    runs: list[Run],
    starts: list[Start],
) -> None:
    """Adds its figures to `runs` and `starts`."""
    for workload in workloads:
        for name in security.arms_in(number):
            if not wait_until_idle(IDLE_SHARE, IDLE_SECONDS):
                say("the machine does not come to rest; what else does it do?")
            run = workload.run(sides[name].arm, chosen.seconds)
            runs.append(run)
            say(
                f"round {number}: {workload.label:<26} {name:<4} {run.per_second:>8,.0f}/s   "
                f"p50 {run.p50_ms or 0:.2f} ms, p99 {run.p99_ms or 0:.2f} ms"
            )
    for turn in range(chosen.wakes):
        arms = security.arms_in(number + turn)
        starts.extend(Start(name, number, round(wake(sides[name]), 1)) for name in arms)
    if chosen.wakes:
        latest = {name: [s.milliseconds for s in starts if (s.arm, s.round) == (name, number)] for name in sides}
        said = ", ".join(f"{name} {sorted(of)[len(of) // 2]:.0f} ms" for name, of in latest.items())
        say(f"round {number}: {'start to the first row':<26} {said}")


def document(
    chosen: argparse.Namespace, sides: Mapping[str, Side], runs: Sequence[Run], starts: Sequence[Start]
) -> dict[str, Any]:
    workloads = security.compared(runs)
    woken = security.started(starts) if starts else None
    return {
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {"cpus": CORES, "kernel": platform.release()},
        "remark": chosen.remark,
        "settings": {"postgres": SETTINGS, **{name: getattr(chosen, name) for name in ("seconds", "scale", "wakes")}},
        "switched": {f"[{section}] {name}": off for (section, name), (off, _) in SWITCHES.items()},
        "in_both": security.IN_BOTH,
        "walls": {name: of.walls for name, of in sides.items()},
        "verdict": security.verdict(workloads, woken),
        "workloads": workloads,
        "starts": woken,
        "runs": [asdict(run) for run in runs],
        "each_start": [asdict(start) for start in starts],
    }


def main() -> int:
    try:
        return measure(options())
    except (ApiError, SqlError, CliError, OSError, httpx.HTTPError, psycopg.Error, RuntimeError) as error:
        say(f"The measurement stopped: {error}")
        return 1


if __name__ == "__main__":
    sys.exit(main())
