"""Statements that pooled clients prepare, and a schema that changes under them: a client that prepares a text is told
the types of now, whoever changed them, and whatever server connections have of that text."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import asyncpg
import psycopg
import pytest
from harness import metric, wait_for
from pooling import Connection, all_taken, pooled
from proxying import ENDPOINT, PASSWORD, Proxy, proxied
from psycopg.pq import DiagnosticField, ExecStatus

POOL = 3
INT4, INT8 = 23, 20


@pytest.fixture(scope="module")
def proxy() -> Iterator[Proxy]:
    """Statements get old by changes alone."""
    age = ("--pool-renewal-ms", "3600000")
    with proxied("--pool-size", str(POOL), "--pool-queue-timeout-ms", "10000", *age) as proxy:
        yield proxy


@pytest.fixture
def clients(proxy: Proxy) -> Iterator[list[Connection]]:
    """Pooled clients that may all have a server connection at once, and a table of theirs."""
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(pooled(proxy)) for _ in range(POOL)]
        clients[0].execute("DROP TABLE IF EXISTS thing")
        clients[0].execute("CREATE TABLE thing (a int)")
        yield clients


@contextlib.contextmanager
def spread(clients: list[Connection]) -> Iterator[None]:
    """Each client has a server connection of its own meanwhile."""
    for client in clients:
        client.execute("BEGIN")
    yield
    for client in clients:
        client.execute("COMMIT")


def parameter_type(client: Connection, name: str = "s") -> int:
    """Prepares a text anew, as a driver does that has dropped what it knew, and tells the type of its parameter."""
    connection = client.pgconn
    connection.close_prepared(name.encode())
    prepared = connection.prepare(name.encode(), b"INSERT INTO thing VALUES ($1)")
    assert prepared.status == ExecStatus.COMMAND_OK, prepared.error_message
    described = connection.describe_prepared(name.encode())
    assert described.status == ExecStatus.COMMAND_OK, described.error_message
    return described.param_type(0)


def everywhere(clients: list[Connection]) -> set[int]:
    """What clients on all server connections are told."""
    with spread(clients):
        return {parameter_type(client) for client in clients}


def beside(proxy: Proxy) -> Connection:
    """A client that is not the proxy's."""
    where: dict[str, Any] = {"host": "127.0.0.1", "port": proxy.stock.port, "user": "app", "password": PASSWORD}
    return psycopg.connect(**where, dbname="appdb", autocommit=True)


def renewed(proxy: Proxy) -> float:
    return metric(proxy.http, "weir_proxy_pool_statements_total", result="renewed")


CHANGE = "ALTER TABLE thing ALTER a TYPE bigint"


@pytest.mark.parametrize(
    "script",
    [
        CHANGE,
        f"BEGIN; {CHANGE}; COMMIT",
        f"DO $$ BEGIN {CHANGE}; END $$",
        "DROP TABLE thing; CREATE TABLE thing (a bigint)",
        f"BEGIN; DROP TABLE thing; ROLLBACK; {CHANGE}",
    ],
)
@pytest.mark.parametrize("way", ["pooler", "direct"])
def test_who_prepares_after_a_change_is_told_the_types_of_now(
    proxy: Proxy, clients: list[Connection], script: str, way: str
) -> None:
    assert everywhere(clients) == {INT4}
    with pooled(proxy) if way == "pooler" else proxy.connect() as changer:
        changer.execute(script.encode())
    assert everywhere(clients) == {INT8}
    before = renewed(proxy)
    assert everywhere(clients) == {INT8}
    assert renewed(proxy) == before, "a server connection prepares a text once for a change"


def test_a_change_that_is_rolled_back_is_seen_by_its_transaction_alone(
    proxy: Proxy, clients: list[Connection]
) -> None:
    assert everywhere(clients) == {INT4}
    changer = clients[0]
    changer.execute("BEGIN")
    changer.execute("SAVEPOINT before")
    changer.execute(CHANGE.encode())
    assert parameter_type(changer) == INT8
    changer.execute("ROLLBACK TO before")
    assert parameter_type(changer) == INT4
    changer.execute(CHANGE.encode())
    assert parameter_type(changer) == INT8
    changer.execute("ROLLBACK")
    assert everywhere(clients) == {INT4}


