"""Rows of frozen plans: the members of a rollout, its exclusions, and the computes that are in an open rollout."""

from typing import Any
from uuid import UUID

from sqlalchemy import func, insert, select
from sqlalchemy.ext.asyncio import AsyncSession

from weir.projects.models import Project
from weir.rollouts.models import CLOSED, MemberState, Rollout, RolloutExclusion, RolloutMember, RolloutWave, WaveState
from weir.rollouts.plan.planner import Planned

INSERT_ROWS = 1_000
# What an account is told of a rollout over the whole fleet.
OPERATORS_ROLLOUT = "a rollout of an operator"


class PlanRepository:
    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def freeze(self, rollout_id: str, plan: Planned) -> None:
        """Writes who is in the rollout, in which wave, and who is not."""
        waves = [
            {"rollout_id": rollout_id, "index": wave.index, "name": wave.name, "state": WaveState.PENDING,
             "soak_seconds": wave.soak_seconds}
            for wave in plan.waves
        ]  # fmt: skip
        members = [
            item.model_dump(exclude={"compute_id", "project_name"})
            | {"rollout_id": rollout_id, "endpoint_id": item.compute_id, "state": MemberState.PENDING,
               "updated_at": plan.created_at}
            for item in plan.computes
        ]  # fmt: skip
        exclusions = [
            item.model_dump(exclude={"compute_id", "project_name"})
            | {"rollout_id": rollout_id, "endpoint_id": item.compute_id}
            for item in plan.excluded
        ]
        batches: list[tuple[type[Any], list[dict[str, Any]]]] = [
            (RolloutWave, waves), (RolloutMember, members), (RolloutExclusion, exclusions)
        ]  # fmt: skip
        for model, rows in batches:
            for start in range(0, len(rows), INSERT_ROWS):
                await self._session.execute(insert(model), rows[start : start + INSERT_ROWS])

    async def members(self, rollout_id: str) -> list[RolloutMember]:
        statement = (
            select(RolloutMember)
            .where(RolloutMember.rollout_id == rollout_id)
            .order_by(RolloutMember.wave, RolloutMember.endpoint_id)
        )
        return list((await self._session.scalars(statement)).all())

    async def exclusions(
        self, rollout_id: str, code: str | None, after: str | None, limit: int
    ) -> tuple[list[tuple[RolloutExclusion, str]], int]:
        conditions = [RolloutExclusion.rollout_id == rollout_id]
        if code is not None:
            conditions.append(RolloutExclusion.code == code)
        total = await self._session.scalar(select(func.count()).select_from(RolloutExclusion).where(*conditions))
        if after is not None:
            conditions.append(RolloutExclusion.endpoint_id > after)
        rows = await self._session.execute(
            select(RolloutExclusion, Project.name)
            .join(Project, Project.id == RolloutExclusion.project_id)
            .where(*conditions)
            .order_by(RolloutExclusion.endpoint_id)
            .limit(limit + 1)
        )
        return [(row, name) for row, name in rows.all()], total or 0

    async def open_memberships(self, fleet: UUID | None) -> dict[str, tuple[str, str]]:
        """Which compute of a fleet takes part in which open rollout: its id, and what the fleet's owner is told of it
        (an account does not learn the ids of the operators' rollouts)."""
        statement = (
            select(RolloutMember.endpoint_id, Rollout.id, Rollout.account_id)
            .join(Rollout, Rollout.id == RolloutMember.rollout_id)
            .where(Rollout.status.not_in(CLOSED))
        )
        if fleet is not None:
            own = select(Project.id).where(Project.account_id == fleet)
            statement = statement.where(RolloutMember.project_id.in_(own))
        rows = await self._session.execute(statement)
        return {
            endpoint: (rollout, f"rollout {rollout}" if fleet in {None, owner} else OPERATORS_ROLLOUT)
            for endpoint, rollout, owner in rows.all()
        }
