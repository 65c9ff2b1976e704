"""Starts the workflows of new rollouts, and restarts workflows that Temporal has lost. The dispatcher of
`weir.operations` runs this beside its own work."""

import structlog
from sqlalchemy import select
from temporalio.client import WorkflowExecutionStatus
from temporalio.common import WorkflowIDReusePolicy

from weir.db import Database
from weir.kit.clock import now
from weir.operations.starter import ENDED_EARLY, LOST_AFTER, WorkflowStarter
from weir.rollouts.messages import (
    ROLLBACK_WORKFLOW,
    ROLLOUT_WORKFLOW,
    RollbackInput,
    RolloutInput,
    rollback_workflow_id,
    rollout_workflow_id,
)
from weir.rollouts.models import CLOSED, Rollout, RolloutStatus

log = structlog.get_logger()


class RolloutDispatch:
    def __init__(self, database: Database, starter: WorkflowStarter) -> None:
        self._database = database
        self._starter = starter

    async def dispatch_next(self) -> bool:
        async with self._database.transaction() as session:
            statement = (
                select(Rollout)
                .where(Rollout.dispatched_at.is_(None))
                .order_by(Rollout.created_at)
                .limit(1)
                .with_for_update(skip_locked=True)
            )
            rollout = (await session.scalars(statement)).one_or_none()
            if rollout is None:
                return False
            await self._start_rollout(rollout)
            rollout.dispatched_at = now()
            log.info("rollout_dispatched", rollout_id=rollout.id)
        return True

    async def recover_lost(self) -> None:
        """Open rollouts that Temporal has never heard of, or whose workflow ended before they did, are begun again:
        they go on from what the database says."""
        async with self._database.transaction() as session:
            statement = select(Rollout).where(
                Rollout.status.not_in(CLOSED), Rollout.dispatched_at < now() - LOST_AFTER
            )
            candidates = list((await session.scalars(statement)).all())
        for rollout in candidates:
            if rollout.status == RolloutStatus.ROLLING_BACK and rollout.finished_at is not None:
                # It had ended, so that Temporal may have forgotten its workflow: another takes it back.
                await self._recover_lost_rollback(rollout.id)
                continue
            status = await self._starter.status(rollout_workflow_id(rollout.id))
            if status is None or status in ENDED_EARLY:
                log.warning("rollout_lost", rollout_id=rollout.id, workflow=status.name if status else "unknown")
                await self._start_rollout(rollout)
            elif status == WorkflowExecutionStatus.COMPLETED:
                await self._recover_lost_rollback(rollout.id)

    async def _recover_lost_rollback(self, rollout_id: str) -> None:
        """A rollout that had ended and was to go back: that is a workflow of its own, and begun again when it ended
        before it could report. Who asks for it holds the row until it is started."""
        async with self._database.transaction() as session:
            rollout = await session.get(Rollout, rollout_id, with_for_update=True)
            if rollout is None or rollout.status != RolloutStatus.ROLLING_BACK:
                return
            ident = rollback_workflow_id(rollout_id)
            status = await self._starter.status(ident)
            if status == WorkflowExecutionStatus.RUNNING:
                return
            log.warning("rollback_lost", rollout_id=rollout_id, workflow=status.name if status else "unknown")
            message = RollbackInput(rollout_id, rollout.asked_by or "")
            again = WorkflowIDReusePolicy.ALLOW_DUPLICATE
            await self._starter.start(ROLLBACK_WORKFLOW, message, ident, rollout.trace_context, again)

    async def _start_rollout(self, rollout: Rollout) -> None:
        ident = rollout_workflow_id(rollout.id)
        await self._starter.start(
            ROLLOUT_WORKFLOW,
            RolloutInput(rollout.id),
            ident,
            rollout.trace_context,
            WorkflowIDReusePolicy.ALLOW_DUPLICATE_FAILED_ONLY,
        )
