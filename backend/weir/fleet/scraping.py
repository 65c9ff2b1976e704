"""Who may read what the API has for Prometheus: its own figures, and the list of what there is to scrape."""

from fastapi import Request

from weir.config import get_settings
from weir.errors import UnauthorizedError
from weir.tokens.check import Refused, checker_for
from weir.tokens.mint import Right


async def only_prometheus(request: Request) -> None:
    """Raises UnauthorizedError unless the request carries a token for the figures of the control plane. Where the
    process has no key set (in containers, in tests) nobody is asked for one."""
    try:
        checker_for(get_settings()).check(request.headers.get("authorization"), Right.METRICS)
    except Refused as refused:
        raise UnauthorizedError(f"this is for the installation's own Prometheus: {refused}") from None
