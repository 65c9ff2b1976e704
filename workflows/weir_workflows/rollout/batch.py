"""A batch: computes of like windows taken together through baseline, switch, bake and verdict.

The database holds the state of each compute; the batch only knows which step comes next. A batch's history is a dozen
steps whatever happens, so a batch never has to continue as a new run.
"""

from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError

with workflow.unsafe.imports_passed_through():
    from weir_workflows.common import policies
    from weir_workflows.common.errors import reason_of
    from weir_workflows.rollout.bake_activities import BakeActivities
    from weir_workflows.rollout.messages import BackInput, BakeInput, BatchInput, BatchSignal, Members
    from weir_workflows.rollout.rollback_activities import RollbackActivities
    from weir_workflows.rollout.switch_activities import SwitchActivities

BATCH_WORKFLOW = "rollout_batch"
# A batch gets a signal when a pause ends; should the signal be lost, the batch reads the status again after so long.
PAUSE_POLL = timedelta(minutes=30)
# Prometheus has scraped the last sample of a window by then.
METRICS_LAG = timedelta(seconds=4)


@workflow.defn(name=BATCH_WORKFLOW)
class BatchWorkflow:
    @workflow.init
    def __init__(self, message: BatchInput) -> None:
        self._message = message
        self._members = Members(message.rollout_id, message.batch.compute_ids)
        self._paused = message.paused
        self._stopped = False
        self._signals = 0

    @workflow.signal
    def control(self, signal: BatchSignal) -> None:
        self._signals += 1
        self._paused = signal.paused
        self._stopped = self._stopped or signal.stopped

    @workflow.run
    async def run(self, message: BatchInput) -> None:
        """A failure of one compute is that compute's end; a step that cannot be done at all ends those left."""
        del message
        try:
            await self._steps()
        except ActivityError as failure:
            reason = f"the step could not be done: {reason_of(failure)}"
            await workflow.execute_activity_method(
                RollbackActivities.give_up,
                BackInput(self._members.rollout_id, self._members.compute_ids, "failed", reason),
                **policies.RECORD,
            )

    async def _steps(self) -> None:
        message, batch = self._message, self._message.batch
        begun = await workflow.execute_activity_method(SwitchActivities.begin_batch, message, **policies.BATCH)
        if not begun.measuring and not begun.switched:
            return
        if not await self._pass_time(begun.wait_seconds) or not await self._switch():
            return
        if not await self._pass_time(message.settle_seconds):
            return
        baked = await workflow.execute_activity_method(
            BakeActivities.bake_batch,
            BakeInput(message.rollout_id, batch.compute_ids, batch.bake_seconds),
            **policies.long_batch(batch.bake_seconds),
        )
        if baked.stopped or not baked.to_judge:
            return
        await workflow.sleep(METRICS_LAG)
        await workflow.execute_activity_method(BakeActivities.judge_batch, self._members, **policies.BATCH)

    async def _switch(self) -> bool:
        """Until every compute is switched or left out. False when the rollout was stopped."""
        while True:
            await workflow.wait_condition(lambda: not self._paused or self._stopped)
            if self._stopped:
                return False
            seen = self._signals
            result = await workflow.execute_activity_method(
                SwitchActivities.switch_batch, self._members, **policies.BATCH
            )
            if result.stopped:
                return False
            if not result.waiting:
                return True
            if result.paused:
                await self._until_signalled(seen)
            else:
                await self._until_thawed(result.retry_seconds)

    async def _until_signalled(self, seen: int) -> None:
        """Waits for the end of a pause. A batch gets no signal when a pause begins, since activities read the stored
        status; it gets one when the pause ends. A signal that came after the count was `seen` may be that one."""
        try:
            await workflow.wait_condition(lambda: self._signals != seen or self._stopped, timeout=PAUSE_POLL)
        except TimeoutError:
            return

    async def _until_thawed(self, seconds: float) -> None:
        """Waits until the freeze is over, the rollout is paused, or it stops."""
        try:
            await workflow.wait_condition(
                lambda: self._paused or self._stopped, timeout=timedelta(seconds=min(seconds, 3600.0))
            )
        except TimeoutError:
            return

    async def _pass_time(self, seconds: float) -> bool:
        """False when the rollout was stopped meanwhile."""
        if seconds <= 0:
            return not self._stopped
        try:
            await workflow.wait_condition(lambda: self._stopped, timeout=timedelta(seconds=seconds))
        except TimeoutError:
            return True
        return False
