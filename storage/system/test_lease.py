"""The read lease: a compute without a majority shows rows for no longer than its quorum timeout, and comes back."""

from __future__ import annotations

import contextlib
import signal
import threading
import time

import psycopg
from harness import Compute, Engine, metric, wait_for

LEASE_MS = 4000
#: What a busy machine may add until a signal has ended every session, seconds.
SLACK = 1.5


class Reader:
    """Reads one row over and over on a connection of its own, and keeps when the last one came."""

    def __init__(self, compute: Compute) -> None:
        self.last = time.monotonic()
        self._compute = compute
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        with contextlib.suppress(psycopg.Error), self._compute.connect() as connection:
            while True:
                connection.execute("SELECT number FROM one").fetchall()
                self.last = time.monotonic()
                time.sleep(0.005)

    def ended(self, seconds: float) -> float:
        """When the last row came, on the monotonic clock; fails if rows come for so long."""
        self._thread.join(seconds)
        assert not self._thread.is_alive(), f"rows still come after {seconds} s"
        return self.last


def test_a_compute_without_a_majority_shows_rows_for_its_lease_and_starts_again(own: Engine) -> None:
    compute = own.compute(own.create_timeline(), quorum_timeout_ms=LEASE_MS)
    compute.sql("CREATE TABLE one (number int)")
    compute.sql("INSERT INTO one VALUES (1)")
    reader = Reader(compute)
    # One hung safekeeper is a minority, for longer than a lease.
    own.safekeepers[0].signal(signal.SIGSTOP)
    try:
        time.sleep(LEASE_MS / 1000 + SLACK)
        assert time.monotonic() - reader.last < SLACK, "a minority ended the lease"
        left = metric(compute, "weir_compute_read_lease_remaining_seconds")
        assert 0 < left <= LEASE_MS / 1000, left

        own.safekeepers[1].signal(signal.SIGSTOP)
        try:
            hung = time.monotonic()
            shown = reader.ended(60) - hung
        finally:
            own.safekeepers[1].signal(signal.SIGCONT)
    finally:
        own.safekeepers[0].signal(signal.SIGCONT)
    assert shown < LEASE_MS / 1000 + SLACK, f"rows for {shown:.2f} s"
    assert shown > LEASE_MS / 2000, "the compute ended before its lease was over"
    status = wait_for(
        "the compute to run again by itself", lambda: (s := compute.status())["state"] == "running" and s, 60
    )
    assert status["restarts"] >= 1
    assert compute.sql("SELECT number FROM one") == [(1,)]
