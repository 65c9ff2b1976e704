"""The gate: requests go through it as ASGI gives them, before routes, sessions and the database.

In this order: headers of a sensible size, a host that is this installation's, and for what changes something the site
that asks, the media type and the size. Then the rate (`weir.front.limiter`), and only then is a body read, up to its
limit: nobody has memory taken who is refused without.
"""

import asyncio
from typing import Any

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from weir.errors import BadRequestError, RequestTimeoutError, TooLargeError, WeirError, error_response
from weir.front import checks
from weir.front.kinds import API, SAFE_METHODS, takes_form

BODY_SECONDS = 30.0
# Asked by probes that know no name of the installation; tells nothing but whether the process works.
_ANY_HOST = frozenset({"/healthz"})
# Of WebSockets: the connection is refused.
_POLICY_VIOLATION = 1008


async def refuse(error: WeirError, scope: Scope, receive: Receive, send: Send, **headers: str) -> None:
    """Answers in the shape of every error. Where there is a body, the connection ends with it: what is left of the
    body is not read."""
    response = error_response(Request(scope), error.status, error.code, error.message)
    response.headers.update({name.replace("_", "-"): text for name, text in headers.items()})
    if checks.has_body(scope["headers"]):
        response.headers["connection"] = "close"
    await response(scope, receive, send)


class Gate:
    """`allowed_hosts`: names and addresses of the installation beside those of loopback. `most_body`: bytes."""

    def __init__(self, app: ASGIApp, *, allowed_hosts: frozenset[str], most_body: int, behind_tls: bool) -> None:
        self._app = app
        self._allowed = allowed_hosts
        self._most_body = most_body
        self._behind_tls = behind_tls

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in {"http", "websocket"}:
            await self._app(scope, receive, send)
            return
        try:
            self._check(scope)
        except WeirError as error:
            if scope["type"] == "http":
                await refuse(error, scope, receive, send)
            else:
                await send({"type": "websocket.close", "code": _POLICY_VIOLATION})
            return
        await self._app(scope, receive, send)

    def _check(self, scope: Scope) -> None:
        headers: checks.Headers = scope["headers"]
        checks.refuse_large_headers(headers)
        is_socket = scope["type"] == "websocket"
        if is_socket or scope["path"] not in _ANY_HOST:
            server: tuple[str, Any] | None = scope.get("server")
            checks.refuse_foreign_host(checks.host_of(headers), self._allowed, server[0] if server else "")
        if is_socket:
            # A page of any site may open one, and has the cookie sent with it.
            checks.refuse_foreign_origin(headers, only_https=self._behind_tls)
            return
        if scope["method"] in SAFE_METHODS or not scope["path"].startswith(API):
            return
        checks.refuse_foreign_origin(headers, only_https=self._behind_tls)
        checks.refuse_other_media(headers, form=takes_form(scope["path"]))
        checks.refuse_announced_size(headers, self._most_body)


class Bodies:
    """Reads the body of a change whole, up to `most_body` bytes and `seconds`, before anything is done with it."""

    def __init__(self, app: ASGIApp, *, most_body: int, seconds: float = BODY_SECONDS) -> None:
        self._app = app
        self._most_body = most_body
        self._seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] in SAFE_METHODS or not scope["path"].startswith(API):
            await self._app(scope, receive, send)
            return
        try:
            async with asyncio.timeout(self._seconds):
                body = await self._read(receive)
        except TimeoutError:
            late = RequestTimeoutError(
                f"the body was not there after {self._seconds:g} s; send it again, all at once"
            )
            await refuse(late, scope, receive, send)
            return
        except (TooLargeError, BadRequestError) as error:
            await refuse(error, scope, receive, send)
            return
        left: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def again() -> Message:
            return left.pop() if left else await receive()

        await self._app(scope, again, send)

    async def _read(self, receive: Receive) -> bytes:
        read = bytearray()
        while True:
            message = await receive()
            if message["type"] != "http.request":
                raise BadRequestError("the client has gone before the end of its body; nothing was done")
            read += message.get("body", b"")
            if len(read) > self._most_body:
                raise TooLargeError(checks.too_large(self._most_body))
            if not message.get("more_body", False):
                return bytes(read)
