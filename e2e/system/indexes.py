"""Indexes and tables of a branch of a whole Weir, checked with `amcheck`."""

from __future__ import annotations

from psycopg.conninfo import conninfo_to_dict
from stack import Stack
from weirbench.api import Database
from weirbench.postgres import psql

_CHECKS = """
    CREATE EXTENSION IF NOT EXISTS amcheck;
    SELECT bt_index_check(c.oid, true) FROM pg_class c JOIN pg_am a ON a.oid = c.relam
        WHERE a.amname = 'btree' AND c.relkind = 'i' AND c.relpersistence <> 't';
    SELECT c.relname || ': ' || v.msg FROM pg_class c, LATERAL verify_heapam(c.oid) v
        WHERE c.relkind IN ('r', 't', 'm') AND c.relpersistence <> 't';
"""


def complaints(stack: Stack, database: Database) -> list[str]:
    """Of every index against its table and of every table's rows, as the superuser, who has the local socket only."""
    socket = stack.home / "computes" / database.compute_id / "sock"
    port = conninfo_to_dict(database.uri)["port"]
    uri = f"host={socket} port={port} user=weir_admin dbname=appdb"
    return [line for line in psql(uri, "-c", _CHECKS).splitlines() if line.strip()]
