"""`weir snapshots`: states of branches that are kept, going back to them, and the schedules that take them."""

from typing import Any

import click

from weir.cli.resources.api import path
from weir.cli.resources.branch_changes import described
from weir.cli.resources.branches import one_of
from weir.cli.resources.moments import AHEAD, BACK, LSN, SPAN
from weir.cli.resources.names import one
from weir.cli.resources.show import Row, fields, length, listed, moment, size
from weir.cli.resources.use import Use, branch_argument, branch_option, confirm, resource, yes_option

_FREQUENCIES = ("hourly", "daily", "weekly", "monthly")
_LIST = "`weir snapshots list` shows what there is."


@click.group("snapshots", short_help="Show, take, restore and delete snapshots; schedules.")
def snapshots() -> None:
    """Show, take and restore snapshots. A snapshot keeps one state of a branch, whatever becomes of its history.

    \b
      weir snapshots create --branch main --name before-the-migration
      weir snapshots restore before-the-migration               a branch beside the others
      weir snapshots restore before-the-migration --in-place    main as it was then
      weir snapshots schedule set main --every daily --hour 3 --keep 7d

    SNAPSHOT is a snapshot's id or name. Several may have one name; they are known by their ids then.
    """


def _project(use: Use) -> str:
    return path("projects", use.project()["id"])


def _find(use: Use, word: str) -> tuple[str, dict[str, Any]]:
    """The snapshot of that id or name, and its address."""
    where = _project(use)
    rows = use.api.call("GET", where + "/snapshots")["snapshots"]
    row = one("snapshot", word, rows, lambda each: f"of {moment(each.get('timestamp')) or 'no moment'}", _LIST)
    return where + path("snapshots", row["id"]), row


def _branch_names(use: Use) -> dict[str, str]:
    found = use.api.every(_project(use) + "/branches", "branches")["branches"]
    return {row["id"]: row["name"] for row in found}


def _described(row: Row) -> str:
    return fields(
        [
            ("Snapshot", row["name"]),
            ("Id", row["id"]),
            ("Of branch", row.get("source_branch_id")),
            ("At", f"{row.get('lsn') or 'its head'}, {moment(row.get('timestamp')) or 'before its first commit'}"),
            ("Taken by", row["created_by"]["name"]),
            ("Taken", moment(row["created_at"])),
            ("Expires", moment(row.get("expires_at")) or "never"),
            ("Size", size(row.get("full_size"))),
        ]
    )


@snapshots.command("list")
@resource()
def list_snapshots(use: Use) -> None:
    """List the snapshots of a project, newest first."""
    found = use.api.call("GET", _project(use) + "/snapshots")
    names = _branch_names(use) if found["snapshots"] and not use.json else {}
    columns = [
        ("NAME", lambda row: row["name"]),
        ("ID", lambda row: row["id"]),
        ("BRANCH", lambda row: names.get(row.get("source_branch_id"), row.get("source_branch_id"))),
        ("OF", lambda row: moment(row.get("timestamp"))),
        ("LSN", lambda row: row.get("lsn")),
        ("SIZE", lambda row: size(row.get("full_size"))),
        ("BY", lambda row: row["created_by"]["name"]),
        ("EXPIRES", lambda row: moment(row.get("expires_at")) or "never"),
    ]
    use.say(found, listed(columns, found["snapshots"], "No snapshot. `weir snapshots create` takes one."))


@snapshots.command("create")
@branch_option
@click.option("--name", help="A name for it [default: the branch's name and the moment]")
@click.option("--at", type=BACK, help="Of that moment: 2026-05-04T12:30:00Z, or 10m, 2h, 3d ago.")
@click.option("--lsn", type=LSN, help="Of that LSN, rounded down to a record.")
@click.option("--expires", type=AHEAD, help="Deleted then: a moment, or 12h, 7d from now [default: never]")
@resource(waits=True)
def create_snapshot(
    use: Use, branch: str | None, name: str | None, at: str | None, lsn: str | None, expires: str | None
) -> None:
    """Keep the state of a branch: its newest, that of a moment, or that at an LSN.

    \b
      weir snapshots create
      weir snapshots create --branch dev --at 10m --name before-the-mistake --expires 30d

    Nothing is copied. The branch cannot be deleted without its snapshots from then on.
    """
    one_of(at, lsn)
    row = use.branch(branch)
    where = path("projects", row["project_id"], "branches", row["id"], "snapshot")
    asked = {"name": name, "timestamp": at, "lsn": lsn, "expires_at": expires}
    answer = use.api.call("POST", where, params=asked)
    use.say(answer, _described(answer["snapshot"]))
    use.finish(answer, "taken")


@snapshots.command("restore")
@click.argument("snapshot")
@click.option("--name", help="Of the branch that is made.")
@click.option("--to", "target", metavar="BRANCH", help="The branch it is to replace [default: the one it is of]")
@click.option("--in-place", is_flag=True, help="Give the branch the state at once; what it is now stays as another.")
@yes_option
@resource(waits=True)
def restore_snapshot(
    use: Use, snapshot: str, name: str | None, target: str | None, *, in_place: bool, yes: bool
) -> None:
    """Make a branch of a snapshot, or give a branch its state.

    \b
      weir snapshots restore before-the-migration --name look
      weir snapshots finalize look               the branch it is of gets what `look` holds
      weir snapshots restore before-the-migration --in-place --to dev

    Without --in-place nothing of the branches that there are changes. With it, id, name and address of the branch
    stay, its connections end once, and what it is now stays as BRANCH_old_TIME.
    """
    if in_place and name is not None:
        raise click.UsageError("A branch that is restored in place keeps its name; leave out --name.")
    where, row = _find(use, snapshot)
    into = None if target is None else use.branch(target)["id"]
    if in_place:
        what = into or row.get("source_branch_id")
        confirm(f"Branch {what} gets the state of snapshot {row['name']!r}; connections to it end. Go on?", yes=yes)
    given = {"name": name, "target_branch_id": into, "finalize_restore": in_place}
    body = {key: value for key, value in given.items() if value is not None}
    answer = use.api.call("POST", where + "/restore", body)
    use.say(answer, described(answer["branch"]))
    use.finish(answer, "put back" if in_place else "made; `weir computes create` gives it a compute")


