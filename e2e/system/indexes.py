"""Indexes and tables of a branch of a whole Weir, checked with `amcheck`."""

from __future__ import annotations

from stack import Stack
from weirbench.api import Database, admin_uri
from weirbench.postgres import psql

_CHECKS = """
    CREATE EXTENSION IF NOT EXISTS amcheck;
    SELECT bt_index_check(c.oid, true) FROM pg_class c JOIN pg_am a ON a.oid = c.relam
        WHERE a.amname = 'btree' AND c.relkind = 'i' AND c.relpersistence <> 't';
    SELECT c.relname || ': ' || v.msg FROM pg_class c, LATERAL verify_heapam(c.oid) v
        WHERE c.relkind IN ('r', 't', 'm') AND c.relpersistence <> 't';
"""


def complaints(stack: Stack, database: Database) -> list[str]:
    """Of every index against its table and of every table's rows, as the superuser."""
    found = psql(admin_uri(stack.home, database), "-c", _CHECKS)
    return [line for line in found.splitlines() if line.strip()]
