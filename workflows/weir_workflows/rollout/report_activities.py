"""Reports: a workflow's progress, written where readers of the API see it. Each may be repeated."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import update
from sqlalchemy.ext.asyncio import AsyncSession
from temporalio import activity

from weir.identity import audit
from weir.kit.clock import now
from weir.rollouts.models import CLOSED, IN_PROGRESS, Rollout, RolloutMember, RolloutStatus, RolloutWave, WaveState
from weir_workflows.common.errors import missing
from weir_workflows.common.resources import Resources
from weir_workflows.rollout import members
from weir_workflows.rollout.messages import RolloutReport, WaveReport


class ReportActivities:
    def __init__(self, resources: Resources) -> None:
        self._r = resources

    def all(self) -> list[Callable[..., Any]]:
        return [self.report_rollout, self.report_wave]

    @activity.defn
    async def report_rollout(self, message: RolloutReport) -> None:
        async with self._r.database.transaction() as session:
            rollout = await members.find_rollout(session, message.rollout_id, lock=True)
            unchanged = (rollout.status, rollout.status_reason) == (message.status, message.reason)
            if rollout.status == RolloutStatus.PAUSED and message.status == RolloutStatus.RUNNING:
                await self._extend_deadlines(session, rollout)
            rollout.status = RolloutStatus(message.status)
            rollout.status_reason = message.reason
            rollout.current_wave = message.current_wave
            rollout.gate = message.gate
            rollout.asked_by = message.asked_by or None
            rollout.started_at = rollout.started_at or _time_of(message.at)
            rollout.finished_at = _time_of(message.at) if rollout.status in CLOSED else None
            if rollout.status in CLOSED:
                await members.leave_out_unswitched(session, rollout.id)
            if not unchanged:
                action, resource = f"rollout.{message.status}", f"rollout/{rollout.id}"
                audit.record_system(session, members.ACTOR, action, resource, reason=message.reason)

    async def _extend_deadlines(self, session: AsyncSession, rollout: Rollout) -> None:
        """After a pause the deadlines of computes that waited for its end begin anew, so that no alert is raised."""
        limit = now() + timedelta(seconds=members.strategy_of(rollout).step_deadline_seconds)
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
                wave.started_at = wave.started_at or _time_of(message.at)
            elif wave.state == WaveState.SOAKING:
                wave.soak_until = _time_of(message.soak_until)
            else:
                wave.finished_at = wave.finished_at or _time_of(message.at)


def _time_of(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
