"""Names in paths: of roles and databases, which may have any character, a slash and a per cent sign among them.

A server decodes a path before it is split into parts, so that a slash in a name becomes one between parts. Here each
part of the API's paths is decoded by itself, and the two characters that would be mistaken stay encoded until the
operation reads the name (`PathName`).
"""

from typing import Annotated
from urllib.parse import unquote

from fastapi import Path
from pydantic import AfterValidator
from starlette.types import ASGIApp, Receive, Scope, Send

_BELOW = b"/api/"


def _kept(part: str) -> str:
    return unquote(part).replace("%", "%25").replace("/", "%2F")


def _name(kept: str) -> str:
    return kept.replace("%2F", "/").replace("%25", "%")


PathName = Annotated[str, Path(), AfterValidator(_name)]


class PathNames:
    """The outermost middleware: what is counted, limited and routed by path sees the parts that were sent."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        raw: bytes = scope.get("raw_path") or b""
        if scope["type"] == "http" and b"%" in raw and raw.startswith(_BELOW):
            parts = raw.partition(b"?")[0].decode("ascii", "replace").split("/")
            scope = {**scope, "path": "/".join(_kept(part) for part in parts)}
        await self._app(scope, receive, send)
