"""`weir computes`."""

from typing import Any

import click

from weir.cli.errors import CliError
from weir.cli.resources.api import path
from weir.cli.resources.complete import branch_words
from weir.cli.resources.show import fields, listed, moment, size
from weir.cli.resources.use import Use, compute_argument, confirm, resource, yes_option


def images(row: Any) -> str:
    wanted, actual = row["full_page_writes"]["wanted"], row["full_page_writes"].get("actual")
    if actual is None:
        return "unknown"
    return ("on" if actual else "off") + ("" if actual == wanted else ", changing")


_COLUMNS = [
    ("COMPUTE", lambda row: row["id"]),
    ("BRANCH", lambda row: row["branch_name"]),
    ("PROJECT", lambda row: row["project_name"]),
    ("STATE", lambda row: row["state"]),
    ("PORT", lambda row: row["port"]),
    ("POSTGRES", lambda row: row.get("postgres_version")),
    ("PAGE IMAGES", images),
    ("", lambda row: row.get("reason") or " "),
]


@click.group("computes", short_help="Show, start, stop and change computes.")
def computes() -> None:
    """Show and change computes: the Postgres servers of branches.

    \b
      weir computes list
      weir computes restart main --project shop
      weir computes settings main --set work_mem=64MB

    COMPUTE is a compute's id, or the id or name of its branch.
    """


@computes.command("list")
@resource()
def list_computes(use: Use) -> None:
    """List the computes of a project, or of all projects where none is named."""
    project = None if use.project_word is None else use.project()["id"]
    found = use.api.every("/computes", "computes", {"project_id": project})
    use.say(found, listed(_COLUMNS, found["computes"], "No compute."))


@computes.command("show")
@compute_argument
@resource()
def show_compute(use: Use, compute: str) -> None:
    """Show a compute: what it is to do, what it does, how its last start went."""
    found = use.api.call("GET", path("computes", use.compute(compute)["id"]))
    use.say(found, _described(found["compute"]))


def _described(row: dict[str, Any]) -> str:
    start, rates = row.get("start") or {}, row.get("rates") or {}
    waiting = row.get("commits_waiting")
    return fields(
        [
            ("Compute", row["id"]),
            ("Branch", f"{row['branch_name']} ({row['branch_id']})"),
            ("Project", f"{row['project_name']} ({row['project_id']})"),
            ("State", row["state"]),
            ("Reason", row.get("reason")),
            ("Address", f"{row['host']}:{row['port']}"),
            ("Postgres", row.get("postgres_version")),
            ("Page images", images(row)),
            ("Durability", row["durability"].get("actual") or row["durability"].get("wanted")),
            ("Connections", row.get("active_connections")),
            ("Commits that wait", waiting),
            ("WAL a second", _wal(rates)),
            ("Committed up to", row.get("commit_lsn")),
            ("Started", moment(row.get("started_at"))),
            ("Last start", f"{start['total_ms']} ms" if start.get("total_ms") is not None else None),
        ]
    )


def _wal(rates: dict[str, Any]) -> str | None:
    if not rates:
        return None
    image, rest = rates["wal_image_bytes_per_second"], rates["wal_rest_bytes_per_second"]
    return f"{size(image + rest)}, {size(image)} of it page images"


@computes.command("create")
@click.argument("branch", shell_complete=branch_words)
@resource(waits=True)
def create_compute(use: Use, branch: str) -> None:
    """Give a branch a compute, and start it. A branch has at most one."""
    row = use.branch(branch)
    body = {"endpoint": {"branch_id": row["id"], "type": "read_write"}}
    answer = use.api.call("POST", path("projects", row["project_id"], "endpoints"), body)
    _say(use, answer, "it runs")


@computes.command("start")
@compute_argument
@resource(waits=True)
def start_compute(use: Use, compute: str) -> None:
    """Start a suspended compute. One that runs is left alone."""
    _do(use, compute, "start", "it runs")


discard_option = click.option(
    "--discard-unlogged", is_flag=True, help="Stop it even if rows of unlogged tables are lost."
)


@computes.command("suspend")
@compute_argument
@discard_option
@resource(waits=True)
def suspend_compute(use: Use, compute: str, *, discard_unlogged: bool) -> None:
    """Stop a compute until it is started again. Its sessions end; nothing committed to logged tables is lost.

    Unlogged tables are empty after the next start. While one holds rows, the compute runs on and the answer names it,
    unless --discard-unlogged says that they may go.
    """
    _do(use, compute, "suspend", "it is suspended", discard_unlogged=discard_unlogged)


