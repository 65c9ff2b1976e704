"""Extensions: the list against the server, what an owner creates, and what scripts meet in an owner's database."""

from __future__ import annotations

import json
from collections.abc import Generator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from escapes import admin, refusal, refused, set_traps, superusers, two_roles
from harness import Compute, Engine
from psycopg import sql

LIST = json.loads((Path(__file__).parents[1] / "crates/compute/extensions/list.json").read_text())["majors"]["15"]
ALLOWED: dict[str, list[str]] = LIST["allowed"]


@pytest.fixture(scope="module")
def compute(shared: Engine) -> Generator[Compute]:
    yield (made := two_roles(shared))
    made.suspend()


@pytest.fixture
def mine(compute: Compute) -> Generator[psycopg.Connection[Any]]:
    """A session of the owner's in a database that goes when the test has ended."""
    compute.sql("CREATE DATABASE mine")
    try:
        with psycopg.connect(compute.uri.replace("/appdb", "/mine"), autocommit=True) as session:
            yield session
        assert superusers(compute) == ["weir_admin"]
    finally:
        compute.sql("DROP DATABASE mine WITH (FORCE)")


def create(
    session: psycopg.Connection[Any], name: str, version: str | None = None, schema: str | None = None
) -> None:
    statement = sql.SQL("CREATE EXTENSION {}").format(sql.Identifier(name))
    if schema:
        statement += sql.SQL(" SCHEMA {}").format(sql.Identifier(schema))
    if version:
        statement += sql.SQL(" VERSION {}").format(sql.Literal(version))
    session.execute(statement)


def test_the_list_names_each_extension_of_the_server_and_allows_what_is_trusted(compute: Compute) -> None:
    found = compute.sql("SELECT name, version, trusted FROM pg_available_extension_versions")
    there = {name for name, _, _ in found}
    assert there <= {*ALLOWED, *LIST["refused"]}
    assert not set(ALLOWED) & set(LIST["refused"])
    assert set(ALLOWED) <= there
    trusted: dict[str, set[str]] = {}
    for name, version, is_trusted in found:
        if is_trusted:
            trusted.setdefault(name, set()).add(version)
    # What the server trusts and the list does not is left out of the copies of the server that computes run from.
    assert {name: versions for name, versions in trusted.items() if name in ALLOWED} == {
        name: set(versions) for name, versions in ALLOWED.items()
    }


def test_an_owner_creates_each_that_is_allowed_in_each_version_and_updates_it(mine: psycopg.Connection[Any]) -> None:
    for name, versions in ALLOWED.items():
        if name == "plpgsql":
            continue
        for version in versions:
            create(mine, name, version)
            mine.execute(sql.SQL("ALTER EXTENSION {} UPDATE").format(sql.Identifier(name)))
            owner = mine.execute("SELECT extowner::regrole::text FROM pg_extension WHERE extname = %s", (name,))
            assert owner.fetchone() == ("app",)
            mine.execute(sql.SQL("DROP EXTENSION {}").format(sql.Identifier(name)))


def test_what_is_refused_cannot_be_created(mine: psycopg.Connection[Any]) -> None:
    found = mine.execute("SELECT name FROM pg_available_extensions").fetchall()
    names = sorted({name for (name,) in found} & set(LIST["refused"]))
    assert {"dblink", "postgres_fdw", "file_fdw", "adminpack", "pageinspect"} <= set(names)
    for name in names:
        refused(mine, f'CREATE EXTENSION "{name}" CASCADE', why="permission denied|not offer")
    refused(mine, 'CREATE EXTENSION "../../tmp/x"', 'CREATE EXTENSION "x--y"', why="invalid extension name")


def test_no_script_meets_an_owners_functions_where_it_means_postgres(
    mine: psycopg.Connection[Any], compute: Compute
) -> None:
    """CVE-2020-14350 and its like: scripts of trusted extensions run as the superuser in the owner's schema."""
    mine.execute("CREATE SCHEMA hostile")
    set_traps(mine, "hostile")
    mine.execute("SET search_path = hostile, pg_catalog")
    for name, versions in ALLOWED.items():
        if name == "plpgsql":
            continue
        for version in (versions[0], versions[-1]):
            create(mine, name, version, "hostile")
            mine.execute(sql.SQL("ALTER EXTENSION {} UPDATE").format(sql.Identifier(name)))
            mine.execute(sql.SQL("DROP EXTENSION {}").format(sql.Identifier(name)))
            assert superusers(compute) == ["weir_admin"], (name, version)


def test_no_script_takes_over_what_an_owner_has_made_before(mine: psycopg.Connection[Any]) -> None:
    """CVE-2022-2625: an object with the name of the script's became the extension's and stayed the owner's."""
    mine.execute(
        "CREATE FUNCTION public.intset_subtract(a int[], b int[]) RETURNS int[] LANGUAGE sql RETURN null::int[]"
    )
    mine.execute("CREATE FUNCTION public.unaccent(regdictionary, text) RETURNS text LANGUAGE sql RETURN 'x'::text")
    refused(mine, "CREATE EXTENSION intarray", "CREATE EXTENSION unaccent", why="already exists|not a member")
    # And no name of a schema ends a quotation in a script (CVE-2023-39417).
    for name in ("a'b", 'a"b', "a$$b", "a\\b"):
        schema = sql.Identifier(name)
        mine.execute(sql.SQL("CREATE SCHEMA {}").format(schema))
        for extension in ("seg", "citext", "btree_gist", "ltree"):
            statement = sql.SQL("CREATE EXTENSION {} SCHEMA {}").format(sql.Identifier(extension), schema)
            said = refusal(mine, statement)
            if said is None:
                mine.execute(sql.SQL("DROP EXTENSION {}").format(sql.Identifier(extension)))
            else:
                assert "invalid character in extension" in str(said)


def test_no_extension_has_functions_with_the_superusers_rights_nor_lets_its_owner_change_them(
    mine: psycopg.Connection[Any], compute: Compute
) -> None:
    """Aiven's `aiven_extras` and the like are such functions; none of those on the list is."""
    for name in ALLOWED:
        if name != "plpgsql":
            create(mine, name)
    definers = "SELECT oid::regprocedure::text FROM pg_proc WHERE prosecdef AND proowner = 'weir_admin'::regrole"
    with admin(compute, "mine") as superuser:
        assert superuser.execute(definers).fetchall() == []
        triggers = superuser.execute("SELECT evtname FROM pg_event_trigger").fetchall()
        assert triggers == []
    refused(
        mine,
        "CREATE OR REPLACE FUNCTION public.similarity(text, text) RETURNS real LANGUAGE sql RETURN 1",
        "ALTER FUNCTION public.similarity(text, text) OWNER TO app",
        "ALTER FUNCTION public.similarity(text, text) SECURITY DEFINER",
        "UPDATE pg_extension SET extowner = 10",
    )
