"""No HTTP request is sent while a transaction of the metadata database is open."""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager

import httpx
import pytest
from prometheus_client import REGISTRY
from sqlalchemy import select, text
from sqlalchemy.ext.asyncio import AsyncSession
from weir_testing.fixtures import Weir

from weir.clients.http import JsonClient
from weir.db import Database, release
from weir.identity.models import Account
from weir.kit import transactions
from weir.kit.transactions import RequestInTransactionError


def client() -> JsonClient:
    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json={"path": request.url.path})

    return JsonClient("a double", "http://double", httpx.AsyncClient(transport=httpx.MockTransport(answer)))


@pytest.fixture
def database(weir: Weir) -> Database:
    return weir.resources.database


@contextmanager
def refused() -> Generator[None]:
    """The refusals of the body are what the test is about."""
    with transactions.refusing() as found:
        yield
        assert found


async def test_a_request_inside_a_transaction_is_refused(database: Database) -> None:
    async with database.transaction():
        with refused(), pytest.raises(RequestInTransactionError, match="GET /x to a double"):
            await client().call("GET", "/x")
        with refused(), pytest.raises(RequestInTransactionError):
            await client().ping("/x", 1)
    assert await client().call("GET", "/x") == {"path": "/x"}


async def test_refused_too_in_tasks_threads_and_outer_transactions(database: Database) -> None:
    async with database.transaction():
        with refused():
            answers = await asyncio.gather(client().call("GET", "/x"), return_exceptions=True)
        assert isinstance(answers[0], RequestInTransactionError)
        assert await asyncio.to_thread(transactions.is_open)
        async with database.transaction():
            pass
        assert transactions.is_open()
        # One whose lock is meant to last hides none around it.
        async with database.transaction(asks_others=True):
            assert transactions.is_open()
    assert not transactions.is_open()


async def test_neither_tasks_beside_nor_those_left_over_are_inside(database: Database) -> None:
    end, begun = asyncio.Event(), asyncio.Event()

    async def elsewhere() -> None:
        async with database.transaction():
            begun.set()
            await end.wait()

    async def left_over() -> bool:
        await end.wait()
        return transactions.is_open()

    beside = asyncio.create_task(elsewhere())
    await begun.wait()
    assert await client().call("GET", "/x") == {"path": "/x"}
    async with database.transaction():
        outlives = asyncio.create_task(left_over())
    end.set()
    assert not await outlives
    await beside


async def test_a_transaction_that_failed_leaves_nothing_open(database: Database) -> None:
    with pytest.raises(ZeroDivisionError):
        async with database.transaction():
            raise ZeroDivisionError

    async def fails() -> None:
        async with database.request() as session:
            await session.execute(text("SELECT 1"))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fails()
    assert not transactions.is_open()


async def test_one_that_is_left_in_another_context_leaves_nothing_open(database: Database) -> None:
    """As fixtures are by pytest."""
    held = database.transaction()
    await asyncio.create_task(held.__aenter__())
    assert not transactions.is_open()
    await held.__aexit__(None, None, None)
    await client().call("GET", "/x")


async def test_without_refusal_it_is_counted_and_sent(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions._refusal, "on", False)

    def count() -> float:
        name = "weir_requests_in_transactions_total"
        return REGISTRY.get_sample_value(name, {"service": "a double"}) or 0.0

    before = count()
    async with database.transaction():
        assert await client().call("GET", "/x") == {"path": "/x"}
    assert count() == before + 1


async def test_what_is_released_is_kept_as_it_was_and_read_anew(database: Database) -> None:
    async with database.transaction() as other:
        account = await _account(other)
        before = account.email
    async with database.request() as session:
        found = await session.get_one(Account, account.id, with_for_update=True)
        await release(session)
        await client().call("GET", "/x")
        # Neither locked by us nor held back by what we have read.
        async with database.transaction() as other:
            (await _account(other)).email = "changed@localhost"
        assert found.email == before
        again = await session.get_one(Account, account.id)
        assert again.email == "changed@localhost"
        again.email = before
    async with database.transaction() as other:
        assert (await _account(other)).email == before


async def test_a_request_that_has_written_cannot_be_released(database: Database) -> None:
    """Half of it would be committed before the rest is known to go well."""

    async def half(*, flushed: bool) -> None:
        async with database.request() as session:
            (await _account(session)).email = "lost@localhost"
            if flushed:
                await session.flush()
            await release(session)

    for flushed in (False, True):
        with pytest.raises(RuntimeError, match="has written something"):
            await half(flushed=flushed)
        async with database.transaction() as session:
            assert (await _account(session)).email != "lost@localhost"


async def _account(session: AsyncSession) -> Account:
    return (await session.scalars(select(Account).order_by(Account.name).limit(1))).one()
