from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request

from weir.authz.principal import CurrentPrincipal
from weir.branches.safekeepers_schemas import SafekeeperReplacement, SafekeeperReplaceRequest
from weir.clients.dependencies import Http, PageserverClient, PrometheusClient, SafekeeperClients
from weir.clients.http import RemoteError
from weir.computes import metrics, recorded
from weir.computes.repository import ComputeRepository
from weir.computes.router import Range, metrics_answer
from weir.computes.schemas import MetricsResponse
from weir.config import get_settings
from weir.db import Session, release
from weir.errors import (
    BadRequestError,
    ForbiddenError,
    NotBuiltError,
    PreconditionFailedError,
    UnauthorizedError,
    UnavailableError,
    responses,
)
from weir.fleet import features, replacement, service, wal
from weir.fleet.schemas import (
    FeatureCoverage,
    FleetCells,
    FleetOrganizations,
    FleetSummary,
    FleetWalByRegion,
    StorageHealth,
    TargetGroup,
)
from weir.fleet.scraping import only_prometheus
from weir.kit.pagination import Page, Pagination, encode_cursor, text, uuid
from weir.rollouts.features import feature_of
from weir.rollouts.intent import FeatureName

router = APIRouter(prefix="/fleet", tags=["fleet"], responses=responses(UnauthorizedError))
internal_router = APIRouter(prefix="/internal", include_in_schema=False)


@router.get("")
async def get_fleet(
    principal: CurrentPrincipal, session: Session, http: Http, prometheus: PrometheusClient
) -> FleetSummary:
    return await service.summarise(session, principal.fleet, http, prometheus)


@router.get("/metrics", responses=responses(BadRequestError, UnavailableError))
async def get_fleet_metrics(
    principal: CurrentPrincipal, session: Session, prometheus: PrometheusClient, span: Range
) -> MetricsResponse:
    """Sums of rates, and quantiles over all computes together."""
    if principal.fleet is None:
        span.window = metrics.RATE_WINDOW_SECONDS
        await release(session)
        return await metrics_answer(prometheus, "", span, recorded.CHARTED)
    selector = metrics.of_computes(await ComputeRepository(session, principal.fleet).ids())
    await release(session)
    return await metrics_answer(prometheus, selector, span)


@router.get("/wal", responses=responses(BadRequestError, UnavailableError))
async def get_fleet_wal(
    principal: CurrentPrincipal, session: Session, prometheus: PrometheusClient, span: Range
) -> FleetWalByRegion:
    """WAL by region over time, split into page images and the rest, and what image pushdown saves."""
    try:
        return await wal.by_region(session, principal.fleet, prometheus, span)
    except RemoteError as error:
        raise UnavailableError(f"metrics cannot be read now: {error}") from error


@router.get("/cells")
async def list_fleet_cells(principal: CurrentPrincipal, session: Session) -> FleetCells:
    """What a rollout's selector can choose from."""
    return FleetCells(
        cells=await features.cells(session, principal.fleet),
        tags=await features.tags(session, principal.fleet),
    )


@router.get("/organizations", responses=responses(BadRequestError))
async def list_fleet_organizations(
    principal: CurrentPrincipal,
    session: Session,
    page: Page,
    search: Annotated[str | None, Query(max_length=120, description="Part of its name")] = None,
) -> FleetOrganizations:
    """Whose computes there are, by name: what a rollout's selector calls `org_ids`."""
    after = page.after(text, uuid)
    key = None if after is None else (after[0], after[1])
    rows = await features.organizations(session, principal.fleet, search, key, page.limit)
    shown = rows[: page.limit]
    more = len(rows) > page.limit
    return FleetOrganizations(
        organizations=shown,
        pagination=Pagination(cursor=encode_cursor(shown[-1].name, shown[-1].org_id) if more else None),
    )


@router.get("/features/{feature}", responses=responses(BadRequestError))
async def get_feature_coverage(
    feature: FeatureName,
    principal: CurrentPrincipal,
    session: Session,
    page: Page,
    has: bool | None = None,
    region_id: Annotated[str | None, Query(max_length=63)] = None,
    cell: Annotated[str | None, Query(max_length=63)] = None,
    q: Annotated[str | None, Query(max_length=120, description="Part of a compute's id or project's name")] = None,
) -> FeatureCoverage:
    """Which computes have the feature, since when, and why the rest has not."""
    wanted = features.FeatureFilter(has, region_id, cell, q)
    after = page.after(text)
    asked = feature_of(feature)
    rows = await features.page(session, asked, principal.fleet, wanted, after[0] if after else None, page.limit)
    shown = rows[: page.limit]
    return FeatureCoverage(
        feature=feature,
        counts=await features.counts(session, asked, principal.fleet, wanted),
        computes=shown,
        pagination=Pagination(cursor=encode_cursor(shown[-1].compute_id) if len(rows) > page.limit else None),
    )


@router.get("/storage")
async def get_storage_health(
    principal: CurrentPrincipal, session: Session, safekeepers: SafekeeperClients, pageserver: PageserverClient
) -> StorageHealth:
    del principal
    return await service.storage_health(session, safekeepers, pageserver, get_settings().pageserver_http_url)


@router.post(
    "/storage/safekeepers/{safekeeper_id}/replace",
    responses=responses(BadRequestError, NotBuiltError, ForbiddenError, PreconditionFailedError),
)
async def replace_safekeeper(
    safekeeper_id: int,
    body: SafekeeperReplaceRequest,
    principal: CurrentPrincipal,
    session: Session,
    safekeepers: SafekeeperClients,
) -> SafekeeperReplacement:
    """Gives the safekeeper's place to another one, in the logs of all branches that have it as a member. Operators
    only. Branches of busy projects, and those whose log has no majority now, are named and left as they are; ask
    again."""
    return await replacement.replace_everywhere(
        session, principal, safekeepers, safekeeper_id, body.with_, body.after or ""
    )


@internal_router.get("/prometheus/targets", dependencies=[Depends(only_prometheus)])
async def prometheus_targets(request: Request, session: Session) -> list[TargetGroup]:
    """Prometheus's HTTP service discovery; answers loopback and internal networks only, and Prometheus's token."""
    settings = get_settings()
    if request.client is None or not settings.is_internal(request.client.host):
        raise ForbiddenError("service discovery is for this machine and the installation's own network only")
    # Asked every few seconds: the simulated fleet is one target whatever its size.
    rows = [] if settings.compute_runtime == "simulated" else await ComputeRepository(session, None).all()
    return service.targets(rows, settings)
