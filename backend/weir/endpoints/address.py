"""Where clients find an endpoint: at the proxy, which is there for all of them, or at its own compute without one."""

from dataclasses import dataclass, field

from weir.config import Settings
from weir.endpoints.models import Endpoint


@dataclass(frozen=True)
class PublicAddress:
    host: str
    port: int
    # Parameters of the connection, as libpq names them.
    parameters: dict[str, str] = field(default_factory=dict[str, str])


# What the proxy takes off an endpoint's name, to lend its client a server connection for each transaction only.
POOLER = "-pooler"


def public_address(endpoint: Endpoint, settings: Settings, *, pooled: bool = False) -> PublicAddress:
    """Through the proxy the client names the endpoint, by its host name where there is a domain, and else by an
    option; it asks for TLS, and for a login that is bound to it. Which CA to trust is the client's to say. Without a
    proxy nothing is pooled: the address is the compute's own."""
    if not settings.has_proxy:
        return PublicAddress(endpoint.host, endpoint.port)
    strict = {"sslmode": "require", "channel_binding": "require"}
    name = endpoint.id + (POOLER if pooled else "")
    if settings.proxy_domain:
        return PublicAddress(f"{name}.{settings.proxy_domain}", settings.proxy_port, strict)
    return PublicAddress(settings.proxy_host, settings.proxy_port, {"options": f"endpoint={name}", **strict})
