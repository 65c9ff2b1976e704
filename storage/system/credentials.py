"""Keys and tokens for an engine whose parts ask for them, made as an installation makes them."""

from __future__ import annotations

import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import httpx

from weir.tokens import keys, mint, parts
from weir.tokens.keys import KeyFiles
from weir.tokens.mint import Grant, Right


class Credentials:
    def __init__(self, root: Path) -> None:
        for name in ("secrets", "run"):
            (root / name).mkdir(mode=0o700, exist_ok=True)
        self.root = root
        self.files = KeyFiles(root)
        self.files.prepare(time.time())
        self.renew()

    def renew(self, *more: parts.Part) -> None:
        """The tokens of pageserver and safekeepers, and of these, are good, by the key that signs now."""
        here = [*parts.services(self.root), *more]
        parts.renew(keys.read_signing_key(self.files.private), here, time.time())

    def options(self, part: str) -> list[str]:
        return ["--token-keys", str(self.files.public), "--token", str(parts.tokens_dir(self.root) / part)]

    def options_of_compute(self, directory: Path, spec: dict[str, Any]) -> list[str]:
        part = parts.compute(directory, spec)
        self.renew(part)
        return ["--token-keys", str(self.files.public), "--token", str(part.file)]


class Managing(httpx.Auth):
    """Shows a part a token for all it serves, made for each request by the key that signs then. With TLS the part has
    to prove that it is the one whose token is shown."""

    def __init__(self, credentials: Credentials | None, audience: str) -> None:
        self._credentials = credentials
        self._audience = audience

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response]:
        if self._credentials is not None:
            right = Right.METRICS if request.url.path == "/metrics" else Right.MANAGE
            key = keys.read_signing_key(self._credentials.files.private)
            token = mint.sign(key, Grant("a test", (self._audience,), (right,)), time.time(), mint.REQUEST_SECONDS)
            request.headers["Authorization"] = f"Bearer {token}"
        if request.url.scheme == "https":
            kind, _, ident = self._audience.partition("/")
            request.extensions["sni_hostname"] = f"{ident}.{kind}" if ident else kind
        yield request
