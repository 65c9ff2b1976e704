"""Starting workflows and asking Temporal how they are, for everything that is dispatched."""

from datetime import timedelta

import structlog
from opentelemetry import context, propagate
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.common import WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from weir.config import Settings

log = structlog.get_logger()

RPC_TIMEOUT = timedelta(seconds=5)
# A dispatched row younger than this is not looked for in Temporal: its start may be under way.
LOST_AFTER = timedelta(minutes=1)
# A workflow that ended so did not report what became of its work.
ENDED_EARLY = (
    WorkflowExecutionStatus.FAILED,
    WorkflowExecutionStatus.TERMINATED,
    WorkflowExecutionStatus.TIMED_OUT,
    WorkflowExecutionStatus.CANCELED,
)


class WorkflowStarter:
    def __init__(self, settings: Settings, temporal: Client) -> None:
        self._settings = settings
        self._temporal = temporal

    async def start(
        self,
        workflow: str,
        message: object,
        workflow_id: str,
        carrier: dict[str, str],
        reuse: WorkflowIDReusePolicy = WorkflowIDReusePolicy.REJECT_DUPLICATE,
    ) -> None:
        """Starts the workflow within the trace of `carrier`. A workflow of this id that `reuse` does not allow to be
        started again counts as started. Raises RPCError when Temporal does not answer."""
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

    async def signal(self, workflow_id: str, signal: str) -> None:
        """A workflow that has ended, or that Temporal does not know, takes no signal, and that is no error. Raises
        RPCError when Temporal does not answer."""
        try:
            await self._temporal.get_workflow_handle(workflow_id).signal(signal, rpc_timeout=RPC_TIMEOUT)
        except RPCError as error:
            if error.status != RPCStatusCode.NOT_FOUND:
                raise

    async def status(self, workflow_id: str) -> WorkflowExecutionStatus | None:
        """None when Temporal knows no workflow of this id. Raises RPCError when Temporal does not answer."""
        try:
            return (await self._temporal.get_workflow_handle(workflow_id).describe(rpc_timeout=RPC_TIMEOUT)).status
        except RPCError as error:
            if error.status != RPCStatusCode.NOT_FOUND:
                raise
            return None
