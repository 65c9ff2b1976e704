"""The token for one request of the control plane: for that part alone, and for what its path names alone, so that a
program which takes a part's port while the part is down gains the least."""

import re
from functools import lru_cache
from pathlib import Path

from weir.config import Settings, get_settings
from weir.tokens.keys import signing_key_file
from weir.tokens.mint import Grant, Right, Signer

_SUBJECT = "control-plane"
_SCOPE = re.compile(r"/v1/tenant/([0-9a-f]{32})(?:/timeline/([0-9a-f]{32}))?(?:/|$)")


@lru_cache(maxsize=8)
def _signer(path: Path) -> Signer:
    return Signer(path)


def signer_of(home: Path) -> Signer | None:
    """Of the installation in this directory; None where it has no keys, and its parts ask for none."""
    path = signing_key_file(home)
    return _signer(path) if path.exists() else None


def signer_for(settings: Settings) -> Signer | None:
    """Of the process's own installation; None where it has no keys, and its parts ask for none. Settings that name a
    folder of keys say that there are some: a key that is missing there is an error when it is used."""
    if settings.credentials_dir is not None:
        return _signer(signing_key_file(settings.credentials_dir))
    return signer_of(settings.home)


def for_storage(part: str, path: str, home: Path | None = None) -> str | None:
    """To manage `pageserver` or `safekeeper` by a request to this path; of the process's own installation unless
    told."""
    signer = signer_for(get_settings()) if home is None else signer_of(home)
    if signer is None:
        return None
    if path == "/metrics":
        return signer.for_requests(Grant(_SUBJECT, (part,), (Right.METRICS,)))
    found = _SCOPE.match(path)
    tenant, timeline = found.groups() if found else (None, None)
    return signer.for_requests(Grant(_SUBJECT, (part,), (Right.MANAGE,), tenant, timeline))


def for_agent(compute_id: str) -> str | None:
    """To manage this compute by its agent, and no other one."""
    signer = signer_for(get_settings())
    if signer is None:
        return None
    return signer.for_requests(Grant(_SUBJECT, (f"compute/{compute_id}",), (Right.MANAGE,)))


def for_members(settings: Settings, tenant: str, timeline: str) -> str | None:
    """To change the members of a log as a compute of its timeline would."""
    signer = signer_for(settings)
    if signer is None:
        return None
    return signer.for_requests(Grant(_SUBJECT, ("safekeeper",), (Right.WRITE_WAL,), tenant, timeline))


def headers(part: str, path: str, home: Path) -> dict[str, str]:
    """For tools that ask the `pageserver` or a `safekeeper` of an installation by themselves."""
    token = for_storage(part, path, home)
    return {} if token is None else {"Authorization": f"Bearer {token}"}
