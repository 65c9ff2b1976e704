"""`weir orgs`, `weir members`, `weir invitations` and `weir api-keys`."""

from datetime import UTC, datetime, timedelta
from typing import Any

import click

from weir.cli.errors import CliError
from weir.cli.resources import names
from weir.cli.resources.api import path
from weir.cli.resources.moments import SPAN
from weir.cli.resources.show import fields, listed, moment
from weir.cli.resources.use import Use, confirm, resource, yes_option

ROLES = click.Choice(["viewer", "member", "admin", "owner"])
_ORGANIZATIONS = [
    ("NAME", lambda row: row["name"]),
    ("ID", lambda row: row["id"]),
    ("SINCE", lambda row: moment(row["created_at"])),
]
_MEMBERS = [
    ("EMAIL", lambda row: row["user"]["email"]),
    ("NAME", lambda row: row["user"]["name"]),
    ("ROLE", lambda row: row["member"]["role"]),
    ("SECOND FACTOR", lambda row: row["user"]["has_mfa"]),
    ("SINCE", lambda row: moment(row["member"]["joined_at"])),
]
_INVITATIONS = [
    ("EMAIL", lambda row: row["email"]),
    ("ROLE", lambda row: row["role"]),
    ("SINCE", lambda row: moment(row["invited_at"])),
    ("UNTIL", lambda row: moment(row["expires_at"])),
]
_KEYS = [
    ("ID", lambda row: row["id"]),
    ("NAME", lambda row: row["name"]),
    ("MAY", lambda row: "read" if row["read_only"] else row["role"]),
    ("IN", lambda row: row.get("project_id", "all projects")),
    ("UNTIL", lambda row: moment(row["expires_at"])),
    ("MADE BY", lambda row: row["created_by"]["name"]),
    ("LAST USED", lambda row: moment(row["last_used_at"])),
]
organization_option = click.option(
    "--org", "organization", metavar="ORG", help="The organization's id or name [default: the only one there is]"
)


@click.group("orgs", short_help="Show organizations.")
def organizations() -> None:
    """Show the organizations that the API key is of. An organization owns projects, and people are its members."""


@organizations.command("list")
@resource(project=False)
def list_organizations(use: Use) -> None:
    """List your organizations."""
    found = use.api.call("GET", "/users/me/organizations")
    use.say(found, listed(_ORGANIZATIONS, found["organizations"], "No organization."))


@click.group("members", short_help="Show and change who is in an organization.")
def members() -> None:
    """Show and change the members of an organization.

    \b
      weir members list
      weir members add name@example.org --role viewer
      weir members set-role name@example.org admin
      weir members remove name@example.org

    A viewer reads all but passwords; a member works with projects; an admin decides on projects, rollouts, members
    and keys; an owner makes owners. `weir-admin user create` makes a person, on the installation's machine.
    """


def _organization(use: Use, word: str | None) -> str:
    """Its id."""
    rows = use.api.call("GET", "/users/me/organizations")["organizations"]
    if word is None and len(rows) == 1:
        return str(rows[0]["id"])
    look = "`weir orgs list` shows yours; name one by --org."
    return str(names.one("organization", word or "", rows, lambda row: str(row["name"]), look)["id"])


def _member(use: Use, organization: str | None, email: str) -> tuple[str, dict[str, Any]]:
    """The path of the one with this email, and the row."""
    where = path("organizations", _organization(use, organization), "members")
    for row in use.api.call("GET", where)["members"]:
        if row["user"]["email"] == email.lower():
            return where + path(row["member"]["id"]), row
    raise CliError(f"{email} is no member. `weir members list` shows who is.")


@members.command("list")
@organization_option
@resource(project=False)
def list_members(use: Use, organization: str | None) -> None:
    """List the members of an organization."""
    found = use.api.call("GET", path("organizations", _organization(use, organization), "members"))
    use.say(found, listed(_MEMBERS, found["members"], "No member: API keys alone open it."))


@members.command("add")
@click.argument("email")
@click.option("--role", type=ROLES, default="member", show_default=True)
@organization_option
@resource(project=False)
def add_member(use: Use, email: str, role: str, organization: str | None) -> None:
    """Make a person whom Weir knows a member."""
    where = path("organizations", _organization(use, organization), "members")
    made = use.api.call("POST", where, {"email": email, "role": role})
    use.say(made, listed(_MEMBERS, [made], ""))


@members.command("set-role")
@click.argument("email")
@click.argument("role", type=ROLES)
@organization_option
@resource(project=False)
def set_role(use: Use, email: str, role: str, organization: str | None) -> None:
    """Change what a member may do. It holds for their next request, and for API keys that they have made."""
    where, _ = _member(use, organization, email)
    changed = use.api.call("PATCH", where, {"role": role})
    use.say(changed, f"{email} is {changed['role']}.")


