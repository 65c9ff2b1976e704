"""Hands committed intent to Temporal.

Runs inside every API process; rows are taken with SKIP LOCKED, and a workflow's id is its operation's, so
any number of dispatchers start each workflow once. A row stays `scheduling` until Temporal has answered: a
crash between the two, or Temporal being down, means the start is repeated, which Temporal refuses as a
duplicate and this module takes for success.
"""

import asyncio
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Protocol

import psycopg
import structlog
from sqlalchemy.engine import make_url
from temporalio.client import Client

from weir.config import Settings
from weir.db import Database
from weir.kit.clock import now
from weir.operations import ended, locks, service
from weir.operations.messages import CANCEL_SIGNAL, OperationInput, operation_workflow_id
from weir.operations.models import Operation, OperationStatus
from weir.operations.repository import CHANNEL, ENDPOINTS_CHANNEL, OperationRepository
from weir.operations.starter import ENDED_EARLY, LOST_AFTER, WorkflowStarter

log = structlog.get_logger()

CHECK_LOST_EVERY = timedelta(seconds=30)


class Source(Protocol):
    """Committed intent of another kind than operations, whose workflows the dispatcher starts too."""

    async def dispatch_next(self) -> bool:
        """Starts the workflow of one row that waits for it. False when none waits."""
        ...

    async def recover_lost(self) -> None:
        """Starts workflows again that Temporal has lost, or that ended before what they were to do."""
        ...


class Dispatcher:
    def __init__(
        self,
        settings: Settings,
        database: Database,
        temporal: Client,
        sources: Sequence[Callable[[Database, WorkflowStarter], Source]] = (),
    ) -> None:
        self._settings = settings
        self._database = database
        self._starter = WorkflowStarter(settings, temporal)
        self._sources = [source(database, self._starter) for source in sources]
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
                    for source in self._sources:
                        await source.recover_lost()
            except Exception as error:  # noqa: BLE001  the loop outlives whatever is down
                log.warning("dispatch_postponed", error=str(error), type=type(error).__name__)
            try:
                async with asyncio.timeout(self._settings.dispatch_interval_seconds):
                    await self._wake.wait()
            except TimeoutError:
                pass

    async def _listen(self) -> None:
        """Turns Postgres's notices into wake-ups, of this dispatcher and of those who wait for an endpoint. Losing it
        only costs latency."""
        url = make_url(self._settings.database_url).set(drivername="postgresql")
        while True:
            try:
                async with await psycopg.AsyncConnection.connect(
                    url.render_as_string(hide_password=False), autocommit=True, connect_timeout=5
                ) as connection:
                    for channel in (CHANNEL, ENDPOINTS_CHANNEL):
                        await connection.execute(f"LISTEN {channel}")
                    with self._database.notices.listening():
                        async for notice in connection.notifies():
                            if notice.channel == CHANNEL:
                                self._wake.set()
                            else:
                                self._database.notices.arrived(notice.payload)
            except (psycopg.Error, OSError) as error:
                log.warning("listen_lost", error=str(error))
            await asyncio.sleep(1)

    async def dispatch_all(self) -> None:
        while await self._skip_orphans():
            pass
        while await self._dispatch_operation():
            pass
        while await self._ask_to_stop():
            pass
        for source in self._sources:
            while await source.dispatch_next():
                pass

    async def _skip_orphans(self) -> bool:
        """In a transaction of its own: what orphans held is not to wait for Temporal's answer about others. True
        where there were some: others may have waited for these."""
        async with self._database.transaction() as session:
            chains = await OperationRepository(session).skip_orphans(now())
            for chain in chains:
                await locks.renew(session, chain)
        return bool(chains)

    async def _dispatch_operation(self) -> bool:
        async with self._database.transaction() as session:
            operation = await OperationRepository(session).next_ready()
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
        await self._starter.start(
            operation.kind.value, message, operation_workflow_id(operation.id), operation.trace_context
        )
        log.info("operation_dispatched", operation_id=str(operation.id), kind=operation.kind.value)

    async def _ask_to_stop(self) -> bool:
        """Asks the workflow of one operation that is to be cancelled. A crash before the commit means that it is
        asked again, which changes nothing."""
        async with self._database.transaction() as session:
            operation = await OperationRepository(session).next_to_cancel()
            if operation is None:
                return False
            await self._starter.signal(operation_workflow_id(operation.id), CANCEL_SIGNAL)
            operation.cancel_asked_at = now()
        log.info("operation_asked_to_stop", operation_id=str(operation.id), kind=operation.kind.value)
        return True

    async def recover_lost(self) -> None:
        """Operations that run in the database but not in Temporal: started again when Temporal has never
        heard of them (its database was replaced), failed when their workflow was ended from outside."""
        async with self._database.transaction() as session:
            candidates = await OperationRepository(session).running_since_before(now() - LOST_AFTER)
        for operation in candidates:
            status = await self._starter.status(operation_workflow_id(operation.id))
            if status is None:
                log.warning("operation_lost", operation_id=str(operation.id))
                await self._start_operation(operation)
                await self._forget_asked(operation)
            elif status in ENDED_EARLY:
                reason = f"its workflow ended as {status.name.lower()} before it could report"
                async with self._database.transaction() as session:
                    row = await service.mark_done(session, operation.id, reason)
                ended.count(row)

    async def _forget_asked(self, operation: Operation) -> None:
        """The workflow that was asked to stop is gone: the new one is to be asked too."""
        if operation.status == OperationStatus.CANCELLING:
            async with self._database.transaction() as session:
                row = await OperationRepository(session).by_id(operation.id)
                if row is not None:
                    row.cancel_asked_at = None
