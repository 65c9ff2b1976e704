"""Ways from a customer's role to the superuser by SQL alone, one test a way: what Postgres refuses as Weir sets it
up, and what was published of services that had opened it. `test_escapes.py` has the ways through what the agent
does."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import psycopg
import pytest
from escapes import admin, as_role, refused, superusers, two_roles
from harness import Compute, Engine, wait_for

# Makes a superuser when one calls it, and is otherwise of no effect.
STEAL = """CREATE OR REPLACE FUNCTION public.steal(i int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$
BEGIN
    BEGIN
        CREATE ROLE stolen SUPERUSER;
    EXCEPTION WHEN OTHERS THEN NULL;
    END;
    RETURN i;
END $$"""


@pytest.fixture(scope="module")
def compute(shared: Engine) -> Generator[Compute]:
    yield (made := two_roles(shared, settings={"autovacuum_naptime": "1s"}))
    made.suspend()


@pytest.fixture
def app(compute: Compute) -> Generator[psycopg.Connection[Any]]:
    """The owner's session; whatever a test has done in it, nobody has become a superuser by it."""
    with compute.connect() as session:
        yield session
    assert superusers(compute) == ["weir_admin"]


def test_event_triggers(app: psycopg.Connection[Any]) -> None:
    """Supabase let roles make them; one could fire in a session of its superuser's (supautils#67, postgres#1844)."""
    app.execute(
        "CREATE FUNCTION public.become() RETURNS event_trigger LANGUAGE plpgsql AS "
        "$$ BEGIN ALTER ROLE app SUPERUSER; END $$"
    )
    refused(
        app,
        *(
            f"CREATE EVENT TRIGGER t ON {event} EXECUTE FUNCTION public.become()"
            for event in ("ddl_command_start", "ddl_command_end", "sql_drop", "table_rewrite")
        ),
    )


def test_owning_things_as_the_superuser(app: psycopg.Connection[Any]) -> None:
    """Cloud SQL let its administrators give tables to roles they were no members of: functions in an index of such a
    table then ran as the new owner."""
    app.execute(STEAL)
    app.execute("CREATE TABLE given (id int)")
    app.execute("CREATE INDEX ON given (public.steal(id))")
    app.execute("CREATE VIEW seen AS SELECT public.steal(1)")
    app.execute("CREATE MATERIALIZED VIEW kept AS SELECT public.steal(1)")
    app.execute("CREATE TYPE kind AS ENUM ('a')")
    app.execute("CREATE SEQUENCE counted")
    app.execute("CREATE SCHEMA room")
    refused(
        app,
        *(
            f"ALTER {what} OWNER TO weir_admin"
            for what in (
                "TABLE given",
                "VIEW seen",
                "MATERIALIZED VIEW kept",
                "TYPE kind",
                "SEQUENCE counted",
                "SCHEMA room",
                "FUNCTION public.steal(int)",
                "DATABASE appdb",
            )
        ),
        "REASSIGN OWNED BY app TO weir_admin",
        "REASSIGN OWNED BY weir_admin TO app",
        "DROP OWNED BY weir_admin",
        "CREATE SCHEMA other_room AUTHORIZATION weir_admin",
        "ALTER DEFAULT PRIVILEGES FOR ROLE weir_admin GRANT ALL ON TABLES TO app",
    )


def test_becoming_the_superuser(app: psycopg.Connection[Any]) -> None:
    refused(
        app,
        "SET ROLE weir_admin",
        "SET SESSION AUTHORIZATION weir_admin",
        "SET SESSION AUTHORIZATION other",
        "ALTER ROLE app SUPERUSER",
        "ALTER ROLE app CREATEROLE",
        "ALTER ROLE app REPLICATION",
        "ALTER ROLE app BYPASSRLS",
        "ALTER ROLE weir_admin PASSWORD 'x'",
        "ALTER ROLE weir_admin NOSUPERUSER",
        "ALTER ROLE weir_admin RENAME TO gone",
    )
    refused(app, "GRANT weir_admin TO app", why="must be superuser|admin option")


def test_creating_and_changing_roles(app: psycopg.Connection[Any]) -> None:
    """In Postgres 15 whoever may create roles may grant what reads the server's files and runs its programs."""
    refused(app, "CREATE ROLE mine", "CREATE ROLE mine SUPERUSER", "DROP ROLE other", "ALTER ROLE other PASSWORD 'x'")
    for role in (
        "pg_execute_server_program",
        "pg_read_server_files",
        "pg_write_server_files",
        "pg_read_all_data",
        "pg_write_all_data",
        "pg_checkpoint",
        "pg_monitor",
        "other",
    ):
        refused(app, f"GRANT {role} TO app", why="admin option")


def test_files_and_programs_of_the_server(app: psycopg.Connection[Any]) -> None:
    app.execute("CREATE TABLE lines (line text)")
    refused(
        app,
        "COPY lines FROM PROGRAM 'id'",
        "COPY lines TO PROGRAM 'cat'",
        "COPY lines FROM '/etc/passwd'",
        "COPY lines TO '/tmp/weir-escape'",
        "SELECT lo_import('/etc/passwd')",
        "SELECT lo_export(1, '/tmp/weir-escape')",
        "SELECT pg_read_file('PG_VERSION')",
        "SELECT pg_read_binary_file('PG_VERSION')",
        "SELECT pg_ls_dir('.')",
        "SELECT pg_stat_file('PG_VERSION')",
        "SELECT pg_rotate_logfile()",
        "SELECT pg_reload_conf()",
        "SELECT * FROM pg_hba_file_rules",
        "SELECT * FROM pg_file_settings",
        "SELECT pg_switch_wal()",
        "SELECT pg_promote()",
        "SELECT pg_backup_start('x')",
        "CREATE TABLESPACE t LOCATION '/tmp'",
    )


def test_code_of_the_servers_own(app: psycopg.Connection[Any]) -> None:
    refused(
        app,
        "CREATE FUNCTION f() RETURNS int LANGUAGE c AS '/tmp/x', 'f'",
        "CREATE FUNCTION f(cstring) RETURNS int LANGUAGE c AS 'libc.so.6', 'system'",
        "CREATE FUNCTION f() RETURNS int LANGUAGE internal AS 'int4in'",
        "CREATE LANGUAGE mine HANDLER plpgsql_call_handler",
        "LOAD '/tmp/x.so'",
        "LOAD 'dblink'",
        "CREATE ACCESS METHOD a TYPE INDEX HANDLER bthandler",
        "CREATE FOREIGN DATA WRAPPER w",
        "CREATE OPERATOR CLASS c FOR TYPE int USING btree AS STORAGE int",
    )


def test_casts_and_operators_for_types_of_postgres(app: psycopg.Connection[Any]) -> None:
    app.execute("CREATE FUNCTION public.as_int(text) RETURNS int LANGUAGE sql RETURN 1")
    refused(
        app,
        "CREATE CAST (text AS int) WITH FUNCTION public.as_int(text) AS IMPLICIT",
        "CREATE CAST (oid AS text) WITHOUT FUNCTION",
        "CREATE FUNCTION pg_catalog.f() RETURNS int LANGUAGE sql RETURN 1",
        "CREATE OPERATOR pg_catalog.@@@@ (LEFTARG = int, FUNCTION = abs)",
        "CREATE OR REPLACE FUNCTION pg_catalog.pg_backend_pid() RETURNS int LANGUAGE sql RETURN 1",
        "ALTER FUNCTION pg_catalog.pg_backend_pid() SECURITY DEFINER",
    )


def test_writing_to_the_catalog(app: psycopg.Connection[Any]) -> None:
    refused(
        app,
        "UPDATE pg_authid SET rolsuper = true WHERE rolname = 'app'",
        "UPDATE pg_proc SET prosecdef = true",
        "UPDATE pg_class SET relowner = 10 WHERE relname = 'given'",
        "INSERT INTO pg_auth_members VALUES (1, 10, 10, true)",
        "DELETE FROM pg_db_role_setting",
        "SET allow_system_table_mods = on",
        "SELECT rolpassword FROM pg_authid",
        "SELECT passwd FROM pg_shadow",
        "SELECT * FROM pg_user_mapping",
    )


def test_settings_that_only_the_superuser_has(app: psycopg.Connection[Any]) -> None:
    refused(app, "ALTER SYSTEM SET work_mem = '4MB'", "ALTER SYSTEM SET archive_command = 'id'")
    for name, value in (
        ("session_preload_libraries", "'x'"),
        ("session_replication_role", "replica"),
        ("dynamic_library_path", "'/tmp'"),
        ("lo_compat_privileges", "on"),
        ("log_statement", "'all'"),
        ("track_activities", "off"),
        ("lc_messages", "'C'"),
        ("zero_damaged_pages", "on"),
    ):
        refused(
            app,
            f"SET {name} = {value}",
            f"ALTER ROLE app SET {name} = {value}",
            f"ALTER DATABASE appdb SET {name} = {value}",
        )
    # Of an extension that may come later.
    refused(app, "ALTER ROLE app SET plperl.on_init = 'x'", "ALTER DATABASE appdb SET plperl.on_plperl_init = 'x'")


def test_settings_of_the_superusers_sessions(app: psycopg.Connection[Any], compute: Compute) -> None:
    refused(
        app,
        "ALTER ROLE weir_admin SET search_path = public",
        "ALTER ROLE weir_admin IN DATABASE appdb SET search_path = public",
        "ALTER ROLE ALL SET search_path = public",
        "ALTER DATABASE postgres SET search_path = public",
        "ALTER DATABASE template1 SET search_path = public",
        "ALTER DATABASE postgres OWNER TO app",
        "ALTER DATABASE template1 RENAME TO mine",
        "DROP DATABASE postgres",
        "COMMENT ON ROLE weir_admin IS 'managed by Weir'",
        "COMMENT ON DATABASE postgres IS 'x'",
    )
    with as_role(compute, "app", "postgres") as session:
        refused(session, "CREATE TABLE public.t ()", "CREATE SCHEMA weir_admin", "CREATE EXTENSION hstore")


def test_subscriptions_and_replication(app: psycopg.Connection[Any]) -> None:
    """A subscription's worker has its owner's rights, and its owner was a superuser in Postgres 15."""
    refused(
        app,
        "CREATE SUBSCRIPTION s CONNECTION 'host=/tmp user=weir_admin' PUBLICATION p",
        "CREATE PUBLICATION p FOR ALL TABLES",
        "SELECT pg_create_physical_replication_slot('s')",
        "SELECT pg_create_logical_replication_slot('s', 'test_decoding')",
        "SELECT pg_drop_replication_slot('weir')",
    )


def test_maintenance_by_the_superuser_runs_an_owners_functions_as_the_owner(
    app: psycopg.Connection[Any], compute: Compute
) -> None:
    """CVE-2022-1552 and CVE-2024-0985: what is in an index or a materialized view ran as whoever maintained it."""
    app.execute(STEAL)
    app.execute("CREATE TABLE bait AS SELECT generate_series(1, 10) AS id")
    app.execute("CREATE INDEX bait_index ON bait (public.steal(id))")
    app.execute("CREATE MATERIALIZED VIEW bait_view AS SELECT id, public.steal(id) AS taken FROM bait")
    app.execute("CREATE UNIQUE INDEX ON bait_view (id)")
    with admin(compute, "appdb") as superuser:
        for statement in (
            "REINDEX TABLE public.bait",
            "REINDEX TABLE CONCURRENTLY public.bait",
            "ANALYZE public.bait",
            "VACUUM FULL public.bait",
            "CLUSTER public.bait USING bait_index",
            "REFRESH MATERIALIZED VIEW public.bait_view",
            "REFRESH MATERIALIZED VIEW CONCURRENTLY public.bait_view",
        ):
            superuser.execute(statement)
            assert superusers(compute) == ["weir_admin"], statement


def test_autovacuum_runs_an_owners_functions_as_the_owner(app: psycopg.Connection[Any], compute: Compute) -> None:
    app.execute(STEAL)
    app.execute(
        "CREATE TABLE watched (id int) WITH (autovacuum_analyze_threshold = 1, autovacuum_analyze_scale_factor = 0)"
    )
    app.execute("CREATE INDEX ON watched (public.steal(id))")
    app.execute("INSERT INTO watched SELECT generate_series(1, 100)")
    analyzed = "SELECT autoanalyze_count FROM pg_stat_user_tables WHERE relname = 'watched'"
    wait_for("autovacuum to analyze", lambda: app.execute(analyzed).fetchone() != (0,), 60)
    assert superusers(compute) == ["weir_admin"]


def test_functions_with_the_superusers_rights(compute: Compute) -> None:
    """Services that give customers such functions are undone by a `search_path` or a quote. Here there are none, in
    any database."""
    for database in ("postgres", "template1", "appdb", "otherdb"):
        with admin(compute, database) as superuser:
            found = superuser.execute(
                """SELECT p.oid::regprocedure::text FROM pg_proc p JOIN pg_roles r ON r.oid = p.proowner
                   WHERE p.prosecdef AND r.rolsuper"""
            ).fetchall()
            assert found == [], database


def test_rows_of_others_and_views_that_read_as_their_owner(app: psycopg.Connection[Any], compute: Compute) -> None:
    """No view of Postgres's own shows verifiers, and one role does not enter what another keeps to itself."""
    with as_role(compute, "other", "otherdb") as session:
        session.execute("CREATE SCHEMA kept")
        session.execute("CREATE TABLE kept.t AS SELECT 1 AS secret")
    with as_role(compute, "app", "otherdb") as session:
        refused(session, "SELECT * FROM kept.t", "CREATE TABLE public.t ()", "ALTER DATABASE otherdb SET role = app")


def test_a_role_that_is_named_like_what_is_reserved(compute: Compute) -> None:
    for name in ("weir_admin", "pg_monitor", "public", "none"):
        code, answer = compute.configure(roles=[{"name": name, "password": None}], databases=[])
        assert code == 400, answer
    # Dropped is what the agent has made.
    assert compute.configure(dropped_roles=["weir_admin", "pg_monitor"])[0] == 200
    with admin(compute) as superuser:
        assert superuser.execute("SELECT rolcanlogin FROM pg_roles WHERE rolname = 'weir_admin'").fetchone() == (
            True,
        )
