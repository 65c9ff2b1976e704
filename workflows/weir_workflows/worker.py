"""The worker process: `python -m weir_workflows.worker`.

Runs every workflow and activity of Weir on one task queue and keeps the reconciler going. Temporal or the
database being down is waited out.
"""

import asyncio
import signal
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import structlog
import uvloop
from temporalio.client import Client
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.contrib.opentelemetry import TracingInterceptor
from temporalio.service import RPCError
from temporalio.worker import Interceptor, Worker

from weir import logging, telemetry
from weir.config import Settings, get_settings
from weir.operations.messages import RECONCILER_WORKFLOW, RECONCILER_WORKFLOW_ID
from weir.tokens.check import checker_for
from weir_workflows.common.health import Health
from weir_workflows.common.resources import Resources, open_resources
from weir_workflows.computes.activities import ComputeActivities
from weir_workflows.operations.activities import OperationActivities
from weir_workflows.operations.workflows import WORKFLOWS
from weir_workflows.reconciler.activities import ReconcilerActivities
from weir_workflows.reconciler.workflow import Reconciler
from weir_workflows.rollout.activities import rollout_activities
from weir_workflows.rollout.batch import BatchWorkflow
from weir_workflows.rollout.rollback import RollbackWorkflow
from weir_workflows.rollout.workflow import RolloutWorkflow
from weir_workflows.runtime import credentials
from weir_workflows.storage.activities import StorageActivities
from weir_workflows.storage.detach import DetachActivities
from weir_workflows.storage.replace import ReplaceActivities
from weir_workflows.storage.restore import RestoreActivities

log = structlog.get_logger()

# Watching a batch holds one for the whole bake, and mostly sleeps: there must be enough left for everything else.
MAX_ACTIVITIES = 400
GRACE = timedelta(seconds=10)
RETRY_SECONDS = 1.0


async def connect(settings: Settings) -> Client:
    while True:
        try:
            return await Client.connect(
                settings.temporal_address,
                namespace=settings.temporal_namespace,
                interceptors=[TracingInterceptor()],
            )
        except (RPCError, RuntimeError) as error:
            log.warning("temporal_not_reached", address=settings.temporal_address, error=str(error))
            await asyncio.sleep(RETRY_SECONDS)


def activities_of(resources: Resources) -> list[Callable[..., Any]]:
    storage = StorageActivities(resources)
    computes = ComputeActivities(resources)
    restore = RestoreActivities(resources)
    detach = DetachActivities(resources)
    return [
        storage.create_tenant,
        storage.configure_tenant,
        storage.resolve_branch_point,
        storage.create_timeline,
        storage.create_on_safekeepers,
        storage.mark_branch_ready,
        storage.delete_timeline,
        storage.delete_tenant,
        storage.forget_branch,
        storage.forget_project,
        restore.look_at_restore,
        restore.exchange_timelines,
        detach.detach_timeline,
        detach.give_up_detaching,
        detach.forget_parent,
        ReplaceActivities(resources).change_one,
        computes.start_compute,
        computes.stop_compute,
        computes.abandon_compute,
        computes.forget_endpoint,
        computes.configure_compute,
        OperationActivities(resources).report_operation,
        ReconcilerActivities(resources).reconcile,
        *rollout_activities(resources),
    ]


ALL_WORKFLOWS: list[type] = [*WORKFLOWS, Reconciler, RolloutWorkflow, BatchWorkflow, RollbackWorkflow]


def make_worker(client: Client, resources: Resources, interceptors: Sequence[Interceptor] = ()) -> Worker:
    return Worker(
        client,
        task_queue=resources.settings.task_queue,
        workflows=ALL_WORKFLOWS,
        activities=activities_of(resources),
        interceptors=interceptors,
        max_concurrent_activities=MAX_ACTIVITIES,
        graceful_shutdown_timeout=GRACE,
    )


async def keep_reconciler(client: Client, settings: Settings) -> None:
    """Starts the reconciler afresh, since it may have been begun by other code and keeps nothing between rounds;
    then looks now and then that it runs, since it must never stay ended."""
    policy = WorkflowIDConflictPolicy.TERMINATE_EXISTING
    while True:
        try:
            await client.start_workflow(
                RECONCILER_WORKFLOW,
                settings.reconcile_interval_seconds,
                id=RECONCILER_WORKFLOW_ID,
                task_queue=settings.task_queue,
                id_conflict_policy=policy,
                rpc_timeout=timedelta(seconds=5),
            )
        except RPCError as error:
            log.warning("reconciler_not_started", error=str(error))
            await asyncio.sleep(RETRY_SECONDS)
            continue
        policy = WorkflowIDConflictPolicy.USE_EXISTING
        await asyncio.sleep(60)


async def run(settings: Settings, stop: asyncio.Event) -> None:
    provider = telemetry.configure("weir-worker")
    async with (
        Health(settings.worker_metrics_port, settings.worker_metrics_host, checker_for(settings)) as health,
        open_resources(settings, traced=provider is not None) as resources,
        # Storage and computes go on by their tokens while Temporal or the database is down.
        credentials.kept(settings),
    ):
        if provider is not None:
            telemetry.instrument_engine(resources.database.engine)
        connecting = asyncio.create_task(connect(settings))
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait({connecting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not connecting.done():
            connecting.cancel()
            return
        client = connecting.result()
        keeper = asyncio.create_task(keep_reconciler(client, settings))
        try:
            async with make_worker(client, resources):
                health.ready = True
                log.info("worker_started", task_queue=settings.task_queue)
                await stopping
        finally:
            keeper.cancel()
    if provider is not None:
        await asyncio.to_thread(provider.shutdown)


async def _main() -> None:
    logging.configure()
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await run(get_settings(), stop)


if __name__ == "__main__":
    uvloop.run(_main())
