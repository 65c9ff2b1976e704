"""Hands committed intent to Temporal.

Runs inside every API process; rows are taken with SKIP LOCKED, and a workflow's id is its operation's, so
any number of dispatchers start each workflow once. A row stays `scheduling` until Temporal has answered: a
crash between the two, or Temporal being down, means the start is repeated, which Temporal refuses as a
duplicate and this module takes for success.
"""

import asyncio
from datetime import timedelta

import psycopg
import structlog
from opentelemetry import context, propagate
from sqlalchemy import select
from sqlalchemy.engine import make_url
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.common import WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from weir.config import Settings
from weir.db import Database
from weir.kit.clock import now
from weir.operations import service
from weir.operations.messages import (
    ROLLBACK_WORKFLOW,
    ROLLOUT_WORKFLOW,
    OperationInput,
    RollbackInput,
    RolloutInput,
    operation_workflow_id,
    rollback_workflow_id,
    rollout_workflow_id,
)
from weir.operations.models import Operation
from weir.operations.repository import CHANNEL, OperationRepository
from weir.rollouts.models import CLOSED, Rollout, RolloutStatus

log = structlog.get_logger()

RPC_TIMEOUT = timedelta(seconds=5)
LOST_AFTER = timedelta(minutes=1)
# Ends of a rollout's workflow that are no end of the rollout.
ENDED_EARLY = (
    WorkflowExecutionStatus.FAILED,
    WorkflowExecutionStatus.TERMINATED,
    WorkflowExecutionStatus.TIMED_OUT,
    WorkflowExecutionStatus.CANCELED,
)
CHECK_LOST_EVERY = timedelta(seconds=30)
_ENDED_BADLY = {
    WorkflowExecutionStatus.FAILED,
    WorkflowExecutionStatus.CANCELED,
    WorkflowExecutionStatus.TERMINATED,
    WorkflowExecutionStatus.TIMED_OUT,
}


class Dispatcher:
    def __init__(self, settings: Settings, database: Database, temporal: Client) -> None:
        self._settings = settings
        self._database = database
        self._temporal = temporal
        self._wake = asyncio.Event()
        self._next_lost_check = now() + CHECK_LOST_EVERY

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._listen())
            group.create_task(self._loop())

    async def _loop(self) -> None:
        while True:
            self._wake.clear()
            try:
                await self.dispatch_all()
                if now() >= self._next_lost_check:
                    self._next_lost_check = now() + CHECK_LOST_EVERY
                    await self.recover_lost()
                    await self.recover_lost_rollouts()
            except Exception as error:  # noqa: BLE001  the loop outlives whatever is down
                log.warning("dispatch_postponed", error=str(error), type=type(error).__name__)
            try:
                async with asyncio.timeout(self._settings.dispatch_interval_seconds):
                    await self._wake.wait()
            except TimeoutError:
                pass

    async def _listen(self) -> None:
        """Turns Postgres's notices into wake-ups. Losing it only costs latency."""
        url = make_url(self._settings.database_url).set(drivername="postgresql")
        while True:
            try:
                async with await psycopg.AsyncConnection.connect(
                    url.render_as_string(hide_password=False), autocommit=True, connect_timeout=5
                ) as connection:
                    await connection.execute(f"LISTEN {CHANNEL}")
                    async for _ in connection.notifies():
                        self._wake.set()
            except (psycopg.Error, OSError) as error:
                log.warning("listen_lost", error=str(error))
            await asyncio.sleep(1)

    async def dispatch_all(self) -> None:
        while await self._dispatch_operation():
            pass
        while await self._dispatch_rollout():
            pass

    async def _dispatch_operation(self) -> bool:
        async with self._database.transaction() as session:
            repository = OperationRepository(session)
            await repository.skip_orphans(now())
            operation = await repository.next_ready()
            if operation is None:
                return False
            await self._start_operation(operation)
            await service.mark_running(session, operation.id)
        return True

    async def _start_operation(self, operation: Operation) -> None:
        message = OperationInput(
            operation_id=str(operation.id),
            project_id=operation.project_id,
            branch_id=operation.branch_id,
            endpoint_id=operation.endpoint_id,
            origin=operation.origin,
        )
        await self._start(operation.kind.value, message, operation_workflow_id(operation.id), operation.trace_context)
        log.info("operation_dispatched", operation_id=str(operation.id), kind=operation.kind.value)

    async def _dispatch_rollout(self) -> bool:
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

    async def _start(
        self,
        workflow: str,
        message: object,
        workflow_id: str,
        carrier: dict[str, str],
        reuse: WorkflowIDReusePolicy = WorkflowIDReusePolicy.REJECT_DUPLICATE,
    ) -> None:
        token = context.attach(propagate.extract(carrier))
        try:
            await self._temporal.start_workflow(
                workflow,
                message,
                id=workflow_id,
                task_queue=self._settings.task_queue,
                id_reuse_policy=reuse,
                rpc_timeout=RPC_TIMEOUT,
            )
        except WorkflowAlreadyStartedError:
            log.info("workflow_already_started", workflow_id=workflow_id)
        finally:
            context.detach(token)

    async def recover_lost_rollouts(self) -> None:
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
            try:
                handle = self._temporal.get_workflow_handle(rollout_workflow_id(rollout.id))
                status = (await handle.describe(rpc_timeout=RPC_TIMEOUT)).status
            except RPCError as error:
                if error.status != RPCStatusCode.NOT_FOUND:
                    raise
                status = None
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
            try:
                status = (await self._temporal.get_workflow_handle(ident).describe(rpc_timeout=RPC_TIMEOUT)).status
            except RPCError as error:
                if error.status != RPCStatusCode.NOT_FOUND:
                    raise
                status = None
            if status == WorkflowExecutionStatus.RUNNING:
                return
            log.warning("rollback_lost", rollout_id=rollout_id, workflow=status.name if status else "unknown")
            message = RollbackInput(rollout_id, rollout.asked_by or "")
            again = WorkflowIDReusePolicy.ALLOW_DUPLICATE
            await self._start(ROLLBACK_WORKFLOW, message, ident, rollout.trace_context, again)

    async def _start_rollout(self, rollout: Rollout) -> None:
        ident = rollout_workflow_id(rollout.id)
        await self._start(
            ROLLOUT_WORKFLOW,
            RolloutInput(rollout.id),
            ident,
            rollout.trace_context,
            WorkflowIDReusePolicy.ALLOW_DUPLICATE_FAILED_ONLY,
        )

    async def recover_lost(self) -> None:
        """Operations that run in the database but not in Temporal: started again when Temporal has never
        heard of them (its database was replaced), failed when their workflow was ended from outside."""
        async with self._database.transaction() as session:
            candidates = await OperationRepository(session).running_since_before(now() - LOST_AFTER)
        for operation in candidates:
            handle = self._temporal.get_workflow_handle(operation_workflow_id(operation.id))
            try:
                description = await handle.describe(rpc_timeout=RPC_TIMEOUT)
            except RPCError as error:
                if error.status != RPCStatusCode.NOT_FOUND:
                    raise
                log.warning("operation_lost", operation_id=str(operation.id))
                await self._start_operation(operation)
                continue
            if description.status is not None and description.status in _ENDED_BADLY:
                reason = f"its workflow ended as {description.status.name.lower()} before it could report"
                async with self._database.transaction() as session:
                    await service.mark_done(session, operation.id, reason)