def test_a_client_that_vanishes_within_its_change_leaves_no_trace_of_it(
    proxy: Proxy, clients: list[Connection]
) -> None:
    assert everywhere(clients) == {INT4}
    with contextlib.closing(pooled(proxy)) as changer:
        changer.execute("BEGIN")
        changer.execute(CHANGE.encode())
        assert parameter_type(changer) == INT8
    assert everywhere(clients) == {INT4}


def test_a_change_that_the_proxy_does_not_see_is_told_by_one_error(proxy: Proxy, clients: list[Connection]) -> None:
    def rows(client: Connection) -> ExecStatus:
        """As a driver prepares and runs a text it has not run before; the table's rows change under it."""
        connection = client.pgconn
        connection.close_prepared(b"r")
        prepared = connection.prepare(b"r", b"SELECT * FROM thing")
        assert prepared.status == ExecStatus.COMMAND_OK, prepared.error_message
        result = connection.exec_prepared(b"r", [])
        if result.status != ExecStatus.TUPLES_OK:
            assert b"cached plan must not change result type" in result.error_message
        return ExecStatus(result.status)

    for _ in range(2):
        with spread(clients):
            assert {rows(client) for client in clients} == {ExecStatus.TUPLES_OK}
    with beside(proxy) as other:
        other.execute("ALTER TABLE thing ADD COLUMN b int")
    found = [rows(client) for client in clients]
    assert found.count(ExecStatus.FATAL_ERROR) <= 1, found
    with spread(clients):
        assert {rows(client) for client in clients} == {ExecStatus.TUPLES_OK}


def test_a_herd_has_each_server_connection_prepare_once_for_a_change(proxy: Proxy, clients: list[Connection]) -> None:
    everywhere(clients)
    herd = 24
    with contextlib.ExitStack() as stack:
        others = [stack.enter_context(pooled(proxy)) for _ in range(herd)]
        clients[0].execute(CHANGE.encode())
        before = renewed(proxy)
        with ThreadPoolExecutor(herd) as threads:
            for _ in range(10):
                assert set(threads.map(parameter_type, others)) == {INT8}
        assert renewed(proxy) - before <= POOL


def test_who_has_prepared_before_a_change_goes_on_beside_who_prepares_after_it(
    proxy: Proxy, clients: list[Connection]
) -> None:
    holder, other = clients[0], clients[1]
    parameter_type(holder, "held")
    clients[2].execute("CREATE TABLE IF NOT EXISTS beside (a int)")
    parameter_type(other, "new")
    before = renewed(proxy)
    for _ in range(20):
        for client, name in ((holder, b"held"), (other, b"new")):
            result = client.pgconn.exec_prepared(name, [b"1"])
            assert result.status == ExecStatus.COMMAND_OK, result.error_message
    # No turns are taken at preparing the text; each server connection that is used may have to once.
    assert renewed(proxy) - before <= POOL


def test_a_change_without_any_sign_is_known_after_a_while() -> None:
    """A parameter of another type is no error for Postgres, and the change passed through no proxy."""
    with proxied("--pool-size", "1", "--pool-renewal-ms", "1000") as proxy, pooled(proxy) as client:
        client.execute("CREATE TABLE thing (a int)")
        assert parameter_type(client) == INT4
        with beside(proxy) as other:
            other.execute(CHANGE.encode())
        wait_for("the type of now", lambda: parameter_type(client) == INT8)


async def address(proxy: Proxy) -> dict[str, Any]:
    context = ssl.create_default_context(cafile=str(proxy.authority.root))
    context.check_hostname = False
    user = f"endpoint={ENDPOINT}-pooler;app"
    where = {"host": "127.0.0.1", "port": proxy.port, "database": "appdb", "user": user, "password": PASSWORD}
    return where | {"ssl": context}


