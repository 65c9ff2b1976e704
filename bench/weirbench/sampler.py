"""Watching one database from inside by SQL: new orders, Postgres's own count of its WAL, its checkpoints."""

from __future__ import annotations

import threading
from dataclasses import dataclass

import psycopg

_SQL = """
SELECT extract(epoch FROM clock_timestamp())::float8,
       (SELECT sum(d_next_o_id - 3001) FROM district)::float8,
       (SELECT wal_bytes FROM pg_stat_wal)::float8,
       (SELECT wal_fpi FROM pg_stat_wal)::float8,
       (SELECT checkpoints_timed + checkpoints_req FROM pg_stat_bgwriter)::float8
"""


@dataclass(frozen=True)
class Sample:
    at: float
    new_orders: float
    wal_bytes: float
    page_images: float
    checkpoints: float


class Sampler(threading.Thread):
    """A sample a second over one connection. Losing that connection is counted, not hidden."""

    def __init__(self, uri: str, every: float = 1.0) -> None:
        super().__init__(daemon=True)
        self._uri = uri
        self._every = every
        self._end = threading.Event()
        self.samples: list[Sample] = []
        self.broken: list[str] = []

    def run(self) -> None:
        while not self._end.is_set():
            try:
                with psycopg.connect(self._uri, autocommit=True, connect_timeout=10) as connection:
                    while not self._end.wait(self._every):
                        row = connection.execute(_SQL).fetchone()
                        if row is not None:
                            self.samples.append(Sample(*row))
            except psycopg.Error as error:
                if not self._end.is_set():
                    self.broken.append(str(error).strip())
                    self._end.wait(1.0)

    def stop(self) -> None:
        self._end.set()
        self.join(timeout=30)

    def between(self, start: float, end: float) -> Sample | None:
        """What each count grew by from `start` to `end`, read between samples by interpolation."""
        first, last = self._at(start), self._at(end)
        if first is None or last is None:
            return None
        return Sample(
            at=last.at - first.at,
            new_orders=last.new_orders - first.new_orders,
            wal_bytes=last.wal_bytes - first.wal_bytes,
            page_images=last.page_images - first.page_images,
            checkpoints=round(last.checkpoints) - round(first.checkpoints),
        )

    def _at(self, when: float) -> Sample | None:
        samples = list(self.samples)
        after = next((index for index, sample in enumerate(samples) if sample.at >= when), None)
        if after is None:
            return samples[-1] if samples and when - samples[-1].at < 3 * self._every else None
        if after == 0:
            return samples[0] if samples[0].at - when < 3 * self._every else None
        left, right = samples[after - 1], samples[after]
        share = (when - left.at) / (right.at - left.at) if right.at > left.at else 0.0

        def mix(a: float, b: float) -> float:
            return a + (b - a) * share

        return Sample(
            at=when,
            new_orders=mix(left.new_orders, right.new_orders),
            wal_bytes=mix(left.wal_bytes, right.wal_bytes),
            page_images=mix(left.page_images, right.page_images),
            checkpoints=mix(left.checkpoints, right.checkpoints),
        )
