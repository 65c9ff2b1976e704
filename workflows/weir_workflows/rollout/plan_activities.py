"""What the rollout's workflow reads and reports: the frozen plan, who is next, people's wishes, tallies. All in the
metadata database, each in one transaction and each safe to repeat."""

from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Row, func, select, update
from sqlalchemy.ext.asyncio import AsyncSession
from temporalio import activity

from weir.endpoints.models import Endpoint
from weir.identity import audit
from weir.kit.clock import now
from weir.kit.windows import frozen_until
from weir.projects.models import Project
from weir.rollouts.intent import Strategy
from weir.rollouts.models import (
    CLOSED,
    IN_PROGRESS,
    MemberState,
    Rollout,
    RolloutMember,
    RolloutStatus,
    RolloutWave,
    WaveState,
    Wish,
)
from weir.rollouts.run.repository import RolloutRepository
from weir_workflows.common.errors import missing
from weir_workflows.common.resources import Resources
from weir_workflows.rollout.limits import EXAMPLES, LONGEST_WAIT_SECONDS
from weir_workflows.rollout.members import among
from weir_workflows.rollout.messages import (
    Picked,
    PickedBatch,
    PickInput,
    Resumed,
    RolloutReport,
    ScopeInput,
    SkipDone,
    WavePlan,
    WaveRef,
    WaveReport,
    WaveTally,
)
from weir_workflows.rollout.picking import Room, batches_of, choose

ACTOR = "rollout"
BAD = (MemberState.REGRESSED, MemberState.FAILED)


def strategy_of(rollout: Rollout) -> Strategy:
    return Strategy.model_validate(rollout.strategy)


