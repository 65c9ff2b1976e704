"""What `weir-proxy` costs beside no proxy, and its pooler beside PgBouncer, on a stock Postgres of the bench's own.

- The round trip: `SELECT 1`, prepared, by one client with psycopg; the median of a run's round trips.
- Throughput: `pgbench -S` with 16 clients, prepared for the direct ways, simple for the pooled ones (PgBouncer before
  1.21 keeps no prepared statements).
- Memory: resident bytes of the proxy for each of 10,000 idle clients of the pooler, with TLS, each of which has run a
  statement.

Clients of the proxy and of PgBouncer come with TLS, those of Postgres without. All ways take turns, round by round,
so that what else the machine does meets them alike; the figures are medians over the rounds, with least and most.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import re
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Generator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "storage/system"))

from harness import free_port, wait_for  # noqa: E402
from pooling import POOLER, status_kib  # noqa: E402
from proxying import PASSWORD, Proxy, proxied  # noqa: E402
from weirbench.postgres import PG_BIN, unprivileged  # noqa: E402
from weirbench.progress import say  # noqa: E402
from weirbench.spread import spread  # noqa: E402

RESULTS = ROOT / "bench/results/proxy.json"
CLIENTS = 16
POOL = 20
SCALE = 10
# Descriptors of this process beside those of idle clients.
SPARE_FILES = 500
# Logins under way at a time; each client hashes its password.
LOGINS = 16
# Idle clients before those that are counted, so that what the proxy takes once is not counted.
WARM = 100
# Ways that are measured with a statement that is prepared once, and with simple queries.
PREPARED = ("direct", "proxy")
SIMPLE = ("direct", "pooler", "pgbouncer")

Where = Mapping[str, Any]


@dataclass(frozen=True)
class Lengths:
    """Of the measurement: rounds, seconds of a run, idle clients."""

    rounds: int
    seconds: int
    idle: int


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=15, help="of each run")
    parser.add_argument("--idle", type=int, default=10_000, help="idle clients; 0 leaves the memory out")
    parser.add_argument("--pgbouncer", type=Path, default=None, help="the program, to be measured beside the pooler")
    parser.add_argument("--remark", default="", help="what else the machine did, for the result")
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    lengths = Lengths(arguments.rounds, arguments.seconds, arguments.idle)
    try:
        document = measure(lengths, arguments.pgbouncer)
    except (psycopg.Error, OSError, subprocess.SubprocessError, TimeoutError) as error:
        say(f"The measurement stopped: {error}")
        return 1
    document["remark"] = arguments.remark
    arguments.results.write_text(json.dumps(document, indent=2) + "\n")
    say(f"written to {arguments.results}")
    return 0


def measure(lengths: Lengths, pgbouncer: Path | None) -> dict[str, Any]:
    options = ("--pool-size", str(POOL), "--max-connections", str(lengths.idle + WARM + SPARE_FILES))
    with contextlib.ExitStack() as stack:
        proxy = stack.enter_context(proxied(*options))
        ways: dict[str, Where] = {
            "direct": direct(proxy),
            "proxy": proxy.parameters(),
            "pooler": proxy.parameters(host=POOLER),
        }
        if pgbouncer is not None:
            ways["pgbouncer"] = stack.enter_context(bouncer(proxy, pgbouncer))
        pgbench(ways["direct"], "-i", "-q", "-s", str(SCALE))
        trips: dict[str, list[float]] = {name: [] for name in ways}
        prepared: dict[str, list[float]] = {name: [] for name in PREPARED}
        simple: dict[str, list[float]] = {name: [] for name in SIMPLE if name in ways}
        for number in range(lengths.rounds):
            # The order turns with the rounds.
            names = rotated(list(ways), number)
            for name in names:
                trips[name].append(round_trip(ways[name], lengths.seconds))
            for name in names:
                if name in prepared:
                    prepared[name].append(throughput(ways[name], "prepared", lengths.seconds))
                if name in simple:
                    simple[name].append(throughput(ways[name], "simple", lengths.seconds))
            say(f"round {number + 1} of {lengths.rounds} is done")
        figures: dict[str, Any] = {
            "round_trip_us": {name: spread(values, 1) for name, values in trips.items()},
            "added_us": {
                name: round(statistics.median(trips[name]) - statistics.median(trips["direct"]), 1)
                for name in ways
                if name != "direct"
            },
            "prepared_tps": {name: spread(values, 0) for name, values in prepared.items()},
            "simple_tps": {name: spread(values, 0) for name, values in simple.items()},
        }
        if lengths.idle:
            figures["idle_kib_each"] = idle_memory(proxy, lengths.idle)
        for name, value in figures.items():
            say(f"{name}: {value}")
        return {
            "made": datetime.now(UTC).isoformat(timespec="seconds"),
            "machine": {"cpus": os.cpu_count(), "kernel": platform.release()},
            "rounds": lengths.rounds,
            "seconds": lengths.seconds,
            "clients": CLIENTS,
            "pool_size": POOL,
            "idle_clients": lengths.idle,
            "pgbouncer": version(pgbouncer) if pgbouncer else None,
            "figures": figures,
        }


def rotated(names: list[str], by: int) -> list[str]:
    at = by % len(names)
    return names[at:] + names[:at]


def direct(proxy: Proxy) -> Where:
    """Postgres itself, without TLS."""
    return {
        "host": "127.0.0.1",
        "port": proxy.stock.port,
        "user": "app",
        "password": PASSWORD,
        "dbname": "appdb",
        "sslmode": "disable",
    }


def round_trip(where: Where, seconds: int) -> float:
    """Microseconds: the median of so many seconds' round trips."""
    with psycopg.connect(**where, autocommit=True) as connection:
        times: list[float] = []
        cursor = connection.cursor()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            begun = time.perf_counter()
            cursor.execute("SELECT 1", prepare=True)
            times.append(time.perf_counter() - begun)
        return statistics.median(times) * 1e6


