from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

from sqlalchemy import ColumnElement, Select, String, any_, func, literal, select, tuple_
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.ext.asyncio import AsyncSession

from weir.kit.pagination import PageRequest
from weir.projects.models import Project
from weir.rollouts.models import (
    CLOSED,
    IN_PROGRESS,
    MemberState,
    Rollout,
    RolloutAlert,
    RolloutEvidence,
    RolloutMember,
    RolloutWave,
)

S = TypeVar("S", bound="Select[*tuple[Any, ...]]")


@dataclass(frozen=True)
class MemberFilter:
    wave: int | None = None
    state: MemberState | None = None
    cell: str | None = None
    text: str | None = None

    def conditions(self, rollout_id: str) -> list[ColumnElement[bool]]:
        wanted: list[ColumnElement[bool]] = [RolloutMember.rollout_id == rollout_id]
        if self.wave is not None:
            wanted.append(RolloutMember.wave == self.wave)
        if self.state is not None:
            wanted.append(RolloutMember.state == self.state)
        if self.cell is not None:
            wanted.append(RolloutMember.cell == self.cell)
        if self.text:
            wanted.append(
                RolloutMember.endpoint_id.contains(self.text, autoescape=True)
                | Project.name.icontains(self.text, autoescape=True)
            )
        return wanted