def time_of(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


class PlanActivities:
    def __init__(self, resources: Resources) -> None:
        self._r = resources

    def all(self) -> list[Callable[..., Any]]:
        return [
            self.resume_rollout,
            self.pick_computes,
            self.report_rollout,
            self.report_wave,
            self.tally_wave,
            self.skip_computes,
            self.ask_back,
            self.switched_computes,
            self.leave_unswitched,
        ]

    async def _rollout(self, session: AsyncSession, rollout_id: str, *, lock: bool = False) -> Rollout:
        rollout = await session.get(Rollout, rollout_id, with_for_update=lock, populate_existing=True)
        if rollout is None:
            raise missing("rollout", rollout_id)
        return rollout

    @activity.defn
    async def resume_rollout(self, rollout_id: str) -> Resumed:
        """Where the rollout stands. Computes that were under way in batches nobody runs any more are given free:
        the next batch takes them up at the step they were at."""
        async with self._r.database.transaction() as session:
            rollout = await self._rollout(session, rollout_id, lock=True)
            strategy = strategy_of(rollout)
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

    # Who is next.

    @activity.defn
    async def pick_computes(self, message: PickInput) -> Picked:
        """The next computes of a wave, as many as caps, freezes and maintenance windows allow now, in batches of
        like windows. What is picked is written down: a repeated call answers as the first did."""
        async with self._r.database.transaction() as session:
            rollout = await self._rollout(session, message.rollout_id, lock=True)
            given = await self._given_out(session, message)
            if given:
                return Picked(given, 0, 0.0)
            strategy, at = strategy_of(rollout), now()
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
        chosen = (RolloutMember.rollout_id == rollout_id, among(RolloutMember.endpoint_id, batch.compute_ids))
        await session.execute(
            update(RolloutMember)
            .where(*chosen, fresh)
            .values(state=MemberState.PREFLIGHT, reason=None, deadline_at=deadline, updated_at=at)
        )
        await session.execute(update(RolloutMember).where(*chosen).values(batch=batch.number))

    # Reports: what readers of the API see of the workflow's progress.

    @activity.defn
    async def report_rollout(self, message: RolloutReport) -> None:
        async with self._r.database.transaction() as session:
            rollout = await self._rollout(session, message.rollout_id, lock=True)
            told = (rollout.status, rollout.status_reason) == (message.status, message.reason)
            if rollout.status == RolloutStatus.PAUSED and message.status == RolloutStatus.RUNNING:
                await self._excuse_the_pause(session, rollout)
            rollout.status = RolloutStatus(message.status)
            rollout.status_reason = message.reason
            rollout.current_wave = message.current_wave
            rollout.gate = message.gate
            rollout.asked_by = message.asked_by or None
            rollout.started_at = rollout.started_at or time_of(message.at)
            rollout.finished_at = time_of(message.at) if rollout.status in CLOSED else None
            if rollout.status in CLOSED:
                await self._leave_unswitched(session, rollout.id)
            if not told:
                audit.record_system(
                    session, ACTOR, f"rollout.{message.status}", f"rollout/{rollout.id}", reason=message.reason
                )

    async def _excuse_the_pause(self, session: AsyncSession, rollout: Rollout) -> None:
        """Nobody is to be alerted about computes that waited for the end of a pause: their time begins now."""
        limit = now() + timedelta(seconds=strategy_of(rollout).step_deadline_seconds)
        await session.execute(
            update(RolloutMember)
            .where(
                RolloutMember.rollout_id == rollout.id,
                RolloutMember.state.in_(IN_PROGRESS),
                RolloutMember.switched_at.is_(None),
                RolloutMember.deadline_at < limit,
            )
            .values(deadline_at=limit)
        )

    @activity.defn
    async def report_wave(self, message: WaveReport) -> None:
        async with self._r.database.transaction() as session:
            wave = await session.get(RolloutWave, (message.rollout_id, message.index), with_for_update=True)
            if wave is None:
                raise missing(f"rollout {message.rollout_id}: wave", str(message.index))
            soaks = WaveState.SOAKING in {wave.state, WaveState(message.state)}
            wave.state = WaveState(message.state)
            # What was noted when the wave's computes were judged outlasts its soak.
            if message.reason is not None or not soaks:
                wave.reason = message.reason
            if wave.state == WaveState.RUNNING:
                wave.started_at = wave.started_at or time_of(message.at)
            elif wave.state == WaveState.SOAKING:
                wave.soak_until = time_of(message.soak_until)
            else:
                wave.finished_at = wave.finished_at or time_of(message.at)

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

    # People's wishes about some of the computes.

    @activity.defn
    async def skip_computes(self, message: ScopeInput) -> SkipDone:
        """Who waits is skipped at once; who is being measured is asked to stop before the switch."""
        async with self._r.database.transaction() as session:
            await self._rollout(session, message.rollout_id, lock=True)
            chosen = _scope(message)
            skipped = await session.execute(
                update(RolloutMember)
                .where(*chosen, RolloutMember.state == MemberState.PENDING, RolloutMember.batch.is_(None))
                .values(_left_out(f"skipped by {message.actor}"))
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
        """Asks computes that are under way to go back at their next step, and answers with those that are not
        under way and have to be taken back by the caller."""
        async with self._r.database.transaction() as session:
            await self._rollout(session, message.rollout_id, lock=True)
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
                .values(_left_out(f"rolled back by {message.actor} before its turn"))
            )
        return await self.switched_computes(message)

    @activity.defn
    async def switched_computes(self, message: ScopeInput) -> list[str]:
        """Computes this rollout has switched and not taken back, unless they are under way in a batch: of a rollout
        that has ended, with a failure perhaps, no batch is left."""
        async with self._r.database.transaction() as session:
            rollout = await self._rollout(session, message.rollout_id)
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
        """After a stop: what was being measured stays as it is."""
        async with self._r.database.transaction() as session:
            await self._leave_unswitched(session, rollout_id)

    async def _leave_unswitched(self, session: AsyncSession, rollout_id: str) -> None:
        await session.execute(
            update(RolloutMember)
            .where(
                RolloutMember.rollout_id == rollout_id,
                RolloutMember.state.in_(IN_PROGRESS),
                RolloutMember.switched_at.is_(None),
            )
            .values(_left_out("the rollout was stopped before this compute was switched"))
        )


def _left_out(reason: str) -> dict[str, Any]:
    """What is written of a compute that this rollout leaves as it is."""
    return {"state": MemberState.SKIPPED, "reason": reason, "deadline_at": None, "updated_at": now()}


def _scope(message: ScopeInput) -> list[Any]:
    chosen = [RolloutMember.rollout_id == message.rollout_id]
    if message.wave is not None:
        chosen.append(RolloutMember.wave == message.wave)
    if message.compute_id is not None:
        chosen.append(RolloutMember.endpoint_id == message.compute_id)
    return chosen
