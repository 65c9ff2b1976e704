"""`weir projects`."""

from typing import Any

import click

from weir.cli.resources.api import path
from weir.cli.resources.moments import SPAN
from weir.cli.resources.show import fields, length, listed, moment, size
from weir.cli.resources.use import Use, confirm, project_argument, resource, yes_option

DURABILITY = click.Choice(["off", "receive", "flush", "apply"])
_COLUMNS = [
    ("NAME", lambda row: row["name"]),
    ("ID", lambda row: row["id"]),
    ("POSTGRES", lambda row: row["pg_version"]),
    ("REGION", lambda row: row["region_id"]),
    ("HISTORY", lambda row: length(row["history_retention_seconds"])),
    ("CREATED", lambda row: moment(row["created_at"])),
]


@click.group("projects", short_help="Show, make, change and delete projects.")
def projects() -> None:
    """Show and change projects. A project has branches, and each branch can have a compute.

    \b
      weir projects list
      weir projects create shop --history 7d
      weir projects show shop
      weir projects delete shop

    PROJECT is a project's id or name.
    """


@projects.command("list")
@click.option("--search", metavar="TEXT", help="Only those that have it in their name or id.")
@resource(project=False)
def list_projects(use: Use, search: str | None) -> None:
    """List your projects, newest first."""
    found = use.api.every("/projects", "projects", {"search": search})
    nothing = "No project fits." if search else "No project yet. `weir projects create NAME` makes one."
    use.say(found, listed(_COLUMNS, found["projects"], nothing))


@projects.command("show")
@project_argument
@resource(project=False)
def show_project(use: Use) -> None:
    """Show a project: its settings, and how much history it keeps."""
    found = use.api.call("GET", path("projects", use.project()["id"]))
    use.say(found, _described(found["project"]))


@projects.command("create")
@click.argument("name")
@click.option("--branch", metavar="NAME", help="Of its first branch [default: main]")
@click.option("--role", metavar="NAME", help="The role that owns the first database.")
@click.option("--database", metavar="NAME", help="The first database.")
@click.option("--history", type=SPAN, help="How far back branches can be made and restored: 12h, 7d [default: 7d]")
@click.option("--durability", type=DURABILITY, help="What commits of the first branch wait for [default: flush]")
@resource(project=False, waits=True)
def create_project(
    use: Use,
    name: str,
    branch: str | None,
    role: str | None,
    database: str | None,
    history: int | None,
    durability: str | None,
) -> None:
    """Make a project with a branch, a role, a database and a running compute.

    \b
      weir projects create shop
      weir projects create shop --database shop --role shop_owner --history 2d
      weir psql main --project shop

    Two projects may have the same name; both are then known by their ids alone.
    """
    first = {"name": branch, "role_name": role, "database_name": database, "durability": durability}
    body: dict[str, Any] = {"name": name, "history_retention_seconds": history}
    body["branch"] = {key: value for key, value in first.items() if value is not None} or None
    sent = {key: value for key, value in body.items() if value is not None}
    answer = use.api.call("POST", "/projects", {"project": sent})
    made = answer["project"]
    use.say(
        answer,
        fields(
            [
                ("Project", f"{made['name']} ({made['id']})"),
                ("Branch", f"{answer['branch']['name']} ({answer['branch']['id']})"),
                ("Database", ", ".join(row["name"] for row in answer["databases"])),
                ("Role", ", ".join(row["name"] for row in answer["roles"])),
                ("Compute", ", ".join(row["id"] for row in answer["endpoints"])),
                ("Connect", f"weir psql {answer['branch']['name']} --project {made['id']}"),
            ]
        ),
    )
    use.finish(answer, "its compute runs")


