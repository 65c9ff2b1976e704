"""The sections of `weir.toml` one by one.

Each function reads a setting, lets the environment override it, and raises a CliError that names file, setting and
bounds when it makes no sense.
"""

import ipaddress
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from weir.cli.errors import CliError
from weir.cli.service_users import POOL, SIZE
from weir.config import MOST_CU, MOST_MINUTES
from weir.durability.levels import WEAK
from weir.kit.addresses import parse_range

RUNTIMES = ("local", "simulated")
# What the pageserver may take, MiB: by default, and at least. Its own options have the same names and defaults.
PAGESERVER_LIMITS: Mapping[str, tuple[int, int]] = {
    "memory_mib": (2048, 16),
    "recent_layers_mib": (256, 0),
    "block_cache_mib": (256, 1),
    "page_cache_mib": (128, 0),
    "layer_cache_mib": (16384, 1),
}
# What each safekeeper may keep, MiB: by default, and at least when it is not 0, which is no limit. The options of
# weir-safekeeper have the same names, defaults and bounds.
SAFEKEEPER_LIMITS: Mapping[str, tuple[int, int]] = {
    "wal_quota_mib": (16384, 64),
    "disk_reserve_mib": (2048, 1),
}
# Local disk of each compute for pages that it has read and not written, MiB; 0 is no limit.
COMPUTE_CACHE_MIB = 8192
# Users of computes, by number: a range that Debian and systemd give to nobody. Below are people and services; above,
# numbers that mean nobody.
COMPUTE_USERS = "60706-61183"
LEAST_USER = 1000
MOST_USER = 65533

# Labels of letters, digits and hyphens, with dots between.
_HOST_NAME = re.compile(r"^(?=.{1,253}$)[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*$")


# The proxy's pooler and the clients of one tenant: usual and greatest values, by the names of settings and of the
# proxy's options. A compute's max_connections is 100 unless it is set, and direct clients, the control plane and
# superusers need theirs.
_MOST_CONNECTIONS = 10_000
_DAY_MS = 86_400_000
_MOST_PORT = 65_535
POOL_SETTINGS = {
    "pool_size": (20, _MOST_CONNECTIONS),
    "pool_database_connections": (80, _MOST_CONNECTIONS),
    "pool_statements": (200, _MOST_CONNECTIONS),
    "pool_queue_timeout_ms": (60_000, _DAY_MS),
    "pool_idle_ms": (60_000, _DAY_MS),
    "pool_lifetime_ms": (3_600_000, _DAY_MS),
    "max_endpoint_connections": (5_000, 1_000_000),
    "max_role_connections": (5_000, 1_000_000),
}


@dataclass(frozen=True)
class Proxy:
    """[proxy]: the one address of all databases."""

    enabled: bool = True
    # The address it listens on.
    listen: str = "127.0.0.1"
    # What clients are told when there is no domain.
    host: str = "localhost"
    # Endpoints have the host names NAME.DOMAIN; empty: clients name the endpoint in an option.
    domain: str = ""
    # Certificate and private key of the operator's own; None: Weir makes them, with a CA.
    given: tuple[Path, Path] | None = None
    # A second port, for load balancers that say whose a connection is, and the ranges that they come from.
    behind: tuple[int, tuple[str, ...]] | None = None
    # Settings of the pooler by the names in `POOL_SETTINGS`.
    pool: Mapping[str, int] = field(
        default_factory=lambda: {name: usual for name, (usual, _) in POOL_SETTINGS.items()}
    )
    # Whether a server connection is cleaned by DISCARD ALL before another client gets it.
    pool_discard: bool = False

    @property
    def names(self) -> list[str]:
        """What the certificate is for."""
        names = ["localhost", "127.0.0.1", "::1"]
        names += [self.host] if self.host not in names else []
        return names + ([self.domain, f"*.{self.domain}"] if self.domain else [])


