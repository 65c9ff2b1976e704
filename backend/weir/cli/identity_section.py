"""The tables `[identity.oidc.NAME]` of `weir.toml`: the identity providers that people sign in by, as the API is told
them by its environment."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from weir.cli.errors import CliError
from weir.oidc.settings import LIST, VARIABLES, from_environment, variable


def variables(path: Path, document: Mapping[str, Any]) -> dict[str, str]:
    """What the API is told, by variable. The environment of `weir` itself counts more than the file. Raises CliError
    for what the API would refuse."""
    identity = _table(path, "identity", document.get("identity", {}))
    if unknown := identity.keys() - {"oidc"}:
        raise CliError(f"{path}: [identity] has no setting {min(unknown)!r}; it has tables [identity.oidc.NAME].")
    tables = _table(path, "identity.oidc", identity.get("oidc", {}))
    told: dict[str, str] = {}
    for name, content in tables.items():
        where = f"identity.oidc.{name}"
        table = _table(path, where, content)
        if unknown := table.keys() - VARIABLES.keys():
            raise CliError(f"{path}: [{where}] has no setting {min(unknown)!r}; it has {', '.join(VARIABLES)}.")
        told |= {variable(name, setting): _text(path, where, setting, value) for setting, value in table.items()}
    if tables:
        told[LIST] = ",".join(tables)
    told |= {name: value for name, value in os.environ.items() if name == LIST or name.startswith(f"{LIST}_")}
    try:
        from_environment(told)
    except ValueError as error:
        raise CliError(f"Identity providers ([identity.oidc.NAME] in {path}, or the environment): {error}.") from None
    return told


def _table(path: Path, name: str, content: Any) -> Mapping[str, Any]:
    if not isinstance(content, dict):
        raise CliError(f"{path}: [{name}] must be a table.")
    return content  # pyright: ignore[reportUnknownVariableType]


def _text(path: Path, where: str, setting: str, value: Any) -> str:
    """Lists are for scopes and domains."""
    if isinstance(value, str):
        return value
    separator = {"scopes": " ", "allowed_domains": ","}.get(setting)
    parts: list[Any] = value if isinstance(value, list) else []
    if separator is None or not isinstance(value, list) or not all(isinstance(part, str) for part in parts):
        raise CliError(
            f"{path}: {setting} in [{where}] is {value!r}; it must be text, or, where there may be several, a list."
        )
    return separator.join(parts)
