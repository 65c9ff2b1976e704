"""What a neighbour's commits take while another tenant of the same machine storms.

Needs a Weir that runs, on a machine that does nothing else. Two projects are made, each with a compute of the usual
size, and deleted at the end. The quiet one commits at a fixed, modest rate by the proxy's address; the time of a
commit counts from when it was due, so that a stall is charged with all that was due meanwhile. Beside it the other
one, in turn:

  load      copies rows in bulk
  sort      sorts more than its memory, and spills temporary files
  connect   opens and closes connections as fast as it is let
  wal       writes WAL by updates and by logical messages
  api       sends the API requests with a key of its own, whatever the API says of waiting
  all       does all five at once

Each round has each storm once, in an order that turns, and the neighbour alone at its beginning and in its middle. A
storm's ratio is the neighbour's p99 beside it over that alone, by round. The promise is a median of at most 2, no
commit that failed, and a storm that did something. The program ends with 1 where one of them does not hold.

For figures that count, name a control group for computes ([computes] cgroup in weir.toml; docs/operating.md, Limits
of computes) and run it as root: without one nothing holds the other tenant to its size, and the result says so.

    make bench-neighbours                                    # 3 rounds, about 12 minutes
    bench/neighbours.py --only wal all --rounds 1 --seconds 10 --results /tmp/some.json
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Generator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import httpx
import psycopg
from weirbench import charts, groups, neighbours, open_loop, quiet, storms
from weirbench.api import ApiError, Weir
from weirbench.neighbours import ALONE, MOST, NAMES, Window
from weirbench.progress import say

from weir.cli import installation as installations
from weir.cli.errors import CliError

BENCH = Path(__file__).resolve().parent
RESULTS = BENCH / "results" / "neighbours.json"
# How long a storm's process may take to end and to say what it did.
END_SECONDS = 60


@dataclass(frozen=True)
class Lengths:
    """Of the measurement. Seconds: of a window; of a storm before its window; of nothing after each storm."""

    rounds: int
    seconds: float
    lead: float
    calm: float
    rate: float
    connections: int


@dataclass(frozen=True)
class Tenants:
    """The quiet neighbour's database, what the other tenant has, and the id of its compute."""

    quiet: str
    noisy: storms.Target
    noisy_compute: str


def main() -> int:
    arguments = parsed()
    home = arguments.home.absolute() if arguments.home else installations.home_from_environment()
    lengths = Lengths(
        arguments.rounds,
        arguments.seconds,
        arguments.lead,
        arguments.calm,
        arguments.rate,
        arguments.connections,
    )
    try:
        installation = installations.load(home)
        weir = Weir(installation.api_url, installation.api_key_file.read_text().strip())
        with tenants(weir, installation.api_url) as both:
            held = {name: groups.controllers_of(name) for name in (both.noisy_compute, "services")}
            windows = run(both, lengths, arguments.only or list(NAMES))
        said = {"compute": held[both.noisy_compute], "services": held["services"]}
        result = document(lengths, windows, arguments.remark, said)
    except (ApiError, CliError, psycopg.Error, httpx.HTTPError, OSError, ValueError) as error:
        say(f"The measurement stopped: {error}")
        return 1
    arguments.results.write_text(json.dumps(result, indent=2) + "\n")
    charts.neighbours(result, arguments.results.with_suffix(".png"))
    summarise(result)
    say(f"written to {arguments.results}")
    return 0 if result["kept"] else 1


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--home", type=Path, default=None, help="the installation (default: $WEIR_HOME or usual)")
    parser.add_argument("--only", nargs="+", choices=NAMES, help="these storms alone")
    parser.add_argument("--rounds", type=positive(int), default=3, help="(3)")
    parser.add_argument("--seconds", type=positive(float), default=20, help="of each window (20)")
    parser.add_argument("--lead", type=float, default=5, help="seconds of a storm before its window (5)")
    parser.add_argument("--calm", type=float, default=5, help="seconds of nothing after each storm (5)")
    parser.add_argument("--rate", type=positive(float), default=50, help="the neighbour's commits a second (50)")
    parser.add_argument("--connections", type=positive(int), default=4, help="of the neighbour (4)")
    parser.add_argument("--remark", default="", help="what else the machine did, for the result")
    parser.add_argument("--results", type=Path, default=RESULTS, help="the chart is put beside it")
    return parser.parse_args()


def positive(kind: type[int | float]) -> Any:
    def read(text: str) -> float:
        value = kind(text)
        if value <= 0:
            raise argparse.ArgumentTypeError(f"{text} is to be more than 0")
        return value

    return read


@contextlib.contextmanager
def tenants(weir: Weir, api_url: str) -> Generator[Tenants]:
    """Two projects with their tables, and a key of the one that storms; deleted at the end, whatever happened."""
    projects: list[str] = []
    keys: list[int] = []
    try:
        made = {name: project(weir, f"neighbours-{name}", projects) for name in ("quiet", "noisy")}
        addresses = {name: of["connection_uris"][0]["connection_uri"] for name, of in made.items()}
        key = weir.request("POST", "/api_keys", {"key_name": "neighbours-noisy", "project_id": projects[1]})
        keys.append(key["id"])
        for name, statements in (("quiet", quiet.TABLE), ("noisy", storms.TABLES)):
            with psycopg.connect(addresses[name], autocommit=True, connect_timeout=30) as connection:
                for statement in statements:
                    connection.execute(statement.encode())
        noisy = storms.Target(addresses["noisy"], api_url, key["key"], projects[1])
        yield Tenants(addresses["quiet"], noisy, made["noisy"]["endpoints"][0]["id"])
    finally:
        for path in (*(f"/api_keys/{key}" for key in keys), *(f"/projects/{ident}" for ident in projects)):
            try:
                weir.request("DELETE", path)
            except (ApiError, httpx.HTTPError) as error:
                say(f"{path} was not deleted, delete it yourself: {error}")


