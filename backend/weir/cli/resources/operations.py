"""`weir operations`."""

from typing import Any

import click

from weir.cli.resources import names, waiting
from weir.cli.resources.api import path
from weir.cli.resources.show import fields, listed, moment
from weir.cli.resources.use import WAIT_SECONDS, Use, resource


def _took(row: Any) -> str:
    return f"{row['total_duration_ms'] / 1000:.1f} s"


_COLUMNS = [
    ("OPERATION", lambda row: row["id"]),
    ("ACTION", lambda row: row["action"]),
    ("STATUS", lambda row: row["status"]),
    ("OF", lambda row: row.get("endpoint_id") or row.get("branch_id") or row["project_id"]),
    ("BEGAN", lambda row: moment(row["created_at"])),
    ("TOOK", _took),
    ("", lambda row: row.get("error") or row.get("warning") or " "),
]


@click.group("operations", short_help="Show, wait for and cancel what takes time.")
def operations() -> None:
    """Show, wait for and cancel operations: what takes time in a project, such as making a branch or starting a
    compute.

    \b
      weir operations list --project shop
      weir operations wait --project shop            for all that are open
      weir operations cancel ID --project shop
    """


@operations.command("list")
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True, help="How many.")
@resource()
def list_operations(use: Use, limit: int) -> None:
    """List the operations of a project, newest first."""
    where = path("projects", names.project_id(use.api, use.project_word), "operations")
    found = use.api.every(where, "operations", most=limit)
    use.say(found, listed(_COLUMNS, found["operations"], "No operation."))


@operations.command("show")
@click.argument("operation")
@resource()
def show_operation(use: Use, operation: str) -> None:
    """Show an operation: how it stands, and why it failed or warns."""
    where = path("projects", names.project_id(use.api, use.project_word), "operations", operation)
    found = use.api.call("GET", where)
    row = found["operation"]
    pairs: list[tuple[str, object]] = [
        ("Operation", row["id"]),
        ("Action", row["action"]),
        ("Status", row["status"]),
        ("Project", row["project_id"]),
        ("Branch", row.get("branch_id")),
        ("Compute", row.get("endpoint_id")),
        ("Began", moment(row["created_at"])),
        ("Took", _took(row)),
        ("Failures", row["failures_count"]),
        ("Error", row.get("error")),
        ("Warning", row.get("warning")),
    ]
    use.say(found, fields(pairs))


@operations.command("cancel")
@click.argument("operation")
@click.option("--timeout", type=click.FloatRange(0), default=WAIT_SECONDS, show_default=True, help="Seconds to wait.")
@resource()
def cancel_operation(use: Use, operation: str) -> None:
    """Cancel an operation: it stops, and what it has done is undone.

    Possible for a start, the making of a branch, a detach and a change of safekeepers, while they wait or run. One
    that ends before it could be stopped is done, and says so. Exit code 4 when undoing it fails.
    """
    where = path("projects", names.project_id(use.api, use.project_word), "operations", operation)
    asked = use.api.call("POST", where + path("cancel"))["operation"]
    waiting.finish(use.api, [asked], use.timeout, cancelled_too=True)
    ended = use.api.call("GET", where)
    status = ended["operation"]["status"]
    use.say(ended, f"Operation {operation} is {status}.")


@operations.command("wait")
@click.argument("operation", nargs=-1)
@click.option("--timeout", type=click.FloatRange(0), default=WAIT_SECONDS, show_default=True, help="Seconds to wait.")
@resource()
def wait_for(use: Use, operation: tuple[str, ...]) -> None:
    """Wait for operations to end; for all open ones of the project when none is named.

    Exit code 4 when one has failed, 5 when the time is over.
    """
    ident = names.project_id(use.api, use.project_word)
    where = path("projects", ident, "operations")
    if operation:
        rows = [use.api.call("GET", where + path(word))["operation"] for word in operation]
    else:
        found = use.api.every(where, "operations")["operations"]
        rows = [row for row in found if row["status"] in waiting.OPEN]
    waiting.finish(use.api, rows, use.timeout)
    ended = [use.api.call("GET", where + path(row["id"]))["operation"] for row in rows]
    use.say({"operations": ended}, listed(_COLUMNS, ended, "No operation is open."))
