"""`weir usage`, and projects that are offered and taken by commands: the real program, the real API."""

import csv
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import insert
from test_resources import Shell
from weir_testing.fixtures import Weir

from weir.kit.clock import now
from weir.projects.models import Project
from weir.usage.metering import SUMMED, floor
from weir.usage.models import Grain, UsagePeriod


@pytest.fixture
def shell(weir: Weir, tmp_path: Path) -> Shell:
    return Shell(weir, tmp_path)


async def test_usage_is_shown_by_rows_as_csv_and_as_the_api_says_it(shell: Shell) -> None:
    ident = (await shell.weir.project(name="cli-usage"))["project"]["id"]
    at = now() - timedelta(days=3)
    async with shell.weir.resources.database.transaction() as session:
        account = (await session.get_one(Project, ident)).account_id
        row = {"account_id": account, "project_id": ident, "grain": Grain.DAY, "starts_at": floor(at, Grain.DAY)}
        used = dict.fromkeys(SUMMED, 0) | {"active_seconds": 7200.0, "written_bytes": 2_000_000}
        await session.execute(insert(UsagePeriod).values(**row, **used))
    said = (await shell.run("usage", "-p", "cli-usage")).out
    line = next(line for line in said.splitlines() if line.startswith(f"{at:%Y-%m-%d}"))
    assert "2.0 MB" in line
    assert "STORAGE HOURS" in said.splitlines()[0]
    lines = list(csv.DictReader((await shell.run("usage", "-p", ident, "--csv")).out.splitlines()))
    (found,) = [row for row in lines if row["timeframe_start"].startswith(f"{at:%Y-%m-%d}")]
    assert (found["active_time_seconds"], found["written_data_bytes"]) == ("7200", "2000000")
    later = (await shell.run("usage", "-p", ident, "--since", "1d", "--csv")).out
    assert f"{at:%Y-%m-%d}T" not in later
    whole = (await shell.run("usage", "--by", "month", "-o", "json")).json
    assert sum(row["active_time_seconds"] for period in whole["periods"] for row in period["consumption"]) >= 7200
    refused = await shell.run("usage", "--by", "hour", "--since", "60d", code=1)
    assert "kept for 31 days" in refused.err


async def test_a_project_is_offered_taken_and_offered_no_more(shell: Shell) -> None:
    ident = (await shell.weir.project(name="cli-offered"))["project"]["id"]
    async with shell.weir.as_account("cli-taker") as taker:
        key = {"WEIR_API_KEY": taker.api_key}
        withdrawn = (await shell.run("projects", "offer", ident, "--for", "2h", "-o", "json")).json
        await shell.run("projects", "offer", ident, "--end")
        refused = await shell.run("projects", "accept", ident, withdrawn["id"], code=1, **key)
        assert "was not offered" in refused.err
        words = (await shell.run("projects", "offer", ident)).out.split("weir projects accept ")[1].split()
        assert words[0] == ident
        await shell.run("projects", "accept", *words, **key)
        assert (await shell.run("projects", "show", ident, **key)).out
        await shell.run("projects", "show", ident, code=1)
        await taker.delete(ident)
