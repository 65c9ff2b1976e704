"""Schemas of databases and how they differ: what pg_dump says, without what is another in each dump."""

import os

import psycopg
import pytest
from sqlalchemy.engine import make_url
from weir_testing.fixtures import Weir

from weir.config import Settings
from weir.databases import schema_dump
from weir.errors import UnavailableError


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
    past = await weir.call("GET", f"{path}/schema", 400, params=wanted | {"lsn": "0/1700000"})
    assert past["code"] == "NOT_SUPPORTED"

    base = f"/projects/{project}/branches/{main}"
    assert "no parent" in (await weir.call("GET", f"{base}/compare_schema", 400, params=wanted))["message"]
    endpoint = f"/projects/{project}/endpoints/{created['endpoints'][0]['id']}"
    await weir.finish(await weir.call("POST", f"{endpoint}/suspend"))
    assert "start it" in (await weir.call("GET", f"{base}/schema", 412, params=wanted))["message"]