def project(weir: Weir, name: str, projects: list[str]) -> dict[str, Any]:
    """Makes a project with a compute of the usual size; the API's answer."""
    made = weir.request("POST", "/projects", {"project": {"name": name}})
    projects.append(made["project"]["id"])
    weir.wait_operations(made["operations"])
    return made


def run(both: Tenants, lengths: Lengths, names: Sequence[str]) -> list[Window]:
    # The same commits at the same times in each run.
    random = Random(1)  # noqa: S311
    windows: list[Window] = []
    plans = [neighbours.order(number, names) for number in range(lengths.rounds)]
    total = sum(map(len, plans))
    each = lengths.seconds + lengths.lead + lengths.calm
    say(f"{total} windows, about {total * each / 60:.0f} minutes")
    for number, plan in enumerate(plans):
        for name in plan:
            windows.append(window(both, lengths, number, name, random))
            last = windows[-1]
            did = {storm: round(of.get("done", 0)) for storm, of in last.achieved.items() if "done" in of}
            say(
                f"{len(windows)} of {total}, {name:<7} p50 {last.p50:6.1f} ms   p99 {last.p99:7.1f} ms   "
                f"{last.failed} of {last.commits} failed   {did or ''}"
            )
    return windows


def window(both: Tenants, lengths: Lengths, number: int, name: str, random: Random) -> Window:
    """One stretch of commits, beside the storms of this name. What storms leave to be done has the time of `calm`."""
    chosen = [] if name == ALONE else neighbours.storms_of(name)
    planned = quiet.plan(lengths.rate, lengths.seconds, random)
    before, begun = storms.metered(both.noisy), time.monotonic()
    running = [begin(storm, both.noisy) for storm in chosen]
    try:
        time.sleep(lengths.lead)
        answers = asyncio.run(quiet.window(both.quiet, planned, lengths.connections))
        achieved = {storm: ended(storm, process) for storm, process in zip(chosen, running, strict=True)}
    finally:
        for process in running:
            process.kill()
            process.wait()
    took = time.monotonic() - begun
    time.sleep(lengths.calm)
    after = storms.metered(both.noisy)
    written = zip(("wal_bytes", "temp_bytes"), before, after, strict=True)
    achieved["tenant"] = {figure: round((now - then) / took, 1) for figure, then, now in written}
    said = open_loop.summary(answers)
    return Window(
        round=number,
        name=name,
        commits=said["requests"],
        failed=said["failed"],
        p50=said["p50"],
        p99=said["p99"],
        longest=said["longest"],
        late=open_loop.late_ms(answers) or 0.0,
        achieved=achieved,
    )


def begin(storm: str, at: storms.Target) -> subprocess.Popen[str]:
    """Starts a storm as a process in a session of its own: kernels share out processors by sessions first."""
    process = subprocess.Popen(
        [sys.executable, "-m", "weirbench.storms", storm],
        cwd=BENCH,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    if process.stdin is not None:
        process.stdin.write(at.to_json() + "\n")
        process.stdin.flush()
    return process


def ended(storm: str, process: subprocess.Popen[str]) -> dict[str, Any]:
    """Ends a storm; what it did a second. Raises OSError where it does not say so."""
    try:
        told, _ = process.communicate(timeout=END_SECONDS)
        return json.loads(told.splitlines()[-1])
    except (subprocess.TimeoutExpired, ValueError, IndexError) as error:
        raise OSError(f"the storm {storm} did not say what it did (status {process.poll()}): {error}") from None


def document(lengths: Lengths, windows: list[Window], remark: str, held: dict[str, list[str]]) -> dict[str, Any]:
    return {
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {
            "cpus": os.cpu_count(),
            "memory_mib": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20,
            "kernel": platform.release(),
        },
        "remark": remark,
        "settings": {**asdict(lengths), "storms_niceness": storms.NICENESS},
        "control_groups": held,
        "most_ratio": MOST,
        **neighbours.report(windows),
        "windows": [asdict(window) for window in windows],
    }


def summarise(result: dict[str, Any]) -> None:
    alone = result["alone"]
    say(f"{'alone':<8} p50 {alone['p50_ms']['median']:6.1f} ms   p99 {alone['p99_ms']['median']:7.1f} ms")
    for name, of in result["storms"].items():
        ratio = of["ratio"]
        say(
            f"{name:<8} p50 {of['p50_ms']['median']:6.1f} ms   p99 {of['p99_ms']['median']:7.1f} ms   "
            f"x{ratio['median']:.2f} ({ratio['min']:.2f} to {ratio['max']:.2f})   "
            f"{'kept' if of['kept'] else 'NOT kept'}"
        )
    if not {"cpu", groups.SECOND_KIND} & set(result["control_groups"]["compute"]):
        say("no control group held the other tenant to its size: [computes] cgroup names none, or Weir is not root's")
    for reason in result["missed"]:
        say(f"missed: {reason}")


if __name__ == "__main__":
    raise SystemExit(main())
