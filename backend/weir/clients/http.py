"""What the HTTP clients of Weir's own programs share: one way to fail, told apart by who must act."""

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import httpx

from weir.kit.transactions import refuse_requests
from weir.tokens.keys import KeyFileError

T = TypeVar("T")

NO_ANSWER = "NO_ANSWER"
BAD_ANSWER = "BAD_ANSWER"
_ANSWERS = {NO_ANSWER: "did not answer", BAD_ANSWER: "gave an answer that cannot be understood"}


class HttpClient(Protocol):
    """What sends requests: `Connections` in our programs, an httpx.AsyncClient before a server that is not there."""

    async def request(
        self,
        method: str,
        url: str,
        *,
        json: Any = None,
        params: dict[str, str] | None = None,
        data: dict[str, str] | None = None,
        headers: dict[str, str] | None = None,
        timeout: float = 10.0,  # noqa: ASYNC109
        extensions: dict[str, Any] | None = None,
    ) -> httpx.Response:
        """`extensions`: `sni_hostname`, httpx's word for the name that the other side of TLS has to prove."""
        ...


class RemoteError(Exception):
    """A program answered with an error, or did not answer (`status` None)."""

    def __init__(self, service: str, what: str, status: int | None, code: str, message: str) -> None:
        answer = _ANSWERS.get(code, f"answered {status} {code}")
        super().__init__(f"{service} {answer} to {what}: {message}")
        self.service = service
        self.status = status
        self.code = code
        self.message = message

    @property
    def retryable(self) -> bool:
        """Worth repeating: no answer, overload, or a failure on the other side. A token that was refused is made
        anew: keys may have changed just now, or a clock."""
        return self.status is None or self.status >= 500 or self.status in {401, 408, 423, 429}

    @property
    def nobody_listens(self) -> bool:
        """No connection could be made: the program does not run there, or its machine is away."""
        return isinstance(self.__cause__, httpx.ConnectError)


class JsonClient:
    """A thin JSON client of one program at one address. `bearer` has the token for a request to a path, None where
    there is none to show. `part`: the name that the program has to prove where the address begins with https."""

    def __init__(
        self,
        service: str,
        base_url: str,
        client: HttpClient,
        bearer: Callable[[str], str | None] | None = None,
        part: str | None = None,
    ) -> None:
        self.service = service
        self.base_url = base_url
        self._client = client
        self._bearer = bearer
        proven = part is not None and base_url.startswith("https://")
        self._words: dict[str, Any] = {"extensions": {"sni_hostname": part}} if proven else {}

    async def _send(self, method: str, path: str, **words: Any) -> httpx.Response:
        """Raises httpx.HTTPError where there is no answer, RemoteError where there is no key for a token."""
        try:
            token = None if self._bearer is None else self._bearer(path)
        except KeyFileError as error:
            raise RemoteError(self.service, f"{method} {path}", None, NO_ANSWER, str(error)) from error
        if token is not None:
            words["headers"] = {"Authorization": f"Bearer {token}"}
        return await self._client.request(method, self.base_url + path, **words, **self._words)

    async def call(
        self,
        method: str,
        path: str,
        *,
        json: Any = None,
        params: dict[str, str] | None = None,
        form: dict[str, str] | None = None,
        timeout: float = 10.0,  # noqa: ASYNC109
        missing_ok: bool = False,
    ) -> Any:
        """The decoded body; None for an empty one, and for 404 when `missing_ok`."""
        what = f"{method} {path}"
        refuse_requests(self.service, what)
        try:
            response = await self._send(method, path, json=json, params=params, data=form, timeout=timeout)
        except httpx.HTTPError as error:
            raise RemoteError(
                f"{self.service} at {self.base_url}", what, None, NO_ANSWER, _describe(error)
            ) from error
        if response.status_code == 404 and missing_ok:
            return None
        if response.is_error:
            code, message = _error_of(response)
            raise RemoteError(f"{self.service} at {self.base_url}", what, response.status_code, code, message)
        try:
            return response.json() if response.content else None
        except ValueError as error:
            raise self.bad_answer(what, response.text[:200]) from error

    async def read(
        self,
        parse: Callable[[Any], T],
        method: str,
        path: str,
        *,
        json: Any = None,
        params: dict[str, str] | None = None,
        form: dict[str, str] | None = None,
        timeout: float = 10.0,  # noqa: ASYNC109
    ) -> T:
        """The body as `parse` understands it; a body it does not understand is the other side's fault."""
        body = await self.call(method, path, json=json, params=params, form=form, timeout=timeout)
        return self.parsed(parse, body, f"{method} {path}")

    def parsed(self, parse: Callable[[Any], T], body: Any, what: str) -> T:
        try:
            return parse(body)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise self.bad_answer(what, str(body)[:200]) from error

    def bad_answer(self, what: str, text: str) -> RemoteError:
        return RemoteError(f"{self.service} at {self.base_url}", what, 502, BAD_ANSWER, repr(text))

    async def ping(self, path: str, timeout: float) -> None:  # noqa: ASYNC109
        """Any good status will do, whatever the body."""
        refuse_requests(self.service, f"GET {path}")
        try:
            response = await self._client.request("GET", self.base_url + path, timeout=timeout, **self._words)
        except httpx.HTTPError as error:
            where = f"{self.service} at {self.base_url}"
            raise RemoteError(where, f"GET {path}", None, NO_ANSWER, _describe(error)) from error
        if response.is_error:
            code, message = _error_of(response)
            where = f"{self.service} at {self.base_url}"
            raise RemoteError(where, f"GET {path}", response.status_code, code, message)


def switch_lsn(text: str | None) -> str | None:
    """Where full_page_writes last changed; the engine says 0/0 for never."""
    return None if text == "0/0" else text


def _describe(error: httpx.HTTPError) -> str:
    return str(error) or type(error).__name__


def _error_of(response: httpx.Response) -> tuple[str, str]:
    try:
        body = response.json()
        return str(body["code"]), str(body["message"])
    except (ValueError, KeyError, TypeError):
        return "", response.text[:500]
