"""Scopes: what a person asks of all computes of a rollout, of one wave, or of one compute."""

from collections.abc import Callable
from typing import Any

from sqlalchemy import select, update
from temporalio import activity

from weir.endpoints.models import Endpoint
from weir.rollouts.models import CLOSED, IN_PROGRESS, MemberState, RolloutMember, Wish
from weir_workflows.common.resources import Resources
from weir_workflows.rollout import members
from weir_workflows.rollout.messages import ScopeInput, SkipDone


class ScopeActivities:
    def __init__(self, resources: Resources) -> None:
        self._r = resources

    def all(self) -> list[Callable[..., Any]]:
        return [self.skip_computes, self.ask_back, self.switched_computes, self.leave_unswitched]

    @activity.defn
    async def skip_computes(self, message: ScopeInput) -> SkipDone:
        """Skips waiting members at once; members that are being measured are skipped before their switch."""
        async with self._r.database.transaction() as session:
            await members.find_rollout(session, message.rollout_id, lock=True)
            chosen = _scope(message)
            skipped = await session.execute(
                update(RolloutMember)
                .where(*chosen, RolloutMember.state == MemberState.PENDING, RolloutMember.batch.is_(None))
                .values(members.left_out(f"skipped by {message.actor}"))
                .returning(RolloutMember.endpoint_id)
            )
            asked = await session.execute(
                update(RolloutMember)
                .where(
                    *chosen,
                    RolloutMember.state.in_(IN_PROGRESS),
                    RolloutMember.switched_at.is_(None),
                    RolloutMember.wish.is_(None),
                )
                .values(wish=Wish.SKIP, wish_by=message.actor)
                .returning(RolloutMember.endpoint_id)
            )
            return SkipDone(len(skipped.all()), len(asked.all()))

    @activity.defn
    async def ask_back(self, message: ScopeInput) -> list[str]:
        """Asks members that are under way to be rolled back at their next step. Answers with the switched members
        that are not under way, which the caller rolls back."""
        async with self._r.database.transaction() as session:
            await members.find_rollout(session, message.rollout_id, lock=True)
            chosen = (*_scope(message), RolloutMember.rolled_back_at.is_(None))
            await session.execute(
                update(RolloutMember)
                .where(*chosen, RolloutMember.state.in_(IN_PROGRESS))
                .values(wish=Wish.BACK, wish_by=message.actor)
            )
            # What is going back must not be switched later.
            await session.execute(
                update(RolloutMember)
                .where(*chosen, RolloutMember.state == MemberState.PENDING)
                .values(members.left_out(f"rolled back by {message.actor} before its turn"))
            )
        return await self.switched_computes(message)

    @activity.defn
    async def switched_computes(self, message: ScopeInput) -> list[str]:
        """Computes this rollout has switched and not taken back, unless they are under way in a batch: of a rollout
        that has ended, with a failure perhaps, no batch is left."""
        async with self._r.database.transaction() as session:
            rollout = await members.find_rollout(session, message.rollout_id)
            part = message.wave is not None or message.compute_id is not None
            conditions = [
                *_scope(message),
                RolloutMember.switched_at.is_not(None),
                RolloutMember.rolled_back_at.is_(None),
                Endpoint.deleted_at.is_(None),
            ]
            if part and rollout.status not in CLOSED:
                conditions.append(RolloutMember.state.not_in(IN_PROGRESS))
            if message.keep_passed:
                conditions.append(RolloutMember.state != MemberState.PASSED)
            statement = (
                select(RolloutMember.endpoint_id)
                .join(Endpoint, Endpoint.id == RolloutMember.endpoint_id)
                .where(*conditions)
                .order_by(RolloutMember.wave, RolloutMember.endpoint_id)
            )
            return list((await session.scalars(statement)).all())

    @activity.defn
    async def leave_unswitched(self, rollout_id: str) -> None:
        """After a stop: leaves out the members that were being measured."""
        async with self._r.database.transaction() as session:
            await members.leave_out_unswitched(session, rollout_id)


def _scope(message: ScopeInput) -> list[Any]:
    chosen = [RolloutMember.rollout_id == message.rollout_id]
    if message.wave is not None:
        chosen.append(RolloutMember.wave == message.wave)
    if message.compute_id is not None:
        chosen.append(RolloutMember.endpoint_id == message.compute_id)
    return chosen
