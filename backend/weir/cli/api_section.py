"""The section `[api]` of `weir.toml`, as the API is told it by its environment."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from weir.cli.errors import CliError
from weir.cli.sections import number, section
from weir.config import LEAST_BODY_BYTES, MOST_API_PROCESSES, MOST_BODY_BYTES
from weir.front.rates import Rate
from weir.front.settings import host_names
from weir.quotas.names import parse_defaults


def variables(path: Path, document: Mapping[str, Any]) -> dict[str, str]:
    """What the API is told beside its port, by the variable that tells it."""
    given = section(path, document, "api")
    if unknown := given.keys() - API_SETTINGS.keys():
        raise CliError(f"{path}: [api] has no setting {min(unknown)!r}; it has {', '.join(API_SETTINGS)}.")
    told: dict[str, str] = {}
    for name, check in API_SETTINGS.items():
        variable = f"WEIR_{name.upper()}"
        value: Any = os.environ.get(variable, given.get(name))
        if value is None:
            continue
        text = str(value).lower() if isinstance(value, bool) else str(value)
        try:
            check(text)
        except ValueError as error:
            raise CliError(f"[api] {name} in {path}, or {variable}: {error}.") from None
        told[variable] = text
    return told


def _switch(text: str) -> None:
    if text not in {"true", "false"}:
        raise ValueError(f"{text!r} must be true or false")


def _number_of(what: str, least: int, most: int) -> Callable[[str], None]:
    def check(text: str) -> None:
        count = number(text)
        if count is None or not least <= count <= most:
            raise ValueError(f"{text!r} must be a number of {what} from {least} to {most}")

    return check


# Settings of [api], each with what raises ValueError for a wrong one. The API checks them the same way.
API_SETTINGS: Mapping[str, Callable[[str], object]] = {
    "allowed_hosts": host_names,
    "behind_tls": _switch,
    "max_body_bytes": _number_of("bytes", LEAST_BODY_BYTES, MOST_BODY_BYTES),
    "api_processes": _number_of("processes", 1, MOST_API_PROCESSES),
    **dict.fromkeys(("rate_reads", "rate_changes", "rate_reveals", "rate_sql", "rate_strangers"), Rate.parse),
    "quotas": parse_defaults,
}
