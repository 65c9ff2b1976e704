"""`weir branches`: what there is, and what makes and ends branches. `branch_changes` has what changes one."""

from typing import Any

import click

from weir.cli.resources import branch_changes
from weir.cli.resources.api import path
from weir.cli.resources.branch_changes import described, path_of
from weir.cli.resources.moments import AHEAD, BACK, LSN
from weir.cli.resources.projects import DURABILITY
from weir.cli.resources.schema_diff import schema_diff
from weir.cli.resources.show import fields, listed, moment, size
from weir.cli.resources.use import Use, branch_argument, confirm, resource, yes_option


@click.group("branches", short_help="Show, make, restore, change and delete branches.")
def branches() -> None:
    """Show and change branches. A branch shares its parent's data until one of them changes it, and copies nothing.

    \b
      weir branches list --project shop
      weir branches create dev                      of the default branch as it is now
      weir branches create before --at 10m          of the default branch ten minutes ago
      weir branches restore main --at 2026-05-04T12:30:00Z
      weir branches reset dev                       to its parent's newest state
      weir branches delete dev

    BRANCH is a branch's id or name. Without --project it is looked for in all your projects, and refused when several
    have one of that name.
    """


@branches.command("list")
@click.option("--search", metavar="TEXT", help="Only those that have it in their name or id.")
@resource()
def list_branches(use: Use, search: str | None) -> None:
    """List the branches of a project, newest first."""
    where = path("projects", use.project()["id"], "branches")
    found = use.api.every(where, "branches", {"search": search})
    names = {row["id"]: row["name"] for row in found["branches"]}
    columns = [
        ("NAME", lambda row: row["name"]),
        ("ID", lambda row: row["id"]),
        ("PARENT", lambda row: names.get(row["parent_id"], row["parent_id"])),
        ("STATE", lambda row: row["current_state"]),
        ("SIZE", lambda row: size(row.get("logical_size"))),
        ("CREATED", lambda row: moment(row["created_at"])),
        ("", _marks),
    ]
    use.say(found, listed(columns, found["branches"], "No branch fits."))


def _marks(row: dict[str, Any]) -> str:
    marks = [name for name in ("default", "protected") if row[name]]
    if row.get("expires_at"):
        marks.append(f"expires {moment(row['expires_at'])}")
    return ", ".join(marks) or " "


@branches.command("show")
@branch_argument
@resource()
def show_branch(use: Use, branch: str) -> None:
    """Show a branch: where it comes from, how large it is, whether it expires."""
    found = use.api.call("GET", path_of(use.branch(branch)))
    use.say(found, described(found["branch"]))


@branches.command("history")
@branch_argument
@resource()
def history(use: Use, branch: str) -> None:
    """Show how far back a branch can be branched from or restored to, and where branches were made from it."""
    found = use.api.call("GET", path_of(use.branch(branch)) + "/history")
    head = fields(
        [
            ("Oldest", f"{found['oldest_lsn']}, {moment(found.get('oldest_timestamp')) or 'of an unknown time'}"),
            ("Newest", f"{found['newest_lsn']}, {moment(found.get('newest_timestamp')) or 'of an unknown time'}"),
        ]
    )
    columns = [
        ("LSN", lambda row: row["lsn"]),
        ("AT", lambda row: moment(row.get("timestamp"))),
        ("BRANCH", lambda row: row["name"]),
        ("ID", lambda row: row["branch_id"]),
    ]
    points = found["branch_points"]
    use.say(found, head + (f"\n\n{listed(columns, points, '')}" if points else ""))


@branches.command("create")
@click.argument("name", required=False)
@click.option("--from", "source", metavar="BRANCH", help="Its parent [default: the project's default branch]")
@click.option("--at", type=BACK, help="Of that moment: 2026-05-04T12:30:00Z, or 10m, 2h, 3d ago.")
@click.option("--lsn", type=LSN, help="Of that LSN, rounded down to a record.")
@click.option("--expires", type=AHEAD, help="Deleted then: a moment, or 12h, 7d from now.")
@click.option("--durability", type=DURABILITY, help="What commits wait for [default: as the parent's]")
@click.option("--no-compute", is_flag=True, help="Only the branch.")
@resource(waits=True)
def create_branch(
    use: Use,
    name: str | None,
    source: str | None,
    at: str | None,
    lsn: str | None,
    expires: str | None,
    durability: str | None,
    *,
    no_compute: bool,
) -> None:
    """Make a branch of another branch's newest state, of a moment, or of an LSN.

    \b
      weir branches create dev
      weir branches create review-42 --from dev --expires 3d
      weir branches create before-the-mistake --at 15m --no-compute

    It has the parent's roles, databases and passwords. `weir branches history` says how far back --at and --lsn go.
    """
    one_of(at, lsn)
    parent = use.branch(source)
    given = {
        "name": name,
        "parent_id": parent["id"],
        "parent_timestamp": at,
        "parent_lsn": lsn,
        "expires_at": expires,
        "durability": durability,
    }
    body: dict[str, Any] = {"branch": {key: value for key, value in given.items() if value is not None}}
    if not no_compute:
        body["endpoints"] = [{"type": "read_write"}]
    answer = use.api.call("POST", path("projects", parent["project_id"], "branches"), body)
    use.say(answer, described(answer["branch"], answer["endpoints"]))
    use.finish(answer, "made" if no_compute else "made, and its compute runs")


@branches.command("delete")
@branch_argument
@click.option("--children", is_flag=True, help="Also all branches and snapshots made from it.")
@yes_option
@resource(waits=True)
def delete_branch(use: Use, branch: str, *, children: bool, yes: bool) -> None:
    """Delete a branch with its data and its compute.

    Refused for the default branch, for protected ones, and without --children for one that others were made from or
    that has snapshots.
    """
    row = use.branch(branch)
    more = " with all branches and snapshots made from it" if children else ""
    confirm(f"Branch {row['name']!r} ({row['id']}){more} and its data will be gone for good. Delete it?", yes=yes)
    answer = use.api.call("DELETE", path_of(row), params={"children": "delete"} if children else None)
    use.say(answer, f"Branch {row['name']} ({row['id']}){more} is being deleted.")
    use.finish(answer, "deleted")


def one_of(at: str | None, lsn: str | None) -> None:
    if at is not None and lsn is not None:
        raise click.UsageError("Give --at or --lsn, not both.")


for _command in (*branch_changes.COMMANDS, schema_diff):
    branches.add_command(_command)
