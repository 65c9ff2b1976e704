"""The WAL of a fleet: by region over time, and what image pushdown saves of it."""

import asyncio
from collections import defaultdict
from uuid import UUID

from sqlalchemy import func, select
from sqlalchemy.dialects.postgresql import distinct_on
from sqlalchemy.ext.asyncio import AsyncSession

from weir.clients.prometheus import Prometheus
from weir.computes import metrics, recorded
from weir.computes.router import MetricsRange
from weir.db import release
from weir.endpoints.models import Endpoint
from weir.fleet.features import owned
from weir.fleet.schemas import FleetWalByRegion, RegionWal, WalSaved
from weir.projects.models import Project
from weir.rollouts.models import Rollout, RolloutMember


async def by_region(
    session: AsyncSession, fleet: UUID | None, prometheus: Prometheus, span: MetricsRange
) -> FleetWalByRegion:
    """Ends the session's transaction. Raises RemoteError when Prometheus does not answer."""
    if fleet is None:
        span.window = metrics.RATE_WINDOW_SECONDS
        regions = await _counts_by_region(session)
        selectors, figures = [recorded.of_region(region) for region in regions], recorded.WAL
    else:
        ids = await _computes_by_region(session, fleet)
        regions = {region: len(found) for region, found in ids.items()}
        selectors, figures = [metrics.of_computes(found) for found in ids.values()], metrics.WAL_PARTS
    saved = await _saved(session, fleet)
    await release(session)
    charts = await asyncio.gather(
        *(
            metrics.chart(prometheus, selector, span.start, span.end, span.step, span.window, figures)
            for selector in selectors
        )
    )
    return FleetWalByRegion(
        from_=span.start,
        to=span.end,
        step_seconds=span.step,
        window_seconds=span.window,
        times=charts[0].times if charts else [],
        regions=[
            RegionWal(
                region_id=region,
                computes=count,
                wal_image_bytes_per_second=chart.series["wal_image_bytes_per_second"],
                wal_rest_bytes_per_second=chart.series["wal_rest_bytes_per_second"],
            )
            for (region, count), chart in zip(regions.items(), charts, strict=True)
        ],
        saved=saved,
    )


async def _counts_by_region(session: AsyncSession) -> dict[str, int]:
    rows = await session.execute(
        select(Project.region_id, func.count())
        .join(Endpoint, Endpoint.project_id == Project.id)
        .where(Endpoint.deleted_at.is_(None))
        .group_by(Project.region_id)
        .order_by(Project.region_id)
    )
    return {region: count for region, count in rows.all()}  # noqa: C416  rows are not plain tuples


async def _computes_by_region(session: AsyncSession, fleet: UUID) -> dict[str, list[str]]:
    rows = await session.execute(
        select(Project.region_id, Endpoint.id)
        .join(Project, Project.id == Endpoint.project_id)
        .where(Endpoint.deleted_at.is_(None), *owned(fleet))
        .order_by(Project.region_id, Endpoint.id)
    )
    regions: dict[str, list[str]] = defaultdict(list)
    for region, compute in rows.all():
        regions[region].append(compute)
    return dict(regions)


async def _saved(session: AsyncSession, fleet: UUID | None) -> WalSaved:
    """Each compute that a rollout switched and that is still wanted so counts once: with its newest rollout."""
    newest = (
        select(RolloutMember.endpoint_id, RolloutMember.expected_wal_saved_bytes_per_second.label("saved"))
        .ext(distinct_on(RolloutMember.endpoint_id))
        .join(Rollout, Rollout.id == RolloutMember.rollout_id)
        .where(RolloutMember.switched_at.is_not(None), RolloutMember.rolled_back_at.is_(None))
        .order_by(RolloutMember.endpoint_id, Rollout.created_at.desc())
        .subquery()
    )
    count, known, saved = (
        await session.execute(
            select(func.count(), func.count(newest.c.saved), func.sum(newest.c.saved))
            .select_from(newest)
            .join(Endpoint, Endpoint.id == newest.c.endpoint_id)
            .join(Project, Project.id == Endpoint.project_id)
            .where(Endpoint.deleted_at.is_(None), Endpoint.full_page_writes.is_(False), *owned(fleet))
        )
    ).one()
    return WalSaved(bytes_per_second=saved, computes=count, computes_unknown=count - known)
