"""`weir safekeepers`: who holds the branches' logs, and changing that, by the API of a running Weir."""

import asyncio
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import httpx

from weir.cli import installation as installations
from weir.cli.errors import CliError
from weir.cli.installation import Installation
from weir.cli.log import branches_called
from weir.cli.output import note, table

_ANSWER_SECONDS = 60
_POLL_SECONDS = 0.5
_OPEN = {"scheduling", "running", "cancelling"}
_COLOURS = {
    "active": "green",
    "stopped": "red",
    "lost": "red",
    "unreachable": "yellow",
    "diverged": "red",
    "damaged": "red",
}


class _Api:
    """The installation's API with its own key."""

    def __init__(self, installation: Installation) -> None:
        try:
            self._key = installation.api_key_file.read_text().strip()
        except OSError as error:
            raise CliError(f"{installation.api_key_file} cannot be read: {error.strerror}.") from None
        self._url = f"{installation.api_url}/api/v2"

    def call(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        try:
            answer = httpx.request(
                method,
                self._url + path,
                json=body,
                headers={"Authorization": f"Bearer {self._key}"},
                timeout=_ANSWER_SECONDS,
            )
        except httpx.HTTPError as error:
            raise CliError(f"The API at {self._url} does not answer: {error}. `weir status` says more.") from None
        if answer.is_error:
            raise CliError(_message(answer))
        return answer.json()


def _message(answer: httpx.Response) -> str:
    try:
        return str(answer.json()["message"])
    except (ValueError, KeyError, TypeError):
        return f"{answer.request.url} answered {answer.status_code}: {answer.text[:200]}"


def listing(home: Path, *, as_json: bool) -> None:
    storage = _Api(installations.load(home)).call("GET", "/fleet/storage")
    if as_json:
        click.echo(json.dumps(storage["safekeepers"], indent=2))
        return
    rows = [
        [
            str(keeper["id"]),
            keeper["address"],
            click.style("healthy", fg="green") if keeper["healthy"] else click.style("unhealthy", fg="red"),
            str(keeper["branches"]),
            str(keeper["lost_timelines"]),
            str(keeper["replacing"]),
            _health(keeper),
        ]
        for keeper in storage["safekeepers"]
    ]
    click.echo(table(("SAFEKEEPER", "ADDRESS", "HEALTH", "BRANCHES", "LOST", "CHANGING", ""), rows))


def _health(keeper: dict[str, Any]) -> str:
    """What is wrong, how often and since when; of what it has lost, the API says what to do."""
    said = [
        f"{sick['kind']} in {sick['branches']} since {sick['since'][:19]}"
        + ("" if sick["kind"] in {"lost", "unreachable"} else f": {sick['reason']}")
        for sick in keeper["sick"]
    ]
    if keeper["reason"]:
        said.append(keeper["reason"])
    return "; ".join(said) or ("a spare" if keeper["branches"] == 0 else "")


def show(home: Path, branch: str, *, as_json: bool) -> None:
    installation = installations.load(home)
    found = _Api(installation).call("GET", _path_of(installation, branch))
    click.echo(json.dumps(found, indent=2) if as_json else _described(found))


def change(home: Path, branch: str, wanted: list[int], *, wait: bool) -> None:
    installation = installations.load(home)
    api, path = _Api(installation), _path_of(installation, branch)
    answer = api.call("POST", path, {"safekeepers": wanted})
    if not answer["operations"]:
        note("its safekeepers are these already")
        return
    said: set[str] = set()

    def progress() -> None:
        for row in api.call("GET", path)["members"]:
            line = f"safekeeper {row['safekeeper_id']}: {row['role']}, {row['state']}"
            if line not in said:
                said.add(line)
                note(line)

    if wait:
        _wait(api, answer["operations"], progress)
        click.echo(_described(api.call("GET", path)))
    else:
        note(
            f"operation {answer['operations'][0]['id']} does it; `weir safekeepers show {branch}` says how far it is"
        )


def replace(home: Path, number: int, by: int, *, wait: bool) -> int:
    """The command's exit code: 1 when a branch still has the safekeeper, or still lacks its log."""
    api = _Api(installations.load(home))
    queued: list[dict[str, Any]] = []
    left: list[dict[str, Any]] = []
    after: str | None = None
    while True:
        answer = api.call("POST", f"/fleet/storage/safekeepers/{number}/replace", {"with": by, "after": after})
        queued += answer["operations"]
        left += answer["not_queued"]
        after = answer["next"]
        if after is None:
            break
    note(f"{len(queued)} branch(es) are to have safekeeper {by} in place of {number}")
    if left:
        rows = [(row["branch_id"], row["project_id"], row["reason"]) for row in left]
        click.echo(table(("LEFT AS IT IS", "PROJECT", "WHY"), rows))
    if not wait:
        return 1 if left else 0
    what = "lost_timelines" if by == number else "branches"
    remaining = _wait_until_none_changes(api, number, what)
    if remaining:
        note(f"{remaining} branch(es) are not as wanted; ask again")
    return 1 if remaining or left else 0


def _wait_until_none_changes(api: _Api, number: int, what: str) -> int:
    """The projects may be others', whose operations are not shown; the counts of the safekeeper are. Gives its last
    one."""
    said: tuple[int, int] | None = None
    while True:
        keepers = {keeper["id"]: keeper for keeper in api.call("GET", "/fleet/storage")["safekeepers"]}
        changing, left = max(keeper["replacing"] for keeper in keepers.values()), keepers[number][what]
        if said != (changing, left):
            said = (changing, left)
            note(f"{left} to go, {changing} being changed")
        if changing == 0:
            return left
        time.sleep(_POLL_SECONDS)


def _wait(api: _Api, operations: list[dict[str, Any]], progress: Callable[[], None]) -> None:
    """Until all have ended. Raises CliError with the reasons of those that failed. An interrupt ends the waiting
    alone."""
    waiting = {row["id"]: row["project_id"] for row in operations}
    failed: list[str] = []
    while waiting:
        for ident, project in list(waiting.items()):
            row = api.call("GET", f"/projects/{project}/operations/{ident}")["operation"]
            if row["status"] in _OPEN:
                continue
            del waiting[ident]
            if row["status"] != "finished" or row["warning"]:
                reason = row["error"] or row["warning"] or row["status"]
                failed.append(f"branch {row['branch_id']}: {reason}")
        progress()
        if waiting:
            time.sleep(_POLL_SECONDS)
    if failed:
        raise CliError("Not all is as wanted; asking again goes on from where it is:\n  " + "\n  ".join(failed))


def _described(found: dict[str, Any]) -> str:
    rows = [
        [
            str(row["safekeeper_id"]),
            row["role"],
            click.style(row["state"], fg=_COLOURS.get(row["state"])),
            row["flush_lsn"] or "-",
            "-" if row["lag_bytes"] is None else str(row["lag_bytes"]),
            (row["since"] or "-")[:19],
            (row["disk"] or "-")[:8],
            (row["reason"] or "") + (f" (since {row['sick_since'][:19]})" if row["sick_since"] else ""),
        ]
        for row in found["members"]
    ]
    lines = [table(("SAFEKEEPER", "ROLE", "STATE", "LOG UP TO", "LAG", "SINCE", "DISK", ""), rows)]
    if found["generation"] is not None:
        lines.append(f"Generation {found['generation']}. Spares: {_named(found['available'])}.")
    if found["reason"]:
        lines.append(f"This may not be the newest: {found['reason']}.")
    if found["operation_id"]:
        lines.append(f"Being changed to {_named(found['wanted'])} by operation {found['operation_id']}.")
    elif found["wanted"]:
        lines.append(f"The last change, to {_named(found['wanted'])}, did not come to its end; ask for it again.")
    return "\n".join(lines)


def _named(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers)) or "none"


def _path_of(installation: Installation, branch: str) -> str:
    """The API's path of a branch given by its id or name."""
    from weir.config import get_settings  # noqa: PLC0415  no other command of this file needs the database

    os.environ.update(installation.environment())
    try:
        found = asyncio.run(branches_called(get_settings(), branch))
    except OSError as error:
        raise CliError(f"The metadata database can't be asked for {branch!r}: {error}.") from None
    if not found:
        raise CliError(f"There is no branch {branch!r}.")
    if len(found) > 1:
        rows = "\n".join(f"  {ident}  of project {project}" for ident, project, _ in found)
        raise CliError(f"Several branches are called {branch!r}; give one's id:\n{rows}")
    ident, project, _ = found[0]
    return f"/projects/{project}/branches/{ident}/safekeepers"