@computes.command("suspend-after")
@compute_argument
@click.argument("when", metavar="SECONDS|never")
@resource()
def suspend_after(use: Use, compute: str, when: str) -> None:
    """Suspend a compute by itself once its clients have done nothing for SECONDS, or never.

    Sessions that only wait for their client do not keep it awake, and end when it is suspended. A client that
    connects by the proxy starts it again.
    """
    if when != "never" and not when.isdecimal():
        raise click.UsageError(f"{when!r} is neither a number of seconds nor `never`.")
    seconds = -1 if when == "never" else int(when)
    answer = use.api.call(
        "PATCH", _path(use.compute(compute)), {"endpoint": {"suspend_timeout_seconds": seconds or -1}}
    )
    row = answer["endpoint"]
    after = row["suspend_timeout_seconds"]
    use.say(
        answer, f"{row['id']}: {f'suspended after {after} s without activity' if after > 0 else 'runs until told'}"
    )


@computes.command("restart")
@compute_argument
@discard_option
@resource(waits=True)
def restart_compute(use: Use, compute: str, *, discard_unlogged: bool) -> None:
    """Stop a compute and start it again, at the same address. Its sessions end, and unlogged tables are empty."""
    _do(use, compute, "restart", "it runs again", discard_unlogged=discard_unlogged)


def _do(use: Use, word: str, what: str, done: str, *, discard_unlogged: bool = False) -> None:
    row = use.compute(word)
    answer = use.api.call("POST", f"{_path(row)}/{what}", params={"discard_unlogged": discard_unlogged or None})
    _say(use, answer, done)


def _path(row: dict[str, Any]) -> str:
    return path("projects", row["project_id"], "endpoints", row["id"])


def _say(use: Use, answer: dict[str, Any], done: str) -> None:
    row = answer["endpoint"]
    words = [("Compute", row["id"]), ("Branch", row["branch_id"]), ("Address", f"{row['host']}:{row['port']}")]
    use.say(answer, fields(words))
    use.finish(answer, done)


@computes.command("settings")
@compute_argument
@click.option("--set", "chosen", metavar="NAME=VALUE", multiple=True, help="As in postgresql.conf; may be repeated.")
@click.option("--unset", "taken_back", metavar="NAME", multiple=True, help="Back to the default; may be repeated.")
@resource(waits=True)
def settings(use: Use, compute: str, chosen: tuple[str, ...], taken_back: tuple[str, ...]) -> None:
    """Show the Postgres settings chosen for a compute and whether they are in force, or change some.

    \b
      weir computes settings main
      weir computes settings main --set work_mem=64MB --set statement_timeout=30s
      weir computes settings main --unset work_mem

    What needs a restart says so, and `weir computes restart` brings it in force. Others stay as they are.
    """
    row = use.compute(compute)
    if not chosen and not taken_back:
        found = use.api.call("GET", path("computes", row["id"], "settings"))
        columns = [
            ("NAME", lambda item: item["name"]),
            ("WANTED", lambda item: item.get("wanted")),
            ("IN FORCE", lambda item: item.get("in_force")),
            ("STATE", lambda item: item["state"]),
            ("", lambda item: item.get("reason") or " "),
        ]
        use.say(found, listed(columns, found["settings"], "No settings are chosen; all are Weir's defaults."))
        return
    now = dict(use.api.call("GET", _path(row))["endpoint"]["settings"]["pg_settings"])
    for name in taken_back:
        if now.pop(name.lower(), None) is None:
            raise CliError(f"{name!r} is not chosen for compute {row['id']}, so that it cannot be taken back.")
    for pair in chosen:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise click.UsageError(f"{pair!r} is not NAME=VALUE.")
        now[name.strip().lower()] = value.strip()
    answer = use.api.call("PATCH", _path(row), {"endpoint": {"settings": {"pg_settings": now}}})
    kept = sorted(answer["endpoint"]["settings"]["pg_settings"].items())
    use.say(answer, "\n".join(f"{name} = {value}" for name, value in kept) or "No settings are chosen.")
    use.finish(answer, "applied")


@computes.command("delete")
@compute_argument
@yes_option
@resource(waits=True)
def delete_compute(use: Use, compute: str, *, yes: bool) -> None:
    """Delete a compute with its address and settings. The branch and its data stay."""
    row = use.compute(compute)
    confirm(
        f"Compute {row['id']} of branch {row['branch_name']!r} will be gone with its address and its settings. "
        "Delete it?",
        yes=yes,
    )
    answer = use.api.call("DELETE", _path(row))
    use.say(answer, f"Compute {row['id']} is being deleted.")
    use.finish(answer, "deleted")