def test_asyncpg_meets_types_that_are_made_anew_under_their_name(proxy: Proxy) -> None:
    """It prepares each statement by name. A client that comes after a change has nothing to be outdated."""

    async def run() -> None:
        where = await address(proxy)
        maker = await asyncpg.connect(**where)
        for number in range(12):
            moods = ", ".join(f"'m{number}{letter}'" for letter in "abc")
            await maker.execute("DROP TABLE IF EXISTS feeling; DROP TYPE IF EXISTS mood")
            await maker.execute(f"CREATE TYPE mood AS ENUM ({moods})")
            await maker.execute("CREATE TABLE feeling (id int, now mood, before mood[])")
            await maker.reload_schema_state()
            comers = [await asyncpg.connect(**where) for _ in range(POOL)]
            for client in (*comers, maker):
                mood = f"m{number}a"
                async with client.transaction():
                    await client.execute("INSERT INTO feeling VALUES ($1, $2, $3)", 1, mood, [mood])
                    row = await client.fetchrow("SELECT * FROM feeling WHERE now = $1", mood)
                    assert row is not None
                    assert tuple(row) == (1, mood, [mood])
            for client in comers:
                await client.close()
        await maker.close()

    asyncio.run(run())


def test_rows_are_never_others_than_a_client_was_told(proxy: Proxy, clients: list[Connection]) -> None:
    holder, changer, taker = clients
    connection = holder.pgconn
    for name, statement in ((b"ask", b"SELECT a FROM thing"), (b"add", b"INSERT INTO thing VALUES ($1)")):
        assert connection.prepare(name, statement).status == ExecStatus.COMMAND_OK
        assert connection.describe_prepared(name).status == ExecStatus.COMMAND_OK
    changer.execute(CHANGE.encode())
    # Where it was prepared, Postgres decides, which knows the parameter's old type.
    assert connection.exec_prepared(b"add", [b"1"]).status == ExecStatus.COMMAND_OK
    for taken, names in (([], [b"ask"]), ([taker], [b"ask", b"add"])):
        with spread(taken):
            for name in names:
                refused = connection.exec_prepared(name, [b"1"] if name == b"add" else [])
                assert b"cached plan must not change result type" in refused.error_message, (name, taken)
                assert refused.error_field(DiagnosticField.SQLSTATE) == b"0A000"
    # What has not changed for the client goes on everywhere.
    assert connection.prepare(b"same", b"SELECT $1::int").status == ExecStatus.COMMAND_OK
    assert connection.describe_prepared(b"same").status == ExecStatus.COMMAND_OK
    changer.execute("ALTER TABLE thing ADD COLUMN b int")
    for taken in ([], [taker], []):
        with spread(taken):
            assert connection.exec_prepared(b"same", [b"5"]).get_value(0, 0) == b"5"


def test_asyncpg_reads_rows_as_they_are_after_a_change(proxy: Proxy, clients: list[Connection]) -> None:
    """It reads rows in binary form by what it was told, from its cache of statements, and prepares anew when it is
    told to: at once, or after the transaction."""
    clients[0].execute("INSERT INTO thing VALUES (7)")
    ask = "SELECT * FROM thing"

    async def run() -> None:
        client = await asyncpg.connect(**await address(proxy))
        assert [tuple(row) for row in await client.fetch(ask)] == [(7,)]
        with proxy.connect() as direct:
            direct.execute(CHANGE.encode())
            direct.execute("UPDATE thing SET a = 5000000000")
        with spread(clients[:1]):
            assert [tuple(row) for row in await client.fetch(ask)] == [(5_000_000_000,)]
        with proxy.connect() as direct:
            direct.execute("ALTER TABLE thing ADD COLUMN b text DEFAULT 'x'")
        with spread(clients[:1]):
            with pytest.raises(asyncpg.InvalidCachedStatementError):
                async with client.transaction():
                    await client.fetch(ask)
            async with client.transaction():
                assert [tuple(row) for row in await client.fetch(ask)] == [(5_000_000_000, "x")]
        await client.close()

    asyncio.run(run())


def test_temporary_tables_of_transactions_cost_no_statement(proxy: Proxy, clients: list[Connection]) -> None:
    """Each such transaction changes the schema; server connections keep one statement for a text all the same."""
    client = clients[0]
    for _ in range(20):
        with client.transaction():
            client.execute("CREATE TEMP TABLE passing (a int) ON COMMIT DROP")
            client.execute("INSERT INTO passing VALUES (%s)", [1], prepare=True)
        assert parameter_type(client) == INT4
    with all_taken(proxy, POOL) as holders:
        for holder in holders:
            texts = "SELECT statement FROM pg_prepared_statements WHERE NOT from_sql"
            found = [str(row[0]) for row in holder.execute(texts.encode()).fetchall()]
            assert len(found) == len(set(found)), found
