"""Progress: the state of a rollout and of the computes of a wave, read from the metadata database."""

from collections import Counter
from collections.abc import Callable
from typing import Any

from sqlalchemy import func, select, update
from sqlalchemy.ext.asyncio import AsyncSession
from temporalio import activity

from weir.rollouts.models import IN_PROGRESS, MemberState, RolloutMember
from weir.rollouts.run.repository import RolloutRepository
from weir_workflows.common.resources import Resources
from weir_workflows.rollout import members
from weir_workflows.rollout.limits import EXAMPLES
from weir_workflows.rollout.messages import Resumed, WavePlan, WaveRef, WaveTally

BAD = (MemberState.REGRESSED, MemberState.FAILED)


class ProgressActivities:
    def __init__(self, resources: Resources) -> None:
        self._r = resources

    def all(self) -> list[Callable[..., Any]]:
        return [self.resume_rollout, self.tally_wave]

    @activity.defn
    async def resume_rollout(self, rollout_id: str) -> Resumed:
        """Where the rollout stands. Computes that were under way in batches nobody runs any more are given free:
        the next batch takes them up at the step they were at."""
        async with self._r.database.transaction() as session:
            rollout = await members.find_rollout(session, rollout_id, lock=True)
            strategy = members.strategy_of(rollout)
            waves = await RolloutRepository(session).waves(rollout_id)
            last = await session.scalar(
                select(func.max(RolloutMember.batch)).where(RolloutMember.rollout_id == rollout_id)
            )
            await session.execute(
                update(RolloutMember)
                .where(RolloutMember.rollout_id == rollout_id, RolloutMember.state.in_(IN_PROGRESS))
                .values(batch=None)
            )
            return Resumed(
                waves=[
                    WavePlan(wave.index, wave.name, wave.state.value, wave.soak_seconds, strategy.settle_seconds)
                    for wave in waves
                ],
                plan_approval_required=strategy.plan_approval_required,
                approval_required=strategy.approval_required,
                max_failed_percent=strategy.max_failed_percent,
                status=rollout.status.value,
                next_batch=0 if last is None else last + 1,
                asked_by=rollout.asked_by or "",
            )

    @activity.defn
    async def tally_wave(self, message: WaveRef) -> WaveTally:
        async with self._r.database.transaction() as session:
            counted = await RolloutRepository(session).state_counts(message.rollout_id)
            here: Counter[MemberState] = Counter()
            passed_before = 0
            for wave, _, _, state, number in counted:
                if wave == message.index:
                    here[state] += number
                elif wave < message.index and state == MemberState.PASSED:
                    passed_before += number
            return WaveTally(
                total=here.total(),
                passed=here[MemberState.PASSED],
                bad=sum(here[state] for state in BAD),
                unclear=here[MemberState.INCONCLUSIVE],
                deferred=here[MemberState.DEFERRED],
                rolled_back=here[MemberState.ROLLED_BACK],
                passed_before=passed_before,
                bad_examples=await self._examples(session, message, BAD),
                unclear_examples=await self._examples(session, message, (MemberState.INCONCLUSIVE,)),
            )

    async def _examples(self, session: AsyncSession, wave: WaveRef, states: tuple[MemberState, ...]) -> list[str]:
        rows = await session.execute(
            select(RolloutMember.endpoint_id, RolloutMember.reason)
            .where(
                RolloutMember.rollout_id == wave.rollout_id,
                RolloutMember.wave == wave.index,
                RolloutMember.state.in_(states),
            )
            .order_by(RolloutMember.endpoint_id)
            .limit(EXAMPLES)
        )
        return [f"{ident}: {reason}" for ident, reason in rows.all()]
