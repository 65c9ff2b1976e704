"""One trial: a database of its own on a running Weir, clients, changes under kills, and the checks."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import indexes
import psycopg
from stack import Stack, wait_for
from weirbench.api import Database
from weirtorture.checks import Findings, check_content, check_history, read_content
from weirtorture.clients import SCHEMA, Load

from .changes import ChangeError, Changes
from .schedule import Change, Kill, Schedule

# After the last change: until clients commit again, seconds.
COMMITS_AGAIN = 90.0
# Commits before the first change, and between two.
COMMITS = 60


@dataclass
class Result:
    seed: int
    changes: list[str] = field(default_factory=list[str])
    killed: dict[str, int] = field(default_factory=dict[str, int])
    acknowledged: int = 0
    unknown: int = 0
    broken_requests: int = 0
    failed_operations: list[str] = field(default_factory=list[str])
    lost: list[str] = field(default_factory=list[str])
    wrong: list[str] = field(default_factory=list[str])
    undecided: list[str] = field(default_factory=list[str])
    # What did not come back though every service is healthy, or was not as asked for.
    stuck: list[str] = field(default_factory=list[str])
    seconds: float = 0.0

    @property
    def clean(self) -> bool:
        return not self.found()

    def found(self) -> list[str]:
        return [*self.lost, *self.wrong, *self.undecided, *self.stuck]

    def words(self) -> str:
        verdict = "clean" if self.clean else "NOT CLEAN"
        return (
            f"seed {self.seed}: {verdict}; {self.acknowledged} acknowledged, {self.unknown} unknown, "
            f"{len(self.lost)} lost, {len(self.wrong)} wrong, {sum(self.killed.values())} kills, "
            f"{self.broken_requests} requests broken, {len(self.failed_operations)} operations failed, "
            f"{self.seconds:.0f} s"
        )


@dataclass(frozen=True)
class _Address:
    uri: str

    def connect(self, **options: Any) -> psycopg.Connection[Any]:
        return psycopg.connect(self.uri, autocommit=True, **options)


@dataclass
class Trial:
    stack: Stack
    schedule: Schedule
    # Where history and result go.
    keep: Path

    def run(self) -> Result:
        began = time.monotonic()
        result = Result(self.schedule.seed)
        self.keep.mkdir(parents=True, exist_ok=True)
        api = self.stack.api()
        try:
            database = api.create_database(f"storm-{self.schedule.seed}", {"checkpoint_timeout": "30s"})
            changes = Changes(api, database)
            self._storm(changes, database, result)
            changes.quiet()
            api.delete_project(database.project_id)
        except Exception as error:  # noqa: BLE001 - the trial has no verdict, says why, and the next one begins
            result.stuck.append(f"{type(error).__name__}: {error}"[:4000])
        result.seconds = round(time.monotonic() - began, 1)
        (self.keep / "result.json").write_text(json.dumps(result.__dict__, indent=1) + "\n")
        return result

    def _storm(self, changes: Changes, database: Database, result: Result) -> None:
        served = _Address(database.uri)
        with served.connect() as session:
            session.execute(SCHEMA.encode())
        load = Load(self.schedule.seed, lambda: served, clients=6)
        load.start()
        try:
            for change in self.schedule.changes:
                self._commits(load, COMMITS)
                self._change(changes, database, change, result)
            self._commits(load, COMMITS)
        finally:
            load.stop()
            result.acknowledged = len(load.history.acknowledged())
            result.unknown = sum(1 for it in load.history.operations if it.changes and it.outcome == "unknown")
            result.broken_requests, result.failed_operations = changes.broken, changes.failed
            load.history.write(self.keep / "history.jsonl")
            (self.keep / "client-errors.txt").write_text("\n".join(load.errors()) + "\n")
        self._check(changes, database, load, result)

    def _commits(self, load: Load, count: int) -> None:
        before = len(load.history.acknowledged())
        try:
            wait_for("commits", lambda: len(load.history.acknowledged()) >= before + count, COMMITS_AGAIN)
        except TimeoutError as error:
            raise ChangeError(f"clients do not commit though every service is healthy: {error}") from None

    # --- kills

    def _change(self, changes: Changes, database: Database, change: Change, result: Result) -> None:
        killers = [
            threading.Thread(target=self._kill, args=(kill, database, result), daemon=True) for kill in change.kills
        ]
        for killer in killers:
            killer.start()
        try:
            changes.perform(change.kind)
        finally:
            for killer in killers:
                killer.join(60)
            wait_for("every service to be healthy", lambda: self.stack.status()["up"], 180)
        result.changes.append(change.words())

    def _kill(self, kill: Kill, database: Database, result: Result) -> None:
        time.sleep(kill.after)
        # Nobody there to be killed: a compute that is being suspended, a service that another kill took with it.
        with contextlib.suppress(OSError, ValueError, TypeError, StopIteration):
            pid = (
                self.stack.compute_pid(database.compute_id)
                if kill.victim == "compute"
                else self.stack.pid(kill.victim)
            )
            os.kill(pid, signal.SIGKILL)
            result.killed[kill.victim] = result.killed.get(kill.victim, 0) + 1

    # --- checks

    def _check(self, changes: Changes, database: Database, load: Load, result: Result) -> None:
        """Of what a new start of the compute reads, of the log's members, and of the history that clients saw."""
        changes.suspend()
        findings = Findings()
        verified = self.stack.weir("log", "verify", database.branch_id)
        if verified.returncode != 0:
            findings.wrong.append(f"weir log verify: {(verified.stdout + verified.stderr)[-2000:]}")
        changes.start()
        content = read_content(_Address(database.uri), load.history)
        check_content(load.history, content, findings)
        findings.wrong.extend(f"amcheck: {line}" for line in indexes.complaints(self.stack, database))
        with tempfile.TemporaryDirectory() as pictures:
            check_history(load.history, self.keep / "history.jsonl", Path(pictures), findings)
        result.lost, result.wrong, result.undecided = findings.lost, findings.wrong, findings.undecided
