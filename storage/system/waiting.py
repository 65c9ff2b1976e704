"""Commits that wait for a majority, and sessions that look whether they can be seen already."""

from __future__ import annotations

import contextlib
import threading
import time
from dataclasses import dataclass, field
from typing import Any

import psycopg
from harness import Compute, Engine, wait_for

# Long enough that no test is over before a compute that should go on waiting gives up by itself.
PATIENT = 600_000
OBSERVERS = 4
LET_GO = "canceling the wait for synchronous replication"


def start_patient(engine: Engine, **spec: Any) -> Compute:
    """A compute that waits for its safekeepers as long as it takes, with one row that everybody has.

    Nothing but the test's own statements commits in it."""
    spec = {"quorum_timeout_ms": PATIENT, "settings": {"autovacuum": "off"}, **spec}
    compute = engine.compute(engine.create_timeline(), **spec)
    compute.sql("CREATE TABLE t (id int)")
    compute.sql("INSERT INTO t VALUES (1)")
    return compute


class WaitingCommit:
    """A session of its own that commits and waits for the answer.

    `outcome` is "success" or what the client was told instead, None as long as it is told nothing; `warnings` are the
    messages that came with it, each with its SQLSTATE."""

    def __init__(self, compute: Compute, *statements: str, connection: psycopg.Connection[Any] | None = None) -> None:
        self.compute = compute
        self.outcome: str | None = None
        self.warnings: list[tuple[str | None, str | None]] = []
        self.connection = connection or compute.connect()
        self.connection.add_notice_handler(
            lambda notice: self.warnings.append((notice.sqlstate, notice.message_primary))
        )
        self.pid = self.connection.info.backend_pid
        self._thread = threading.Thread(target=self._run, args=(statements,), daemon=True)
        self._thread.start()

    def _run(self, statements: tuple[str, ...]) -> None:
        try:
            for statement in statements:
                self.connection.execute(statement.encode())
            self.outcome = "success"
        except psycopg.Error as error:
            self.outcome = str(error) or type(error).__name__
        finally:
            self.connection.close()

    def until_it_waits(self) -> WaitingCommit:
        wait_for("the agent to report a commit that waits", lambda: self.compute.status()["commits_waiting"])
        assert self.outcome is None
        return self

    def told(self, seconds: float = 60.0) -> str:
        self._thread.join(seconds)
        assert self.outcome is not None, "the client was told nothing"
        return self.outcome


@dataclass
class Observers:
    """Sessions that ask for a row without a pause, each until its connection ends."""

    compute: Compute
    row: int
    seen: threading.Event = field(default_factory=threading.Event)
    looks: int = 0
    _threads: list[threading.Thread] = field(default_factory=list)
    _done: threading.Event = field(default_factory=threading.Event)

    def start(self) -> Observers:
        for _ in range(OBSERVERS):
            thread = threading.Thread(target=self._look, args=(self.compute.connect(),), daemon=True)
            thread.start()
            self._threads.append(thread)
        wait_for("the observers to look", lambda: self.looks > 10 * OBSERVERS)
        return self

    def _look(self, connection: psycopg.Connection[Any]) -> None:
        # A connection that ends is how an observer ends.
        with contextlib.suppress(psycopg.Error), contextlib.closing(connection):
            while not self._done.is_set():
                if connection.execute("SELECT count(*) FROM t WHERE id = %s", [self.row]).fetchone() != (0,):
                    self.seen.set()
                self.looks += 1

    def until_the_end(self, seconds: float = 60.0) -> None:
        """Waits until every observer's connection has ended; none has seen the row."""
        deadline = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
            assert not thread.is_alive(), "Postgres still answers"
        assert not self.seen.is_set(), "a row was visible that no majority had"

    def stop(self) -> None:
        self._done.set()
        for thread in self._threads:
            thread.join(30)


def visible(compute: Compute, row: int) -> bool:
    return compute.sql("SELECT count(*) FROM t WHERE id = %s", row) != [(0,)]


def postgres_log(compute: Compute) -> str:
    return (compute.directory / "postgres.log").read_text(errors="replace")
