"""The quiet neighbour: commits by the clock, whose time counts from when each was due."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random
from typing import Any

import psycopg

from . import open_loop
from .open_loop import Answer, Request

ROWS = 1_000
TABLE = (
    "CREATE TABLE quiet (id int PRIMARY KEY, n bigint NOT NULL)",
    f"INSERT INTO quiet SELECT id, 0 FROM generate_series(1, {ROWS}) AS id",  # noqa: S608
)
COMMIT = "UPDATE quiet SET n = n + 1 WHERE id = %s"
# A commit that takes longer has failed.
TIMEOUT_SECONDS = 30
_DONE, _FAILED = 200, 0


class _Slot:
    """A connection that is opened again when it was lost."""

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._connection: psycopg.AsyncConnection[Any] | None = None

    async def open(self) -> psycopg.AsyncConnection[Any]:
        if self._connection is None or self._connection.closed:
            opened = await psycopg.AsyncConnection.connect(self._uri, autocommit=True, connect_timeout=60)
            await opened.execute(f"SET statement_timeout = '{TIMEOUT_SECONDS}s'".encode())
            self._connection = opened
        return self._connection

    async def commit(self, row: int) -> int:
        try:
            connection = await self.open()
            done = await connection.execute(COMMIT, (row,), prepare=True)
        except (psycopg.Error, OSError):
            return _FAILED
        return _DONE if done.rowcount == 1 else _FAILED

    async def close(self) -> None:
        if self._connection is not None:
            await self._connection.close()


async def window(uri: str, planned: Sequence[tuple[float, Request]], connections: int) -> list[Answer]:
    """Commits when each is due, over so many connections, which are opened before. Raises psycopg.Error where they
    are not to be had."""
    slots = [_Slot(uri) for _ in range(connections)]
    free: asyncio.Queue[_Slot] = asyncio.Queue()
    try:
        for slot in slots:
            await slot.open()
            # Parsed and planned before anything counts.
            await slot.commit(1)
            free.put_nowait(slot)

        async def send(request: Request) -> int:
            slot = await free.get()
            try:
                return await slot.commit(int(request.path))
            finally:
                free.put_nowait(slot)

        return await open_loop.drive(planned, send)
    finally:
        for slot in slots:
            await slot.close()


def plan(rate: float, seconds: float, random: Random) -> list[tuple[float, Request]]:
    """When commits are due, seconds from the beginning, and of which row."""
    due = open_loop.arrivals(rate, seconds, random)
    return [(at, Request("commit", "write", "UPDATE", str(random.randint(1, ROWS)))) for at in due]
