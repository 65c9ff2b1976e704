"""A metadata database that is away is no unexpected error: the answer says so, and that it may be asked again."""

import asyncio
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from sqlalchemy import NullPool, text
from sqlalchemy.ext.asyncio import create_async_engine
from weir_testing.fixtures import Weir

from weir import errors
from weir.db import Database
from weir.kit import metadata_store

NOBODY = "postgresql+psycopg://weir@127.0.0.1:1/weir"


async def test_a_database_that_does_not_answer_is_a_503() -> None:
    app = FastAPI()
    errors.install(app)

    @app.get("/thing")
    async def thing() -> None:
        async with create_async_engine(NOBODY).connect():
            pytest.fail("somebody listens on port 1")

    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://weir") as client:
        answer = await client.get("/thing")
    assert (answer.status_code, answer.json()["code"]) == (503, "DEPENDENCY_UNAVAILABLE")
    assert "the metadata database did not answer" in answer.json()["message"]


async def _end(database: Database, pids: set[int]) -> None:
    admin = create_async_engine(database.engine.url, poolclass=NullPool)
    try:
        async with admin.connect() as connection:
            for pid in pids:
                await connection.execute(text("SELECT pg_terminate_backend(:pid, 5000)"), {"pid": pid})
    finally:
        await admin.dispose()


async def _ask(database: Database) -> int:
    async with database.transaction() as session:
        return (await session.scalars(text("SELECT pg_backend_pid()"))).one()


async def test_connections_that_broke_while_idle_are_made_anew_before_a_request_takes_them(
    weir: Weir, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = Database(weir.settings)
    try:
        # Several at once, so that the pool has more than one that is broken.
        before = set(await asyncio.gather(*(_ask(database) for _ in range(3))))
        await _end(database, before)
        monkeypatch.setattr(metadata_store, "PING_AFTER_IDLE_SECONDS", 0.0)
        after = set(await asyncio.gather(*(_ask(database) for _ in range(3))))
    finally:
        await database.close()
    assert not before & after


async def test_a_connection_in_use_is_not_pinged_for_each_request(
    weir: Weir, monkeypatch: pytest.MonkeyPatch
) -> None:
    database, pings = Database(weir.settings), 0
    ping = database.engine.dialect.do_ping

    def counted(connection: Any) -> bool:
        nonlocal pings
        pings += 1
        return ping(connection)

    monkeypatch.setattr(database.engine.dialect, "do_ping", counted)
    try:
        first = await _ask(database)
        assert [await _ask(database) for _ in range(5)] == [first] * 5
        assert pings == 0
        await asyncio.sleep(metadata_store.PING_AFTER_IDLE_SECONDS)
        assert await _ask(database) == first
        assert pings == 1
    finally:
        await database.close()
