"""Ways from a customer's role to the superuser, one test a way. Each is one that was published of a Postgres that
somebody runs for others, or of Postgres, and each says what must be refused here. `docs/security.md` lists them.

This file has the ways through what the agent does; `test_escapes_by_sql.py` those that SQL alone would open."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Generator

import psycopg
import pytest
from escapes import APP, DATABASES, OTHER, admin, as_role, refused, set_traps, superusers, two_roles
from harness import PG_BIN, Compute, Engine, metric, wait_for


@pytest.fixture
def two(shared: Engine) -> Generator[Compute]:
    compute = two_roles(shared)
    yield compute
    assert superusers(compute) == ["weir_admin"]
    compute.suspend()


def have_the_agent_work(compute: Compute) -> None:
    """What the agent does by itself and when it is asked, with its sessions."""
    for path in ("/settings", "/wal_by_relation", "/synchronous_commit"):
        assert compute.http.get(path).status_code == 200, path
    for enabled in (False, True):
        compute.switch_full_page_writes(enabled)
    before = metric(compute, "weir_compute_connections")
    with compute.connect():
        wait_for("the agent to look at Postgres", lambda: metric(compute, "weir_compute_connections") > before, 20)
    assert superusers(compute) == ["weir_admin"]


def test_settings_lead_no_name_to_a_temporary_schema_of_another_session(two: Compute) -> None:
    """A session's temporary schema has functions for every other session that names it in its `search_path`, and any
    role may have temporary objects in Weir's own database."""
    with as_role(two, "app", "postgres") as session:
        session.execute("CREATE TEMPORARY TABLE t ()")
        found = session.execute("SELECT pg_my_temp_schema()::regnamespace::text").fetchone()
        assert found is not None
        set_traps(session, found[0])
        path = f"{found[0]}, pg_catalog"
        spec = two.spec()
        code, answer = two.configure(settings={**spec["settings"], "search_path": path})
        assert code == 200, answer
        have_the_agent_work(two)
        # Clients have what was chosen, and the agent shows that.
        shown = two.http.get("/settings").json()["settings"]
        assert [(item["in_force"], item["state"]) for item in shown if item["name"] == "search_path"] == [
            (path, "in_force")
        ]
        assert superusers(two) == ["weir_admin"]


def test_a_databases_search_path_leads_the_agent_to_nothing_of_its_owners(two: Compute) -> None:
    """Neon's agent once ran with what an owner had set for a database (neondatabase/neon#11827)."""
    with two.connect() as session:
        set_traps(session, "public")
        session.execute("CREATE TABLE held AS SELECT generate_series(1, 1000) AS id")
        session.execute("GRANT ALL ON SCHEMA public TO other")
        session.execute("ALTER DATABASE appdb SET search_path = public, pg_catalog")
    with as_role(two, "other", "appdb") as session:
        session.execute("SET search_path = pg_catalog")
        session.execute("CREATE FUNCTION public.mine() RETURNS int LANGUAGE sql RETURN 1")
        session.execute("BEGIN")
        session.execute("CREATE TABLE public.prepared (id int)")
        session.execute("PREPARE TRANSACTION 'left'")
    have_the_agent_work(two)
    assert two.configure(roles=[APP], databases=DATABASES[:1], dropped_roles=["other"])[0] == 200


def test_what_an_owner_sets_for_a_database_does_not_keep_the_agent_from_its_work(two: Compute) -> None:
    """The same pull request tells of `role` and of read-only transactions."""
    with two.connect() as session:
        for name, value in (
            ("search_path", "public"),
            ("role", "app"),
            ("session_authorization", "app"),
            ("local_preload_libraries", "'not there'"),
            ("default_transaction_read_only", "on"),
            ("default_transaction_isolation", "serializable"),
            ("default_transaction_deferrable", "on"),
            ("statement_timeout", "1"),
            ("lock_timeout", "1"),
            ("standard_conforming_strings", "off"),
            ("transform_null_equals", "on"),
            ("client_encoding", "latin1"),
        ):
            session.execute(f"ALTER DATABASE appdb SET {name} = {value}")
        # What `other` has in that database is taken away within it.
        session.execute("GRANT ALL ON SCHEMA public TO other")
    assert two.configure(roles=[APP], databases=DATABASES[:1], dropped_roles=["other"])[0] == 200
    with admin(two) as superuser:
        assert superuser.execute("SELECT count(*) FROM pg_roles WHERE rolname = 'other'").fetchone() == (0,)


