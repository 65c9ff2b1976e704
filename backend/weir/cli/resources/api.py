"""Calls of the API: one at a time, and lists to their end."""

import time
from typing import Any
from urllib.parse import quote

import click
import httpx

from weir.cli.errors import CliError
from weir.cli.resources.failures import AwayError

ANSWER_SECONDS = 60
PAGE = 400
# How long a request is repeated while another operation holds the project (423), and how often; and as long while the
# key has made too many (429), as often as the answer says.
BUSY_SECONDS = 60
BUSY_PAUSE_SECONDS = 0.5
_REPEATED = {423, 429}


class NotThereError(CliError):
    """The API says that there is no such thing."""


def path(*parts: str) -> str:
    """A path of the API; a name with a slash or a space stays one part of it."""
    return "".join(f"/{quote(part, safe='')}" for part in parts)


class Api:
    """One Weir's API with the key of one account. The key is in no text that this class makes."""

    def __init__(self, address: str, key: str, *, seconds: float = ANSWER_SECONDS, local: bool = False) -> None:
        """`local`: the address is this machine's, and a proxy in the environment is not for it."""
        self.address = address
        self._client = httpx.Client(
            base_url=f"{address}/api/v2",
            headers={"Authorization": f"Bearer {key}"},
            timeout=seconds,
            trust_env=not local,
        )

    def call(
        self, method: str, where: str, body: dict[str, Any] | None = None, params: dict[str, Any] | None = None
    ) -> Any:
        """What the API answers; None where it answers nothing. While another operation holds the project, or the key
        has made too many requests, the request is repeated: such a request has done nothing."""
        deadline = time.monotonic() + BUSY_SECONDS
        said = False
        while True:
            answer = self._send(method, where, body, params)
            pause = _pause(answer)
            if answer.status_code not in _REPEATED or time.monotonic() + pause >= deadline:
                return self._read(answer)
            if not said:
                click.echo(f"  {_message(answer)}; trying again for {BUSY_SECONDS} s", err=True)
                said = True
            time.sleep(pause)

    def _send(
        self, method: str, where: str, body: dict[str, Any] | None, params: dict[str, Any] | None
    ) -> httpx.Response:
        given = {name: value for name, value in (params or {}).items() if value is not None}
        try:
            return self._client.request(method, where, json=body, params=given)
        except httpx.TimeoutException:
            raise AwayError(
                f"The API at {self.address} has not answered {method} {where} in time. It may have done what was "
                "asked: look before you ask again. `weir status` says how a Weir on this machine is."
            ) from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise AwayError(
                f"The API at {self.address} does not answer: {error}. `weir status` tells how a Weir on this machine "
                "is."
            ) from None

    def _read(self, answer: httpx.Response) -> Any:
        if answer.status_code == 404:
            raise NotThereError(_message(answer))
        if answer.status_code == 401:
            raise CliError(
                f"The API at {self.address} does not know the key. Give one of its accounts in WEIR_API_KEY, or by "
                "--api-key-file."
            )
        if not answer.is_success:
            raise CliError(_message(answer))
        if not answer.content:
            return None
        try:
            return answer.json()
        except ValueError:
            raise AwayError(f"What answers at {self.address} is no Weir: {answer.text[:100]!r}") from None

    def every(self, where: str, rows: str, params: dict[str, Any] | None = None, *, most: int | None = None) -> Any:
        """A list with the rows of all its pages, in the shape of one page; of not more than `most` rows when given.
        `rows` names the list in the answer."""
        asked = {"limit": min(PAGE, most or PAGE), **(params or {})}
        whole: dict[str, Any] = {}
        found: list[Any] = []
        while True:
            page = self.call("GET", where, params=asked)
            whole = page
            found += page[rows]
            pagination = page.get("pagination") or {}
            cursor = pagination.get("cursor") or pagination.get("next")
            if not cursor or not page[rows] or (most is not None and len(found) >= most):
                return whole | {rows: found[:most]}
            asked["cursor"] = cursor


def _pause(answer: httpx.Response) -> float:
    """Seconds until the request is repeated: those that the answer asks for, where it does."""
    asked = answer.headers.get("retry-after", "")
    return float(asked) if asked.isdecimal() else BUSY_PAUSE_SECONDS


def _message(answer: httpx.Response) -> str:
    try:
        return str(answer.json()["message"])
    except (ValueError, KeyError, TypeError):
        request = answer.request
        return f"{request.method} {request.url.path} answered {answer.status_code}: {answer.text[:200]}"
