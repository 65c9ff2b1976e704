"""`weir databases` and `weir roles`."""

from typing import Any

import click

from weir.cli.resources.api import path
from weir.cli.resources.show import fields, listed, moment
from weir.cli.resources.use import Use, branch_option, confirm, resource, yes_option


def _of(row: dict[str, Any], *rest: str) -> str:
    return path("projects", row["project_id"], "branches", row["id"], *rest)


@click.group("databases", short_help="Show, make and delete databases.")
def databases() -> None:
    """Show and change the databases of a branch; of the project's default branch unless --branch names one.

    \b
      weir databases list --project shop
      weir databases create reports --owner reporter --branch dev
    """


@databases.command("list")
@branch_option
@resource()
def list_databases(use: Use, branch: str | None) -> None:
    """List the databases of a branch, with their owners."""
    found = use.api.call("GET", _of(use.branch(branch), "databases"))
    columns = [
        ("NAME", lambda row: row["name"]),
        ("OWNER", lambda row: row["owner_name"]),
        ("CREATED", lambda row: moment(row["created_at"])),
    ]
    use.say(found, listed(columns, found["databases"], "No database. `weir databases create NAME` makes one."))


@databases.command("create")
@click.argument("name")
@click.option("--owner", required=True, metavar="ROLE", help="The role that owns it.")
@branch_option
@resource(waits=True)
def create_database(use: Use, name: str, owner: str, branch: str | None) -> None:
    """Make a database."""
    body = {"database": {"name": name, "owner_name": owner}}
    answer = use.api.call("POST", _of(use.branch(branch), "databases"), body)
    use.say(answer, _database(answer))
    use.finish(answer, "made")


@databases.command("give")
@click.argument("name")
@click.argument("role")
@branch_option
@resource(waits=True)
def give_database(use: Use, name: str, role: str, branch: str | None) -> None:
    """Make ROLE the owner of a database."""
    where = _of(use.branch(branch), "databases", name)
    answer = use.api.call("PATCH", where, {"database": {"owner_name": role}})
    use.say(answer, _database(answer))
    use.finish(answer, "changed")


@databases.command("delete")
@click.argument("name")
@branch_option
@yes_option
@resource(waits=True)
def delete_database(use: Use, name: str, branch: str | None, *, yes: bool) -> None:
    """Drop a database with all that is in it. Its sessions end; branches made before keep theirs."""
    row = use.branch(branch)
    confirm(
        f"Database {name!r} of branch {row['name']!r} ({row['id']}) and all that is in it goes. Drop it?", yes=yes
    )
    _delete(use, _of(row, "databases", name), "database", name)


def _database(answer: dict[str, Any]) -> str:
    row = answer["database"]
    return fields([("Database", row["name"]), ("Owner", row["owner_name"]), ("Branch", row["branch_id"])])


def _delete(use: Use, where: str, kind: str, name: str) -> None:
    answer = use.api.call("DELETE", where)
    if answer is None:
        # The API answers nothing where there is nothing to delete; so does this, for programs.
        if not use.json:
            click.echo(f"There is no {kind} {name!r}; nothing is done.")
        return
    use.say(answer, f"The {kind} {name!r} is being dropped.")
    use.finish(answer, "dropped, or to be dropped when the compute has started next")


@click.group("roles", short_help="Show, make and delete roles; passwords.")
def roles() -> None:
    """Show and change the roles of a branch; of the project's default branch unless --branch names one.

    \b
      weir roles list --project shop
      weir roles create reporter --branch dev
      weir roles reset-password reporter --branch dev
    """


@roles.command("list")
@branch_option
@resource()
def list_roles(use: Use, branch: str | None) -> None:
    """List the roles of a branch. Passwords are not shown."""
    found = use.api.call("GET", _of(use.branch(branch), "roles"))
    columns = [
        ("NAME", lambda row: row["name"]),
        ("CREATED", lambda row: moment(row["created_at"])),
    ]
    use.say(found, listed(columns, found["roles"], "No role. `weir roles create NAME` makes one."))


@roles.command("create")
@click.argument("name")
@branch_option
@resource(waits=True)
def create_role(use: Use, name: str, branch: str | None) -> None:
    """Make a role. Its password is made for it: `weir roles password NAME` shows it."""
    answer = use.api.call("POST", _of(use.branch(branch), "roles"), {"role": {"name": name}})
    use.say(answer, fields([("Role", answer["role"]["name"]), ("Branch", answer["role"]["branch_id"])]))
    use.finish(answer, f"made; `weir roles password {name}` shows its password")


@roles.command("password")
@click.argument("name")
@branch_option
@resource()
def password(use: Use, name: str, branch: str | None) -> None:
    """Print a role's password, and nothing else."""
    found = use.api.call("GET", _of(use.branch(branch), "roles", name, "reveal_password"))
    use.say(found, found["password"])


@roles.command("reset-password")
@click.argument("name")
@branch_option
@resource(waits=True)
def reset_password(use: Use, name: str, branch: str | None) -> None:
    """Give a role a new password, and print it. Open sessions go on; the old password ends."""
    answer = use.api.call("POST", _of(use.branch(branch), "roles", name, "reset_password"))
    use.say(answer, answer["role"]["password"])
    use.finish(answer, "in force")


@roles.command("delete")
@click.argument("name")
@branch_option
@yes_option
@resource(waits=True)
def delete_role(use: Use, name: str, branch: str | None, *, yes: bool) -> None:
    """Drop a role. What it owns in a database goes to the database's owner; an owner of databases is refused."""
    row = use.branch(branch)
    confirm(f"Role {name!r} of branch {row['name']!r} ({row['id']}) goes. Drop it?", yes=yes)
    _delete(use, _of(row, "roles", name), "role", name)
