"""`weir usage`."""

import csv
import io
from datetime import UTC, datetime, timedelta
from typing import Any

import click

from weir.cli.resources.moments import BACK, written
from weir.cli.resources.show import length, listed, moment, size
from weir.cli.resources.use import Use, resource

_GRANULARITY = {"hour": "hourly", "day": "daily", "month": "monthly"}
_USUAL_DAYS = {"hour": 1, "day": 30, "month": 364}
_COLUMNS = [
    ("FROM", lambda row: moment(row["timeframe_start"])),
    ("ACTIVE", lambda row: length(row["active_time_seconds"])),
    ("COMPUTE", lambda row: length(row["compute_time_seconds"])),
    ("PROCESSORS", lambda row: length(row["cpu_time_seconds"])),
    ("WAL", lambda row: size(row["written_data_bytes"])),
    ("STORAGE HOURS", lambda row: size(row["data_storage_bytes_hour"])),
    ("HELD", lambda row: size(row["synthetic_storage_size_bytes"])),
]


@click.command(short_help="Show what computes, writes and storage were used.")
@click.option(
    "--by", type=click.Choice(list(_GRANULARITY)), default="day", show_default=True, help="How long each row is."
)
@click.option(
    "--since", type=BACK, metavar="MOMENT", help="From when on: 12h, 7d [default: a day, 30 days or 12 months ago]"
)
@click.option("--csv", "as_csv", is_flag=True, help="As CSV, in seconds and bytes.")
@resource()
def usage(use: Use, by: str, since: str | None, *, as_csv: bool) -> None:
    """Show what your organization used, or a project of it, by hours, days or months (UTC).

    \b
      weir usage
      weir usage --project shop --by hour --since 2d
      weir usage --by month --csv > usage.csv

    COMPUTE is the time that computes ran, each second counted with the compute's size; PROCESSORS is the time that
    they kept processors busy. STORAGE HOURS are bytes times the hours that they were held. Rows in which nothing was
    measured are left out; it is measured about each minute.
    """
    at = datetime.now(UTC)
    params: dict[str, Any] = {
        "granularity": _GRANULARITY[by],
        "from": since or written(at - timedelta(days=_USUAL_DAYS[by])),
        # Rounded down to a row's begin: so the row of now is among them.
        "to": written(at + timedelta(days=31 if by == "month" else 1)),
    }
    if use.project_word:
        asked = {**params, "project_ids": use.project()["id"]}
        found = use.api.call("GET", "/consumption_history/projects", params=asked)
        periods = [period for project in found["projects"] for period in project["periods"]]
    else:
        found = use.api.call("GET", "/consumption_history/account", params=params)
        periods = found["periods"]
    rows = [row for period in periods for row in period["consumption"]]
    use.say(found, _csv(rows) if as_csv else listed(_COLUMNS, rows, "Nothing was used in that time."))


def _csv(rows: list[dict[str, Any]]) -> str:
    text = io.StringIO()
    names = list(rows[0]) if rows else ["timeframe_start", "timeframe_end"]
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().rstrip("\n")
