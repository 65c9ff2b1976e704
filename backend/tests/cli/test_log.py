"""What `weir log` promises where it finds nothing to look at, and which branch a name means. Looking itself is tested
on real directories in storage/system/test_log_tool.py."""

import os
from pathlib import Path

import pytest
from click.testing import CliRunner
from weir_testing.fixtures import Weir

from weir.cli import installation as installations
from weir.cli.log import branches_called
from weir.cli.main import cli

TIMELINE = "8f14e45fceea167a5a36dedd4bea2543"


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place for an installation that no other test's settings reach."""
    for name in [name for name in os.environ if name.startswith("WEIR_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("WEIR_BIN_DIR", str(tmp_path / "bin"))
    return tmp_path / "home"


def test_that_nothing_could_be_looked_at_is_no_finding(alone: Path):
    runner = CliRunner()
    for words in (["show", TIMELINE], ["verify", TIMELINE], ["list"]):
        answer = runner.invoke(cli, ["--home", str(alone), "log", *words])
        assert answer.exit_code == 2, words
        assert "weir-log verify --timeline ID DIRECTORY" in answer.output
    installations.create(alone, 17400)
    answer = runner.invoke(cli, ["--home", str(alone), "log", "show", TIMELINE])
    assert answer.exit_code == 2
    assert "weir-log is missing; `make setup` builds it" in answer.output


def test_help_shows_how(alone: Path):
    runner = CliRunner()
    top = runner.invoke(cli, ["log", "--help"])
    assert "weir log verify 8f14e45f" in top.output
    for command in ("list", "show", "verify"):
        assert runner.invoke(cli, ["log", command, "--help"]).exit_code == 0


async def test_a_branch_is_known_by_its_name_and_by_its_id(weir: Weir):
    made = [await weir.project(name=f"logs-{number}") for number in (1, 2)]
    first, second = (project["branch"] for project in made)
    (found,) = await branches_called(weir.settings, first["id"])
    assert found == (first["id"], made[0]["project"]["id"], first["timeline_id"])
    called = await branches_called(weir.settings, first["name"])
    assert {first["timeline_id"], second["timeline_id"]} <= {timeline for _, _, timeline in called}
    assert await branches_called(weir.settings, "br-nobody-has-made-00000000") == []


async def test_a_database_that_is_away_is_said_to_be(weir: Weir):
    away = weir.settings.model_copy(update={"database_url": "postgresql+psycopg://weir@127.0.0.1:9/weir"})
    with pytest.raises(OSError, match="refused"):
        await branches_called(away, "main")
