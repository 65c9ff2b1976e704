"""What a role may do: the lines of docs/roles.md that say yes. Those that say no are in `test_escapes_by_sql.py`."""

from __future__ import annotations

import re
from collections.abc import Generator
from pathlib import Path

import psycopg
import pytest
from escapes import admin, as_role, refused, two_roles
from harness import Compute, Engine

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


@pytest.fixture(scope="module")
def compute(shared: Engine) -> Generator[Compute]:
    yield (made := two_roles(shared))
    made.suspend()


def test_attributes(compute: Compute) -> None:
    with admin(compute) as session:
        found = session.execute(
            """SELECT rolname, rolcanlogin, rolcreatedb, rolcreaterole, rolreplication, rolbypassrls, rolsuper
               FROM pg_roles WHERE rolname IN ('app', 'other') ORDER BY 1"""
        ).fetchall()
    assert found == [(name, True, True, False, False, False, False) for name in ("app", "other")]


def test_databases(compute: Compute) -> None:
    compute.sql("CREATE DATABASE by_sql")
    with as_role(compute, "app", "by_sql") as session:
        session.execute("CREATE TABLE t ()")
    with as_role(compute, "other", "postgres") as session:
        refused(session, "DROP DATABASE by_sql", "ALTER DATABASE by_sql RENAME TO mine", why="must be owner")
    compute.sql("ALTER DATABASE by_sql RENAME TO renamed")
    compute.sql("DROP DATABASE renamed")


def test_an_owner_watches_all_sessions(compute: Compute) -> None:
    with as_role(compute, "other", "otherdb") as theirs:
        theirs.execute("SELECT 'a secret of the other role'")
        seen = compute.sql("SELECT query FROM pg_stat_activity WHERE usename = 'other' AND datname = 'otherdb'")
        assert ("SELECT 'a secret of the other role'",) in seen
    assert compute.sql("SELECT count(*) > 0 FROM pg_stat_replication WHERE sent_lsn IS NOT NULL") == [(True,)]
    assert compute.sql("SELECT count(*) >= 0 FROM pg_ls_waldir()") == [(True,)]
    # One that owns no database sees its own only.
    assert compute.configure(databases=[{"name": "appdb", "owner": "app"}])[0] == 200
    with compute.connect() as session, as_role(compute, "other", "postgres") as theirs:
        session.execute("SELECT 'a secret of the owner'")
        found = theirs.execute("SELECT DISTINCT query FROM pg_stat_activity WHERE usename = 'app'").fetchall()
        assert found == [("<insufficient privilege>",)]
        refused(theirs, f"SELECT pg_terminate_backend({session.info.backend_pid})")
    assert compute.configure()[0] == 200


def test_an_owner_does_all_in_its_database(compute: Compute) -> None:
    with compute.connect() as session:
        for statement in (
            "CREATE SCHEMA shop",
            "CREATE TYPE shop.state AS ENUM ('new', 'paid')",
            "CREATE DOMAIN shop.amount AS numeric CHECK (VALUE >= 0)",
            "CREATE TABLE shop.orders (id int PRIMARY KEY, state shop.state, price shop.amount, owner name)",
            "CREATE INDEX ON shop.orders (lower(owner::text))",
            "CREATE SEQUENCE shop.numbers",
            "CREATE VIEW shop.paid AS SELECT * FROM shop.orders WHERE state = 'paid'",
            "CREATE MATERIALIZED VIEW shop.kept AS SELECT * FROM shop.orders",
            "REFRESH MATERIALIZED VIEW shop.kept",
            """CREATE FUNCTION shop.stamp() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS
               $$ BEGIN NEW.owner := session_user; RETURN NEW; END $$""",
            "CREATE TRIGGER stamp BEFORE INSERT ON shop.orders FOR EACH ROW EXECUTE FUNCTION shop.stamp()",
            "ALTER TABLE shop.orders ENABLE ROW LEVEL SECURITY",
            "CREATE POLICY mine ON shop.orders USING (owner = current_user)",
            "CREATE PUBLICATION news FOR TABLE shop.orders",
            "CREATE FUNCTION shop.eq(shop.state, shop.state) RETURNS bool LANGUAGE sql RETURN $1::text = $2::text",
            "CREATE OPERATOR shop.=== (LEFTARG = shop.state, RIGHTARG = shop.state, FUNCTION = shop.eq)",
            "CREATE TEXT SEARCH CONFIGURATION shop.words (COPY = pg_catalog.english)",
            "CREATE STATISTICS shop.together ON id, state FROM shop.orders",
            "ALTER DEFAULT PRIVILEGES IN SCHEMA shop GRANT SELECT ON TABLES TO other",
            "INSERT INTO shop.orders VALUES (1, 'new', 10, '')",
            "VACUUM ANALYZE shop.orders",
            "REINDEX SCHEMA shop",
            "SELECT lo_create(0)",
            "LISTEN news",
            "ALTER DATABASE appdb SET work_mem = '8MB'",
            "ALTER DATABASE appdb RESET ALL",
        ):
            session.execute(statement)
        assert session.execute("SELECT owner FROM shop.orders").fetchall() == [("app",)]
        session.execute("DROP SCHEMA shop CASCADE")


def test_grants_between_roles(compute: Compute) -> None:
    with compute.connect() as session, as_role(compute, "other", "appdb") as theirs:
        session.execute("CREATE TABLE shared AS SELECT 1 AS id")
        refused(theirs, "SELECT * FROM shared")
        session.execute("GRANT SELECT ON shared TO other")
        theirs.execute("SELECT * FROM shared")
        # It lasts when the agent applies a spec.
        assert compute.configure()[0] == 200
        theirs.execute("SELECT * FROM shared")
        refused(session, "GRANT app TO other", why="admin option")
        session.execute("DROP TABLE shared")


def test_a_role_changes_itself(compute: Compute) -> None:
    with as_role(compute, "other", "otherdb") as session:
        session.execute("ALTER ROLE other SET work_mem = '8MB'")
        session.execute("ALTER ROLE other PASSWORD 'chosen by SQL'")
        with psycopg.connect(compute.uri.replace("app:correct%20horse", "other:chosen%20by%20SQL")) as again:
            assert again.execute("SHOW work_mem").fetchone() == ("8MB",)
        session.execute("ALTER ROLE other RESET ALL")
        refused(
            session,
            "ALTER ROLE other VALID UNTIL 'tomorrow'",
            "DROP ROLE other",
        )
    # The password is the spec's again.
    assert compute.configure()[0] == 200
    as_role(compute, "other", "otherdb").close()


def test_the_documents_name_tests_that_there_are() -> None:
    pages = [(ROOT / "docs" / name).read_text() for name in ("roles.md", "security.md")]
    named = {test for text in pages for test in re.findall(r"`(?:test_\w+\.py)?(?:::)?(test_\w+)`", text)}
    there = {
        test
        for path in HERE.glob("test_*.py")
        for test in re.findall(r"^def (test_\w+)", path.read_text(), re.MULTILINE)
    }
    assert len(named) > 20
    assert named <= there, named - there
