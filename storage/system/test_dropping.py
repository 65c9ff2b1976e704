"""Roles and databases are dropped when the spec says so: what tenants do by SQL neither keeps the database from
starting nor turns what a dropped role owned into something of the superuser's."""

from __future__ import annotations

import json
from collections.abc import Generator
from typing import Any

import psycopg
import pytest
from escapes import APP, DATABASES, OTHER, as_role, two_roles
from harness import Compute, Engine, metric, wait_for


def drop(compute: Compute, roles: list[str], databases: list[str]) -> tuple[int, dict[str, Any]]:
    """The spec that a control plane sends after somebody has deleted these."""
    return compute.configure(
        roles=[role for role in (APP, OTHER) if role["name"] not in roles],
        databases=[row for row in DATABASES if row["name"] not in databases and row["owner"] not in roles],
        dropped_roles=roles,
        dropped_databases=databases,
    )


def there(compute: Compute) -> tuple[set[str], set[str]]:
    roles = {row[0] for row in compute.sql("SELECT rolname FROM pg_roles WHERE rolname IN ('app', 'other')")}
    return roles, {row[0] for row in compute.sql("SELECT datname FROM pg_database")} & {"appdb", "otherdb", "mine"}


def as_other(compute: Compute, database: str, **options: Any) -> psycopg.Connection[Any]:
    return as_role(compute, "other", database, **options)


@pytest.fixture
def two(shared: Engine) -> Generator[Compute]:
    compute = two_roles(shared)
    yield compute
    compute.suspend()


def test_what_is_named_goes_and_nothing_else(two: Compute) -> None:
    """With a session in it, as a template, and with a prepared transaction, each of which Postgres refuses."""
    with as_other(two, "otherdb") as session:
        session.execute("CREATE TABLE t (id int)")
        session.execute("BEGIN")
        session.execute("INSERT INTO t VALUES (1)")
        session.execute("PREPARE TRANSACTION 'left'")
        session.execute("ALTER DATABASE otherdb IS_TEMPLATE true")
        session.execute("ALTER DATABASE otherdb SET role = 'other'")
        session.execute("COMMENT ON DATABASE otherdb IS 'not what Weir has written there'")
        assert drop(two, [], ["otherdb"]) == (200, {"pending_restart": [], "failed": []})
        assert there(two) == ({"app", "other"}, {"appdb"})
        with pytest.raises(psycopg.OperationalError):
            session.execute("SELECT 1")
    assert two.sql("SELECT count(*) FROM pg_prepared_xacts") == [(0,)]
    # Repeating it is no error, and Weir's own databases are not for dropping.
    assert drop(two, ["other"], ["otherdb", "postgres", "template1"])[0] == 200
    assert there(two) == ({"app"}, {"appdb"})


def test_what_a_dropped_role_owned_is_never_the_superusers(two: Compute) -> None:
    """A function with its owner's rights, in a database that the role has made by SQL, in Weir's own, where anybody
    may have large objects and temporary functions, and in another's. Its prepared transactions end."""
    two.sql("GRANT ALL ON SCHEMA public TO other")
    with as_other(two, "postgres") as session:
        session.execute("CREATE DATABASE mine")
        session.execute("SELECT lo_create(4711)")
        session.execute(
            "CREATE FUNCTION pg_temp.who() RETURNS text LANGUAGE sql SECURITY DEFINER RETURN current_user"
        )
        for database in ("mine", "appdb"):
            with as_other(two, database) as inside:
                inside.execute("BEGIN")
                inside.execute("CREATE TABLE held (id int)")
                inside.execute(f"PREPARE TRANSACTION 'held in {database}'")
                inside.execute(
                    "CREATE FUNCTION public.who() RETURNS text LANGUAGE sql SECURITY DEFINER RETURN current_user"
                )
        assert drop(two, ["other"], ["otherdb"])[0] == 200
        with pytest.raises(psycopg.OperationalError):
            session.execute("SELECT pg_temp.who()")
    assert there(two) == ({"app"}, {"appdb", "mine"})
    assert two.sql("SELECT count(*) FROM pg_prepared_xacts") == [(0,)]
    assert two.sql("SELECT pg_get_userbyid(datdba) FROM pg_database WHERE datname = 'mine'") == [("app",)]
    assert two.sql("SELECT who()") == [("app",)]
    with psycopg.connect(two.uri.replace("/appdb", "/mine")) as session:
        assert session.execute("SELECT who()").fetchall() == [("app",)]
    with two.admin("postgres") as session:
        owner = "SELECT pg_get_userbyid(lomowner) FROM pg_largeobject_metadata WHERE oid = 4711"
        assert session.execute(owner).fetchall() == [("app",)]


