"""One wave, inside the rollout's workflow: batches as child workflows, until no compute of the wave is left."""

import asyncio
from datetime import timedelta
from typing import Protocol

from temporalio import workflow
from temporalio.exceptions import ActivityError, ChildWorkflowError

with workflow.unsafe.imports_passed_through():
    from weir.rollouts.messages import batch_workflow_id
    from weir_workflows.common import policies
    from weir_workflows.common.errors import reason_of
    from weir_workflows.rollout import limits
    from weir_workflows.rollout.batch import BatchWorkflow
    from weir_workflows.rollout.judge_activities import WaveActivities
    from weir_workflows.rollout.messages import (
        BackInput,
        BatchInput,
        BatchSignal,
        PickedBatch,
        PickInput,
        WaveJudged,
        WavePlan,
        WaveRef,
        WaveReport,
        WaveTally,
    )
    from weir_workflows.rollout.pick_activities import PickActivities
    from weir_workflows.rollout.progress_activities import ProgressActivities
    from weir_workflows.rollout.report_activities import ReportActivities
    from weir_workflows.rollout.rollback_activities import RollbackActivities


UNJUDGED = "unjudged"


class RolloutRun(Protocol):
    """What a wave asks of the rollout it belongs to."""

    @property
    def stopping(self) -> bool: ...
    @property
    def paused(self) -> bool: ...
    async def until_resumed(self) -> bool: ...
    async def wait_for_approval(self, reason: str, gate: str) -> bool: ...
    async def report_waiting(self, waits: str | None) -> None: ...
    async def pass_time(self, seconds: float) -> bool: ...


