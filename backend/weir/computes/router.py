from datetime import datetime, timedelta
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Query

from weir.authz.access import Access
from weir.authz.principal import CurrentPrincipal
from weir.clients.dependencies import Http, PrometheusClient
from weir.clients.http import RemoteError
from weir.clients.prometheus import Prometheus
from weir.computes import in_force, metrics, service
from weir.computes.repository import ComputeFilter, ComputeRepository, ComputeRow
from weir.computes.schemas import (
    ComputeResponse,
    ComputeSettingsResponse,
    ComputesPage,
    MetricSeries,
    MetricsResponse,
)
from weir.db import Session, release
from weir.endpoints.models import EndpointState
from weir.errors import (
    BadRequestError,
    NotFoundError,
    UnauthorizedError,
    UnavailableError,
    responses,
)
from weir.kit.clock import now
from weir.kit.pagination import Page, Pagination
from weir.kit.schemas import Id, PathId, Timestamp

router = APIRouter(tags=["computes"], responses=responses(UnauthorizedError, BadRequestError))


class MetricsRange:
    """The span of a chart. Raises BadRequestError for one that is empty, or has too many points."""

    def __init__(self, start: datetime, end: datetime, step_seconds: float) -> None:
        self.start, self.end, self.step = start, end, step_seconds
        self.window = max(metrics.RATE_WINDOW_SECONDS, round(step_seconds))
        span = (end - start).total_seconds()
        if span <= 0:
            raise BadRequestError("`from` must be before `to`")
        if span / step_seconds > metrics.MAX_POINTS:
            raise BadRequestError(f"more than {metrics.MAX_POINTS} points; choose a larger step_seconds")


async def _range(
    from_: Annotated[Timestamp | None, Query(alias="from")] = None,
    to: Timestamp | None = None,
    step_seconds: Annotated[float, Query(ge=1, le=3600)] = 5,
) -> MetricsRange:
    """The last 15 minutes in steps of 5 s unless told."""
    end = to or now()
    return MetricsRange(from_ or end - timedelta(minutes=15), end, step_seconds)


Range = Annotated[MetricsRange, Depends(_range)]


async def metrics_answer(
    prometheus: Prometheus,
    selector: str,
    span: MetricsRange,
    figures: tuple[metrics.Figure, ...] = metrics.CHARTED,
) -> MetricsResponse:
    try:
        chart = await metrics.chart(prometheus, selector, span.start, span.end, span.step, span.window, figures)
    except RemoteError as error:
        raise UnavailableError(f"metrics cannot be read now: {error}") from error
    return MetricsResponse(
        from_=span.start,
        to=span.end,
        step_seconds=span.step,
        window_seconds=span.window,
        times=chart.times,
        series=MetricSeries(**chart.series),
    )


async def _row(session: Session, principal: CurrentPrincipal, endpoint_id: str) -> ComputeRow:
    """All that is read: the session's transaction ends."""
    row = await ComputeRepository(session, principal.fleet).get(endpoint_id)
    if row is None:
        raise NotFoundError.of("compute", endpoint_id)
    await release(session)
    return row


@router.get("/computes", responses=responses(NotFoundError))
async def list_computes(
    access: Access,
    session: Session,
    http: Http,
    prometheus: PrometheusClient,
    page: Page,
    project_id: Annotated[Id | None, Query()] = None,
    q: Annotated[
        str | None, Query(max_length=120, description="Part of the id, or a project's or branch's name")
    ] = None,
    wanted: Annotated[Literal["active", "idle"] | None, Query(description="Those that should run, or rest")] = None,
    pushdown: Annotated[bool | None, Query(description="Those that should have image pushdown, or not")] = None,
) -> ComputesPage:
    """What every compute wants, is and does now; newest first. `total` counts what the filters leave."""
    if project_id is not None:
        await access.projects_of_fleet([project_id])
    repository = ComputeRepository(session, access.principal.fleet)
    chosen = ComputeFilter(
        project_id, q, None if wanted is None else EndpointState(wanted), None if pushdown is None else not pushdown
    )
    found, total = await repository.page(chosen, page)
    rows = found[: page.limit]
    await release(session)
    seen = await service.observe(rows, http)
    rates = await service.rates_or_none(prometheus, [row.endpoint.id for row in rows])
    more = len(found) > page.limit
    return ComputesPage(
        computes=[service.summary(row, seen.get(row.endpoint.id), rates.get(row.endpoint.id)) for row in rows],
        total=total,
        pagination=Pagination(
            cursor=page.cursor_after(rows[-1].endpoint.created_at, rows[-1].endpoint.id) if more else None
        ),
    )


@router.get("/computes/{endpoint_id}", responses=responses(NotFoundError))
async def get_compute(
    endpoint_id: PathId,
    principal: CurrentPrincipal,
    session: Session,
    http: Http,
    prometheus: PrometheusClient,
) -> ComputeResponse:
    row = await _row(session, principal, endpoint_id)
    seen = await service.observe([row], http)
    rates = await service.rates_or_none(prometheus, [endpoint_id])
    return ComputeResponse(compute=service.detail(row, seen.get(endpoint_id), rates.get(endpoint_id)))


@router.get("/computes/{endpoint_id}/settings", responses=responses(NotFoundError))
async def get_compute_settings(
    endpoint_id: PathId, principal: CurrentPrincipal, session: Session, http: Http
) -> ComputeSettingsResponse:
    """The settings that are wanted of a compute and what is in force of them, as its Postgres says now."""
    row = await _row(session, principal, endpoint_id)
    return ComputeSettingsResponse(settings=await in_force.settings_of(row, http))


@router.get("/computes/{endpoint_id}/metrics", responses=responses(NotFoundError, UnavailableError))
async def get_compute_metrics(
    endpoint_id: PathId,
    principal: CurrentPrincipal,
    session: Session,
    prometheus: PrometheusClient,
    span: Range,
) -> MetricsResponse:
    row = await _row(session, principal, endpoint_id)
    return await metrics_answer(prometheus, metrics.of_compute(row.endpoint.id), span)
