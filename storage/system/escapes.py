"""What the tests of ways out of a customer's role share: a compute with two roles, and traps for the superuser."""

from __future__ import annotations

import re
from typing import Any

import psycopg
from harness import PASSWORD, Compute, Engine, scram_verifier
from psycopg import sql

APP = {"name": "app", "password": scram_verifier(PASSWORD)}
OTHER = {"name": "other", "password": scram_verifier(PASSWORD)}
DATABASES = [{"name": "appdb", "owner": "app"}, {"name": "otherdb", "owner": "other"}]

# Makes a superuser that no spec knows, so that it stays, when a superuser calls it. Called by anybody else it does
# nothing, so that the trap itself breaks no statement.
TRAP = """
CREATE OR REPLACE FUNCTION {schema}.trap() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    CREATE ROLE stolen SUPERUSER;
EXCEPTION WHEN OTHERS THEN NULL;
END $$
"""
# Functions of the catalog that the agent calls: the name, what each takes, and what it answers.
CALLED = [
    ("pg_current_wal_insert_lsn", [], "pg_lsn"),
    ("pg_conf_load_time", [], "timestamptz"),
    ("pg_current_xact_id", [], "xid8"),
    ("pg_reload_conf", [], "bool"),
    ("pg_backend_pid", [], "int"),
    ("current_setting", ["text"], "text"),
    ("current_setting", ["text", "bool"], "text"),
    ("lower", ["text"], "text"),
    ("split_part", ["text", "text", "int"], "text"),
    ("pg_get_userbyid", ["oid"], "name"),
    ("shobj_description", ["oid", "name"], "text"),
    ("pg_terminate_backend", ["int", "bigint"], "bool"),
    ("pg_size_bytes", ["text"], "bigint"),
    ("pg_filenode_relation", ["oid", "oid"], "regclass"),
]
# Operators that the agent's queries have, with the types that they compare.
OPERATORS = [
    (name, type_)
    for name in ("=", "<>", "~~")
    for type_ in ("text", "name", "oid", '"char"')
    if name != "~~" or type_ == "text"
]


def set_traps(session: psycopg.Connection[Any], schema: str) -> None:
    """Things in a schema of the customer's with the names of what the agent's statements use, which do the same."""
    session.execute(TRAP.format(schema=schema))
    for name, takes, answers in CALLED:
        given = ", ".join(f"${number}" for number in range(1, len(takes) + 1))
        session.execute(
            f"CREATE FUNCTION {schema}.{name}({', '.join(takes)}) RETURNS {answers} LANGUAGE plpgsql AS "
            f"$$ BEGIN PERFORM {schema}.trap(); RETURN pg_catalog.{name}({given}); END $$"
        )
    for number, (operator, type_) in enumerate(OPERATORS):
        session.execute(
            f"CREATE FUNCTION {schema}.compare{number}({type_}, {type_}) RETURNS bool LANGUAGE plpgsql AS "
            f"$$ BEGIN PERFORM {schema}.trap(); RETURN $1 OPERATOR(pg_catalog.{operator}) $2; END $$"
        )
        session.execute(
            f"CREATE OPERATOR {schema}.{operator} "
            f"(LEFTARG = {type_}, RIGHTARG = {type_}, FUNCTION = {schema}.compare{number})"
        )


def two_roles(engine: Engine, **spec: Any) -> Compute:
    return engine.compute(engine.create_timeline(), **{"roles": [APP, OTHER], "databases": DATABASES, **spec})


def as_role(compute: Compute, role: str, database: str, **options: Any) -> psycopg.Connection[Any]:
    return psycopg.connect(
        compute.uri.replace("app:", f"{role}:").replace("/appdb", f"/{database}"), **{"autocommit": True, **options}
    )


def admin(compute: Compute, database: str = "postgres") -> psycopg.Connection[Any]:
    """The superuser's session as somebody opens it who knows what a customer may have set up for it."""
    return psycopg.connect(
        host=str(compute.directory / "sock"),
        port=compute.port,
        user="weir_admin",
        dbname=database,
        autocommit=True,
        options="-c search_path=pg_catalog -c local_preload_libraries=",
    )


def superusers(compute: Compute) -> list[str]:
    """All of them; as long as no way leads out of a customer's role, the agent's alone."""
    with admin(compute) as session:
        return [name for (name,) in session.execute("SELECT rolname FROM pg_roles WHERE rolsuper ORDER BY 1")]


def refusal(session: psycopg.Connection[Any], statement: str | sql.Composable) -> psycopg.Error | None:
    """What Postgres says to it when it does not do it."""
    try:
        session.execute(statement)
    except psycopg.Error as error:
        return error
    return None


def refused(session: psycopg.Connection[Any], *statements: str, why: str | None = None) -> None:
    """Each of these is refused by Postgres, for want of rights where nothing else is said."""
    for statement in statements:
        said = refusal(session, statement)
        assert said is not None, f"not refused: {statement}"
        if why is None:
            assert isinstance(said, psycopg.errors.InsufficientPrivilege), f"{statement}: {said}"
        else:
            assert re.search(why, str(said)), f"{statement}: {said}"
