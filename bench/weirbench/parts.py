"""Asking the parts of an installation by hand: pageserver, safekeepers, computes' agents, Prometheus.

The one place of benchmarks and tests that knows how a part is reached: `[security] tls` of the installation decides
between http and https, and https wants the caller's certificate and the name that the part has to prove.
"""

from __future__ import annotations

import ssl

import httpx

from weir.cli.installation import Installation
from weir.tls import parts
from weir.tls.client import caller


def part_name(port: str) -> str:
    """The name that the part at this port proves. `port`: as the settings have it, such as `pageserver_http` or
    `safekeeper_2_wal`; `agent:ID` for a compute's agent, `prometheus`."""
    if port.startswith("agent:"):
        return parts.compute_name(port.removeprefix("agent:"))
    kind, number, *_ = [*port.split("_"), ""]
    return f"{kind}-{number}" if kind == "safekeeper" else kind


def context(installation: Installation, part: str = "control") -> ssl.SSLContext | None:
    """To connect as this part does: `control`, `pageserver`, `safekeeper-N`, or `compute:ID`. None where the parts of
    the installation speak plain TCP. Raises UnprovenError where the part's file is missing."""
    if not installation.has_tls:
        return None
    kind, _, compute = part.partition(":")
    home = installation.home
    file = parts.compute_file(home, compute) if kind == "compute" else parts.service_file(home, part)
    return caller(file).context()


def client(installation: Installation, port: str, number: int | None = None, *, timeout: float = 30) -> httpx.Client:
    """A client of the HTTP API at this port, as the control plane connects; it shows no token by itself. `port`: as
    `part_name` wants it; `number`: of the port, where the settings do not have it."""
    proof = context(installation)
    address = f"127.0.0.1:{installation.ports[port] if number is None else number}"
    if proof is None:
        return httpx.Client(base_url=f"http://{address}", timeout=timeout)

    def means(request: httpx.Request) -> None:
        request.extensions["sni_hostname"] = part_name(port)

    hooks = {"request": [means]}
    return httpx.Client(base_url=f"https://{address}", timeout=timeout, verify=proof, event_hooks=hooks)
