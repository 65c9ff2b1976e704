"""Measurements of rollouts in the database, where they outlive the metrics from which they were made."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from weir.kit.clock import now
from weir.projects.models import Project
from weir.rollouts.evidence.models import RolloutMeasurement
from weir.rollouts.models import RolloutEvidence, RolloutMember

# Tells measurements of a rollout from those of another moment: how many there are, and the sum of their times, which
# changes whichever row is stored anew, in whatever order transactions commit.
Version = tuple[int, str]

# Rows fetched at a time by those who read all members of a rollout.
CHUNK = 500


@dataclass(frozen=True)
class MeasuredMember:
    """A member with its project's name and, where there are any, its measurement and its newest verdict."""

    member: RolloutMember
    project_name: str
    measured: RolloutMeasurement | None
    verdict: RolloutEvidence | None


async def keep_measurement(
    session: AsyncSession, rollout_id: str, endpoint_id: str, measured: dict[str, Any]
) -> None:
    """Stores what `evidence.collect.measure` answered, in place of what was stored for the member before."""
    values = {"rollout_id": rollout_id, "endpoint_id": endpoint_id, "measured_at": now(), **measured}
    statement = insert(RolloutMeasurement).values(values)
    keys = (RolloutMeasurement.rollout_id, RolloutMeasurement.endpoint_id)
    await session.execute(
        statement.on_conflict_do_update(
            index_elements=keys,
            set_={name: statement.excluded[name] for name in ("before", "after", "series", "measured_at")},
        )
    )


async def measurements_version(session: AsyncSession, rollout_id: str) -> Version:
    statement = select(func.count(), func.sum(func.extract("epoch", RolloutMeasurement.measured_at))).where(
        RolloutMeasurement.rollout_id == rollout_id
    )
    count, times = (await session.execute(statement)).one()
    return count, str(times)


async def measured_members(
    session: AsyncSession,
    rollout_id: str,
    *,
    wave: int | None = None,
    after: tuple[Any, ...] | None = None,
    limit: int | None = None,
) -> AsyncIterator[MeasuredMember]:
    """Members by wave and compute, from behind `after` on; no more of them in memory than a chunk."""
    done = 0
    while limit is None or done < limit:
        size = CHUNK if limit is None else min(CHUNK, limit - done)
        rows = await _chunk(session, rollout_id, wave, after, size)
        for row in rows:
            yield row
        done += len(rows)
        if len(rows) < size:
            return
        after = (rows[-1].member.wave, rows[-1].member.endpoint_id)
        for row in rows:
            if row.measured is not None:
                session.expunge(row.measured)


async def _chunk(
    session: AsyncSession, rollout_id: str, wave: int | None, after: tuple[Any, ...] | None, size: int
) -> list[MeasuredMember]:
    statement = (
        select(RolloutMember, Project.name, RolloutMeasurement)
        .join(Project, Project.id == RolloutMember.project_id)
        .outerjoin(
            RolloutMeasurement,
            (RolloutMeasurement.rollout_id == RolloutMember.rollout_id)
            & (RolloutMeasurement.endpoint_id == RolloutMember.endpoint_id),
        )
        .where(RolloutMember.rollout_id == rollout_id)
        .order_by(RolloutMember.wave, RolloutMember.endpoint_id)
        .limit(size)
    )
    if wave is not None:
        statement = statement.where(RolloutMember.wave == wave)
    if after is not None:
        beyond = (RolloutMember.wave > after[0]) | (
            (RolloutMember.wave == after[0]) & (RolloutMember.endpoint_id > after[1])
        )
        statement = statement.where(beyond)
    rows = (await session.execute(statement)).all()
    verdicts = await _verdicts(session, rollout_id, [member.endpoint_id for member, _, _ in rows])
    return [
        MeasuredMember(member, name, measured, verdicts.get(member.endpoint_id)) for member, name, measured in rows
    ]


async def _verdicts(session: AsyncSession, rollout_id: str, endpoint_ids: list[str]) -> dict[str, RolloutEvidence]:
    """The newest of each."""
    statement = (
        select(RolloutEvidence)
        .where(RolloutEvidence.rollout_id == rollout_id, RolloutEvidence.endpoint_id.in_(endpoint_ids))
        .order_by(RolloutEvidence.id)
    )
    return {row.endpoint_id: row for row in (await session.scalars(statement)).all()}


async def newest_verdict(session: AsyncSession, rollout_id: str, endpoint_id: str) -> RolloutEvidence | None:
    return (await _verdicts(session, rollout_id, [endpoint_id])).get(endpoint_id)


async def kept_series(session: AsyncSession, rollout_id: str, endpoint_id: str) -> dict[str, Any] | None:
    statement = select(RolloutMeasurement.series).where(
        RolloutMeasurement.rollout_id == rollout_id, RolloutMeasurement.endpoint_id == endpoint_id
    )
    return (await session.scalars(statement)).one_or_none()
