"""docker/compose.yaml as a program reads it: variables substituted, services with what the tests look at."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

COMPOSE = Path(__file__).resolve().parents[1] / "compose.yaml"
_VARIABLE = re.compile(r"\$\{([A-Z_]+)(?::-([^}]*))?\}")


@dataclass(frozen=True)
class Mount:
    """`source`: a volume's name, or a path beside the Compose file that begins with a dot."""

    source: str
    target: str
    read_only: bool

    @property
    def is_volume(self) -> bool:
        return not self.source.startswith(".")


@dataclass(frozen=True)
class Service:
    """One service. `secrets`: paths in the container by secrets' names."""

    name: str
    image: str
    command: list[str]
    environment: dict[str, str]
    secrets: dict[str, str]
    mounts: list[Mount]
    networks: list[str]
    after: dict[str, str]
    raw: Mapping[str, Any]

    @property
    def health(self) -> list[str]:
        """The command of the health check; empty where it is disabled."""
        check = self.raw.get("healthcheck", {})
        return [] if check.get("disable") else list(check.get("test", []))[1:]


def document(variables: Mapping[str, str] | None = None, path: Path = COMPOSE) -> dict[str, Any]:
    """The file with each `${NAME:-default}` replaced, from `variables` or by the default. Raises ValueError for a
    variable that has neither."""
    given = variables or {}

    def value(found: re.Match[str]) -> str:
        default: str | None = found[2]
        if found[1] not in given and default is None:
            raise ValueError(f"{path.name} uses ${{{found[1]}}} without a default")
        return given.get(found[1], default or "")

    # After the YAML was read, as Compose does: an empty value is an empty text, not null.
    def replaced(node: Any) -> Any:
        if isinstance(node, dict):
            return {key: replaced(inner) for key, inner in node.items()}
        if isinstance(node, list):
            return [replaced(inner) for inner in node]
        return _VARIABLE.sub(value, node) if isinstance(node, str) else node

    return replaced(yaml.safe_load(path.read_text()))


def services(composed: Mapping[str, Any], profiles: Collection[str] = ()) -> dict[str, Service]:
    """Those that Compose starts with these profiles."""
    return {
        name: _service(name, raw)
        for name, raw in composed["services"].items()
        if "profiles" not in raw or set(raw["profiles"]) & set(profiles)
    }


def _mount(text: str) -> Mount:
    source, target, *mode = text.split(":")
    return Mount(source, target, mode == ["ro"])


def _service(name: str, raw: Mapping[str, Any]) -> Service:
    secrets: dict[str, str] = {}
    for secret in raw.get("secrets", []):
        source = secret if isinstance(secret, str) else secret["source"]
        target = source if isinstance(secret, str) else secret.get("target", source)
        secrets[source] = target if target.startswith("/") else f"/run/secrets/{target}"
    return Service(
        name=name,
        image=raw["image"],
        command=list(raw.get("command", [])),
        environment={key: str(value) for key, value in raw.get("environment", {}).items()},
        secrets=secrets,
        mounts=[_mount(text) for text in raw.get("volumes", [])],
        networks=[] if raw.get("network_mode") == "none" else list(raw["networks"]),
        after={other: how["condition"] for other, how in raw.get("depends_on", {}).items()},
        raw=raw,
    )
