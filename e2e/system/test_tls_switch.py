"""`[security] tls` is changed by an ordinary `weir down` and `weir up`, and by one that follows a dead supervisor:
databases are back with all their rows, and all their parts speak as the settings say."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from stack import Stack, running_stack, wait_for
from weirbench.api import Database
from weirbench.parts import client
from weirbench.postgres import SqlError, query

from weir.cli import installation

# From `weir up` returning until a database answers that was suspended: a start, on a machine that does other things.
ANSWER_SECONDS = 120


def switch(stack: Stack, on: bool) -> None:
    """In the file alone, as an operator edits it."""
    file = stack.home / "weir.toml"
    text = file.read_text()
    was, now = (f"\ntls = {str(value).lower()}\n" for value in (not on, on))
    assert text.count(was) == 1
    file.write_text(text.replace(was, now))


def answers(database: Database) -> str | None:
    try:
        return query(database.uri, "SELECT sum(n) FROM kept", timeout=10)
    except SqlError:
        return None


def all_speak(stack: Stack, database: Database, *, tls: bool) -> None:
    """The HTTP API of each part answers in the one way and not in the other."""
    settings = installation.load(stack.home)
    assert settings.has_tls is tls
    ports = [name for name in settings.ports if name in {"pageserver_http", *(f"safekeeper_{n}_http" for n in "123")}]
    assert len(ports) == 4
    for name in ports:
        with client(settings, name, timeout=10) as part:
            assert part.get("/healthz").status_code == 200, name
    arguments = Path(f"/proc/{stack.compute_pid(database.compute_id)}/cmdline").read_bytes().split(b"\0")
    assert (b"--tls" in arguments) is tls


def test_switching_it_and_back_costs_a_restart_and_no_row() -> None:
    with running_stack() as stack:
        database = stack.api().create_database("kept", {})
        query(database.uri, "CREATE TABLE kept AS SELECT n FROM generate_series(1, 1000) AS n")
        first, rows = installation.load(stack.home).has_tls, 500_500
        all_speak(stack, database, tls=first)
        for on in (not first, first):
            # Edited while all runs: computes are stopped by agents that speak as before.
            switch(stack, on)
            down = stack.weir("down")
            assert down.returncode == 0, down.stdout + down.stderr
            assert "not every compute stopped cleanly" not in down.stdout + down.stderr
            up = stack.weir("up")
            assert up.returncode == 0, up.stdout + up.stderr
            assert ("do not prove to each other" in up.stdout + up.stderr) is not on
            wait_for("the database", lambda: answers(database), ANSWER_SECONDS)
            assert answers(database) == str(rows)
            query(database.uri, "INSERT INTO kept VALUES (1)")
            rows += 1
            all_speak(stack, database, tls=on)

        # The supervisor dies, and computes outlive it and what they were started with.
        outlived = stack.compute_pid(database.compute_id)
        os.kill(int((stack.home / "run" / "supervisor.pid").read_text().split()[0]), signal.SIGKILL)
        switch(stack, not first)
        up = stack.weir("up")
        assert up.returncode == 0, up.stdout + up.stderr
        assert "[security] tls has changed: ending 1 compute(s)" in up.stdout + up.stderr
        assert not Path(f"/proc/{outlived}").exists(), "it was ended at once, not after half a minute of silence"
        wait_for("the database", lambda: answers(database) == str(rows), ANSWER_SECONDS)
        query(database.uri, "INSERT INTO kept VALUES (1)")
        all_speak(stack, database, tls=not first)
