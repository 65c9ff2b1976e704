from typing import Literal

from weir.kit.schemas import View


class ProxyEndpoint(View):
    """An endpoint as the proxy knows it (docs/interfaces.md). `address`, HOST:PORT, of a running one; `roles`: the
    SCRAM verifiers of those who can log in."""

    state: Literal["running", "suspended", "disabled"]
    address: str | None = None
    roles: dict[str, str]
