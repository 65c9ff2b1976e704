"""How long the first client of a suspended database waits for its first row, by the proxy's address.

Needs a Weir that runs. Two projects are made, suspended and woken so many times in turns, and deleted: the compute of
one comes back with the pages that were hot before (`prewarm`), that of the other without. Each wake is a new
connection, as a driver makes it, that reads one row of a small table; after it a count over a table that was hot; and
the first once more, on the compute that runs now. `stages_ms` says where the time of the first row went, by the
histograms of worker and proxy (`weir_compute_start_stage_seconds`, `weir_proxy_wake_seconds`), and `cpu` how much
processor time all of the installation's processes took for it: where the machine has other work, that moves less than
the time. `milliseconds` is of the compute with `prewarm`, as computes are by default.
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
from weirbench import wake_stages
from weirbench.api import ApiError, Weir
from weirbench.progress import say

from weir.cli import installation as installations
from weir.cli.errors import CliError

RESULTS = Path(__file__).resolve().parent / "results" / "wake.json"
# The promise (p50, p99), milliseconds.
WANTED = (350.0, 900.0)
# Rows of the table that is hot, a page each and about 64 MB together: half of a compute's buffers.
HOT_ROWS = 8_000
TABLES = """
CREATE TABLE small AS SELECT 1 AS n;
CREATE TABLE hot (n int, filler text) WITH (fillfactor = 10);
ALTER TABLE hot ALTER filler SET STORAGE PLAIN;
INSERT INTO hot SELECT n, repeat('x', 4200) FROM generate_series(1, :rows) n;
SELECT n FROM small
""".replace(":rows", str(HOT_ROWS))


@dataclass(frozen=True)
class Wake:
    """Milliseconds. `row`: until the client has its row; `operation`: of it, the control plane's; `start`: of that,
    the agent's; `hot`: the next count over the table that was hot; `warm`: a later connection and row; `cpu`: of
    processors, until the row; `stages`: of the time until the row, empty where more than one compute was started."""

    row: float
    operation: float
    start: float
    hot: float
    warm: float
    cpu: float
    stages: dict[str, float]


@dataclass(frozen=True)
class Looks:
    """What is looked at before and after a wake: addresses of `/metrics`, and whose processes."""

    metrics: list[str]
    token: Path
    home: Path


@dataclass(frozen=True)
class Database:
    """A project of the measurement's own, and the address of its database."""

    project: str
    endpoint: str
    uri: str


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
        ports = (installation.ports[name] for name in ("worker", "proxy_http"))
        addresses = [f"http://127.0.0.1:{port}/metrics" for port in ports]
        looks = Looks(addresses, installation.token_file("prometheus"), installation.home)
        wakes = run(weir, looks, arguments.wakes)
    except (ApiError, CliError, psycopg.Error, httpx.HTTPError) as error:
        say(f"The measurement stopped: {error}")
        return 1
    arguments.results.write_text(json.dumps(document(wakes, arguments.remark), indent=2) + "\n")
    summarise(wakes)
    return 0


def run(weir: Weir, looks: Looks, count: int) -> dict[str, list[Wake]]:
    """The wakes with and without `prewarm`."""
    projects: list[str] = []
    wakes: dict[str, list[Wake]] = {"prewarm": [], "none": []}
    try:
        databases = {name: prepare(weir, name == "prewarm", projects) for name in wakes}
        for number in range(count):
            for name, database in databases.items():
                path = f"/projects/{database.project}/endpoints/{database.endpoint}/suspend"
                weir.wait_operations(weir.request("POST", path)["operations"])
                wakes[name].append(wake(weir, looks, database))
            if (number + 1) % 10 == 0:
                rows = [f"{spread(of, PARTS['row'])['p50']:.0f} ms ({name})" for name, of in wakes.items()]
                say(f"{number + 1} of {count}: {', '.join(rows)}")
        return wakes
    finally:
        for project in projects:
            weir.request("DELETE", f"/projects/{project}")


def prepare(weir: Weir, prewarm: bool, projects: list[str]) -> Database:
    made = weir.request("POST", "/projects", {"project": {"name": f"wake-{'pre' if prewarm else 'not-pre'}warmed"}})
    database = Database(
        made["project"]["id"], made["endpoints"][0]["id"], made["connection_uris"][0]["connection_uri"]
    )
    projects.append(database.project)
    weir.wait_operations(made["operations"])
    path = f"/projects/{database.project}/endpoints/{database.endpoint}"
    weir.wait_operations(weir.request("PATCH", path, {"endpoint": {"prewarm": prewarm}})["operations"])
    first_row(database.uri, TABLES)
    count_hot(database.uri)
    return database


