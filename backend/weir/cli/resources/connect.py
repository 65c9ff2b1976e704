"""`weir connection-string`, `weir ca-certificate` and `weir psql`."""

import os
import shutil
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import click

from weir.cli import installation as installations
from weir.cli.errors import CliError
from weir.cli.output import table
from weir.cli.resources import waiting
from weir.cli.resources.api import path
from weir.cli.resources.target import KEY_VARIABLE
from weir.cli.resources.use import Use, branch_argument, resource

# What libpq reads from the environment that says where, as whom and how to connect. Another one's place or way must
# not meet this one's password.
_PLACES = {
    *("PGHOST", "PGHOSTADDR", "PGPORT", "PGDATABASE", "PGUSER", "PGPASSWORD", "PGPASSFILE", "PGSERVICE"),
    *("PGSERVICEFILE", "PGSSLMODE", "PGREQUIRESSL", "PGSSLNEGOTIATION", "PGCHANNELBINDING", "PGREQUIREAUTH"),
    *("PGTARGETSESSIONATTRS", "PGLOADBALANCEHOSTS"),
}
# Of the URI's parameters, those that have a variable.
_PARAMETERS = {
    "sslmode": "PGSSLMODE",
    "channel_binding": "PGCHANNELBINDING",
    "options": "PGOPTIONS",
    "sslnegotiation": "PGSSLNEGOTIATION",
    "sslrootcert": "PGSSLROOTCERT",
}

_database = click.option("-d", "--database", metavar="NAME", help="[default: the only one the branch has]")
_role = click.option("-r", "--role", metavar="NAME", help="[default: the database's owner]")


def uri_of(
    use: Use, branch: dict[str, Any], database: str | None, role: str | None, *, pooled: bool = False
) -> dict[str, Any]:
    """The API's answer with the URI: of the only database and its owner, unless they are named."""
    if database is None or role is None:
        rows = use.api.call("GET", path("projects", branch["project_id"], "branches", branch["id"], "databases"))
        found = rows["databases"]
        if database is not None:
            found = [row for row in found if row["name"] == database]
        if not found:
            raise CliError(
                f"Branch {branch['name']!r} has no database{'' if database is None else f' {database!r}'}; "
                f"`weir databases list --branch {branch['id']}` shows what it has."
            )
        if len(found) > 1:
            listed = table(("  DATABASE", "OWNER"), [(f"  {row['name']}", row["owner_name"]) for row in found])
            raise CliError(f"Branch {branch['name']!r} has several databases; say which by --database:\n{listed}")
        database, role = found[0]["name"], role or found[0]["owner_name"]
    asked = {"branch_id": branch["id"], "database_name": database, "role_name": role}
    return use.api.call(
        "GET",
        path("projects", branch["project_id"], "connection_uri"),
        params=asked | ({"pooled": "true"} if pooled else {}),
    )


@click.command("connection-string", short_help="Print the URI to connect to a branch with.")
@branch_argument
@_database
@_role
@click.option("--pooled", is_flag=True, help="Share server connections with other clients, a transaction at a time.")
@resource()
def connection_string(use: Use, branch: str, database: str | None, role: str | None, *, pooled: bool) -> None:
    """Print the URI to connect to BRANCH with. The password is in it.

    \b
      weir connection-string main --project shop
      DATABASE_URL=$(weir connection-string dev --pooled) ./serve
    """
    found = uri_of(use, use.branch(branch), database, role, pooled=pooled)
    use.say(found, found["uri"])


@click.command("ca-certificate", short_help="Print the certificate by which clients know the server.")
@resource(project=False)
def ca_certificate(use: Use) -> None:
    """Print the certificate of the installation's CA, by which clients know the server that they reach.

    \b
      weir ca-certificate > weir-ca.pem
      psql "$(weir connection-string main)&sslmode=verify-full&sslrootcert=weir-ca.pem"

    The last `sslmode` of a URI counts.
    """
    found = use.api.call("GET", "/certificate_authority")
    use.say(found, found["certificate_authority"]["pem"].rstrip())


@click.command("psql", short_help="Open psql on a branch.")
@branch_argument
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@_database
@_role
@resource()
def psql(use: Use, branch: str, arguments: tuple[str, ...], database: str | None, role: str | None) -> None:
    """Open psql on BRANCH. What follows `--` is psql's own.

    \b
      weir psql main
      weir psql dev --database reports -- -c 'SELECT count(*) FROM orders'
      weir psql main -- -f schema.sql

    A suspended compute is started first. The password goes to psql by its environment, so that no list of processes
    shows it. The exit code is psql's.
    """
    row = use.branch(branch)
    program = _program(use)
    found = uri_of(use, row, database, role)
    _start(use, row)
    os.execve(program, [program, *arguments], environment_of(found["uri"], os.environ))  # noqa: S606  no shell is wanted


def _program(use: Use) -> str:
    """psql of the installation's Postgres, or the one that the PATH has."""
    if installations.exists(use.home):
        own = installations.load(use.home).pg_bin / "psql"
        if own.is_file():
            return str(own)
    found = shutil.which("psql")
    if found is None:
        raise CliError("There is no psql. Install Postgres's client programs, such as the package postgresql-client.")
    return found


def _start(use: Use, branch: dict[str, Any]) -> None:
    """Has the branch's compute run: asking for one that runs changes nothing and waits for nothing."""
    where = path("projects", branch["project_id"], "branches", branch["id"], "endpoints")
    rows = use.api.call("GET", where)["endpoints"]
    resting = [row for row in rows if row["type"] == "read_write" and row["current_state"] != "active"]
    for row in resting:
        use.note(f"compute {row['id']} does not run; starting it")
        answer = use.api.call("POST", path("projects", row["project_id"], "endpoints", row["id"], "start"))
        waiting.finish(use.api, answer["operations"], use.timeout)


def environment_of(uri: str, given: Mapping[str, str]) -> dict[str, str]:
    """What psql is given: the environment without other connections' variables and without the API's key, and the
    URI's parts."""
    parts = urlsplit(uri)
    kept = {name: value for name, value in given.items() if name not in _PLACES | {KEY_VARIABLE}}
    made = {
        "PGHOST": parts.hostname,
        "PGPORT": str(parts.port) if parts.port else None,
        "PGUSER": unquote(parts.username or ""),
        "PGPASSWORD": unquote(parts.password or ""),
        "PGDATABASE": unquote(parts.path.removeprefix("/")),
    }
    for name, value in parse_qsl(parts.query):
        if name in _PARAMETERS:
            made[_PARAMETERS[name]] = value
    return kept | {name: value for name, value in made.items() if value}
