"""Schemas of databases and how they differ: what pg_dump says, without what is another in each dump."""

import asyncio
import os

import psycopg
import pytest
from sqlalchemy.engine import make_url
from weir_testing.at_once import make
from weir_testing.fixtures import Weir

from weir.config import Settings
from weir.databases import schema_dump, schema_router
from weir.errors import PreconditionFailedError, UnavailableError

TABLES = 5000


def _source(settings: Settings, postgres_url: str, database: str) -> schema_dump.Source:
    url = make_url(postgres_url)
    return schema_dump.Source(
        "br-of-a-test",
        settings.pg_bin_dir / "pg_dump",
        schema_dump.environment(str(url.host), int(url.port or 0), str(url.username), url.password or "", database),
    )


async def test_two_dumps_of_one_schema_are_the_same_and_hold_no_rows(
    environment: Settings, postgres_url: str
) -> None:
    """Of a database whose name an argument of pg_dump would be read as the address of another server."""
    name = f"host=192.0.2.1 {os.urandom(3).hex()}"
    plain = postgres_url.replace("postgresql+psycopg", "postgresql")
    async with await psycopg.AsyncConnection.connect(plain, autocommit=True) as connection:
        await connection.execute(f'CREATE DATABASE "{name}"'.encode())
    source = _source(environment, postgres_url, name)
    async with await psycopg.AsyncConnection.connect(plain, dbname=name, autocommit=True) as connection:
        await connection.execute("CREATE TABLE kept (id bigint PRIMARY KEY, note text)")
        await connection.execute("INSERT INTO kept VALUES (1, 'a secret')")
    first, second = await schema_dump.dump(source), await schema_dump.dump(source)
    assert first == second
    assert "CREATE TABLE public.kept" in first
    assert "a secret" not in first
    assert "restrict" not in first


def test_only_the_lines_of_the_key_go() -> None:
    dump = "--\n\\restrict abc\n\nSELECT '\n\\restrict other\n';\n\\unrestrict abc\n"
    assert schema_dump.without_key(dump) == "--\n\nSELECT '\n\\restrict other\n';\n"
    assert schema_dump.without_key("-- of an older minor\n") == "-- of an older minor\n"


async def test_a_dump_that_fails_says_why(environment: Settings, postgres_url: str) -> None:
    with pytest.raises(UnavailableError, match='database "never_there" does not exist'):
        await schema_dump.dump(_source(environment, postgres_url, "never_there"))


async def test_a_schema_is_read_by_a_compute_that_runs(weir: Weir) -> None:
    created = await weir.project(name="schemas")
    project, main = created["project"]["id"], created["branch"]["id"]
    weir.storage.advance(created["branch"]["timeline_id"], "0/2000000")
    made = await weir.call("POST", f"/projects/{project}/branches", 201, json={})
    await weir.finish(made)
    path = f"/projects/{project}/branches/{made['branch']['id']}"
    wanted = {"db_name": "appdb"}
    assert "create a read-write endpoint" in (await weir.call("GET", f"{path}/schema", 412, params=wanted))["message"]
    compared = await weir.call("GET", f"{path}/compare_schema", 412, params=wanted)
    assert "create a read-write endpoint" in compared["message"]
    await weir.call("GET", f"{path}/schema", 404, params={"db_name": "never_there"})

    base = f"/projects/{project}/branches/{main}"
    assert "no parent" in (await weir.call("GET", f"{base}/compare_schema", 400, params=wanted))["message"]
    endpoint = f"/projects/{project}/endpoints/{created['endpoints'][0]['id']}"
    await weir.finish(await weir.call("POST", f"{endpoint}/suspend"))
    await weir.call("PATCH", endpoint, json={"endpoint": {"disabled": True}})
    assert "is disabled" in (await weir.call("GET", f"{base}/schema", 412, params=wanted))["message"]


async def test_a_suspended_compute_is_started_to_read_a_schema(weir: Weir, monkeypatch: pytest.MonkeyPatch) -> None:
    """By two requests at once, of which each finds it asleep."""
    created = await weir.project(name="asleep")
    project, main = created["project"]["id"], created["branch"]["id"]
    endpoint = f"/projects/{project}/endpoints/{created['endpoints'][0]['id']}"
    await weir.finish(await weir.call("POST", f"{endpoint}/suspend"))
    dumped: list[str] = []

    async def dump(source: schema_dump.Source) -> str:
        assert (await weir.call("GET", endpoint))["endpoint"]["current_state"] == "active"
        dumped.append(source.branch_id)
        return "CREATE TABLE t ();\n"

    monkeypatch.setattr(schema_dump, "dump", dump)
    path = f"/projects/{project}/branches/{main}/schema"
    answers = await asyncio.gather(*(weir.call("GET", path, params={"db_name": "appdb"}) for _ in range(2)))
    assert answers == [{"sql": "CREATE TABLE t ();\n"}] * 2
    assert dumped == [main] * 2
    entries = (await weir.call("GET", "/audit", params={"limit": 50}))["entries"]
    started = [row for row in entries if row["action"] == "endpoint.start" and row["project_id"] == project]
    assert [row["actor"] for row in started] == ["schema"]


async def test_a_compute_that_does_not_start_in_time_is_not_waited_for_any_longer(
    weir: Weir, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = await make(weir, "never-awake")
    operation = await project.hanging_start(project.dev_endpoint)
    monkeypatch.setattr(schema_router, "WAKE_SECONDS", 1.0)
    path = f"/branches/{project.dev['id']}/schema"
    answer = await project.call("GET", path, 503, params={"db_name": "appdb"})
    assert "does not run after 1 s" in answer["message"]
    await project.cancel(operation)


async def test_a_schema_of_thousands_of_tables_is_dumped_and_compared_and_a_larger_one_refused(
    environment: Settings, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"many_{os.urandom(3).hex()}"
    plain = postgres_url.replace("postgresql+psycopg", "postgresql")
    async with await psycopg.AsyncConnection.connect(plain, autocommit=True) as connection:
        await connection.execute(f"CREATE DATABASE {name}".encode())
    source = _source(environment, postgres_url, name)
    async with await psycopg.AsyncConnection.connect(plain, dbname=name, autocommit=True) as connection:
        # In parts: a transaction holds a lock on each table that it makes.
        for first in range(0, TABLES, 500):
            columns = "a bigint, b text, c timestamptz DEFAULT now()"
            await connection.execute(
                f"DO $$ BEGIN FOR n IN {first}..{first + 499} LOOP "
                f"EXECUTE format('CREATE TABLE table_%s ({columns})', n); END LOOP; END $$".encode()
            )
    before = await schema_dump.dump(source)
    assert before.count("CREATE TABLE public.table_") == TABLES
    after = before.replace("CREATE TABLE public.table_77 (", "CREATE TABLE public.renamed (")
    diff = schema_dump.difference(before, after, name)
    assert [line for line in diff.splitlines()[2:] if line[0] in "+-"] == [
        "-CREATE TABLE public.table_77 (",
        "+CREATE TABLE public.renamed (",
    ]
    monkeypatch.setattr(schema_dump, "MOST_BYTES", len(before) // 2)
    with pytest.raises(PreconditionFailedError, match="run pg_dump --schema-only yourself"):
        await schema_dump.dump(source)
    async with await psycopg.AsyncConnection.connect(plain, autocommit=True) as connection:
        await connection.execute(f"DROP DATABASE {name}".encode())
