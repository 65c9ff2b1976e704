"""`weir rollouts`: what there is, and how each stands. `rollout_changes` has what starts and steers them."""

import time
from typing import Any

import click

from weir.cli.resources import names, rollout_changes
from weir.cli.resources.api import path
from weir.cli.resources.complete import rollout_words
from weir.cli.resources.failures import OperationError, StillRunningError
from weir.cli.resources.rollout_changes import described, plan_text
from weir.cli.resources.show import listed, moment, size
from weir.cli.resources.use import Use, resource
from weir.cli.resources.waiting import Progress

_ENDED = {"completed", "rolled_back"}
_ENDED_BADLY = {"aborted", "failed"}
_NEEDS_SOMEBODY = {"held", "paused"}
_WAIT_SECONDS = 86400.0
_POLL_SECONDS = 2.0


@click.group("rollouts", short_help="Plan, start and steer changes of the fleet.")
def rollouts() -> None:
    """Carry a change through the fleet in waves: WAL without page images, or another minor of Postgres.

    \b
      weir rollouts plan --project shop
      weir rollouts start --name first --project shop --wave 1 --wave 100%
      weir rollouts show first
      weir rollouts pause first

    ROLLOUT is a rollout's id or name.
    """


@rollouts.command("list")
@resource(project=False)
def list_rollouts(use: Use) -> None:
    """List the rollouts, newest first."""
    found = use.api.every("/rollouts", "rollouts")
    columns = [
        ("NAME", lambda row: row["name"]),
        ("ID", lambda row: row["id"]),
        ("FEATURE", lambda row: row["feature"]),
        ("STATUS", lambda row: row["status"]),
        ("WAVE", lambda row: f"{_number(row['current_wave'])} of {row['waves_total']}"),
        ("PASSED", lambda row: f"{row['computes_passed']} of {row['computes_total']}"),
        ("ALERTS", lambda row: row["alerts_total"]),
        ("CREATED", lambda row: moment(row["created_at"])),
    ]
    use.say(
        found, listed(columns, found["rollouts"], "No rollout yet. `weir rollouts plan` tells what one would do.")
    )


def _number(index: int | None) -> object:
    """Waves are counted from one for people."""
    return "-" if index is None else index + 1


@rollouts.command("show")
@click.argument("rollout", shell_complete=rollout_words)
@resource(project=False)
def show_rollout(use: Use, rollout: str) -> None:
    """Show a rollout: its waves, where it is, and what it is held for."""
    found = use.api.call("GET", path("rollouts", names.rollout(use.api, rollout)["id"]))
    use.say(found, described(found["rollout"]))


@rollouts.command("computes")
@click.argument("rollout", shell_complete=rollout_words)
@click.option("--state", help="Only those in this state: passed, regressed, baking...")
@resource(project=False)
def rollout_computes(use: Use, rollout: str, state: str | None) -> None:
    """Show each compute of a rollout: in which wave, how far, and why it stopped."""
    where = path("rollouts", names.rollout(use.api, rollout)["id"], "computes")
    found = use.api.every(where, "computes", {"state": state})
    columns = [
        ("COMPUTE", lambda row: row["compute_id"]),
        ("PROJECT", lambda row: row["project_name"]),
        ("WAVE", lambda row: row["wave"] + 1),
        ("STATE", lambda row: row["state"]),
        ("SAVES A SECOND", lambda row: size(row["expected_wal_saved_bytes_per_second"])),
        ("SINCE", lambda row: moment(row["updated_at"])),
        ("", lambda row: row["reason"] or " "),
    ]
    use.say(found, listed(columns, found["computes"], "No compute fits."))


@rollouts.command("plan")
@rollout_changes.strategy_options
@resource(project=False)
def plan(use: Use, **given: Any) -> None:
    """Show what a rollout would do: waves, computes, what it leaves out and why. Nothing is changed or stored.

    Takes what `weir rollouts start` takes.
    """
    found = use.api.call("POST", "/rollouts/plan", rollout_changes.request_of(use, given))
    use.say(found, plan_text(found["plan"]))


@rollouts.command("wait")
@click.argument("rollout", shell_complete=rollout_words)
@click.option(
    "--timeout", type=click.FloatRange(0), default=_WAIT_SECONDS, show_default=True, help="Seconds to wait."
)
@resource(project=False)
def wait_for(use: Use, rollout: str) -> None:
    """Wait until a rollout has ended, or is paused or held and needs somebody.

    Exit code 0 when it has completed or is rolled back, 4 when it was aborted, has failed, is held or paused, 5 when
    the time is over.
    """
    ident = names.rollout(use.api, rollout)["id"]
    progress = Progress()
    while True:
        found = use.api.call("GET", path("rollouts", ident))
        row = found["rollout"]
        status = row["status"]
        progress.show({f"rollout {row['name']}": f"{status}, {_passed(row)} of {row['computes_total']} passed"})
        if status in _ENDED | _ENDED_BADLY | _NEEDS_SOMEBODY:
            use.say(found, described(row))
            if status not in _ENDED:
                raise OperationError(f"Rollout {row['name']!r} is {status}: {row['status_reason'] or 'as asked'}.")
            return
        if progress.seconds >= use.timeout:
            raise StillRunningError(f"Rollout {row['name']!r} is {status} after {use.timeout:.0f} s, and goes on.")
        time.sleep(_POLL_SECONDS)


def _passed(row: dict[str, Any]) -> int:
    return int(row["counts"].get("passed", 0))


for _command in rollout_changes.COMMANDS:
    rollouts.add_command(_command)
