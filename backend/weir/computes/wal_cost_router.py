from typing import Annotated

from fastapi import APIRouter, Query

from weir.authz.principal import CurrentPrincipal
from weir.clients.dependencies import Http, PrometheusClient
from weir.computes.repository import ComputeRepository
from weir.computes.wal_cost import wal_cost
from weir.computes.wal_cost_schemas import WalCost
from weir.db import Session, release
from weir.errors import BadRequestError, NotFoundError, UnauthorizedError, UnavailableError, responses
from weir.kit.schemas import PathId

router = APIRouter(tags=["computes"], responses=responses(UnauthorizedError, BadRequestError))


@router.get("/computes/{endpoint_id}/wal_cost", responses=responses(NotFoundError, UnavailableError))
async def get_compute_wal_cost(
    endpoint_id: PathId,
    principal: CurrentPrincipal,
    session: Session,
    http: Http,
    prometheus: PrometheusClient,
    window_seconds: Annotated[int, Query(ge=15, le=86_400)] = 300,
) -> WalCost:
    """Where the compute's WAL comes from (page images and the rest, by resource manager and relation), how often it
    checkpoints, and what it would write at another checkpoint distance, compressed, or with pushdown."""
    row = await ComputeRepository(session, principal.fleet).get(endpoint_id)
    if row is None:
        raise NotFoundError.of("compute", endpoint_id)
    await release(session)
    return await wal_cost(row, prometheus, http, window_seconds)