@projects.command("update")
@project_argument
@click.option("--name", help="Another name.")
@click.option("--history", type=SPAN, help="How far back branches can be made and restored: 12h, 7d.")
@resource(project=False, waits=True)
def update_project(use: Use, name: str | None, history: int | None) -> None:
    """Rename a project, or have it keep more or less history.

    Less history cannot be taken back: what is no longer kept is gone from storage soon after.
    """
    given = {"name": name, "history_retention_seconds": history}
    body = {key: value for key, value in given.items() if value is not None}
    if not body:
        raise click.UsageError("Nothing to change; give --name or --history.")
    answer = use.api.call("PATCH", path("projects", use.project()["id"]), {"project": body})
    use.say(answer, _described(answer["project"]))
    use.finish(answer, "changed")


@projects.command("offer")
@project_argument
@click.option("--for", "seconds", type=SPAN, help="For how long it is offered: 2h, 3d [default: 1d]")
@click.option("--end", is_flag=True, help="End all offers of the project that nobody has taken.")
@resource(project=False)
def offer_project(use: Use, seconds: int | None, *, end: bool) -> None:
    """Offer a project to another organization.

    Whoever is told the answer's words may take the project, with all that is in it, once and while the offer lasts.
    Computes run on; API keys for the project alone are revoked when it goes.
    """
    found = use.project()
    where = path("projects", found["id"], "transfer_requests")
    if end:
        if seconds is not None:
            raise click.UsageError("--for and --end contradict each other; leave one of them out.")
        use.api.call("DELETE", where)
        use.say({}, f"Nobody can take {found['name']} any more.")
        return
    made = use.api.call("POST", where, {} if seconds is None else {"ttl_seconds": seconds})
    take = f"weir projects accept {found['id']} {made['id']}"
    use.say(made, fields([("Until", moment(made["expires_at"])), ("To take it", take)]))


@projects.command("accept")
@click.argument("project_id")
@click.argument("offer")
@resource(project=False)
def accept_project(use: Use, project_id: str, offer: str) -> None:
    """Take a project that another organization has offered, into yours.

    PROJECT_ID and OFFER are what `weir projects offer` has said there. Your organization's quotas need room for it.
    """
    use.api.call("PUT", path("projects", project_id, "transfer_requests", offer), {})
    use.say({}, f"Project {project_id} is your organization's.")


@projects.command("delete")
@project_argument
@yes_option
@resource(project=False, waits=True)
def delete_project(use: Use, *, yes: bool) -> None:
    """Delete a project with all its branches and their data.

    Nothing brings it back. Asks first, and says what would go; without a terminal it needs --yes.
    """
    found = use.project()
    rows = use.api.every(path("projects", found["id"], "branches"), "branches")["branches"]
    what = f"Project {found['name']!r} ({found['id']}) with {len(rows)} branch(es)"
    confirm(f"{what} and all their data will be gone for good. Delete it?", yes=yes)
    answer = use.api.call("DELETE", path("projects", found["id"]))
    use.say(answer, f"{what} is being deleted.")
    use.finish(answer, "deleted")


# By the project's `unlogged_on_suspend`.
_KEPT = {"refuse": "keep computes from being suspended unasked", "discard": "go when a compute is suspended"}


def _described(row: dict[str, Any]) -> str:
    quota = (row["settings"].get("quota") or {}) if row.get("settings") else {}
    return fields(
        [
            ("Project", row["name"]),
            ("Id", row["id"]),
            ("Postgres", row["pg_version"]),
            ("Region", f"{row['region_id']}, cell {row['cell']}"),
            ("History", length(row["history_retention_seconds"])),
            ("Size limit of a branch", size(quota.get("logical_size_bytes"))),
            ("WAL limit of a compute", _rate(quota.get("wal_bytes_per_second"))),
            ("Rows of unlogged tables", _KEPT[row["settings"].get("unlogged_on_suspend", "refuse")]),
            ("Tags", ", ".join(f"{key}={value}" for key, value in row["tags"].items())),
            ("Created", moment(row["created_at"])),
        ]
    )


def _rate(value: int | None) -> str | None:
    return f"{size(value)} a second" if value else None
