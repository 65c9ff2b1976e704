"""`weir up`, `status`, `logs` and `down` from every state an installation can be found in."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import time

import pytest
from stack import Stack, wait_for
from weirbench.api import Database
from weirbench.postgres import SqlError, query

from weir.kit.http import CLIENT_KEEP_ALIVE_SECONDS


def _answers(database: Database, sql: str = "SELECT sum(n) FROM kept") -> str | None:
    try:
        return query(database.uri, sql, timeout=10)
    except SqlError:
        return None


@pytest.fixture(scope="module")
def kept(stack: Stack) -> Database:
    """A database with rows that must survive all that follows."""
    database = stack.api().create_database("kept", {})
    query(database.uri, "CREATE TABLE kept AS SELECT n FROM generate_series(1, 1000) AS n")
    return database


def test_a_second_up_changes_nothing(stack: Stack, kept: Database):
    before = {p["name"]: p["pid"] for p in stack.status()["processes"]}
    started = time.monotonic()
    assert "already up" in stack.up()
    assert time.monotonic() - started < 10
    assert {p["name"]: p["pid"] for p in stack.status()["processes"]} == before


def test_every_process_has_its_log_and_status_shows_every_port(stack: Stack, kept: Database):
    text = stack.weir("status").stdout
    for name in ("postgres", "temporal", "safekeeper-1", "pageserver", "api", "worker", "prometheus", "proxy"):
        assert name in text
    assert str(stack.port_base) in text
    assert kept.compute_id in text
    assert "Uvicorn running" in stack.weir("logs", "api", "-n", "200").stdout
    assert stack.weir("logs", kept.compute_id).returncode == 0
    unknown = stack.weir("logs", "nobody")
    assert unknown.returncode == 1
    assert "There are:" in unknown.stderr


def test_doctor_finds_nothing_wrong_with_a_healthy_stack(stack: Stack):
    result = stack.weir("doctor")
    assert result.returncode == 0, result.stdout


def test_a_project_lives_and_ends_by_the_command_line_alone(stack: Stack, kept: Database):
    def weir(*words: str) -> str:
        result = stack.weir(*words)
        assert result.returncode == 0, f"weir {' '.join(words)}: {result.stdout}{result.stderr}"
        return result.stdout.strip()

    def sql(branch: str, text: str) -> str:
        return weir("psql", branch, "--project", "by hand", "--", "-qAtc", text)

    weir("projects", "create", "by hand", "--database", "orders", "--role", "clerk")
    scope = ("--project", "by hand")
    sql("main", "CREATE TABLE kept AS SELECT n FROM generate_series(1, 1000) AS n")
    weir("branches", "create", "dev", *scope)
    sql("dev", "UPDATE kept SET n = 0")
    weir("computes", "suspend", "dev", *scope)
    # psql starts what is suspended; nobody but the role of the database is who it is.
    assert sql("dev", "SELECT sum(n), current_user, current_database() FROM kept") == "0|clerk|orders"
    assert sql("main", "SELECT sum(n) FROM kept") == "500500"
    weir("branches", "restore", "main", "--from", "dev", "--preserve-as", "before", *scope)
    assert [sql(branch, "SELECT sum(n) FROM kept") for branch in ("main", "dev")] == ["0", "0"]
    weir("computes", "create", "before", *scope)
    assert sql("before", "SELECT sum(n) FROM kept") == "500500"
    # The exit code is psql's, and what psql says comes through.
    bad = stack.weir("psql", "main", *scope, "--", "-c", "SELECT nonsense")
    assert (bad.returncode, "nonsense" in bad.stderr) == (1, True)
    weir("projects", "delete", "by hand", "--yes")
    assert kept.project_id in weir("projects", "list")


def test_the_api_keeps_an_idle_connection_longer_than_clients_do(stack: Stack):
    connection = http.client.HTTPConnection("127.0.0.1", stack.port_base, timeout=10)
    connection.connect()
    first = connection.sock
    for pause in (CLIENT_KEEP_ALIVE_SECONDS + 1, 0):
        connection.request("GET", "/healthz")
        assert connection.getresponse().read()
        assert connection.sock is first, "the server closed it at once"
        time.sleep(pause)
    connection.close()


def test_up_takes_over_from_a_dead_supervisor_and_databases_do_not_notice(stack: Stack, kept: Database):
    started = _answers(kept, "SELECT pg_postmaster_start_time()")
    supervisor = int((stack.home / "run" / "supervisor.pid").read_text().split()[0])
    os.kill(supervisor, signal.SIGKILL)
    wait_for("status to say so", lambda: stack.weir("status").returncode == 3)
    stack.up()
    assert stack.status()["up"]
    wait_for("the database", lambda: _answers(kept) == "500500")
    assert _answers(kept, "SELECT pg_postmaster_start_time()") == started


def test_down_leaves_nothing_and_up_brings_databases_back(stack: Stack, kept: Database):
    assert "no process and no mount is left" in stack.down()
    assert stack.remains() == []
    assert "already down" in stack.down()
    assert stack.weir("status").returncode == 3
    stack.up()
    wait_for("the database to start by itself", lambda: _answers(kept) == "500500")


def test_up_after_a_power_cut_works(stack: Stack, kept: Database):
    query(kept.uri, "INSERT INTO kept VALUES (1)")
    for _ in range(50):
        pids = [int(line.split()[1].rstrip(":")) for line in stack.remains() if line.startswith("pid ")]
        if not pids:
            break
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(0.1)
    assert (stack.home / "postgres" / "postmaster.pid").exists(), "that was no power cut"
    stack.up()
    assert stack.status()["up"]
    wait_for("the database with its last commit", lambda: _answers(kept) == "500501")


def test_a_port_in_use_is_named_with_who_has_it(stack: Stack, kept: Database):
    stack.down()
    with socket.socket() as squatter:
        # connections of the API that was just stopped may linger in TIME_WAIT on this port
        squatter.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        squatter.bind(("127.0.0.1", stack.port_base))
        squatter.listen()
        result = stack.weir("up")
        assert result.returncode == 1
        assert f"{stack.port_base} (API and console) is held by pid {os.getpid()}" in result.stderr
        assert "weir.toml" in result.stderr
        assert stack.remains() == [], "a refused start has left something behind"
    stack.up()
    wait_for("the database", lambda: _answers(kept) == "500501")