def test_what_a_dropped_role_owned_goes_to_no_role_of_postgres(two: Compute) -> None:
    """An owner may give a database to `pg_database_owner`, which is in no spec and logs in nowhere."""
    with as_role(two, "app", "postgres") as session:
        session.execute("CREATE DATABASE mine")
    with as_role(two, "app", "mine") as session:
        session.execute("GRANT ALL ON SCHEMA public TO other")
        session.execute("ALTER DATABASE mine OWNER TO pg_database_owner")
    with as_role(two, "other", "mine") as session:
        session.execute("CREATE FUNCTION public.who() RETURNS text LANGUAGE sql SECURITY DEFINER RETURN current_user")
    assert two.configure(roles=[APP], databases=DATABASES[:1], dropped_roles=["other"])[0] == 200
    with as_role(two, "app", "mine") as session:
        assert session.execute("SELECT public.who()").fetchall() == [("app",)]


def test_a_new_database_is_made_of_nothing_that_a_role_can_reach(two: Compute) -> None:
    """A session in the template holds CREATE DATABASE up, and everybody may leave large objects there."""
    with as_role(two, "other", "template1") as session:
        session.execute("SELECT lo_create(4711)")
        refused(session, "CREATE TABLE public.t ()", "CREATE SCHEMA s", "CREATE EXTENSION hstore")
        databases = [*DATABASES, {"name": "fresh", "owner": "app"}]
        assert two.configure(databases=databases) == (200, {"pending_restart": [], "failed": []})
    with as_role(two, "app", "fresh") as session:
        assert session.execute("SELECT count(*) FROM pg_largeobject_metadata").fetchone() == (0,)


def test_rights_that_a_role_came_by_are_taken_back(two: Compute) -> None:
    """CREATEROLE of Postgres 15 grants what runs programs: Azure's and others' administrators had it."""
    with admin(two) as superuser:
        superuser.execute("ALTER ROLE app CREATEROLE REPLICATION BYPASSRLS")
        superuser.execute(
            "GRANT pg_execute_server_program, pg_read_server_files, weir_admin TO app WITH ADMIN OPTION"
        )
        superuser.execute("GRANT pg_write_server_files TO other")
    assert two.configure()[0] == 200
    with admin(two) as superuser:
        rights = "SELECT rolcreaterole, rolreplication, rolbypassrls, rolsuper FROM pg_roles WHERE rolname = 'app'"
        assert superuser.execute(rights).fetchone() == (False, False, False, False)
        members = """SELECT m.member::regrole::text, m.roleid::regrole::text FROM pg_auth_members m
                     WHERE m.member::regrole::text IN ('app', 'other') ORDER BY 1, 2"""
        assert superuser.execute(members).fetchall() == [
            (role, granted) for role in ("app", "other") for granted in ("pg_monitor", "pg_signal_backend")
        ]
    # One that owns nothing sees and ends nobody else's sessions any more.
    assert two.configure(databases=DATABASES[:1], dropped_databases=["otherdb"])[0] == 200
    with as_role(two, "other", "postgres") as session:
        found = session.execute(
            "SELECT pg_has_role('pg_monitor', 'member'), pg_has_role('pg_signal_backend', 'member')"
        )
        assert found.fetchone() == (False, False)


