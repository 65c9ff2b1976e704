"""Adds what was measured to the hours and days, and moves the meters on, in one transaction."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import and_, delete, func, or_, select, text
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from weir.branches.models import Branch
from weir.endpoints.models import Endpoint, EndpointState
from weir.usage.metering import HELD, LONGEST_GAP, SUMMED, Tally
from weir.usage.models import BranchUsagePeriod, EndpointMeter, Grain, StorageMeter, TimelineMeter, UsagePeriod

# Longer than what clients of the API ask for: a week of hours, 60 days, a year of months.
HOURS_KEPT = timedelta(days=31)
DAYS_KEPT = timedelta(days=400)
_KEPT = {Grain.HOUR: HOURS_KEPT, Grain.DAY: DAYS_KEPT}
_LENGTHS = {Grain.HOUR: timedelta(hours=1), Grain.DAY: timedelta(days=1)}
# A row has 15 values at most, and a statement takes 32,767.
_ROWS_A_STATEMENT = 1000


async def lock(session: AsyncSession) -> None:
    """Until the transaction ends, nobody else measures: meters that are read after this are the newest."""
    await session.execute(text("SELECT pg_advisory_xact_lock(hashtextextended('weir usage', 0))"))


async def add(session: AsyncSession, tally: Tally) -> None:
    """With the lock held."""
    keys = ("account_id", "project_id", "grain", "starts_at")
    of_projects: list[dict[str, Any]] = [
        dict(zip(keys, key, strict=True), **asdict(amounts)) for key, amounts in tally.found.items()
    ]
    await _add(session, UsagePeriod, keys, of_projects)
    keys = ("account_id", "project_id", "branch_id", "grain", "starts_at")
    of_branches: list[dict[str, Any]] = [
        dict(zip(keys, key, strict=True), **asdict(amounts)) for key, amounts in tally.branches.items()
    ]
    await _add(session, BranchUsagePeriod, keys, of_branches)


async def _add(
    session: AsyncSession,
    model: type[UsagePeriod | BranchUsagePeriod],
    keys: tuple[str, ...],
    rows: list[dict[str, Any]],
) -> None:
    table = model.__table__
    for first in range(0, len(rows), _ROWS_A_STATEMENT):
        statement = insert(model).values(rows[first : first + _ROWS_A_STATEMENT])
        summed = {name: table.c[name] + statement.excluded[name] for name in SUMMED}
        newest = {name: func.coalesce(statement.excluded[name], table.c[name]) for name in HELD}
        await session.execute(statement.on_conflict_do_update(index_elements=keys, set_=summed | newest))


async def endpoint_meters(session: AsyncSession, idents: Iterable[str]) -> Mapping[str, EndpointMeter]:
    found = await session.scalars(select(EndpointMeter).where(EndpointMeter.endpoint_id.in_(list(idents))))
    return {row.endpoint_id: row for row in found.all()}


async def storage_meters(session: AsyncSession, idents: Iterable[str]) -> Mapping[str, StorageMeter]:
    found = await session.scalars(select(StorageMeter).where(StorageMeter.project_id.in_(list(idents))))
    return {row.project_id: row for row in found.all()}


async def timeline_meters(session: AsyncSession, idents: Iterable[str]) -> Mapping[str, TimelineMeter]:
    found = await session.scalars(select(TimelineMeter).where(TimelineMeter.timeline_id.in_(list(idents))))
    return {row.timeline_id: row for row in found.all()}


async def stopped(session: AsyncSession, at: datetime, most: int) -> list[tuple[Endpoint, EndpointMeter | None]]:
    """Endpoints whose computes have stopped, some of them deleted since, with time that is not counted yet."""
    statement = (
        select(Endpoint, EndpointMeter)
        .outerjoin(EndpointMeter, EndpointMeter.endpoint_id == Endpoint.id)
        .where(
            Endpoint.state == EndpointState.IDLE,
            Endpoint.suspended_at > at - LONGEST_GAP,
            Endpoint.suspended_at <= at,
            or_(EndpointMeter.endpoint_id.is_(None), EndpointMeter.measured_to < Endpoint.suspended_at),
        )
        .order_by(Endpoint.id)
        .limit(most)
    )
    return [(row[0], row[1]) for row in (await session.execute(statement)).all()]


async def prune(session: AsyncSession, at: datetime) -> int:
    """Deletes periods that are older than they are kept, and meters of what is gone. How many periods
    of projects and of branches went.

    A clock that is set far forward must not delete what is there: as many different periods as are kept stay in any
    case, whatever the clock says."""
    gone = 0
    for grain, kept in _KEPT.items():
        distinct = (
            select(UsagePeriod.starts_at)
            .where(UsagePeriod.grain == grain)
            .distinct()
            .order_by(UsagePeriod.starts_at.desc())
            .offset(kept // _LENGTHS[grain])
            .limit(1)
        )
        newest_to_go = await session.scalar(distinct)
        if newest_to_go is None:
            continue
        # A branch's row has its project's beside it, so that both tables have the same periods.
        for model in (UsagePeriod, BranchUsagePeriod):
            old = and_(model.starts_at <= newest_to_go, model.starts_at < at - kept)
            result = await session.execute(delete(model).where(model.grain == grain, old))
            gone += getattr(result, "rowcount", 0)
    # Once they are so old, nothing of them can be counted again.
    ended = select(Endpoint.id).where(Endpoint.deleted_at < at - 2 * LONGEST_GAP)
    await session.execute(delete(EndpointMeter).where(EndpointMeter.endpoint_id.in_(ended)))
    left = select(Branch.timeline_id).where(Branch.deleted_at < at - 2 * LONGEST_GAP)
    await session.execute(delete(TimelineMeter).where(TimelineMeter.timeline_id.in_(left)))
    return gone