@snapshots.command("finalize")
@branch_argument
@click.option(
    "--preserve-as", metavar="NAME", help="What the replaced state is kept under [default: BRANCH_old_TIME]"
)
@yes_option
@resource(waits=True)
def finalize(use: Use, branch: str, preserve_as: str | None, *, yes: bool) -> None:
    """End a restore that made BRANCH: the branch it was to replace gets what BRANCH holds by now.

    That branch keeps its id, name and address, and BRANCH keeps what it was. Connections to both end once.
    """
    row = use.branch(branch)
    confirm(
        f"Branch {row.get('restored_as')} gets what branch {row['name']!r} ({row['id']}) holds; connections to both "
        "end. Go on?",
        yes=yes,
    )
    where = path("projects", row["project_id"], "branches", row["id"], "finalize_restore")
    answer = use.api.call("POST", where, {} if preserve_as is None else {"name": preserve_as})
    use.say(answer, f"Branch {row.get('restored_as')} gets what branch {row['name']} holds.")
    use.finish(answer, "put back")


@snapshots.command("update")
@click.argument("snapshot")
@click.option("--name", help="Another name.")
@click.option("--expires", metavar="WHEN", help="A moment, 7d from now, or `never`.")
@resource()
def update_snapshot(use: Use, snapshot: str, name: str | None, expires: str | None) -> None:
    """Rename a snapshot, or keep it for longer or shorter."""
    body: dict[str, Any] = {} if name is None else {"name": name}
    if expires is not None:
        never = expires == "never"
        body["expires_at"] = None if never else AHEAD.convert(expires, None, click.get_current_context())
    if not body:
        raise click.UsageError("Nothing to change; give --name or --expires.")
    where, _ = _find(use, snapshot)
    answer = use.api.call("PATCH", where, {"snapshot": body})
    use.say(answer, _described(answer["snapshot"]))


@snapshots.command("delete")
@click.argument("snapshot")
@yes_option
@resource(waits=True)
def delete_snapshot(use: Use, snapshot: str, *, yes: bool) -> None:
    """Delete a snapshot. Branches that were restored from it stay."""
    where, row = _find(use, snapshot)
    confirm(f"Snapshot {row['name']!r} ({row['id']}) will be gone for good. Delete it?", yes=yes)
    answer = use.api.call("DELETE", where)
    use.say(answer, f"Snapshot {row['name']} ({row['id']}) is being deleted.")
    use.finish(answer, "deleted" if answer["operations"] else "deleted; its data goes with the branches made of it")


@snapshots.group("schedule", short_help="Show, set and end the schedule of a branch.")
def schedule() -> None:
    """Snapshots of a branch that are taken by themselves. All times are in UTC."""


@schedule.command("show")
@branch_argument
@resource()
def show_schedule(use: Use, branch: str) -> None:
    """Show when snapshots of a branch are taken."""
    found = use.api.call("GET", _schedule_of(use, branch))
    columns = [
        ("EVERY", lambda row: row["frequency"]),
        ("DAY", lambda row: row.get("day")),
        ("HOUR", lambda row: row.get("hour")),
        ("KEPT", lambda row: length(row["retention_seconds"])),
        ("NEXT", lambda row: moment(row["next_at"])),
    ]
    nothing = "No schedule. `weir snapshots schedule set` makes one."
    use.say(found, listed(columns, found["schedule"], nothing))


@schedule.command("set")
@branch_argument
@click.option("--every", type=click.Choice(_FREQUENCIES), required=True, help="How often.")
@click.option("--hour", type=click.IntRange(0, 23), help="Of the day [default: 0]")
@click.option("--day", type=click.IntRange(0, 31), help="Of the week, 1 for Monday, or of the month [default: 1]")
@click.option("--keep", type=SPAN, help="How long each is kept: 12h, 7d, 35d at most [default: 35d]")
@click.option("--add", is_flag=True, help="Beside the entries there are, not in their place.")
@resource()
def set_schedule(
    use: Use, branch: str, every: str, hour: int | None, day: int | None, keep: int | None, *, add: bool
) -> None:
    """Have snapshots of a branch taken at set times, in UTC.

    \b
      weir snapshots schedule set main --every daily --hour 3 --keep 7d
      weir snapshots schedule set main --every weekly --day 7 --keep 35d --add
    """
    where = _schedule_of(use, branch)
    given = {"frequency": every, "hour": hour, "day": day, "retention_seconds": keep}
    entry = {key: value for key, value in given.items() if value is not None}
    before = use.api.call("GET", where)["schedule"] if add else []
    kept = [{key: value for key, value in row.items() if key != "next_at" and value is not None} for row in before]
    answer = use.api.call("PUT", where, {"schedule": [*kept, entry]})
    use.say(answer, f"Snapshots are taken {every}.")


@schedule.command("end")
@branch_argument
@resource()
def end_schedule(use: Use, branch: str) -> None:
    """Take no more snapshots by themselves. Those that there are stay until they expire."""
    answer = use.api.call("PUT", _schedule_of(use, branch), {"schedule": []})
    use.say(answer, "The schedule is ended.")


def _schedule_of(use: Use, branch: str) -> str:
    row = use.branch(branch)
    return path("projects", row["project_id"], "branches", row["id"], "backup_schedule")