def test_the_agents_statements_are_seen_by_nobody_and_logged_nowhere(two: Compute) -> None:
    """They hold verifiers of passwords, and owners may watch all sessions and have every statement logged."""
    spec = two.spec()
    loud = {"log_statement": "all", "log_min_duration_statement": "0", "log_duration": "on"}
    assert two.configure(settings={**spec["settings"], **loud})[0] == 200
    two.sql("SELECT 'a statement of the customer''s'")
    verifier = "SCRAM-SHA-256$4096:bm90IGEgc2FsdA==$8Zk3Oyd0sGJ+XmzCGqEfyJmJhrb5M4a9Hdmk3+PkHJ8=:" + "A" * 43 + "="
    changed = [{"name": "app", "password": APP["password"]}, {"name": "other", "password": verifier}]
    assert two.configure(settings={**spec["settings"], **loud}, roles=changed)[0] == 200
    logs = [path for path in two.directory.rglob("*.log") if path.is_file()]
    text = "".join(path.read_text(errors="replace") for path in logs)
    assert "a statement of the customer" in text
    assert "SCRAM-SHA-256$" not in text
    assert "ALTER ROLE" not in text
    with two.connect() as session:
        seen = """SELECT DISTINCT query FROM pg_stat_activity
                  WHERE usename = 'weir_admin' AND backend_type = 'client backend'"""
        assert session.execute(seen).fetchall() in ([("",)], [])
    assert two.configure(roles=[APP, OTHER])[0] == 200


def test_the_socket_lets_the_superuser_in_by_no_trust(two: Compute) -> None:
    """Where what comes from the machine itself is trusted, a foreign table or a `dblink` is the superuser's session.
    Here the user that Postgres runs as is not let in as the superuser."""
    with admin(two) as superuser:
        rules = "SELECT type, user_name::text, auth_method, options::text FROM pg_hba_file_rules ORDER BY line_number"
        found = superuser.execute(rules).fetchall()
        assert {method for _, _, method, _ in found} == {"peer", "reject", "scram-sha-256"}
        assert all(method in ("peer", "reject") for _, users, method, _ in found if users == "{weir_admin}")
    # An agent without root's rights has no other user for Postgres than its own.
    if os.geteuid() == 0:
        reach = ["-h", str(two.directory / "sock"), "-p", str(two.port), "-U", "weir_admin", "-d", "postgres"]
        as_postgres = [
            "setpriv",
            "--reuid=postgres",
            "--regid=postgres",
            "--clear-groups",
            str(PG_BIN / "psql"),
            "-X",
        ]
        answer = subprocess.run(
            [*as_postgres, *reach, "-c", "SELECT 1"], capture_output=True, text=True, check=False, timeout=20, cwd="/"
        )
        assert answer.returncode != 0
        assert "Peer authentication failed" in answer.stderr
    with pytest.raises(psycopg.OperationalError, match=r"pg_hba\.conf rejects"):
        psycopg.connect(two.uri.replace("app:", "weir_admin:"))
    with pytest.raises(psycopg.OperationalError, match="replication"):
        psycopg.connect(two.uri, replication="true")


def test_owners_of_databases_end_no_session_of_the_superusers(two: Compute) -> None:
    """Postgres before 15.5 let `pg_signal_backend` end workers of the superuser's (CVE-2023-5870)."""
    ended = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = %s"
    with two.connect() as session, admin(two) as superuser:
        own = superuser.execute("SELECT pg_backend_pid()").fetchone()
        assert own is not None
        query = "SELECT pid, backend_type FROM pg_stat_activity WHERE usename = 'weir_admin' AND pid <> %s"

        def found() -> list[int] | None:
            """The proposer's session and one of the agent's, beside what Postgres runs for itself."""
            rows = superuser.execute(query, own).fetchall()
            there = {"walsender", "client backend"} <= {kind for _, kind in rows}
            return [pid for pid, _ in rows] if there else None

        others = wait_for("the agent's sessions", found, 20)
        for pid in [own[0], *others]:
            try:
                assert session.execute(ended, (pid,)).fetchall() in ([(False,)], [])
            except psycopg.errors.InsufficientPrivilege:
                continue
        assert superuser.execute("SELECT 1").fetchone() == (1,)
    with as_role(two, "other", "otherdb") as theirs:
        pid = theirs.info.backend_pid
        assert two.sql("SELECT pg_terminate_backend(%s)", pid) == [(True,)]
    assert two.status()["state"] == "running"