def throughput(where: Where, mode: str, seconds: int) -> float:
    """Transactions a second."""
    clients = ("-c", str(CLIENTS), "-j", "2")
    told = pgbench(where, "-n", "-S", "-M", mode, "-T", str(seconds), *clients)
    found = re.search(r"tps = ([0-9.]+) \(without", told)
    if not found or "number of failed transactions: 0 " not in told:
        raise subprocess.SubprocessError(
            f"pgbench did not say how many transactions were done, or some failed:\n{told}"
        )
    return float(found[1])


def pgbench(where: Where, *arguments: str) -> str:
    line = " ".join(f"{name}='{value}'" for name, value in where.items() if name != "password")
    environment = {**os.environ, "PGPASSWORD": PASSWORD}
    command = [str(PG_BIN / "pgbench"), *arguments, line]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=3600, check=False)
    if done.returncode != 0:
        raise subprocess.SubprocessError(f"pgbench {' '.join(arguments)} failed: {done.stderr.strip()}")
    return done.stdout


@contextlib.contextmanager
def bouncer(proxy: Proxy, program: Path) -> Generator[Where]:
    """PgBouncer before the same Postgres: transactions, as many server connections, TLS with the same certificate."""
    folder = proxy.root / "pgbouncer"
    folder.mkdir()
    port = free_port()
    for name in ("server.pem", "server.key"):
        (folder / name).write_bytes((proxy.root / name).read_bytes())
    (folder / "users.txt").write_text(f'"app" "{proxy.stock.verifier("app")}"\n')
    settings = {
        "listen_addr": "127.0.0.1",
        "listen_port": port,
        "unix_socket_dir": "",
        "auth_type": "scram-sha-256",
        "auth_file": folder / "users.txt",
        "pool_mode": "transaction",
        "default_pool_size": POOL,
        "max_client_conn": 200,
        "client_tls_sslmode": "require",
        "client_tls_cert_file": folder / "server.pem",
        "client_tls_key_file": folder / "server.key",
        "ignore_startup_parameters": "extra_float_digits",
    }
    lines = [f"{name} = {value}" for name, value in settings.items()]
    server = f"appdb = host=127.0.0.1 port={proxy.stock.port} dbname=appdb"
    (folder / "pgbouncer.ini").write_text("\n".join(["[databases]", server, "[pgbouncer]", *lines, ""]))
    for path in (folder, *folder.iterdir()):
        path.chmod(0o755 if path.is_dir() else 0o644)
    with (proxy.root / "pgbouncer.log").open("wb") as log:
        command = [*unprivileged(), str(program), str(folder / "pgbouncer.ini")]
        # A session of its own, as the proxy has one: the kernel shares out processors by sessions first (autogroups),
        # and what shares pgbench's runs whenever pgbench does.
        process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        try:
            where: dict[str, Any] = {**direct(proxy), "port": port, "sslmode": "require"}
            wait_for("PgBouncer", lambda: psycopg.connect(**where).close() or True, 20)
            yield where
        finally:
            process.terminate()
            process.wait(20)


def version(program: Path) -> str:
    done = subprocess.run([str(program), "--version"], capture_output=True, text=True, check=True, timeout=20)
    return done.stdout.splitlines()[0]


def idle_memory(proxy: Proxy, count: int) -> float:
    """KiB of the proxy for each idle client."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < count + WARM + SPARE_FILES:
        raise OSError(f"{count} idle clients need more open files than the {hard} that are allowed here (ulimit -n)")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with contextlib.ExitStack() as stack, ThreadPoolExecutor(LOGINS) as threads:

        def enter(_: int) -> None:
            connection = proxy.connect(host=POOLER)
            stack.callback(connection.close)
            connection.execute("SELECT 1")

        list(threads.map(enter, range(WARM)))
        before = status_kib(proxy, "VmRSS")
        list(threads.map(enter, range(count)))
        return round((status_kib(proxy, "VmRSS") - before) / count, 1)


if __name__ == "__main__":
    raise SystemExit(main())
