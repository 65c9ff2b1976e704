"""What `weir-proxy` asks of the control plane: no part of the public API, for the installation's own network and
its proxy's token."""

import hmac
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request

from weir.config import get_settings
from weir.db import Database, Session
from weir.errors import ForbiddenError
from weir.kit.schemas import PathId
from weir.proxy import service
from weir.proxy.schemas import ProxyEndpoint

TOKEN_FILE = "proxy_token"  # noqa: S105  a file's name
_MOST_SECONDS = 600


def _only_the_proxy(request: Request) -> None:
    """Raises ForbiddenError unless the request comes from this machine or an internal network, and carries the token,
    which is compared in constant time."""
    refused = ForbiddenError("this is for the installation's own proxy only")
    settings = get_settings()
    if request.client is None or not settings.is_internal(request.client.host):
        raise refused
    try:
        token = (settings.secrets_dir / TOKEN_FILE).read_bytes().strip()
    except OSError:
        raise refused from None
    given = request.headers.get("authorization", "").encode("latin-1", "replace")
    if not token or not hmac.compare_digest(given, b"Bearer " + token):
        raise refused


router = APIRouter(prefix="/internal/proxy", include_in_schema=False, dependencies=[Depends(_only_the_proxy)])


# What is not said is left out: a proxy of before `allowed_ips` refuses names that it does not know, and keeps serving
# the endpoints that have none.
@router.get("/endpoints/{endpoint_id}", response_model_exclude_none=True)
async def endpoint_for_proxy(endpoint_id: PathId, session: Session) -> ProxyEndpoint | None:
    """`null` when there is no such endpoint."""
    return await service.describe(session, endpoint_id)


@router.post("/endpoints/{endpoint_id}/wake", response_model_exclude_none=True)
async def wake_for_proxy(
    endpoint_id: PathId, request: Request, seconds: Annotated[float, Query(gt=0, le=_MOST_SECONDS)] = 30
) -> ProxyEndpoint | None:
    """Answers when the compute runs, or must not."""
    database: Database = request.app.state.database
    return await service.wake(database, endpoint_id, seconds)