class RolloutRepository:
    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    def add(self, row: Rollout | RolloutWave | RolloutMember | RolloutEvidence | RolloutAlert) -> None:
        self._session.add(row)

    async def page(self, fleet: UUID | None, page: PageRequest) -> list[Rollout]:
        """Those of one account, or everybody's (None)."""
        table = Rollout.__table__
        statement = select(Rollout) if fleet is None else select(Rollout).where(Rollout.account_id == fleet)
        statement = page.apply(statement, table.c.created_at, table.c.id)
        return list((await self._session.scalars(statement)).all())

    async def waves(self, rollout_id: str) -> list[RolloutWave]:
        statement = select(RolloutWave).where(RolloutWave.rollout_id == rollout_id).order_by(RolloutWave.index)
        return list((await self._session.scalars(statement)).all())

    async def member(self, rollout_id: str, endpoint_id: str) -> RolloutMember | None:
        return await self._session.get(RolloutMember, (rollout_id, endpoint_id), populate_existing=True)

    async def member_page(
        self, rollout_id: str, wanted: MemberFilter, after: tuple[Any, ...] | None, limit: int
    ) -> tuple[list[tuple[RolloutMember, str]], int]:
        """Members with their project's name, in the order of waves, one more than `limit` if another page follows;
        and how many the filter leaves in all."""
        conditions = wanted.conditions(rollout_id)
        total = await self._session.scalar(_with_project(select(func.count())).where(*conditions))
        if after is not None:
            conditions.append(tuple_(RolloutMember.wave, RolloutMember.endpoint_id) > after)  # type: ignore[arg-type]
        rows = await self._session.execute(
            _with_project(select(RolloutMember, Project.name))
            .where(*conditions)
            .order_by(RolloutMember.wave, RolloutMember.endpoint_id)
            .limit(limit + 1)
        )
        return [(member, name) for member, name in rows.all()], total or 0

    async def state_counts(self, rollout_id: str) -> list[tuple[int, str, str, MemberState, int]]:
        """(wave, region, cell, state, computes)."""
        columns = (RolloutMember.wave, RolloutMember.region_id, RolloutMember.cell, RolloutMember.state)
        rows = await self._session.execute(
            select(*columns, func.count()).where(RolloutMember.rollout_id == rollout_id).group_by(*columns)
        )
        return [(wave, region, cell, state, count) for wave, region, cell, state, count in rows.all()]

    async def switched_count(self, rollout_id: str) -> int:
        statement = select(func.count()).where(
            RolloutMember.rollout_id == rollout_id,
            RolloutMember.switched_at.is_not(None),
            RolloutMember.rolled_back_at.is_(None),
        )
        return await self._session.scalar(statement) or 0

    async def grid(self, rollout_id: str, since: datetime | None) -> list[tuple[Any, ...]]:
        """(compute, project name, cell, region, wave, state, reason) of every member, or of those that changed
        since."""
        statement = _with_project(
            select(
                RolloutMember.endpoint_id,
                Project.name,
                RolloutMember.cell,
                RolloutMember.region_id,
                RolloutMember.wave,
                RolloutMember.state,
                RolloutMember.reason,
            )
        ).where(RolloutMember.rollout_id == rollout_id)
        if since is not None:
            statement = statement.where(RolloutMember.updated_at >= since)
        rows = await self._session.execute(statement.order_by(RolloutMember.wave, RolloutMember.endpoint_id))
        return [tuple(row) for row in rows.all()]

    async def counts(self, rollout_ids: list[str]) -> dict[str, tuple[int, int]]:
        """Members of each rollout, and how many of them passed."""
        rows = await self._session.execute(
            select(
                RolloutMember.rollout_id,
                func.count(),
                func.count().filter(RolloutMember.state == MemberState.PASSED),
            )
            .where(RolloutMember.rollout_id.in_(rollout_ids))
            .group_by(RolloutMember.rollout_id)
        )
        return {ident: (total, passed) for ident, total, passed in rows.all()}

    async def wave_counts(self, rollout_ids: list[str]) -> dict[str, int]:
        rows = await self._session.execute(
            select(RolloutWave.rollout_id, func.count())
            .where(RolloutWave.rollout_id.in_(rollout_ids))
            .group_by(RolloutWave.rollout_id)
        )
        return {ident: total for ident, total in rows.all()}  # noqa: C416  rows are not plain tuples

    async def alerts(self, rollout_id: str, *, only_open: bool) -> list[RolloutAlert]:
        statement = select(RolloutAlert).where(RolloutAlert.rollout_id == rollout_id).order_by(RolloutAlert.id)
        if only_open:
            statement = statement.where(RolloutAlert.cleared_at.is_(None))
        return list((await self._session.scalars(statement)).all())

    async def alert_counts(self, rollout_ids: list[str]) -> dict[str, int]:
        rows = await self._session.execute(
            select(RolloutAlert.rollout_id, func.count())
            .where(RolloutAlert.rollout_id.in_(rollout_ids), RolloutAlert.cleared_at.is_(None))
            .group_by(RolloutAlert.rollout_id)
        )
        return {ident: total for ident, total in rows.all()}  # noqa: C416

    async def evidence(self, rollout_id: str, endpoint_ids: list[str]) -> dict[str, RolloutEvidence]:
        """The newest evidence of each of these members."""
        newest = (
            select(func.max(RolloutEvidence.id))
            .where(RolloutEvidence.rollout_id == rollout_id, RolloutEvidence.endpoint_id.in_(endpoint_ids))
            .group_by(RolloutEvidence.endpoint_id)
        )
        statement = select(RolloutEvidence).where(RolloutEvidence.id.in_(newest))
        return {row.endpoint_id: row for row in (await self._session.scalars(statement)).all()}

    async def in_progress(self, endpoint_ids: list[str]) -> dict[str, str]:
        """Which of these computes a rollout works on right now."""
        rows = await self._session.execute(
            select(RolloutMember.endpoint_id, RolloutMember.rollout_id)
            .join(Rollout, Rollout.id == RolloutMember.rollout_id)
            .where(
                Rollout.status.not_in(CLOSED),
                RolloutMember.state.in_(IN_PROGRESS),
                # One parameter: hundreds of them are dear to write out, every round of the reconciler.
                RolloutMember.endpoint_id == any_(literal(endpoint_ids, ARRAY(String))),
            )
        )
        return {endpoint: rollout for endpoint, rollout in rows.all()}  # noqa: C416


def _with_project(statement: S) -> S:
    return statement.select_from(RolloutMember).join(Project, Project.id == RolloutMember.project_id)
