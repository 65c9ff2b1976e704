"""The key that signs tokens, and the set of public keys by which parts check them.

The private key is `secrets/token_key`, the key set `run/token_keys.json` (RFC 7517). A key is called by its
thumbprint (RFC 7638), so that a name always means the same key. Keys are replaced in an order in which no part is
ever shown a token of a key that it has not read: the new public key is published, parts get time to read it, then it
signs. The replaced one goes on to count until no token of it can be valid any more.

A crash between any two steps leaves a key set that has the public key of the key that signs; doing it again goes
on."""

import base64
import hashlib
import json
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from weir.tokens.files import read_own, write_private

# Parts look at the key set twice a second.
READ_SECONDS = 2.0
# The longest that a token is valid (`parts.PART_SECONDS`), and an hour for clocks.
OVERLAP_SECONDS = 13 * 3600


class KeyFileError(Exception):
    """A key file can't be used; the message names it and says what to do."""


def base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


@dataclass(frozen=True)
class SigningKey:
    private: Ed25519PrivateKey

    @property
    def public(self) -> bytes:
        return public_bytes(self.private.public_key())

    @property
    def name(self) -> str:
        return thumbprint(self.public)


def public_bytes(key: Ed25519PublicKey) -> bytes:
    return key.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)


def thumbprint(public: bytes) -> str:
    members = {"crv": "Ed25519", "kty": "OKP", "x": base64url(public)}
    text = json.dumps(members, separators=(",", ":"), sort_keys=True)
    return base64url(hashlib.sha256(text.encode()).digest())


@dataclass(frozen=True)
class PublicKey:
    """`retires`: when it stops to count, seconds since the Unix epoch; None of a key that does not."""

    public: bytes
    retires: int | None = None

    @property
    def name(self) -> str:
        return thumbprint(self.public)

    def written(self) -> dict[str, Any]:
        words: dict[str, Any] = {
            "kty": "OKP",
            "crv": "Ed25519",
            "alg": "EdDSA",
            "use": "sig",
            "kid": self.name,
            "x": base64url(self.public),
        }
        return words if self.retires is None else words | {"weir_retires": self.retires}

    @classmethod
    def parse(cls, words: dict[str, Any]) -> "PublicKey":
        text = str(words["x"])
        retires = words.get("weir_retires")
        return cls(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)), None if retires is None else int(retires))


class KeyFiles:
    """The key files of one installation, below its directory `home`."""

    def __init__(self, home: Path) -> None:
        self.private = signing_key_file(home)
        self.public = key_set_file(home)

    def prepare(self, now: float) -> None:
        """Makes what is missing; what is there and fits stays as it is. Parts that run have read the keys they need
        long before, so that nobody has to wait."""
        key = read_signing_key(self.private) if self.private.exists() else SigningKey(Ed25519PrivateKey.generate())
        known = self.published()
        if all(other.name != key.name for other in known):
            # Keys that others made can't be told from a stranger's where the private key was lost: they go.
            self._publish([PublicKey(key.public)])
        else:
            self._publish([other for other in known if other.retires is None or other.retires > now])
        if not self.private.exists():
            write_private(self.private, _pem(key), durable=True)

    def published(self) -> list[PublicKey]:
        """The keys of the key set; none where there is no such file."""
        try:
            text = read_own(self.public)
        except FileNotFoundError:
            return []
        try:
            return [PublicKey.parse(words) for words in json.loads(text)["keys"]]
        except (ValueError, LookupError, TypeError) as error:
            raise KeyFileError(
                f"{self.public} is no key set ({type(error).__name__}). Remove it; `weir up` makes it again from "
                f"{self.private}."
            ) from None

    def rotate(self, now: Callable[[], float], pause: Callable[[float], None]) -> SigningKey:
        """A new key signs from now on. The others count for the time that their tokens may still be valid."""
        before = PublicKey(read_signing_key(self.private).public)
        known = [key for key in self.published() if key.retires is None or key.retires > now()]
        others = list({other.name: other for other in (before, *known)}.values())
        key = SigningKey(Ed25519PrivateKey.generate())
        self._publish([*others, PublicKey(key.public)])
        pause(READ_SECONDS)
        write_private(self.private, _pem(key), durable=True, keeps_owner=True)
        until = int(now()) + OVERLAP_SECONDS
        ending = [other if other.retires else replace(other, retires=until) for other in others]
        self._publish([PublicKey(key.public), *ending])
        return key

    def forget_others(self) -> list[str]:
        """From now on only tokens of the key that signs count. The names of the keys that went."""
        key = read_signing_key(self.private)
        gone = [other.name for other in self.published() if other.name != key.name]
        self._publish([PublicKey(key.public)])
        return gone

    def _publish(self, keys: list[PublicKey]) -> None:
        text = json.dumps({"keys": [key.written() for key in keys]}, indent=2) + "\n"
        try:
            if read_own(self.public) == text:
                return
        except OSError:
            pass
        # Who could read the public keys can go on, as parts that run as users of their own.
        try:
            mode = stat.S_IMODE(self.public.lstat().st_mode) & 0o644
        except FileNotFoundError:
            mode = 0o600
        write_private(self.public, text, durable=True, mode=mode, keeps_owner=True)


def signing_key_file(home: Path) -> Path:
    return home / "secrets" / "token_key"


def key_set_file(home: Path) -> Path:
    return home / "run" / "token_keys.json"


def read_signing_key(path: Path) -> SigningKey:
    """Raises KeyFileError for a file that others can read, too: what they could sign would count."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            text = file.read(1 << 16)
    except OSError as error:
        raise KeyFileError(f"{path} cannot be read: {error.strerror}. `weir up` makes it where it is gone.") from None
    if mode & 0o077:
        raise KeyFileError(f"{path} can be read by others: chmod 600 {path}, then `weir keys rotate --at-once`.")
    try:
        private = serialization.load_pem_private_key(text, password=None)
    except (ValueError, TypeError):
        raise KeyFileError(f"{path} is no private key. Remove it and run `weir up`.") from None
    if not isinstance(private, Ed25519PrivateKey):
        raise KeyFileError(f"{path} is not a key of Ed25519. Remove it and run `weir up`.")
    return SigningKey(private)


def _pem(key: SigningKey) -> str:
    return key.private.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
