"""A writer that knows what was promised to it: every insert whose commit returned must be there for ever."""

from __future__ import annotations

import threading
import time

import psycopg


class Ledger(threading.Thread):
    """Inserts numbers one by one, each its own transaction, and remembers which were acknowledged.

    After a lost connection it connects again; the number in flight has an unknown outcome and is never used again.
    """

    def __init__(self, uri: str) -> None:
        super().__init__(daemon=True)
        self.uri = uri
        self.acknowledged: list[int] = []
        self.interruptions = 0
        self._end = threading.Event()
        with psycopg.connect(uri, autocommit=True) as connection:
            connection.execute("CREATE TABLE IF NOT EXISTS ledger (n bigint PRIMARY KEY)")
            row = connection.execute("SELECT coalesce(max(n), 0) FROM ledger").fetchone()
        # Far above what an earlier ledger may still have in flight.
        self._first = (row[0] if row else 0) + 1_000_000

    def run(self) -> None:
        number = self._first
        while not self._end.is_set():
            try:
                with psycopg.connect(self.uri, autocommit=True, connect_timeout=5) as connection:
                    while not self._end.is_set():
                        number += 1
                        connection.execute("INSERT INTO ledger VALUES (%s)", (number,))
                        self.acknowledged.append(number)
                        time.sleep(0.005)
            except psycopg.OperationalError:
                self.interruptions += 1
                self._end.wait(0.2)

    def finish(self) -> None:
        self._end.set()
        self.join(timeout=60)
        assert not self.is_alive(), "an insert neither committed nor failed within a minute"

    def missing(self) -> list[int]:
        with psycopg.connect(self.uri, autocommit=True) as connection:
            present = {row[0] for row in connection.execute("SELECT n FROM ledger")}
        return sorted(set(self.acknowledged) - present)
