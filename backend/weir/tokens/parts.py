"""Tokens that parts show to each other: files, made before a part starts and renewed by the worker.

A token of these is valid for half a day and renewed from its half on: without a control plane everything goes on for
six hours at least (docs/adr/0063-internal-ports-authenticate.md says what stops then). Whoever reads such a file can
read its successor, so that a shorter time would take more from the installation than from a thief."""

import base64
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weir.tokens.files import read_own, write_private
from weir.tokens.keys import KeyFileError, SigningKey
from weir.tokens.mint import CONTROL, Grant, Right, sign

PART_SECONDS = 12 * 3600
# As parts allow each other's clocks to differ.
_LEEWAY_SECONDS = 30

_PAGESERVER = Grant("pageserver", ("safekeeper",), (Right.READ_WAL, Right.TRIM_WAL))
_SAFEKEEPER = Grant("safekeeper", ("safekeeper",), (Right.READ_WAL,))
_PROMETHEUS = Grant("prometheus", ("pageserver", "safekeeper", "compute", CONTROL), (Right.METRICS,))
_SERVICES = (_PAGESERVER, _SAFEKEEPER, _PROMETHEUS)


@dataclass(frozen=True)
class Part:
    """A file and what the token in it is for."""

    file: Path
    grant: Grant


def tokens_dir(home: Path) -> Path:
    return home / "secrets" / "tokens"


def services(home: Path) -> list[Part]:
    """Of what runs whether or not there are computes, and of safekeepers that have a file of their own."""
    folder = tokens_dir(home)
    numbers = [path.name.removeprefix("safekeeper-") for path in folder.glob("safekeeper-*")]
    own = safekeepers(home, sorted(int(number) for number in numbers if number.isdecimal()))
    return [*(Part(folder / grant.subject, grant) for grant in _SERVICES), *own]


def safekeepers(home: Path, numbers: Iterable[int]) -> list[Part]:
    """The token of safekeepers in a file for each, which its own user alone reads."""
    return [Part(tokens_dir(home) / f"safekeeper-{number}", _SAFEKEEPER) for number in numbers]


def services_apart(folder: Path) -> list[Part]:
    """The same, each in a folder of its own, so that a container can be given its own part's and no other."""
    return [Part(folder / "tokens" / grant.subject / "token", grant) for grant in _SERVICES]


def compute(directory: Path, spec: dict[str, Any]) -> Part:
    """Of a compute with this spec and directory: its own timeline and nothing else."""
    grant = Grant(
        spec["compute_id"],
        ("pageserver", "safekeeper"),
        (Right.READ_PAGES, Right.WRITE_WAL),
        spec["tenant_id"],
        spec["timeline_id"],
    )
    return Part(directory / "token", grant)


def record(home: Path, spec: dict[str, Any]) -> None:
    """Notes whose token this compute is to have. The spec in the compute's folder does not say it: the folder may be
    its database's own user's, who would write another tenant there."""
    path = _record(home, spec["compute_id"])
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    words = json.dumps({name: spec[name] for name in ("compute_id", "tenant_id", "timeline_id")})
    try:
        if read_own(path) == words:
            return
    except (OSError, ValueError):
        pass
    write_private(path, words, durable=True)


def forget(home: Path, compute_id: str) -> None:
    _record(home, compute_id).unlink(missing_ok=True)


def computes(home: Path) -> list[Part]:
    """Of all computes that were started here with a token and have a folder. Raises KeyFileError."""
    found: list[Part] = []
    for path in sorted(_record(home, "any").parent.glob("*.json")):
        directory = home / "computes" / path.stem
        if directory.is_dir():
            try:
                found.append(compute(directory, json.loads(read_own(path))))
            except (ValueError, LookupError, TypeError):
                raise KeyFileError(
                    f"{path} does not say whose token the compute has. Remove it; a start makes it again."
                ) from None
    return found


def _record(home: Path, compute_id: str) -> Path:
    return home / "secrets" / "computes" / f"{compute_id}.json"


def renew(key: SigningKey, parts: Iterable[Part], now: float) -> int:
    """Writes the token of each part that has none, or one that is not as it would be made now, and soon not valid.
    How many were written."""
    written = 0
    for part in parts:
        if not _is_good(part, key, now):
            part.file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            # A service's token may be in a folder of root's, with the service's user as its owner. What lies in the
            # folder of a compute may be anybody's.
            is_service = part.grant.timeline is None
            text = sign(key, part.grant, now, PART_SECONDS) + "\n"
            write_private(part.file, text, durable=False, keeps_owner=is_service)
            written += 1
    return written


def _is_good(part: Part, key: SigningKey, now: float) -> bool:
    try:
        header, claims = (_decoded(text) for text in read_own(part.file).split(".")[:2])
        made, ends = float(claims["iat"]), float(claims["exp"])
        name = header["kid"]
    except (OSError, ValueError, LookupError, TypeError):
        return False
    wanted = part.grant.claims(int(made), int(ends - made))
    # A clock that was set back makes the token one of later, which parts refuse.
    in_time = made <= now + _LEEWAY_SECONDS and ends - now > PART_SECONDS / 2
    return name == key.name and claims == wanted and in_time


def _decoded(part: str) -> dict[str, Any]:
    return json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
