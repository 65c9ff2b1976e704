"""The ports of an installation, which `[ports]` of `weir.toml` and the environment can change, and the number of its
safekeepers, each of which has two."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from weir.cli.errors import CliError
from weir.cli.sections import number as whole_number
from weir.cli.sections import section

# Safekeepers of a new installation, and how many one can have: that many have ports. Those beyond the first three
# are spares.
SAFEKEEPERS = 3
MOST_SAFEKEEPERS = 9
_NUMBERS = range(1, MOST_SAFEKEEPERS + 1)
FIRST_PORT = 7400
PORTS: Mapping[str, tuple[int, str]] = {
    "api": (7400, "API and console"),
    "worker": (7402, "worker's health and metrics"),
    "postgres": (7410, "metadata Postgres"),
    "temporal": (7420, "Temporal, gRPC"),
    "temporal_ui": (7421, "Temporal's own console"),
    "temporal_http": (7422, "Temporal, HTTP"),
    "temporal_metrics": (7423, "Temporal's metrics"),
    "prometheus": (7430, "Prometheus"),
    "proxy": (7432, "databases, through the proxy"),
    "proxy_http": (7433, "proxy's health and metrics"),
    **{f"safekeeper_{n}_wal": (7500 + n, f"safekeeper {n}, WAL") for n in _NUMBERS},
    **{f"safekeeper_{n}_http": (7510 + n, f"safekeeper {n}, HTTP") for n in _NUMBERS},
    "pageserver_pages": (7600, "pageserver, pages"),
    "pageserver_http": (7601, "pageserver, HTTP"),
    "simulator": (7650, "simulated fleet"),
}
# Ports that settings files of before the proxy do not have.
_LATER = ("proxy", "proxy_http")


def safekeeper_of(port: str) -> int:
    """The number of the safekeeper whose port this is; 0 for all others."""
    words = port.split("_")
    return int(words[1]) if words[0] == "safekeeper" else 0


def chosen(path: Path, document: Mapping[str, Any], safekeepers: int) -> dict[str, int]:
    """Of all that runs here. Unless told otherwise, spare safekeepers have the ports behind those of the first one,
    and what an older settings file does not know is as far from the API as in a new one."""
    ports: dict[str, int] = {}
    for name, (usual, _) in PORTS.items():
        number = safekeeper_of(name)
        if number > safekeepers:
            continue
        if number > SAFEKEEPERS:
            default = ports[name.replace(f"_{number}_", "_1_")] + number - 1
        elif name in _LATER:
            default = ports["api"] + usual - FIRST_PORT
        else:
            default = usual
        ports[name] = _port(path, document, name, default)
    return ports


def _port(path: Path, document: Mapping[str, Any], name: str, default: int) -> int:
    variable = f"WEIR_PORT_{name.upper()}"
    value = os.environ.get(variable) or section(path, document, "ports").get(name, default)
    port = whole_number(value)
    if port is None or not 1 <= port <= 65535:
        raise CliError(f"The port {name!r} is {value!r}; it must be 1-65535 ([ports] in {path}, or {variable}).")
    return port


def safekeeper_count(path: Path, document: Mapping[str, Any]) -> int:
    value = os.environ.get("WEIR_SAFEKEEPERS_COUNT") or section(path, document, "safekeepers").get(
        "count", SAFEKEEPERS
    )
    count = whole_number(value)
    if count is None or not 1 <= count <= MOST_SAFEKEEPERS:
        raise CliError(
            f"The number of safekeepers is {value!r}; it must be 1-{MOST_SAFEKEEPERS} ([safekeepers] count in "
            f"{path}, or "
            "WEIR_SAFEKEEPERS_COUNT)."
        )
    return count


def refuse_duplicates(path: Path, ports: Mapping[str, int]) -> None:
    owner: dict[int, str] = {}
    for name, port in ports.items():
        if port in owner:
            raise CliError(f"Port {port} is given to both {owner[port]} and {name} ([ports] in {path}).")
        owner[port] = name
