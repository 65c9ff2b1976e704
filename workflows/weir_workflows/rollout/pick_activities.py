"""Picking: which computes of a wave are taken up next, written down in the transaction that picks them, so that a
repeated call answers as the first did."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Row, func, select, update
from sqlalchemy.ext.asyncio import AsyncSession
from temporalio import activity

from weir.kit.clock import now
from weir.kit.windows import frozen_until
from weir.projects.models import Project
from weir.rollouts.intent import Strategy
from weir.rollouts.models import IN_PROGRESS, MemberState, RolloutMember
from weir_workflows.common.resources import Resources
from weir_workflows.rollout import members
from weir_workflows.rollout.limits import LONGEST_WAIT_SECONDS
from weir_workflows.rollout.messages import Picked, PickedBatch, PickInput
from weir_workflows.rollout.picking import Room, batches_of, choose


class PickActivities:
    def __init__(self, resources: Resources) -> None:
        self._r = resources

    def all(self) -> list[Callable[..., Any]]:
        return [self.pick_computes]

    @activity.defn
    async def pick_computes(self, message: PickInput) -> Picked:
        """The next computes of a wave, as many as caps, freezes and maintenance windows allow now, in batches of
        like windows. What is picked is written down: a repeated call answers as the first did."""
        async with self._r.database.transaction() as session:
            rollout = await members.find_rollout(session, message.rollout_id, lock=True)
            given = await self._given_out(session, message)
            if given:
                return Picked(given, 0, 0.0)
            strategy, at = members.strategy_of(rollout), now()
            frozen = frozen_until(strategy.freeze_windows, at)
            candidates = await self._candidates(session, message)
            if frozen is not None and candidates:
                until, reason = frozen
                wait = min((until - at).total_seconds(), LONGEST_WAIT_SECONDS)
                return Picked([], len(candidates), wait, f"nothing begins before {until.isoformat()}: {reason}")
            room = await self._room(session, message.rollout_id, strategy)
            chosen, wait, why = choose(candidates, room, strategy, at)
            batches = batches_of(chosen, message.first_batch)
            for batch in batches:
                await self._give_out(session, message.rollout_id, batch, strategy, at)
            return Picked(batches, len(candidates) - len(chosen), wait, why)

    async def _given_out(self, session: AsyncSession, message: PickInput) -> list[PickedBatch]:
        rows = await session.execute(
            select(
                RolloutMember.batch,
                RolloutMember.endpoint_id,
                RolloutMember.baseline_seconds,
                RolloutMember.bake_seconds,
            )
            .where(
                RolloutMember.rollout_id == message.rollout_id,
                RolloutMember.wave == message.wave,
                RolloutMember.batch >= message.first_batch,
            )
            .order_by(RolloutMember.batch, RolloutMember.endpoint_id)
        )
        batches: dict[int, PickedBatch] = {}
        for batch, ident, baseline, bake in rows.all():
            number = int(batch or 0)
            batches.setdefault(number, PickedBatch(number, [], baseline, bake)).compute_ids.append(ident)
        return list(batches.values())

    async def _candidates(self, session: AsyncSession, message: PickInput) -> list[Row[*tuple[Any, ...]]]:
        """Those that wait, and those that were under way when a worker or Temporal was lost."""
        rows = await session.execute(
            select(
                RolloutMember.endpoint_id,
                RolloutMember.cell,
                RolloutMember.org_id,
                RolloutMember.baseline_seconds,
                RolloutMember.bake_seconds,
                RolloutMember.state,
                RolloutMember.reason,
                RolloutMember.updated_at,
                Project.settings["maintenance_window"].label("maintenance_window"),
            )
            .join(Project, Project.id == RolloutMember.project_id)
            .where(
                RolloutMember.rollout_id == message.rollout_id,
                RolloutMember.wave == message.wave,
                RolloutMember.batch.is_(None),
                RolloutMember.state.in_((MemberState.PENDING, *IN_PROGRESS)),
            )
            .order_by(RolloutMember.endpoint_id)
        )
        return list(rows.all())

    async def _room(self, session: AsyncSession, rollout_id: str, strategy: Strategy) -> Room:
        rows = await session.execute(
            select(RolloutMember.cell, RolloutMember.org_id, func.count())
            .where(
                RolloutMember.rollout_id == rollout_id,
                RolloutMember.state.in_(IN_PROGRESS),
                RolloutMember.batch.is_not(None),
            )
            .group_by(RolloutMember.cell, RolloutMember.org_id)
        )
        room = Room(strategy)
        for cell, org, count in rows.all():
            room.take(cell, org, count)
        return room

    async def _give_out(
        self, session: AsyncSession, rollout_id: str, batch: PickedBatch, strategy: Strategy, at: datetime
    ) -> None:
        fresh = RolloutMember.state == MemberState.PENDING
        deadline = at + timedelta(seconds=batch.baseline_seconds + strategy.step_deadline_seconds)
        chosen = (RolloutMember.rollout_id == rollout_id, members.among(RolloutMember.endpoint_id, batch.compute_ids))
        await session.execute(
            update(RolloutMember)
            .where(*chosen, fresh)
            .values(state=MemberState.PREFLIGHT, reason=None, deadline_at=deadline, updated_at=at)
        )
        await session.execute(update(RolloutMember).where(*chosen).values(batch=batch.number))
