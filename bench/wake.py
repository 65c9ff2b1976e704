"""How long the first client of a suspended database waits for its first row, by the proxy's address.

Needs a Weir that runs. A project is made, suspended and woken so many times in a row, and deleted. Each wake is a new
connection, as a driver makes it, that reads one row of a small table; beside it, the same on the compute that runs
now. The worker's own account of the start (operation, and Postgres within it) says where the time goes.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import psycopg
from weirbench.api import ApiError, Weir

from weir.cli import installation as installations
from weir.cli.errors import CliError

RESULTS = Path(__file__).resolve().parent / "results" / "wake.json"
# The promise (p50, p99), milliseconds.
WANTED = (350.0, 900.0)
BEGAN = time.monotonic()


def say(text: str) -> None:
    print(f"[{time.monotonic() - BEGAN:5.0f}s] {text}", flush=True)


@dataclass(frozen=True)
class Wake:
    """Milliseconds. `row`: until the client has its row; `operation`: of it, the control plane's; `start`: of that,
    the agent's; `warm`: the same client's next connection and row."""

    row: float
    operation: float
    start: float
    warm: float


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--home", type=Path, default=None, help="the installation (default: $WEIR_HOME or usual)")
    parser.add_argument("--wakes", type=int, default=50)
    parser.add_argument("--remark", default="", help="what else the machine did, for the result")
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    home = arguments.home.absolute() if arguments.home else installations.home_from_environment()
    try:
        installation = installations.load(home)
        weir = Weir(installation.api_url, installation.api_key_file.read_text().strip())
        wakes = run(weir, arguments.wakes)
    except (ApiError, CliError, psycopg.Error, httpx.HTTPError) as error:
        say(f"The measurement stopped: {error}")
        return 1
    arguments.results.write_text(json.dumps(document(wakes, arguments.remark), indent=2) + "\n")
    summarise(wakes)
    return 0


def run(weir: Weir, count: int) -> list[Wake]:
    made = weir.request("POST", "/projects", {"project": {"name": "wake"}})
    project, endpoint = made["project"]["id"], made["endpoints"][0]["id"]
    try:
        weir.wait_operations(made["operations"])
        uri = made["connection_uris"][0]["connection_uri"]
        first_row(uri, "CREATE TABLE small AS SELECT 1 AS n; SELECT n FROM small")
        wakes: list[Wake] = []
        for number in range(count):
            suspended = weir.request("POST", f"/projects/{project}/endpoints/{endpoint}/suspend")
            weir.wait_operations(suspended["operations"])
            wakes.append(wake(weir, project, endpoint, uri))
            if (number + 1) % 10 == 0:
                say(f"{number + 1} of {count}: {spread(wakes, lambda each: each.row)['p50']:.0f} ms")
        return wakes
    finally:
        weir.request("DELETE", f"/projects/{project}")


def wake(weir: Weir, project: str, endpoint: str, uri: str) -> Wake:
    row, warm = first_row(uri), first_row(uri)
    operations = weir.get(f"/projects/{project}/operations", limit=5)["operations"]
    started = next(each for each in operations if each["action"] == "start_compute")
    compute = weir.get(f"/computes/{endpoint}")["compute"]
    start = compute.get("start") or {}
    return Wake(row, float(started.get("total_duration_ms") or 0), float(start.get("total_ms") or 0), warm)


def first_row(uri: str, sql: str = "SELECT n FROM small") -> float:
    """Milliseconds until a new connection has its row."""
    begun = time.monotonic()
    with psycopg.connect(uri, autocommit=True, connect_timeout=60) as connection:
        cursor = connection.execute(sql.encode())
        while cursor.nextset():
            pass
        if cursor.fetchone() != (1,):
            raise ApiError("the row is not what was stored")
        return (time.monotonic() - begun) * 1000


def spread(wakes: list[Wake], of: Callable[[Wake], float]) -> dict[str, float]:
    values = sorted(of(each) for each in wakes)

    def at(share: float) -> float:
        return values[min(len(values) - 1, int(share * len(values)))]

    return {"p50": statistics.median(values), "p90": at(0.9), "p99": at(0.99), "max": values[-1]}


PARTS: dict[str, Callable[[Wake], float]] = {
    "row": lambda each: each.row,
    "operation": lambda each: each.operation,
    "start": lambda each: each.start,
    "warm": lambda each: each.warm,
}


def document(wakes: list[Wake], remark: str) -> dict[str, Any]:
    return {
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {"cpus": os.cpu_count(), "kernel": platform.release()},
        "remark": remark,
        "wanted_ms": {"p50": WANTED[0], "p99": WANTED[1]},
        "milliseconds": {
            name: {key: round(value, 1) for key, value in spread(wakes, of).items()} for name, of in PARTS.items()
        },
        "wakes": [{key: round(value, 1) for key, value in asdict(each).items()} for each in wakes],
    }


def summarise(wakes: list[Wake]) -> None:
    words = {
        "row": "a client of a suspended database has its row",
        "operation": "of it, the operation that starts the compute",
        "start": "of that, the agent's start",
        "warm": "the next connection and row, on the running compute",
    }
    for name, of in PARTS.items():
        figures = spread(wakes, of)
        say(f"{words[name]:<52} p50 {figures['p50']:6.0f} ms   p99 {figures['p99']:6.0f} ms")
    row = spread(wakes, PARTS["row"])
    met = row["p50"] <= WANTED[0] and row["p99"] <= WANTED[1]
    say(f"wanted: p50 {WANTED[0]:.0f} ms, p99 {WANTED[1]:.0f} ms: {'met' if met else 'NOT met'}")


if __name__ == "__main__":
    raise SystemExit(main())
