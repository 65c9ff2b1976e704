"""TPROC-C on a stock Postgres in a temporary directory, full page writes on and then off.

What the demo shows on Weir, without Weir: how much of the WAL is page images, and what is left without them.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from weirbench import tproc
from weirbench.postgres import query, stock_postgres


def window(uri: str, arguments: argparse.Namespace, name: str) -> tuple[float, float]:
    """Drive the mix for whole checkpoint cycles; returns WAL bytes a transaction and new orders a minute."""
    query(uri, "CHECKPOINT")
    before = tuple(map(float, query(uri, "SELECT wal_bytes, wal_fpi, wal_records FROM pg_stat_wal").split("|")))
    orders = tproc.new_orders(uri)
    with tempfile.TemporaryDirectory() as folder:
        driver = tproc.Driver(
            uri,
            Path(folder),
            warehouses=arguments.warehouses,
            clients=arguments.clients,
            rate=arguments.rate or None,
            seconds=arguments.seconds,
        )
        summary = driver.wait(arguments.seconds + 60)
        latencies = [t.latency_ms for t in driver.transactions() if not t.failed]
    time.sleep(1)  # backends hand in their statistics at most once a second
    after = tuple(map(float, query(uri, "SELECT wal_bytes, wal_fpi, wal_records FROM pg_stat_wal").split("|")))
    nopm = (tproc.new_orders(uri) - orders) * 60 / arguments.seconds
    per_transaction = (after[0] - before[0]) / max(1, summary.processed)
    print(
        f"{name}: {summary.processed} transactions, {summary.failed} failed, {nopm:.0f} NOPM, "
        f"{per_transaction:,.0f} WAL bytes/transaction, {after[1] - before[1]:.0f} page images in "
        f"{after[2] - before[2]:.0f} records, p50/p99 {tproc.percentile(latencies, 0.5)}/"
        f"{tproc.percentile(latencies, 0.99)} ms"
    )
    if summary.status != 0 or summary.failed or summary.aborted_clients:
        sys.exit(f"the run was not clean:\n{summary.text}")
    return per_transaction, nopm


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--warehouses", type=int, default=1)
    parser.add_argument("--clients", type=int, default=2)
    parser.add_argument("--rate", type=float, default=40, help="transactions a second; 0 = as fast as it goes")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--checkpoint-timeout", default="30s")
    arguments = parser.parse_args()
    settings = {
        "checkpoint_timeout": arguments.checkpoint_timeout,
        "max_wal_size": "'1GB'",
        "shared_buffers": "'128MB'",
        "wal_compression": "off",
    }
    with stock_postgres(settings) as uri:
        print(f"loaded {arguments.warehouses} warehouse(s) in {tproc.load(uri, arguments.warehouses):.1f} s")
        print("database:", query(uri, "SELECT pg_size_pretty(pg_database_size(current_database()))"))
        on, _ = window(uri, arguments, "full_page_writes on ")
        query(uri, "ALTER SYSTEM SET full_page_writes = off")
        query(uri, "SELECT pg_reload_conf()")
        off, _ = window(uri, arguments, "full_page_writes off")
        print(f"WAL bytes/transaction: {100 * (off / on - 1):.1f} %")
        broken = tproc.violations(uri)
        if broken:
            sys.exit("consistency conditions violated: " + "; ".join(broken))
        print("all consistency conditions hold")


if __name__ == "__main__":
    main()