def section(path: Path, document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A table of the file; an empty one when it is not there."""
    table = document.get(name, {})
    if not isinstance(table, dict):
        raise CliError(f"{path}: [{name}] must be a table.")
    return table  # pyright: ignore[reportUnknownVariableType]


def offload(path: Path, document: Mapping[str, Any]) -> bool:
    value = section(path, document, "safekeepers").get("offload", True)
    if not isinstance(value, bool):
        raise CliError(f"{path}: offload in [safekeepers] is {value!r}; it must be true or false.")
    return value


def encryption(path: Path, document: Mapping[str, Any]) -> bool:
    """Whether layers and offloaded WAL are encrypted."""
    variable = "WEIR_STORAGE_ENCRYPTION"
    value = os.environ.get(variable) or section(path, document, "storage").get("encryption", False)
    known = {"true": True, "false": False}
    if isinstance(value, str) and value in known:
        value = known[value]
    if not isinstance(value, bool):
        raise CliError(f"encryption in [storage] is {value!r}; it must be true or false ({path}, or {variable}).")
    return value


def safekeeper_limits(path: Path, document: Mapping[str, Any]) -> dict[str, int]:
    """What each safekeeper may keep, MiB, by the names in `SAFEKEEPER_LIMITS`; 0 is no limit."""
    given = section(path, document, "safekeepers")
    limits: dict[str, int] = {}
    for name, (default, least) in SAFEKEEPER_LIMITS.items():
        variable = f"WEIR_SAFEKEEPERS_{name.upper()}"
        value = os.environ.get(variable) or given.get(name, default)
        limit = None if isinstance(value, bool | float) else number(value)
        if limit is None or (limit != 0 and limit < least):
            raise CliError(
                f"A safekeeper's {name} is {value!r}; it must be a number of MiB, {least} or more, or 0 for no limit "
                f"([safekeepers] {name} in {path}, or {variable})."
            )
        limits[name] = limit
    return limits


def replace_after_minutes(path: Path, document: Mapping[str, Any]) -> int:
    variable = "WEIR_SAFEKEEPERS_REPLACE_AFTER_MINUTES"
    value = os.environ.get(variable) or section(path, document, "safekeepers").get("replace_after_minutes", 0)
    minutes = None if isinstance(value, bool | float) else number(value)
    if minutes is None or not 0 <= minutes <= MOST_MINUTES:
        raise CliError(
            f"A sick safekeeper is replaced after {value!r} minutes; that must be 0 (never) to {MOST_MINUTES} "
            f"([safekeepers] replace_after_minutes in {path}, or {variable})."
        )
    return minutes


def pageserver_limits(path: Path, document: Mapping[str, Any]) -> dict[str, int]:
    given = section(path, document, "pageserver")
    if unknown := given.keys() - PAGESERVER_LIMITS.keys():
        known = ", ".join(PAGESERVER_LIMITS)
        raise CliError(f"{path}: [pageserver] has no setting {min(unknown)!r}; it has {known}.")
    limits: dict[str, int] = {}
    for name, (default, least) in PAGESERVER_LIMITS.items():
        variable = f"WEIR_PAGESERVER_{name.upper()}"
        value = os.environ.get(variable) or given.get(name, default)
        limit = number(value)
        if limit is None or limit < least:
            raise CliError(
                f"The pageserver's {name} is {value!r}; it must be a number of MiB, {least} or more "
                f"([pageserver] in {path}, or {variable})."
            )
        limits[name] = limit
    return limits


def durability_forbid(path: Path, document: Mapping[str, Any]) -> list[str]:
    given = section(path, document, "durability")
    if unknown := given.keys() - {"forbid"}:
        raise CliError(f"{path}: [durability] has no setting {min(unknown)!r}; it has forbid.")
    wanted = os.environ.get("WEIR_DURABILITY_FORBID")
    levels: Any = given.get("forbid", []) if wanted is None else [part.strip() for part in wanted.split(",") if part]
    if not isinstance(levels, list) or any(level not in WEAK for level in levels):  # pyright: ignore[reportUnknownVariableType]
        raise CliError(
            f"The forbidden levels of durability are {levels!r}; they must be a list of {', '.join(WEAK)} "
            f"([durability] forbid in {path}, or WEIR_DURABILITY_FORBID with commas between)."
        )
    return [str(level) for level in levels]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]


def number(value: Any) -> int | None:
    try:
        return int(value)
    except (TypeError, ValueError):
        return None


def runtime(path: Path, document: Mapping[str, Any]) -> str:
    value = os.environ.get("WEIR_COMPUTE_RUNTIME", section(path, document, "computes").get("runtime", "local"))
    if value not in RUNTIMES:
        raise CliError(
            f"The compute runtime is {value!r}; it must be one of {', '.join(RUNTIMES)} "
            f"([computes] runtime in {path}, or WEIR_COMPUTE_RUNTIME)."
        )
    return str(value)


def cache_mib(path: Path, document: Mapping[str, Any]) -> int:
    """Local disk of each compute for pages that it has read and not written, MiB; 0 is no limit."""
    variable = "WEIR_COMPUTE_CACHE_MIB"
    value = os.environ.get(variable) or section(path, document, "computes").get("cache_mib", COMPUTE_CACHE_MIB)
    mib = None if isinstance(value, bool | float) else number(value)
    if mib is None or mib < 0:
        raise CliError(
            f"A compute's cache_mib is {value!r}; it must be a number of MiB, or 0 for no limit "
            f"([computes] in {path}, or {variable})."
        )
    return mib


def max_cu(path: Path, document: Mapping[str, Any]) -> int:
    """The largest size that computes may have; 1: none has another one."""
    variable = "WEIR_COMPUTE_MAX_CU"
    value = os.environ.get(variable) or section(path, document, "computes").get("max_cu", 1)
    units = None if isinstance(value, bool | float) else number(value)
    if units is None or not 1 <= units <= MOST_CU:
        raise CliError(
            f"The largest size of a compute, max_cu, is {value!r}; it must be a whole number from 1 to {MOST_CU} "
            f"([computes] in {path}, or {variable})."
        )
    return units


def users(path: Path, document: Mapping[str, Any]) -> str:
    """Numbers of users for computes, A-B; empty: computes share the user of Postgres."""
    variable = "WEIR_COMPUTE_USERS"
    value = os.environ.get(variable, section(path, document, "computes").get("users", COMPUTE_USERS))
    if value == "":
        return ""
    low, _, high = value.partition("-") if isinstance(value, str) else ("", "", "")
    if not (low.isdecimal() and high.isdecimal() and LEAST_USER <= int(low) <= int(high) <= MOST_USER):
        raise CliError(
            f"The users of computes are {value!r}; they must be numbers A-B from {LEAST_USER} to {MOST_USER}, or "
            f'"" for computes that share a user ([computes] users in {path}, or {variable}).'
        )
    return f"{int(low)}-{int(high)}"


def service_users(path: Path, document: Mapping[str, Any]) -> range | None:
    """Numbers of users for services; None: they have none of their own."""
    variable = "WEIR_SERVICES_USERS"
    given = section(path, document, "services")
    if unknown := given.keys() - {"users"}:
        raise CliError(f"{path}: [services] has no setting {min(unknown)!r}; it has users.")
    value = os.environ.get(variable, given.get("users", POOL))
    if value == "":
        return None
    low, _, high = value.partition("-") if isinstance(value, str) else ("", "", "")
    pool = range(int(low), int(high) + 1) if low.isdecimal() and high.isdecimal() else range(0)
    if len(pool) < SIZE or pool.start < LEAST_USER or pool[-1] > MOST_USER:
        raise CliError(
            f"The users of services are {value!r}; they must be numbers A-B from {LEAST_USER} to {MOST_USER}, {SIZE} "
            f'at least, or "" for services without users of their own ([services] users in {path}, or {variable}).'
        )
    computes = [int(part) for part in users(path, document).split("-") if part]
    if computes and pool.start <= computes[1] and computes[0] <= pool[-1]:
        raise CliError(
            f"{path}: users in [services], {value}, and in [computes], {computes[0]}-{computes[1]}, have numbers in "
            "common; services and computes are to be strangers to each other."
        )
    return pool


def tls(path: Path, document: Mapping[str, Any]) -> bool:
    """Whether storage, computes and control plane prove to each other who they are, and encrypt what they say. A file
    without the setting is of an older Weir, whose parts speak plain TCP until its operator has them change. The model
    of a simulated fleet speaks plain HTTP."""
    variable = "WEIR_TLS"
    value: Any = os.environ.get(variable) or section(path, document, "security").get("tls", False)
    value = {"true": True, "false": False}.get(value, value) if isinstance(value, str) else value
    if not isinstance(value, bool):
        raise CliError(
            f"TLS between parts is {value!r}; it must be true or false ([security] tls in {path}, or {variable})."
        )
    return value and runtime(path, document) != "simulated"


def cgroup(path: Path, document: Mapping[str, Any]) -> str:
    """The control group below which computes get theirs, as a path from where groups are mounted; empty: none."""
    variable = "WEIR_COMPUTE_CGROUP"
    value = os.environ.get(variable, section(path, document, "computes").get("cgroup", ""))
    if value == "":
        return ""
    if not isinstance(value, str) or not re.fullmatch(r"(/(?!\.{1,2}(/|$))[^/\0\s]+)+", value):
        raise CliError(
            f"The control group of computes is {value!r}; it must be a path of names such as /weir, without a slash "
            f'at its end, or "" for none ([computes] cgroup in {path}, or {variable}).'
        )
    return value


def proxy(path: Path, document: Mapping[str, Any]) -> Proxy:
    given = section(path, document, "proxy")
    known = (
        *("enabled", "listen", "host", "domain", "certificate", "private_key", "behind_port", "trusted_senders"),
        *(*POOL_SETTINGS, "pool_discard"),
    )
    if unknown := given.keys() - set(known):
        raise CliError(f"{path}: [proxy] has no setting {min(unknown)!r}; it has {', '.join(known)}.")
    enabled = _proxy_switch(path, given, "enabled", default=True)
    defaults = Proxy()
    listen = _proxy_text(path, given, "listen", defaults.listen)
    host = _proxy_text(path, given, "host", defaults.host).lower()
    domain = _proxy_text(path, given, "domain", "").lower()
    if _address(listen) is None:
        raise CliError(
            f"The proxy's listen is {listen!r}; it must be an address such as 127.0.0.1, 0.0.0.0 or :: ([proxy] in "
            f"{path}, or WEIR_PROXY_LISTEN)."
        )
    possible = {"host": _is_host(host), "domain": not domain or (_is_host(domain) and _address(domain) is None)}
    for name, value in (("host", host), ("domain", domain)):
        if not possible[name]:
            raise CliError(
                f"The proxy's {name} is {value!r}; it must be a host name ([proxy] {name} in {path}, or "
                f"WEIR_PROXY_{name.upper()})."
            )
    certificate = _proxy_certificate(path, given)
    discard = _proxy_switch(path, given, "pool_discard", default=False)
    behind = _proxy_behind(path, given)
    return Proxy(enabled, listen, host, domain, certificate, behind, _pool(path, given), discard)


def _proxy_behind(path: Path, given: Mapping[str, Any]) -> tuple[int, tuple[str, ...]] | None:
    value = os.environ.get("WEIR_PROXY_BEHIND_PORT") or given.get("behind_port", 0)
    port = None if isinstance(value, bool | float) else number(value)
    if port is None or not 0 <= port <= _MOST_PORT:
        raise CliError(
            f"The proxy's behind_port is {value!r}; it must be 0 (none) to {_MOST_PORT} ([proxy] behind_port in "
            f"{path}, or WEIR_PROXY_BEHIND_PORT)."
        )
    text = _proxy_text(path, given, "trusted_senders", "")
    senders = tuple(part.strip() for part in text.split(",") if part.strip())
    for sender in senders:
        try:
            parse_range(sender)
        except ValueError as error:
            raise CliError(f"{path}: trusted_senders in [proxy]: {error}.") from None
    if bool(port) != bool(senders):
        raise CliError(f"{path}: behind_port and trusted_senders in [proxy] go together; one of them is empty.")
    return (port, senders) if port else None


def _proxy_switch(path: Path, given: Mapping[str, Any], name: str, *, default: bool) -> bool:
    variable = f"WEIR_PROXY_{name.upper()}"
    value: Any = os.environ.get(variable) or given.get(name, default)
    value = {"true": True, "false": False}.get(value, value) if isinstance(value, str) else value
    if not isinstance(value, bool):
        raise CliError(
            f"The proxy's {name} is {value!r}; it must be true or false ([proxy] in {path}, or {variable})."
        )
    return value


def _pool(path: Path, given: Mapping[str, Any]) -> dict[str, int]:
    found: dict[str, int] = {}
    for name, (usual, most) in POOL_SETTINGS.items():
        variable = f"WEIR_PROXY_{name.upper()}"
        value = os.environ.get(variable) or given.get(name, usual)
        count = None if isinstance(value, bool | float) else number(value)
        if count is None or not 1 <= count <= most:
            raise CliError(
                f"The proxy's {name} is {value!r}; it must be a whole number from 1 to {most} ([proxy] {name} in "
                f"{path}, or {variable})."
            )
        found[name] = count
    return found


def _proxy_certificate(path: Path, given: Mapping[str, Any]) -> tuple[Path, Path] | None:
    certificate = _proxy_text(path, given, "certificate", "")
    key = _proxy_text(path, given, "private_key", "")
    if bool(certificate) != bool(key):
        raise CliError(f"{path}: certificate and private_key in [proxy] go together; one of them is empty.")
    if not certificate:
        return None
    files = Path(certificate), Path(key)
    for file in files:
        if not file.is_absolute():
            raise CliError(f"{path}: {str(file)!r} in [proxy] must be an absolute path.")
    return files


def _proxy_text(path: Path, given: Mapping[str, Any], name: str, default: str) -> str:
    value = os.environ.get(f"WEIR_PROXY_{name.upper()}") or given.get(name, default)
    if not isinstance(value, str):
        raise CliError(f"{path}: {name} in [proxy] is {value!r}; it must be a text.")
    return value


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def _is_host(text: str) -> bool:
    return _address(text) is not None or _HOST_NAME.match(text) is not None
