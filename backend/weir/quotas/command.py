"""`weir-admin quotas`: its words, and what it prints."""

import argparse
from collections.abc import Sequence

from weir.config import get_settings
from weir.db import Database
from weir.quotas import setting
from weir.quotas.names import NONE, QuotaName

_HEAD = ("QUOTA", "OF EACH", "LIMIT", "USED", "FROM")


def add_arguments(quotas: argparse.ArgumentParser) -> None:
    verbs = quotas.add_subparsers(dest="verb", required=True)
    show = verbs.add_parser("show", help="print all quotas of an account or a project, and what is used")
    change = verbs.add_parser("set", help="set one quota; it holds from the next creation on")
    for parser in (show, change):
        whose = parser.add_mutually_exclusive_group(required=True)
        whose.add_argument("--account", metavar="NAME", help="an account's name")
        whose.add_argument("--project", metavar="ID", help="a project's id")
    change.add_argument("name", metavar="QUOTA", help=", ".join(QuotaName))
    change.add_argument("value", metavar="VALUE", help=f"a number, {NONE!r} for no limit, or {setting.DEFAULT!r}")


async def run(arguments: argparse.Namespace) -> str:
    """Raises WeirError when what was asked for cannot be."""
    account, project = arguments.account, arguments.project
    database = Database(get_settings())
    try:
        async with database.transaction() as session:
            if arguments.verb == "set":
                return await setting.change(session, account, project, arguments.name, arguments.value)
            return _table(await setting.listed(session, account, project))
    finally:
        await database.close()


def _table(rows: Sequence[setting.Row]) -> str:
    lines = [
        _HEAD,
        *(
            (
                row.name.value,
                row.per.value,
                NONE if row.limit is None else str(row.limit),
                "-" if row.used is None else str(row.used),
                "set" if row.own else "default",
            )
            for row in rows
        ),
    ]
    widths = [max(len(line[column]) for line in lines) for column in range(len(_HEAD))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )
