"""A session sees on a compute what it sees on a stock server of the same version and locale, but for a list."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from harness import PG_BIN, Engine, free_port

# Settings that differ, and why. Anything else that differs is a surprise to whoever moves a database here.
MANAGED = {
    # Where this server is and who may reach it.
    *("config_file", "data_directory", "external_pid_file", "hba_file", "ident_file"),
    *("listen_addresses", "port", "unix_socket_directories", "unix_socket_permissions", "cluster_name"),
    # Commits are made durable by the safekeepers, and pages are stored elsewhere.
    *("fsync", "full_page_writes", "synchronous_standby_names", "wal_init_zero", "wal_recycle"),
    *("restart_after_crash", "data_directory_mode", "max_prepared_transactions", "checkpoint_timeout"),
    *("synchronous_commit", "data_sync_retry", "primary_conninfo", "recovery_target_timeline"),
    # A page that was not read lately comes over a network.
    *(
        "effective_io_concurrency",
        "random_page_cost",
        "min_wal_size",
        "max_wal_size",
        "shared_buffers",
        "wal_buffers",
    ),
    # One session's temporary files do not fill the machine's disk.
    "temp_file_limit",
    # The log is the agent's.
    *("log_line_prefix", "log_destination", "logging_collector", "log_timezone", "syslog_ident"),
    # Weir's own connections have a share.
    *("superuser_reserved_connections", "max_connections"),
    # What the agent reads from the log must be in English.
    "lc_messages",
    # A share of shared_buffers.
    *("shared_memory_size", "shared_memory_size_in_huge_pages"),
}


@pytest.fixture
def stock() -> Iterator[psycopg.Connection[Any]]:
    """A server as initdb makes it, with the databases' locale."""
    root = Path(tempfile.mkdtemp(prefix="weir-parity-"))
    user = "postgres" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name
    run: dict[str, Any] = {"cwd": root, "stdout": subprocess.DEVNULL, "env": {**os.environ, "TZ": "UTC"}}
    if os.geteuid() == 0:
        shutil.chown(root, user, user)
        run |= {"user": user, "group": user, "extra_groups": []}
    port, data = free_port(), str(root / "data")
    initdb = ["-A", "trust", "-U", "weir_admin", "-E", "UTF8", "--locale", "C.UTF-8", "--no-sync"]
    options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories="
    control = [str(PG_BIN / "pg_ctl"), "-D", data, "-w", "-l", str(root / "log")]
    subprocess.run([str(PG_BIN / "initdb"), "-D", data, *initdb], check=True, **run)
    subprocess.run([*control, "start", "-o", options], check=True, **run)
    try:
        with psycopg.connect(
            f"host=127.0.0.1 port={port} user=weir_admin dbname=postgres", autocommit=True
        ) as session:
            yield session
    finally:
        subprocess.run([*control, "stop", "-m", "immediate"], check=True, **run)
        shutil.rmtree(root)


def rows(session: psycopg.Connection[Any], query: str) -> list[tuple[Any, ...]]:
    return session.execute(query).fetchall()


def test_a_session_finds_the_settings_of_a_stock_server(shared: Engine, stock: psycopg.Connection[Any]) -> None:
    compute = shared.compute(shared.create_timeline())
    # Those of TCP are shown by the socket: 0 on a local one, the kernel's on the stock server's.
    query = "SELECT name, setting FROM pg_settings WHERE name NOT LIKE 'tcp%'"
    with compute.admin() as session:
        here = dict(rows(session, query))
    there = dict(rows(stock, query))
    assert here.keys() == there.keys()
    differing = {name: (here[name], there[name]) for name in here if here[name] != there[name]}
    assert differing.keys() <= MANAGED, {name: differing[name] for name in differing.keys() - MANAGED}
    assert here["default_text_search_config"] == "pg_catalog.english"
    compute.suspend()


def test_text_is_searched_sorted_and_compared_as_on_a_stock_server(
    shared: Engine, stock: psycopg.Connection[Any]
) -> None:
    compute = shared.compute(shared.create_timeline())
    queries = (
        "SELECT to_tsvector('The ships were sailing')::text, to_tsquery('ships')::text",
        "SELECT array_agg(word ORDER BY word) FROM unnest('{b,A,a,ä,Z,_,É,e}'::text[]) word",
        "SELECT upper('straße é ß'), lower('ÄÖÜ'), initcap('élan vital'), 'É' ILIKE 'é'",
        "SELECT datcollate, datctype, datlocprovider, encoding FROM pg_database WHERE datname = 'postgres'",
        "SELECT collname, collprovider, collencoding FROM pg_collation ORDER BY 1, 2, 3",
        "SELECT extname, extversion FROM pg_extension ORDER BY 1",
        "SELECT name, default_version FROM pg_available_extensions ORDER BY 1",
        "SELECT 1234.5::money::text, to_char(1234.5, 'L9G999D99'), now()::text LIKE '%+00'",
    )
    with compute.admin() as session:
        here = [rows(session, query) for query in queries]
    assert here == [rows(stock, query) for query in queries]
    compute.suspend()
