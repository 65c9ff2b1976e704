"""Waiting for operations, with progress on the error stream, where it does not mix with what a program reads."""

import time
from collections.abc import Sequence
from typing import Any

import click

from weir.cli.resources.api import Api, path
from weir.cli.resources.failures import OperationError, StillRunningError

OPEN = {"scheduling", "running", "cancelling"}
# What ends sooner says nothing on its way; what lasts longer says so again after each pause.
QUIET_SECONDS = 2.0
REMIND_SECONDS = 15.0
_FIRST_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 1.0


def subject(operation: dict[str, Any]) -> str:
    """`start_compute of ep-quiet-river-a1b2c3`."""
    of = operation.get("endpoint_id") or operation.get("branch_id") or operation["project_id"]
    return f"{operation['action']} of {of}"


class Progress:
    """Says what is waited for: nothing before two seconds, then each change, and a reminder now and then."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self._said: dict[str, str] = {}
        self._at = self.began

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began

    def show(self, states: dict[str, str]) -> None:
        """`states`: what is waited for, and how it stands."""
        if self.seconds < QUIET_SECONDS:
            return
        late = time.monotonic() - self._at >= REMIND_SECONDS
        for what, state in states.items():
            if late or self._said.get(what) != state:
                click.echo(f"  {what}: {state} ({self.seconds:.0f} s)", err=True)
                self._at = time.monotonic()
        self._said = states


def pauses() -> Sequence[float]:
    """Seconds between looks; the last one repeats."""
    found, pause = [], _FIRST_PAUSE_SECONDS
    while pause < _LONGEST_PAUSE_SECONDS:
        found.append(pause)
        pause *= 1.5
    return [*found, _LONGEST_PAUSE_SECONDS]


def finish(api: Api, operations: Sequence[dict[str, Any]], timeout: float, *, cancelled_too: bool = False) -> float:
    """Waits until all have ended and returns the seconds it took. Raises OperationError with the reasons of those
    that did not end well, StillRunningError after `timeout` seconds. What is waited for goes on in either case, and
    when the wait is interrupted. `cancelled_too`: to be cancelled is a good end."""
    left = {row["id"]: row for row in operations}
    bad: list[str] = []
    progress = Progress()
    steps = pauses()
    turn = 0
    while left:
        for ident, known in list(left.items()):
            row = api.call("GET", path("projects", known["project_id"], "operations", ident))["operation"]
            left[ident] = row
            if row["status"] not in OPEN:
                del left[ident]
                if not (cancelled_too and row["status"] == "cancelled"):
                    bad += _complaint(row)
        progress.show({subject(row): str(row["status"]) for row in left.values()})
        if left:
            if progress.seconds >= timeout:
                names = " ".join(left)
                raise StillRunningError(
                    f"Not over after {timeout:.0f} s, and going on. `weir operations wait {names}` waits further."
                )
            time.sleep(steps[min(turn, len(steps) - 1)])
            turn += 1
    if bad:
        raise OperationError("Not all went well:\n  " + "\n  ".join(bad))
    return progress.seconds


def _complaint(row: dict[str, Any]) -> list[str]:
    """Of an operation that has ended. A warning is no failure: what was asked for is done."""
    if row["status"] == "finished":
        if row.get("warning"):
            click.echo(f"  {subject(row)} warns: {row['warning']}", err=True)
        return []
    return [f"{subject(row)}: {row.get('error') or row['status']} (operation {row['id']})"]