class WaveRun:
    def __init__(
        self,
        rollout: RolloutRun,
        rollout_id: str,
        wave: WavePlan,
        max_failed_percent: float,
        next_batch: int,
        *,
        last: bool,
        approved: bool = False,
    ) -> None:
        """`approved`: the wave has failed, and somebody wants the rest of it all the same."""
        self._rollout = rollout
        self._id = rollout_id
        self._plan = wave
        self.approved = approved
        self._max_failed_percent = 100.0 if approved else max_failed_percent
        self._last = last
        self.next_batch = next_batch
        self._batches: dict[int, asyncio.Task[None]] = {}
        self._handles: dict[int, workflow.ChildWorkflowHandle[BatchWorkflow, None]] = {}
        self._wakeups = 0

    @staticmethod
    def history_is_long() -> bool:
        info = workflow.info()
        return info.is_continue_as_new_suggested() or info.get_current_history_length() > limits.HISTORY_EVENTS

    async def run(self) -> bool:
        """False when the workflow must go on as new before the wave is done."""
        if self._plan.state == "soaking":
            return await self._soak()
        await self._report("running", None)
        done, tally = await self._work()
        if self._rollout.stopping or not done:
            return done or self._rollout.stopping
        if not await self._conclude(tally):
            return False
        if not self._rollout.stopping and not self._last:
            await self._soak()
        return True

    def wake(self) -> None:
        """A control has come: the wave stops waiting and decides anew what to do."""
        self._wakeups += 1

    async def signal_batches(self, *, paused: bool, stopped: bool) -> None:
        """Passes a person's control on to every batch under way."""
        signal = BatchSignal(paused=paused, stopped=stopped)
        await asyncio.gather(*(self._signal(handle, signal) for handle in list(self._handles.values())))

    async def _signal(self, handle: workflow.ChildWorkflowHandle[BatchWorkflow, None], signal: BatchSignal) -> None:
        try:
            await handle.signal(BatchWorkflow.control, signal)
        except Exception as error:  # noqa: BLE001  a batch that has just ended needs no signal
            workflow.logger.info("a batch was not signalled: %s", error)

    async def drain(self) -> None:
        await asyncio.gather(*self._batches.values())

    # Batches.

    async def _work(self) -> tuple[bool, WaveTally]:
        """Takes computes up until none is left, too many have failed, the rollout stops, or the history is long
        (False). Computes of an earlier run are counted before any are picked, so that a wave it held stays held."""
        tally = await self._tally() if workflow.patched("counted-before-picking") else WaveTally()
        heeds = workflow.patched("heard-while-picking")
        while True:
            # A control that comes while computes are picked ends the wait below at once.
            seen = self._wakeups
            long = self.history_is_long()
            stop = self._rollout.stopping or self._too_many(tally) or long
            wait = limits.LONGEST_WAIT_SECONDS
            if not stop and not self._batches and self._rollout.paused:
                await self._rollout.until_resumed()
                continue
            if not stop and not self._rollout.paused:
                picked = await workflow.execute_activity_method(
                    PickActivities.pick_computes,
                    PickInput(self._id, self._plan.index, self.next_batch),
                    **policies.RECORD,
                )
                await self._start_all(picked.batches)
                await self._rollout.report_waiting(None if self._batches else picked.why)
                wait = picked.retry_seconds
                if not self._batches and not picked.pending:
                    return True, await self._tally()
            if stop and not self._batches:
                return not long or self._rollout.stopping or self._too_many(tally), await self._tally()
            if await self._until_woken(wait, seen if heeds else self._wakeups):
                tally = await self._tally()

    async def _start_all(self, batches: list[PickedBatch]) -> None:
        """Together: one by one, a hundred of them would take a hundred turns, and controls would wait for these."""
        if len(batches) > 1 and workflow.patched("started-together"):
            await asyncio.gather(*(self._start(batch) for batch in batches))
        else:
            for batch in batches:
                await self._start(batch)

    async def _start(self, batch: PickedBatch) -> None:
        self.next_batch = max(self.next_batch, batch.number + 1)
        seen = self._wakeups
        handle = await workflow.start_child_workflow(
            BatchWorkflow.run,
            BatchInput(self._id, batch, self._plan.settle_seconds, self._rollout.paused),
            id=batch_workflow_id(self._id, batch.number),
        )
        self._handles[batch.number] = handle
        self._batches[batch.number] = asyncio.create_task(self._await(handle, batch))
        if seen != self._wakeups:
            await self._signal(handle, BatchSignal(paused=self._rollout.paused, stopped=self._rollout.stopping))

    async def _await(self, handle: workflow.ChildWorkflowHandle[BatchWorkflow, None], batch: PickedBatch) -> None:
        try:
            await handle
        except ChildWorkflowError as error:
            workflow.logger.warning("a batch ended early: %s", error)
            reason = "its batch was ended from outside before it was done"
            await workflow.execute_activity_method(
                RollbackActivities.give_up,
                BackInput(self._id, batch.compute_ids, "failed", reason),
                **policies.BACK,
            )

    async def _until_woken(self, seconds: float, seen: int) -> bool:
        """Waits until a batch ends, until a control has come since the count of wake-ups was `seen`, or until
        `seconds` have passed. True when a batch has ended."""
        try:
            await workflow.wait_condition(
                lambda: self._ended() or self._wakeups != seen, timeout=timedelta(seconds=max(1.0, seconds))
            )
        except TimeoutError:
            return False
        ended = [number for number, task in self._batches.items() if task.done()]
        for number in ended:
            del self._batches[number], self._handles[number]
        return bool(ended)

    def _ended(self) -> bool:
        return any(task.done() for task in self._batches.values())

    async def _tally(self) -> WaveTally:
        return await workflow.execute_activity_method(
            ProgressActivities.tally_wave, WaveRef(self._id, self._plan.index), **policies.RECORD
        )

    def _too_many(self, tally: WaveTally) -> bool:
        return tally.bad > int(tally.total * self._max_failed_percent / 100)

    # The end of the wave.

    async def _conclude(self, tally: WaveTally) -> bool:
        """False when the workflow must go on as new before the wave is done."""
        name = self._plan.name
        bad = _listed(tally.bad, tally.bad_examples)
        if self._too_many(tally):
            reason = f"{tally.bad} of {tally.total} computes did not pass and went back: {bad}"
            return await self._fail(reason, f"wave {name}: {reason}")
        judged = await self._judge()
        if judged.verdict == "regress":
            reason = f"over all its computes together: {judged.reason}"
            return await self._fail(reason, f"wave {name} regressed {reason}")
        unclear = judged.reason if judged.verdict == UNJUDGED else self._unclear(tally)
        if unclear is not None:
            await self._report("held", unclear)
            if await self._rollout.wait_for_approval(
                f"wave {name} is inconclusive: {unclear}", f"wave-{self._plan.index}-inconclusive"
            ):
                await self._report("passed", f"approved although inconclusive: {unclear}")
            return True
        notes = [judged.reason] if judged.reason else []
        if tally.bad:
            notes.append(f"{tally.bad} computes did not pass and went back: {bad}")
        if tally.deferred:
            notes.append(f"{tally.deferred} suspended computes switch when they start next")
        if not tally.passed and not tally.deferred:
            await self._report("skipped", "every compute of the wave was left out")
        else:
            await self._report("passed", "; ".join(notes) or None)
        return True

    async def _judge(self) -> WaveJudged:
        """The verdict over the wave's members together. Where they cannot be judged, the wave is held as an
        inconclusive one is."""
        try:
            return await workflow.execute_activity_method(
                WaveActivities.judge_wave, WaveRef(self._id, self._plan.index), **policies.JUDGE
            )
        except ActivityError as failure:
            return WaveJudged(UNJUDGED, f"its computes could not be judged together: {reason_of(failure)}")

    async def _fail(self, reason: str, why: str) -> bool:
        """A failed wave waits for approval. An approval means the rest of the wave, however many more members
        fail."""
        await self._report("failed", reason)
        if not await self._rollout.wait_for_approval(why, f"wave-{self._plan.index}-failed"):
            return True
        self.approved, self._max_failed_percent = True, 100.0
        done, _ = await self._work()
        if done and not self._rollout.stopping:
            await self._report("passed", f"approved all the same: {reason}")
        return done or self._rollout.stopping

    def _unclear(self, tally: WaveTally) -> str | None:
        """Why the wave says too little to go on, if so. A wave with nobody to judge rests on those before."""
        if tally.unclear:
            return _listed(tally.unclear, tally.unclear_examples)
        if not tally.passed and not tally.passed_before:
            return "no compute of the wave could be judged"
        return None

    async def _soak(self) -> bool:
        """The fleet as it is now is watched for a while."""
        if self._plan.soak_seconds:
            until = workflow.now() + timedelta(seconds=self._plan.soak_seconds)
            await self._report("soaking", None, until.isoformat())
            await self._rollout.report_waiting(f"soaks until {until.isoformat(timespec='seconds')}")
            if not await self._rollout.pass_time(self._plan.soak_seconds):
                return True
            await self._rollout.report_waiting(None)
            await self._report("passed", None)
        return True

    async def _report(self, state: str, reason: str | None, soak_until: str | None = None) -> None:
        report = WaveReport(self._id, self._plan.index, state, reason, workflow.now().isoformat(), soak_until)
        await workflow.execute_activity_method(ReportActivities.report_wave, report, **policies.RECORD)


def _listed(count: int, examples: list[str]) -> str:
    more = count - len(examples)
    return "; ".join(examples) + (f"; and {more} more" if more > 0 else "")