@members.command("remove")
@click.argument("email")
@organization_option
@yes_option
@resource(project=False)
def remove_member(use: Use, email: str, organization: str | None, yes: bool) -> None:
    """Take a member out. Their sessions reach the organization no more, and API keys that they made are revoked."""
    where, row = _member(use, organization, email)
    confirm(f"Take {email} ({row['member']['role']}) out, and revoke the API keys that they made?", yes=yes)
    removed = use.api.call("DELETE", where)
    use.say(removed, f"{email} is out.")


@click.group("invitations", short_help="Show, make and revoke invitations.")
def invitations() -> None:
    """Invite people to an organization, by email.

    \b
      weir invitations create name@example.org --role viewer
      weir invitations list
      weir invitations revoke name@example.org

    Weir sends no mail: hand on the link that `create` prints. It counts once, for 7 days. Whoever opens it signs in
    with that email, or makes an account for it.
    """


@invitations.command("list")
@organization_option
@resource(project=False)
def list_invitations(use: Use, organization: str | None) -> None:
    """List the invitations that can still be accepted."""
    found = use.api.call("GET", path("organizations", _organization(use, organization), "invitations"))
    use.say(found, listed(_INVITATIONS, found["invitations"], "No open invitation."))


@invitations.command("create")
@click.argument("email")
@click.option("--role", type=ROLES, default="member", show_default=True)
@organization_option
@resource(project=False)
def create_invitation(use: Use, email: str, role: str, organization: str | None) -> None:
    """Invite somebody and print the link: this is the only time that it is shown. An earlier one of theirs ends."""
    where = path("organizations", _organization(use, organization), "invitations")
    made = use.api.call("POST", where, {"invitations": [{"email": email, "role": role}]})
    (row,) = made["invitations"]
    pairs: list[tuple[str, object]] = [
        ("Link", row["link"]),
        ("For", row["email"]),
        ("Role", row["role"]),
        ("Until", moment(row["expires_at"])),
    ]
    use.say(made, fields(pairs))


@invitations.command("revoke")
@click.argument("email")
@organization_option
@resource(project=False)
def revoke_invitation(use: Use, email: str, organization: str | None) -> None:
    """Take an invitation back. Its link opens nothing any more."""
    where = path("organizations", _organization(use, organization), "invitations")
    for row in use.api.call("GET", where)["invitations"]:
        if row["email"] == email.lower():
            use.say(use.api.call("DELETE", where + path(row["id"])), f"{email} is not invited any more.")
            return
    raise CliError(f"{email} has no open invitation. `weir invitations list` shows those that there are.")


@click.group("api-keys", short_help="Show, make and revoke API keys.")
def api_keys() -> None:
    """Show, make and revoke API keys.

    \b
      weir api-keys create ci --project shop --read-only --expires 30d
      weir api-keys list
      weir api-keys revoke 12

    A key may do what whoever makes it may, or less. One that is made with another key lives no longer than that one.
    """


@api_keys.command("list")
@resource(project=False)
def list_keys(use: Use) -> None:
    """List the organization's keys, or, for who is no admin, their own."""
    found = use.api.call("GET", "/api_keys")
    use.say(found, listed(_KEYS, found, "No key."))


@api_keys.command("create")
@click.argument("name")
@click.option("--project", "only", metavar="PROJECT", help="For this project alone, by id or name.")
@click.option("--read-only", is_flag=True, help="For reading alone; it is shown no password.")
@click.option("--expires", type=SPAN, help="After so long: 12h, 30d [default: never]")
@resource(project=False)
def create_key(use: Use, name: str, only: str | None, read_only: bool, expires: int | None) -> None:
    """Make a key and print it: this is the only time that it is shown."""
    body: dict[str, Any] = {"key_name": name, "read_only": read_only}
    if only is not None:
        body["project_id"] = names.project(use.api, only)["id"]
    if expires is not None:
        body["expires_at"] = (datetime.now(UTC) + timedelta(seconds=expires)).isoformat()
    made = use.api.call("POST", "/api_keys", body)
    pairs: list[tuple[str, object]] = [
        ("Key", made["key"]),
        ("ID", made["id"]),
        ("May", "read" if made["read_only"] else made["role"]),
        ("In", made.get("project_id", "all projects")),
        ("Until", moment(made["expires_at"])),
    ]
    use.say(made, fields(pairs))


@api_keys.command("revoke")
@click.argument("key", type=int)
@resource(project=False)
def revoke_key(use: Use, key: int) -> None:
    """Revoke a key, by its number. Sessions of the console that it opened end with it."""
    revoked = use.api.call("DELETE", path("api_keys", str(key)))
    use.say(revoked, f"Key {key} ({revoked['name']}) opens nothing any more.")
