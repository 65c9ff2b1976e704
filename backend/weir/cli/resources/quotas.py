"""`weir quotas`."""

from typing import Any

import click

from weir.cli.resources.api import path
from weir.cli.resources.show import listed, moment, size
from weir.cli.resources.use import Use, resource

_BYTES = "storage_bytes"


@click.command(short_help="Show how much you may have, and have.")
@resource()
def quotas(use: Use) -> None:
    """Show the quotas of your account, or of a project, beside what is used of them.

    \b
      weir quotas
      weir quotas --project shop

    OF EACH says of what the limit is: of the account as a whole, or of each project or branch; then USED is how much
    the fullest of them has. The installation's operator sets quotas by `weir-admin quotas set`.
    """
    where = path("projects", use.project()["id"], "quotas") if use.project_word else "/quotas"
    found = use.api.call("GET", where)
    columns = [
        ("QUOTA", lambda row: row["name"]),
        ("OF EACH", lambda row: row["per"]),
        ("USED", lambda row: _amount(row, row["used"])),
        ("LIMIT", lambda row: "none" if row["limit"] is None else _amount(row, row["limit"])),
        ("FULLEST", lambda row: row["fullest"]),
        ("MEASURED", lambda row: moment(row["measured_at"])),
    ]
    use.say(found, listed(columns, found["quotas"], "There is no quota."))


def _amount(row: dict[str, Any], amount: int | None) -> object:
    return size(amount) if row["name"] == _BYTES else amount
