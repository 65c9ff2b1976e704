"""Sessions that write and, when they are disconnected, connect again: what a client with a retry sees of a restart.

pgbench ends with its connection, so that it cannot drive a compute that is restarted."""

from __future__ import annotations

import threading
import time

import psycopg

RETRY_SECONDS = 0.02


class Steady:
    """`clients` sessions that each insert a row at a time into the table `steady`, with a pause between."""

    def __init__(self, uri: str, *, clients: int = 2, pause: float = 0.01) -> None:
        self.uri = uri
        self._pause = pause
        self._end = threading.Event()
        self._lock = threading.Lock()
        self._acknowledged: list[tuple[int, int]] = []
        self._gaps: list[float] = []
        self.disconnections = 0
        with psycopg.connect(uri, autocommit=True) as connection:
            connection.execute(
                "CREATE TABLE IF NOT EXISTS steady (client int, n bigint, filler text, PRIMARY KEY (client, n))"
            )
        self._threads = [threading.Thread(target=self._run, args=(index,), daemon=True) for index in range(clients)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def _run(self, client: int) -> None:
        number, last = 0, time.monotonic()
        while not self._end.is_set():
            try:
                with psycopg.connect(self.uri, autocommit=True, connect_timeout=5) as connection:
                    while not self._end.is_set():
                        number += 1
                        # What was in flight when the connection broke is unknown: never that number again.
                        connection.execute("INSERT INTO steady VALUES (%s, %s, repeat('x', 200))", (client, number))
                        now = time.monotonic()
                        with self._lock:
                            self._acknowledged.append((client, number))
                            self._gaps.append(now - last)
                        last = now
                        time.sleep(self._pause)
            except psycopg.OperationalError:
                with self._lock:
                    self.disconnections += 1
                self._end.wait(RETRY_SECONDS)

    def longest_gap(self) -> float:
        """Seconds between two commits of one session, at most, since this was asked last."""
        with self._lock:
            longest = max(self._gaps, default=0.0)
            self._gaps.clear()
        return longest

    @property
    def committed(self) -> int:
        with self._lock:
            return len(self._acknowledged)

    def finish(self) -> None:
        self._end.set()
        for thread in self._threads:
            thread.join(timeout=60)

    def missing(self) -> list[tuple[int, int]]:
        """Rows whose commit was acknowledged, and which are not there."""
        with psycopg.connect(self.uri, autocommit=True) as connection:
            present = {(row[0], row[1]) for row in connection.execute("SELECT client, n FROM steady")}
        return sorted(set(self._acknowledged) - present)
