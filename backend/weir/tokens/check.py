"""Whether a token that somebody shows to the control plane counts. Storage and agents check theirs in
`storage/crates/token`, by the same rules; the API and the worker have pages for Prometheus alone, and check here.

PyJWT, which `weir.oidc` has signatures checked by, passes over padding and characters that are no base64url: a token
could be written in many ways, which the rules do not allow."""

import base64
import json
import os
import time
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from weir.config import Settings
from weir.tokens.keys import KeyFileError, KeyFiles, PublicKey
from weir.tokens.mint import CONTROL, ISSUER, Right

_LEEWAY_SECONDS = 30
_LONGEST_SECONDS = 24 * 3600
_LONGEST_BYTES = 4096


class Refused(Exception):  # noqa: N818  an answer, and no failure of ours
    """A token does not count; the message says why, and holds nothing of it."""


class Checker:
    """Checks by the key set of the installation in `home`, which is read again when it changes. `clock`: seconds
    since the Unix epoch."""

    def __init__(self, home: Path, clock: Callable[[], float] = time.time) -> None:
        self._files = KeyFiles(home)
        self._clock = clock
        self._stamp: tuple[int, int, int] | None = None
        self._keys: list[PublicKey] = []

    def check(self, authorization: str | None, right: Right) -> None:
        """Raises Refused unless the header carries a token for the control plane with this right, of all tenants.
        Where the installation has no key set nobody has tokens, and nobody is asked for one."""
        try:
            found = os.stat(self._files.public)  # noqa: PTH116  before each request; Path.stat costs thrice as much
            stamp = (found.st_ino, found.st_mtime_ns, found.st_size)
            if stamp != self._stamp:
                self._keys, self._stamp = self._files.published(), stamp
        except FileNotFoundError:
            if self._stamp is None:
                return
        except (KeyFileError, OSError) as error:
            # What was read before goes on to count, as it does for parts.
            if self._stamp is None:
                raise Refused("the key set cannot be read") from error
        scheme, _, token = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or not token:
            raise Refused("there is no token")
        _granted(_claims(token, self._keys, self._clock()), right, self._clock())


@lru_cache(maxsize=8)
def _checker(home: Path) -> Checker:
    return Checker(home)


def checker_for(settings: Settings) -> Checker:
    """Of the process's own installation."""
    return _checker(settings.keys_home)


def _claims(token: str, keys: list[PublicKey], now: float) -> dict[str, Any]:
    """What the token says, once its signature is known to be of one of these keys."""
    if len(token) > _LONGEST_BYTES:
        raise Refused("the token is too long")
    try:
        signed, _, signature = token.rpartition(".")
        first, claims = signed.split(".")
        header = _object(first)
        name = header["kid"]
        proof = _bytes(signature)
    except (ValueError, LookupError, RecursionError):
        raise Refused("it is no token") from None
    if header.get("alg") != "EdDSA" or "crit" in header:
        raise Refused("the token is not signed as tokens of Weir are")
    known = next((key for key in keys if key.name == name), None)
    if known is None or (known.retires is not None and known.retires <= now):
        raise Refused("the token's key does not count")
    try:
        Ed25519PublicKey.from_public_bytes(known.public).verify(proof, signed.encode())
        return _object(claims)
    except (InvalidSignature, ValueError):
        raise Refused("the token's signature is not of its key") from None


def _granted(claims: dict[str, Any], right: Right, now: float) -> None:
    audiences, rights = claims.get("aud"), claims.get("rights")
    if claims.get("iss") != ISSUER or CONTROL not in (audiences if isinstance(audiences, list) else [audiences]):
        raise Refused("the token is for another part")
    if not isinstance(rights, list) or right.value not in rights:
        raise Refused(f"the token has no right to {right.value}")
    if claims.get("tenant") is not None or claims.get("timeline") is not None:
        raise Refused("the token is for one tenant")
    made, ends, begins = (claims.get(name, 0) for name in ("iat", "exp", "nbf"))
    if any(type(moment) is not int for moment in (made, ends, begins)):
        raise Refused("it is no token")
    if max(made, begins) > now + _LEEWAY_SECONDS or ends + _LEEWAY_SECONDS <= now or ends - made > _LONGEST_SECONDS:
        raise Refused("the token is not of now")


def _bytes(part: str) -> bytes:
    """Raises ValueError. Strict: what another alphabet would say, or padding, is no token."""
    if "=" in part:
        raise ValueError(part)
    return base64.b64decode(part + "=" * (-len(part) % 4), altchars=b"-_", validate=True)


def _object(part: str) -> dict[str, Any]:
    found = json.loads(_bytes(part))
    if not isinstance(found, dict):
        raise ValueError(part)  # noqa: TRY004  what is written is wrong, whatever its type
    return found  # pyright: ignore[reportUnknownVariableType]
