"""Runs rounds for ever. A failed round is logged by its activity's worker; the next one starts afresh."""

from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError

with workflow.unsafe.imports_passed_through():
    from weir.operations.messages import RECONCILER_WORKFLOW
    from weir_workflows.common import policies
    from weir_workflows.common.errors import reason_of
    from weir_workflows.reconciler.activities import ReconcilerActivities

ROUNDS_PER_RUN = 500


@workflow.defn(name=RECONCILER_WORKFLOW)
class Reconciler:
    @workflow.run
    async def run(self, interval_seconds: float) -> None:
        for _ in range(ROUNDS_PER_RUN):
            try:
                await workflow.execute_activity_method(ReconcilerActivities.reconcile, **policies.ROUND)
            except ActivityError as error:
                workflow.logger.warning("a round failed: %s", reason_of(error))
            await workflow.sleep(timedelta(seconds=interval_seconds))
        workflow.continue_as_new(interval_seconds)
