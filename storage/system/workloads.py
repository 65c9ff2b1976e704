"""Loads with a memory of what was acknowledged, and the checks that hold them against the database."""

from __future__ import annotations

import subprocess
import threading
import time
from dataclasses import dataclass, field
from typing import Any

import psycopg
from harness import PG_BIN, Compute, Engine

ACK_TABLE = (
    "CREATE TABLE IF NOT EXISTS acknowledged (worker int, number int, filler text, PRIMARY KEY (worker, number))"
)

# Settings of a tenant whose memory becomes layers early.
SMALL_LAYERS = {"checkpoint_distance_bytes": 1 << 20, "checkpoint_timeout_ms": 500}
# 4,000 rows more for the table below, about 1.5 MB of WAL; their hashes are those of the 4,000 before.
GROW = "INSERT INTO t SELECT n, md5(n::text), repeat(md5(n::text), 8) FROM generate_series(1, 4000) n"
ROWS = "SELECT count(*), count(DISTINCT hash) FROM t"


def growing_table(running: Engine, compute: Compute) -> None:
    """An empty table for `GROW`, in a tenant of small layers."""
    running.configure_tenant(compute.timeline.tenant, **SMALL_LAYERS)
    compute.sql("CREATE TABLE t (id int, hash text, filler text)")


@dataclass
class AcknowledgedInserts:
    """Workers that insert numbered rows and remember each number whose commit returned.

    A commit that fails leaves the outcome unknown; the worker then goes on with a new number, so that the
    check can tell "acknowledged and missing" (a loss) from "unacknowledged and present" (allowed).
    """

    compute: Compute
    workers: int = 4
    # What each worker rests between two commits, seconds.
    pause: float = 0.0
    # What fills a row, in SQL.
    filler: str = "repeat('x', 100)"
    # The longest that any commit took which returned, seconds.
    slowest: float = 0.0
    acknowledged: list[set[int]] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    def start(self) -> None:
        self.compute.sql(ACK_TABLE)
        self.acknowledged = [set() for _ in range(self.workers)]
        for worker in range(self.workers):
            thread = threading.Thread(target=self._work, args=(worker,), daemon=True)
            thread.start()
            self._threads.append(thread)

    def _work(self, worker: int) -> None:
        number = 0
        while not self._stop.is_set():
            try:
                with self.compute.connect() as connection:
                    while not self._stop.is_set():
                        number += 1
                        began = time.monotonic()
                        connection.execute(
                            f"INSERT INTO acknowledged VALUES (%s, %s, {self.filler})", (worker, number)
                        )
                        self.acknowledged[worker].add(number)
                        self.slowest = max(self.slowest, time.monotonic() - began)
                        self._stop.wait(self.pause)
            except psycopg.Error as error:
                self.errors.append(str(error))
                self._stop.wait(0.1)

    def count(self) -> int:
        return sum(len(numbers) for numbers in self.acknowledged)

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(30)

    def missing(self) -> list[tuple[int, int]]:
        present = {(worker, number) for worker, number in self.compute.sql("SELECT worker, number FROM acknowledged")}
        return sorted(
            (worker, number)
            for worker, numbers in enumerate(self.acknowledged)
            for number in numbers
            if (worker, number) not in present
        )


def pgbench_init(compute: Compute, scale: int = 2) -> None:
    subprocess.run(
        [PG_BIN / "pgbench", "--initialize", "--quiet", f"--scale={scale}", compute.uri],
        check=True,
        capture_output=True,
        timeout=180,
    )


def pgbench_start(compute: Compute, seconds: int, clients: int = 4, *options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [
            PG_BIN / "pgbench",
            f"--client={clients}",
            "--jobs=2",
            "--no-vacuum",
            f"--time={seconds}",
            *options,
            compute.uri,
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def pgbench_invariants(compute: Compute) -> None:
    """TPC-B's balances: branches, tellers, accounts and history add up to the same."""
    rows = compute.sql(
        """SELECT (SELECT sum(bbalance) FROM pgbench_branches), (SELECT sum(tbalance) FROM pgbench_tellers),
                  (SELECT sum(abalance) FROM pgbench_accounts),
                  (SELECT coalesce(sum(delta), 0) FROM pgbench_history)"""
    )
    assert len(set(rows[0])) == 1, f"balances disagree (branches, tellers, accounts, history): {rows[0]}"


def amcheck(compute: Compute, database: str = "appdb") -> None:
    """Every btree index against its heap, and every heap and toast table."""
    with compute.admin(database) as connection:
        connection.execute("CREATE EXTENSION IF NOT EXISTS amcheck")
        indexes: list[tuple[Any, ...]] = connection.execute(
            """SELECT c.oid::regclass::text, bt_index_parent_check(c.oid, heapallindexed => true)::text
               FROM pg_class c JOIN pg_am a ON a.oid = c.relam
               WHERE a.amname = 'btree' AND c.relkind = 'i' AND c.relpersistence = 'p'"""
        ).fetchall()
        assert indexes, "amcheck looked at no index"
        findings = connection.execute(
            """SELECT c.oid::regclass::text, v.blkno, v.offnum, v.msg
               FROM pg_class c, LATERAL verify_heapam(c.oid) v
               WHERE c.relkind IN ('r', 't', 'm') AND c.relpersistence = 'p'"""
        ).fetchall()
        assert findings == [], f"verify_heapam found: {findings[:5]}"
