"""TPROC-C on any Postgres: load it, drive it, check that what it says of itself is consistent.

    python bench/tproc-c/run.py load  URI --warehouses 1
    python bench/tproc-c/run.py drive URI --seconds 300 --rate 10    (Ctrl-C ends it early, with its summary)
    python bench/tproc-c/run.py check URI

`drive` ends with one line of JSON: transactions, failed, aborted_clients, nopm, p50_ms, p99_ms. Its exit status is 1
when a transaction failed or a client gave up; so is that of `check` when a consistency condition does not hold.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from weirbench import tproc


def load(arguments: argparse.Namespace) -> int:
    print(f"loaded {arguments.warehouses} warehouse(s) in {tproc.load(arguments.uri, arguments.warehouses):.1f} s")
    return 0


def drive(arguments: argparse.Namespace) -> int:
    stop: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda got, _frame: stop.append(got))
    orders = tproc.new_orders(arguments.uri)
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="weir-tproc-c-") as folder:
        driver = tproc.Driver(
            arguments.uri,
            Path(folder),
            warehouses=arguments.warehouses,
            clients=arguments.clients,
            rate=arguments.rate or None,
            seconds=arguments.seconds,
        )
        while driver.running and not stop:
            time.sleep(0.1)
        summary = driver.finish()
        latencies = [t.latency_ms for t in driver.transactions() if not t.failed]
    elapsed = time.monotonic() - started
    figures = {
        "transactions": summary.processed,
        "failed": summary.failed,
        "aborted_clients": summary.aborted_clients,
        "nopm": round((tproc.new_orders(arguments.uri) - orders) * 60 / elapsed, 1),
        "p50_ms": tproc.percentile(latencies, 0.5),
        "p99_ms": tproc.percentile(latencies, 0.99),
    }
    if summary.status != 0:
        sys.stderr.write(summary.text)
    print(json.dumps(figures))
    return 1 if summary.status != 0 or summary.failed or summary.aborted_clients else 0


def check(arguments: argparse.Namespace) -> int:
    broken = tproc.violations(arguments.uri)
    print("; ".join(broken) if broken else "all consistency conditions hold")
    return 1 if broken else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True, metavar="load|drive|check")
    for name, run in (("load", load), ("drive", drive), ("check", check)):
        command = commands.add_parser(name)
        command.set_defaults(run=run)
        command.add_argument("uri", help="postgresql://…")
        command.add_argument("--warehouses", type=int, default=1, help="about 100 MB each")
        if name == "drive":
            command.add_argument("--seconds", type=int, default=60)
            command.add_argument("--clients", type=int, default=2)
            command.add_argument(
                "--rate", type=float, default=10, help="transactions a second; 0: as fast as it goes"
            )
    arguments = parser.parse_args()
    return arguments.run(arguments)


if __name__ == "__main__":
    sys.exit(main())
