"""Identity providers, as the environment of the API names them.

`WEIR_OIDC=corp,partner` has the ids of the providers. Each provider has variables of its own, such as
`WEIR_OIDC_CORP_ISSUER`; `VARIABLES` says what they are called. `weir up` makes them of the tables
`[identity.oidc.NAME]` in weir.toml.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from weir.front.settings import host_names, is_address
from weir.kit.http import is_loopback
from weir.people.roles import Role

LIST = "WEIR_OIDC"
# Of one provider: the name of the setting in weir.toml, and how the variable of it ends.
VARIABLES: Mapping[str, str] = {
    "name": "NAME",
    "issuer": "ISSUER",
    "client_id": "CLIENT_ID",
    "client_secret_file": "CLIENT_SECRET_FILE",
    "scopes": "SCOPES",
    "allowed_domains": "ALLOWED_DOMAINS",
    "organization": "ORGANIZATION",
    "role": "ROLE",
}
DEFAULT_SCOPES = "openid email profile"
# The greatest role that a first sign-in may give: an owner is made by a person.
_ROLES = (Role.VIEWER, Role.MEMBER, Role.ADMIN)
_ID = re.compile(r"[a-z][a-z0-9_]{0,30}")
_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]{1,100}")
_MOST_TEXT = 512


@dataclass(frozen=True)
class ProviderSettings:
    """One identity provider. `allowed_domains`: domains of emails whose people are made, or linked, when they first
    sign in; none are where it is empty. `organization`: the name of the organisation that people who are made become
    members of, as `role`; empty: of none."""

    id: str
    name: str
    issuer: str
    client_id: str
    client_secret_file: Path | None = None
    scopes: tuple[str, ...] = tuple(DEFAULT_SCOPES.split())
    allowed_domains: frozenset[str] = frozenset()
    organization: str = ""
    role: Role = Role.VIEWER

    def secret(self) -> str | None:
        """The client's secret, read anew each time, so that a new one counts without a restart; None for a client
        that has none. Raises OSError."""
        return None if self.client_secret_file is None else self.client_secret_file.read_text().strip()


def variable(provider_id: str, setting: str) -> str:
    """Such as WEIR_OIDC_CORP_ISSUER for the provider `corp` and the setting `issuer`."""
    return f"{LIST}_{provider_id.upper()}_{VARIABLES[setting]}"


def from_environment(environment: Mapping[str, str]) -> list[ProviderSettings]:
    """The providers in the order of `WEIR_OIDC`. Raises ValueError, whose text names the variable, for a setting that
    makes no sense, for one that is missing, and for one of a provider that the list does not name."""
    ids = _parts(environment.get(LIST, ""))
    for ident in ids:
        if not _ID.fullmatch(ident):
            raise ValueError(
                f"{LIST} names {ident!r}; the id of a provider has small letters, digits and underscores, 31 at "
                "most, and begins with a letter"
            )
    if len(set(ids)) != len(ids):
        raise ValueError(f"{LIST} names a provider twice: {', '.join(ids)}")
    known = {variable(ident, setting) for ident in ids for setting in VARIABLES}
    for name in sorted(environment):
        if name.startswith(f"{LIST}_") and name not in known:
            raise ValueError(
                f"{name} is a setting of no provider; {LIST} names {', '.join(ids) or 'none'}, and a provider's "
                f"settings end in {', '.join(VARIABLES.values())}"
            )
    found = [_provider(ident, environment) for ident in ids]
    issuers = [provider.issuer for provider in found]
    for provider in found:
        if issuers.count(provider.issuer) > 1:
            raise ValueError(
                f"{variable(provider.id, 'issuer')}: two providers have the issuer {provider.issuer}; "
                "people are told apart by issuer and subject, so each issuer may be named once"
            )
    return found


def domains_of(providers: list[ProviderSettings]) -> frozenset[str]:
    """Domains of emails whose people sign in by a provider."""
    return frozenset[str]().union(*(provider.allowed_domains for provider in providers))


def _provider(ident: str, environment: Mapping[str, str]) -> ProviderSettings:
    given = {setting: environment.get(variable(ident, setting), "").strip() for setting in VARIABLES}
    for setting in ("issuer", "client_id"):
        if not given[setting]:
            raise ValueError(f"{variable(ident, setting)} is missing; every provider of {LIST} has to have one")
    for setting, text in given.items():
        if len(text) > _MOST_TEXT or not text.isprintable():
            raise ValueError(
                f"{variable(ident, setting)} has more than {_MOST_TEXT} characters, or such as no text has"
            )
    secret = given["client_secret_file"]
    if secret and not Path(secret).is_absolute():
        raise ValueError(f"{variable(ident, 'client_secret_file')}: {secret!r} is no absolute path")
    return ProviderSettings(
        id=ident,
        name=given["name"] or ident,
        issuer=_issuer(variable(ident, "issuer"), given["issuer"]),
        client_id=given["client_id"],
        client_secret_file=Path(secret) if secret else None,
        scopes=_scopes(variable(ident, "scopes"), given["scopes"] or DEFAULT_SCOPES),
        allowed_domains=_domains(variable(ident, "allowed_domains"), given["allowed_domains"]),
        organization=given["organization"],
        role=_role(variable(ident, "role"), given["role"] or Role.VIEWER.value),
    )


def is_safe_url(text: str, *, loopback: bool) -> bool:
    """Whether requests with secrets may go there: https, or, with `loopback`, http to this machine."""
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        return False
    if not text.isascii() or not text.isprintable() or " " in text or parts.username is not None or not host:
        return False
    return parts.scheme == "https" or (
        loopback and parts.scheme == "http" and (host == "localhost" or is_loopback(host))
    )


def _issuer(name: str, text: str) -> str:
    if not is_safe_url(text, loopback=True) or "?" in text or "#" in text:
        raise ValueError(
            f"{name}: {text!r} is no issuer; give its URL with https and without ? and #, as the provider's own "
            "discovery document has it (http is for a provider on this machine)"
        )
    return text


def _scopes(name: str, text: str) -> tuple[str, ...]:
    scopes = tuple(text.split())
    if "openid" not in scopes or not all(_SCOPE.fullmatch(scope) for scope in scopes):
        raise ValueError(f"{name}: {text!r} has to be scopes with spaces between, `openid` among them")
    return scopes


def _domains(name: str, text: str) -> frozenset[str]:
    try:
        found = host_names(text)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    for domain in found:
        if is_address(domain) or "." not in domain:
            raise ValueError(f"{name}: {domain!r} is no domain of emails such as example.org")
    return found


def _role(name: str, text: str) -> Role:
    if text not in _ROLES:
        raise ValueError(f"{name}: {text!r} is none of {', '.join(role.value for role in _ROLES)}")
    return Role(text)


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]
