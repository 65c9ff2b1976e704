"""Tokens: what they say, and the signature below it (RFC 7519, EdDSA of RFC 8037)."""

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from weir.tokens.keys import SigningKey, base64url, read_signing_key

ISSUER = "weir-control-plane"
# What the control plane is called in tokens that are for itself.
CONTROL = "control"
# Of a token for requests of the control plane's own.
REQUEST_SECONDS = 300
# Tokens in memory; each has some 500 bytes.
_MOST_KEPT = 10_000


class Right(StrEnum):
    READ_PAGES = "read_pages"
    WRITE_WAL = "write_wal"
    READ_WAL = "read_wal"
    TRIM_WAL = "trim_wal"
    MANAGE = "manage"
    METRICS = "metrics"


@dataclass(frozen=True)
class Grant:
    """What a token is for. `audiences`: the parts that it may be shown to. `tenant` and `timeline`: 32 hex digits;
    None: all of them."""

    subject: str
    audiences: tuple[str, ...]
    rights: tuple[Right, ...]
    tenant: str | None = None
    timeline: str | None = None

    def claims(self, now: int, seconds: int) -> dict[str, Any]:
        if self.timeline is not None and self.tenant is None:
            raise ValueError("a token for a timeline names its tenant")
        words: dict[str, Any] = {
            "iss": ISSUER,
            "sub": self.subject,
            "aud": list(self.audiences),
            "iat": now,
            "exp": now + seconds,
            "rights": [right.value for right in self.rights],
        }
        # Left out and not null: a part refuses a scope that is null.
        if self.tenant is not None:
            words["tenant"] = self.tenant
        if self.timeline is not None:
            words["timeline"] = self.timeline
        return words


def sign(key: SigningKey, grant: Grant, now: float, seconds: int) -> str:
    header = {"alg": "EdDSA", "typ": "JWT", "kid": key.name}
    parts = ".".join(
        base64url(json.dumps(part, separators=(",", ":")).encode())
        for part in (header, grant.claims(int(now), seconds))
    )
    return f"{parts}.{base64url(key.private.sign(parts.encode()))}"


class Signer:
    """Signs with the key in a file, which is read again when it changes, and keeps tokens for half of their time."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self._path = path
        self._clock = clock
        self._stamp: tuple[int, int, int] | None = None
        self._key: SigningKey | None = None
        self._kept: dict[Grant, tuple[float, str]] = {}

    def key(self) -> SigningKey:
        """Raises KeyFileError."""
        try:
            found = os.stat(self._path)  # noqa: PTH116  asked for before each request; Path.stat costs thrice as much
            stamp = (found.st_ino, found.st_mtime_ns, found.st_size)
        except OSError:
            stamp = None
        if self._key is None or stamp != self._stamp:
            self._key, self._stamp = read_signing_key(self._path), stamp
            self._kept.clear()
        return self._key

    def for_requests(self, grant: Grant) -> str:
        key, now = self.key(), self._clock()
        made, token = self._kept.get(grant, (0.0, ""))
        # A clock that was set back makes what was made before a token of later.
        if token and 0 <= now - made < REQUEST_SECONDS / 2:
            return token
        if len(self._kept) >= _MOST_KEPT:
            self._kept.clear()
        token = sign(key, grant, now, REQUEST_SECONDS)
        self._kept[grant] = (now, token)
        return token