def test_a_drop_that_cannot_be_keeps_no_limit_from_counting(shared: Engine) -> None:
    """A tenant who makes a drop impossible stays held to the quota and the rate of WAL that the same spec brings."""
    compute = two_roles(shared)
    compute.sql("CREATE TABLE filled (filler text)")
    with as_other(compute, "otherdb") as session:
        session.execute("CREATE TABLE t (id int)")
    with as_other(compute, "postgres") as session:
        session.execute("ALTER DATABASE otherdb ALLOW_CONNECTIONS false")
    wanted = {"roles": [APP], "databases": [DATABASES[0], {"name": "otherdb", "owner": "app"}]}
    limits = {"storage_quota_bytes": 20 << 20, "wal_bytes_per_second": 16 << 20}
    code, answer = compute.configure(**wanted, **limits, dropped_roles=["other"])
    assert code != 200, answer
    assert metric(compute, "weir_compute_wal_rate_limit_bytes_per_second") == 16 << 20
    # The branch holds more than that already: the next run writes through, and growth is refused there.
    wait_for("writes to go through", lambda: metric(compute, "weir_compute_volume_write_back") == 0)
    compute.wait_running()

    def insert_much() -> None:
        for _ in range(20):
            compute.sql("INSERT INTO filled SELECT repeat('x', 900) FROM generate_series(1, 5000) n")

    with pytest.raises(psycopg.errors.DiskFull):
        insert_much()
    compute.suspend()


def test_a_drop_that_cannot_be_says_what_to_do_and_keeps_no_start(shared: Engine) -> None:
    compute = two_roles(shared)
    with as_other(compute, "otherdb") as session:
        session.execute("CREATE TABLE t (id int)")
    with as_other(compute, "postgres") as session:
        session.execute("ALTER DATABASE otherdb ALLOW_CONNECTIONS false")
    # The database is somebody's who stays, so that its rows have to stay as well.
    wanted = {"roles": [APP], "databases": [DATABASES[0], {"name": "otherdb", "owner": "app"}]}
    code, answer = compute.configure(**wanted, dropped_roles=["other"])
    assert code != 200
    assert 'ALTER DATABASE "otherdb" ALLOW_CONNECTIONS true' in answer["message"]
    # Shut it is at once, and the rest of the spec is in force.
    with pytest.raises(psycopg.OperationalError, match="not permitted to log in"):
        as_other(compute, "postgres")
    assert compute.sql("SELECT pg_get_userbyid(datdba) FROM pg_database WHERE datname = 'otherdb'") == [("app",)]

    compute.suspend()
    spec = compute.spec() | wanted | {"dropped_roles": ["other"]}
    (compute.directory / "spec.json").write_text(json.dumps(spec))
    compute.process.start()
    compute.wait_running()
    with pytest.raises(psycopg.OperationalError, match="not permitted to log in"):
        as_other(compute, "postgres")
    compute.sql("ALTER DATABASE otherdb ALLOW_CONNECTIONS true")
    assert compute.configure()[0] == 200
    assert there(compute)[0] == {"app"}
    with compute.admin("otherdb") as session:
        assert session.execute("SELECT tableowner FROM pg_tables WHERE tablename = 't'").fetchall() == [("app",)]
    compute.suspend()
