"""What the commands for resources promise about keys, connections, moments and waiting."""

from pathlib import Path
from typing import Any

import click
import httpx
import pytest

from weir.cli import installation as installations
from weir.cli.errors import CliError
from weir.cli.resources import names, show, waiting
from weir.cli.resources.api import Api, path
from weir.cli.resources.connect import environment_of
from weir.cli.resources.failures import OperationError, StillRunningError
from weir.cli.resources.moments import AHEAD, BACK, seconds_of
from weir.cli.resources.target import connect


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installation with a key."""
    for name in ("WEIR_API_KEY", "WEIR_API_URL", "WEIR_PORT_API"):
        monkeypatch.delenv(name, raising=False)
    made = installations.create(tmp_path / "home", 17400)
    made.api_key_file.write_text("the-installations-key\n")
    return made.home


def _key(api: Any) -> str:
    return api._client.headers["authorization"].split()[1]


def test_the_installations_key_goes_to_its_own_address_only(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _key(connect(home, None, None)) == "the-installations-key"
    assert _key(connect(home, "http://127.0.0.1:17400/api/v2/", None)) == "the-installations-key"
    for elsewhere in ("http://127.0.0.1:17401", "https://weir.example", "http://127.0.0.1:17400.example"):
        with pytest.raises(CliError, match=r"is no address|no key"):
            connect(home, elsewhere, None)
    monkeypatch.setenv("WEIR_API_KEY", "another")
    assert _key(connect(home, "https://weir.example", None)) == "another"
    file = home / "key"
    file.write_text("of-a-file\n")
    assert _key(connect(home, "https://weir.example", file)) == "of-a-file"


@pytest.mark.parametrize("text", ["", "  \n", "two words", "schlüssel", "a\nb"])
def test_what_is_no_key_is_refused_without_showing_it(home: Path, text: str) -> None:
    file = home / "key"
    file.write_text(text)
    with pytest.raises(CliError, match="no API key") as error:
        connect(home, None, file)
    assert not text.strip() or text.strip() not in str(error.value)


@pytest.mark.parametrize(
    "url", ["weir.example", "ftp://weir.example", "https://", "https://user:pw@host", "http://h:x"]
)
def test_what_is_no_address_is_refused(home: Path, url: str) -> None:
    with pytest.raises(CliError) as error:
        connect(home, url, None)
    assert "pw" not in str(error.value)


def test_a_key_that_goes_unencrypted_to_another_machine_is_warned_of(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WEIR_API_KEY", "k")
    connect(home, "http://weir.example", None)
    assert "not encrypted" in capsys.readouterr().err
    connect(home, None, None)
    assert capsys.readouterr().err == ""


def test_psql_gets_this_connection_and_nothing_of_another() -> None:
    given = {
        "PATH": "/bin",
        "PGHOSTADDR": "192.0.2.7",
        "PGSERVICE": "elsewhere",
        "PGPASSFILE": "/x",
        "PGSSLMODE": "disable",
        "PGOPTIONS": "-c work_mem=1MB",
        "WEIR_API_KEY": "k",
    }
    made = environment_of("postgresql://o%40p:p%2Fw%20@127.0.0.1:7700/d%20b?sslmode=require", given)
    assert made == {
        "PATH": "/bin",
        "PGOPTIONS": "-c work_mem=1MB",
        "PGHOST": "127.0.0.1",
        "PGPORT": "7700",
        "PGUSER": "o@p",
        "PGPASSWORD": "p/w ",
        "PGDATABASE": "d b",
        "PGSSLMODE": "require",
    }


def test_moments_say_their_zone_or_how_long_ago() -> None:
    assert BACK.convert("2026-05-04T14:30:00+02:00", None, None) == "2026-05-04T12:30:00Z"
    assert BACK.convert("10m", None, None) < AHEAD.convert("10m", None, None)
    assert [seconds_of(word) for word in ("90s", "2h", "7d", "1w", "7", "d", "-1d")] == [
        90, 7200, 604800, 604800, None, None, None,
    ]  # fmt: skip
    for word in ("2026-05-04T14:30:00", "yesterday", "999999999w"):
        with pytest.raises(click.BadParameter):
            BACK.convert(word, None, None)


def test_an_id_wins_over_a_name_and_a_name_of_two_over_nothing() -> None:
    rows = [{"id": "br-a", "name": "dev"}, {"id": "br-b", "name": "br-a"}, {"id": "br-c", "name": "dev"}]

    def said(row: dict[str, Any]) -> str:
        return str(row["name"])

    assert names.one("branch", "br-a", rows, said, "")["id"] == "br-a"
    with pytest.raises(CliError, match="2 things") as error:
        names.one("branch", "dev", rows, said, "")
    assert "br-a" in str(error.value)
    assert "br-c" in str(error.value)
    with pytest.raises(CliError, match=r"no branch .x.\. Look there"):
        names.one("branch", "x", rows, said, "Look there.")


def test_names_stay_one_part_of_a_path_and_cannot_act_on_a_terminal() -> None:
    assert path("roles", "a/b ?#") == "/roles/a%2Fb%20%3F%23"
    assert click.unstyle(show.text("a\x1b[2Jb\nc")) == "a\\x1b[2Jb\\nc"


def test_a_request_too_many_is_repeated_when_the_api_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """And not for longer than a minute in all."""
    busy = {"code": "RATE_LIMITED", "message": "too many", "request_id": "x"}
    answers = [httpx.Response(429, json=busy, headers={"Retry-After": "7"}), httpx.Response(200, json={"done": True})]
    slept: list[float] = []
    monkeypatch.setattr("weir.cli.resources.api.time.sleep", slept.append)
    api = Api("http://127.0.0.1:1", "key")
    api._client = httpx.Client(
        base_url="http://127.0.0.1:1", transport=httpx.MockTransport(lambda request: answers.pop(0))
    )
    assert api.call("POST", "/projects", {"project": {}}) == {"done": True}
    assert slept == [7.0]
    answers.append(httpx.Response(429, json=busy, headers={"Retry-After": "61"}))
    with pytest.raises(CliError, match="too many"):
        api.call("GET", "/projects")
    assert slept == [7.0]


class _Operations:
    """The API as far as waiting asks it: an operation's statuses, one after the other."""

    def __init__(self, *statuses: str, **fields: Any) -> None:
        self.left, self.fields = list(statuses), fields

    def call(self, _: str, where: str) -> Any:
        assert where == "/projects/p/operations/o"
        status = self.left.pop(0) if len(self.left) > 1 else self.left[0]
        row = {"id": "o", "project_id": "p", "action": "start_compute", "endpoint_id": "ep-a", "status": status}
        return {"operation": row | self.fields}


_ASKED = [{"id": "o", "project_id": "p"}]


def test_waiting_ends_with_the_operation_and_tells_how(capsys: pytest.CaptureFixture[str]) -> None:
    done: Any = _Operations("scheduling", "running", "finished", warning="not all of it")
    assert waiting.finish(done, _ASKED, 10) < 2
    assert capsys.readouterr().err == "  start_compute of ep-a warns: not all of it\n"
    failed: Any = _Operations("running", "failed", error="no disk")
    with pytest.raises(OperationError, match="start_compute of ep-a: no disk"):
        waiting.finish(failed, _ASKED, 10)
    stuck: Any = _Operations("running")
    with pytest.raises(StillRunningError, match="weir operations wait o"):
        waiting.finish(stuck, _ASKED, 0.3)
    assert capsys.readouterr().err == ""


def test_what_lasts_longer_than_two_seconds_is_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "QUIET_SECONDS", 0.0)
    slow: Any = _Operations("scheduling", "scheduling", "running", "finished")
    waiting.finish(slow, _ASKED, 10)
    said = [line.partition(" (")[0] for line in capsys.readouterr().err.splitlines()]
    assert said == ["  start_compute of ep-a: scheduling", "  start_compute of ep-a: running"]