def wake(weir: Weir, looks: Looks, database: Database) -> Wake:
    counted, processors = wake_stages.read(looks.metrics, looks.token), wake_stages.processor_ms(looks.home)
    row = first_row(database.uri)
    cpu = wake_stages.used(processors, wake_stages.processor_ms(looks.home))
    hot, warm = count_hot(database.uri), first_row(database.uri)
    try:
        stages = wake_stages.between(counted, wake_stages.read(looks.metrics, looks.token), row)
    except wake_stages.NotOneWakeError as error:
        say(str(error))
        stages = {}
    operations = weir.get(f"/projects/{database.project}/operations", limit=5)["operations"]
    started = next(each for each in operations if each["action"] == "start_compute")
    compute = weir.get(f"/computes/{database.endpoint}")["compute"]
    start = compute.get("start") or {}
    operation, total = float(started.get("total_duration_ms") or 0), float(start.get("total_ms") or 0)
    return Wake(row, operation, total, hot, warm, cpu, stages)


def count_hot(uri: str) -> float:
    """Milliseconds of a count over the hot table, without the connection."""
    with psycopg.connect(uri, autocommit=True, connect_timeout=60) as connection:
        begun = time.monotonic()
        if connection.execute("SELECT count(*) FROM hot").fetchone() != (HOT_ROWS,):
            raise ApiError("the rows are not what was stored")
        return (time.monotonic() - begun) * 1000


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
    "hot": lambda each: each.hot,
    "warm": lambda each: each.warm,
    "cpu": lambda each: each.cpu,
}


def milliseconds(wakes: list[Wake]) -> dict[str, dict[str, float]]:
    return {name: {key: round(value, 1) for key, value in spread(wakes, of).items()} for name, of in PARTS.items()}


def stages_of(wakes: list[Wake]) -> dict[str, float]:
    """The median of each stage, milliseconds, as they follow each other; of those that any wake had."""
    inner = [f"agent_{name}" for name in (*wake_stages.OF_THE_AGENT, "process")]
    names = ["login", "wake", "api", *wake_stages.OF_THE_START, *inner]
    found = {name: [each.stages[name] for each in wakes if name in each.stages] for name in names}
    return {name: round(statistics.median(values), 1) for name, values in found.items() if values}


def document(wakes: dict[str, list[Wake]], remark: str) -> dict[str, Any]:
    return {
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {"cpus": os.cpu_count(), "kernel": platform.release()},
        "remark": remark,
        "wanted_ms": {"p50": WANTED[0], "p99": WANTED[1]},
        "hot_mb": HOT_ROWS * 8192 // 1_000_000,
        "milliseconds": milliseconds(wakes["prewarm"]),
        "milliseconds_without_prewarm": milliseconds(wakes["none"]),
        "stages_ms": stages_of(wakes["prewarm"]),
        "stages_ms_without_prewarm": stages_of(wakes["none"]),
        "wakes": {name: [rounded(asdict(each)) for each in of] for name, of in wakes.items()},
    }


def rounded(wake: dict[str, Any]) -> dict[str, Any]:
    return {
        key: rounded(value) if isinstance(value, dict) else round(value, 1)  # pyright: ignore[reportUnknownArgumentType]
        for key, value in wake.items()
    }


def summarise(wakes: dict[str, list[Wake]]) -> None:
    words = {
        "row": "a client of a suspended database has its row",
        "operation": "of it, the operation that starts the compute",
        "start": "of that, the agent's start",
        "hot": f"then a count over {HOT_ROWS * 8192 // 1_000_000} MB that were hot",
        "warm": "a later connection and row, on the running compute",
        "cpu": "processor time of the installation until the row",
    }
    for name, of in PARTS.items():
        with_prewarm, without = spread(wakes["prewarm"], of), spread(wakes["none"], of)
        say(
            f"{words[name]:<52} p50 {with_prewarm['p50']:6.0f} ms   p99 {with_prewarm['p99']:6.0f} ms   "
            f"without prewarm {without['p50']:6.0f} ms   {without['p99']:6.0f} ms"
        )
    without = stages_of(wakes["none"])
    for name, value in stages_of(wakes["prewarm"]).items():
        say(f"  {name:<16} {value:7.1f} ms   without prewarm {without.get(name, 0.0):7.1f} ms")
    row = spread(wakes["prewarm"], PARTS["row"])
    met = row["p50"] <= WANTED[0] and row["p99"] <= WANTED[1]
    say(f"wanted: p50 {WANTED[0]:.0f} ms, p99 {WANTED[1]:.0f} ms: {'met' if met else 'NOT met'}")


if __name__ == "__main__":
    raise SystemExit(main())
