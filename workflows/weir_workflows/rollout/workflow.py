"""A rollout: waves of computes, each taken up in batches as caps and windows of time allow, with a gate before each
wave. The workflow obeys the controls of people at every step.

- pause: no further compute is switched; switched computes finish their bake and are judged.
- approve: opens the gate at which the rollout is held.
- skip: leaves out a compute, or the computes of a wave that are not switched yet.
- abort: stops; switched computes without a passed verdict are rolled back, passed ones stay.
- rollback: stops and rolls back every compute that the rollout has switched, or only those of one wave, or one
  compute.

A switched compute that does not pass is rolled back by its feature's own means. A rollout never promotes on
`inconclusive`: it holds and says why. The database stores which computes are in which wave and the state of each,
so a workflow that begins anew, after its history grew long or was lost, continues from that state.
"""

import asyncio
from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError

with workflow.unsafe.imports_passed_through():
    from weir.rollouts.messages import (
        ROLLOUT_CONTROL_UPDATE,
        ROLLOUT_WORKFLOW,
        RolloutControl,
        RolloutControlResult,
        RolloutInput,
        RolloutProgress,
    )
    from weir_workflows.common import policies
    from weir_workflows.common.errors import reason_of
    from weir_workflows.rollout.messages import (
        Resumed,
        RolloutReport,
        ScopeInput,
        WavePlan,
        WaveReport,
    )
    from weir_workflows.rollout.progress_activities import ProgressActivities
    from weir_workflows.rollout.report_activities import ReportActivities
    from weir_workflows.rollout.rollback import roll_back
    from weir_workflows.rollout.scope_activities import ScopeActivities
    from weir_workflows.rollout.wave import WaveRun

ACTIONS = ("pause", "resume", "approve", "skip", "abort", "rollback")
DONE_WAVES = {"passed", "skipped", "rolled_back"}


def _now() -> str:
    return workflow.now().isoformat()


@workflow.defn(name=ROLLOUT_WORKFLOW)
class RolloutWorkflow:
    @workflow.init
    def __init__(self, message: RolloutInput) -> None:
        self._id = message.rollout_id
        progress = message.progress
        self._paused = progress is not None and progress.paused
        self._paused_by = progress.paused_by if progress else ""
        self._plan_approved = progress is not None and progress.plan_approved
        self._next_batch = progress.next_batch if progress else 0
        # The failed wave that somebody wants to be gone on with.
        self._approved_wave = progress.approved_wave if progress else None
        self._stop: str | None = None
        self._stopped_by = ""
        self._held_for: str | None = None
        self._gate_name: str | None = None
        self._waiting_for: str | None = None
        self._approvals = 0
        self._wave: int | None = None
        self._running: WaveRun | None = None
        # Work that goes on after a control was answered: rollbacks, and signals to batches.
        self._background: list[asyncio.Task[None]] = []
        self._closed: tuple[str, str | None] | None = None
        self._published: tuple[str, str | None, int | None] | None = None
        self._publishing = asyncio.Lock()

    @workflow.run
    async def run(self, message: RolloutInput) -> str:
        resumed = await workflow.execute_activity_method(
            ProgressActivities.resume_rollout, self._id, **policies.RECORD
        )
        if message.progress is None:
            self._take_over(resumed)
        try:
            await self._waves(resumed)
            await self._finish()
        except ActivityError as failure:
            await self._drain()
            await self._close("failed", reason_of(failure))
        await self._drain()
        return self._status()[0]

    def _take_over(self, resumed: Resumed) -> None:
        """Takes over, from the database, the controls that were in force when an earlier workflow was lost."""
        self._next_batch = max(self._next_batch, resumed.next_batch)
        self._paused = resumed.status == "paused"
        self._paused_by = resumed.asked_by if self._paused else ""
        self._plan_approved = any(wave.state != "pending" for wave in resumed.waves)
        if resumed.status in {"aborting", "rolling_back"}:
            self._stop = "abort" if resumed.status == "aborting" else "rollback"
            self._stopped_by = resumed.asked_by

    async def _waves(self, resumed: Resumed) -> None:
        before = False
        for wave in resumed.waves:
            if wave.state in DONE_WAVES:
                before = True
                continue
            if not await self._gate(wave, resumed, before):
                return
            await self._run_wave(wave, resumed)
            if self._stop is not None:
                return
            before = True
            await self._go_on_as_new()

    async def _go_on_as_new(self, *, within: bool = False) -> None:
        """Continues as a new run once the history has grown long, with no batch and no rollback under way."""
        if not within and not WaveRun.history_is_long():
            return
        await self._drain()
        if self._stop is not None:
            return
        progress = RolloutProgress(
            self._paused, self._paused_by, self._next_batch, self._plan_approved, self._approved_wave
        )
        workflow.continue_as_new(RolloutInput(self._id, progress))

    # Status, as people see it.

    def _status(self) -> tuple[str, str | None]:
        if self._closed is not None:
            return self._closed
        if self._stop == "rollback":
            return "rolling_back", f"rolled back by {self._stopped_by}"
        if self._stop == "abort":
            return "aborting", f"aborted by {self._stopped_by}"
        if self._paused:
            return "paused", f"paused by {self._paused_by}" if self._paused_by else None
        if self._held_for is not None:
            return "held", self._held_for
        return "running", self._waiting_for

    async def _publish(self) -> None:
        async with self._publishing:
            status, reason = self._status()
            if self._published == (status, reason, self._wave):
                return
            self._published = (status, reason, self._wave)
            gate = self._gate_name if status == "held" else None
            asked_by = self._stopped_by or (self._paused_by if status == "paused" else "")
            await workflow.execute_activity_method(
                ReportActivities.report_rollout,
                RolloutReport(self._id, status, reason, self._wave, _now(), gate, asked_by),
                **policies.RECORD,
            )

    async def _close(self, status: str, reason: str | None) -> None:
        self._closed = (status, reason)
        await self._publish()

    async def report_waiting(self, waits: str | None) -> None:
        """Publishes why no compute is taken up at the moment; None once one is."""
        self._waiting_for = waits
        await self._publish()

    # Controls.

    @workflow.update(name=ROLLOUT_CONTROL_UPDATE)
    async def control(self, message: RolloutControl) -> RolloutControlResult:
        if message.action == "skip":
            applied, text = await self._skip(message)
            if applied:
                await self._notify_batches("skip")
        elif message.action == "rollback" and (message.wave is not None or message.compute_id is not None):
            applied, text = await self._roll_back_part(message)
        else:
            if self._is_of_another_gate(message):
                text = f"the rollout is held at the gate {self._gate_name}, not at {message.gate}: {self._held_for}"
                return RolloutControlResult(False, self._status()[0], text, refused=True)
            applied, text = self._apply(message)
            # First what activities look at before each switch, then the batches.
            await self._publish()
            await self._notify_batches(message.action)
        return RolloutControlResult(applied, self._status()[0], text)

    async def _notify_batches(self, action: str) -> None:
        """Ends the waits of the wave and of its batches after a control. The control itself is in force already, for
        activities read it from the database before each switch: a pause, a skip and an approval need no signal."""
        wave = self._running
        if wave is None:
            return
        wave.wake()
        aside = workflow.patched("answered-before-told")
        if aside and action in {"pause", "skip", "approve"}:
            return
        signalling = asyncio.create_task(wave.signal_batches(paused=self._paused, stopped=self._stop is not None))
        if aside:
            self._background.append(signalling)
        else:
            await signalling

    @control.validator
    def _validate(self, message: RolloutControl) -> None:
        if message.action not in ACTIONS:
            raise ApplicationError(f"{message.action!r} is not one of {', '.join(ACTIONS)}")

    def _is_of_another_gate(self, message: RolloutControl) -> bool:
        """An approval that comes late, of a gate that has been opened since, must not open the next one."""
        named = message.action == "approve" and message.gate is not None
        return named and self._held_for is not None and self._gate_name != message.gate

    def _apply(self, message: RolloutControl) -> tuple[bool, str]:
        if self._closed is not None:
            return False, "the rollout has ended"
        if message.action in {"abort", "rollback"}:
            return self._apply_stop(message)
        if self._stop is not None:
            return False, "the rollout is being stopped"
        if message.action == "approve":
            if self._held_for is None:
                return False, "the rollout is not held at a gate"
            self._approvals += 1
            self._held_for = None
            return True, "the gate is open"
        wanted = message.action == "pause"
        if self._paused == wanted:
            return False, "the rollout is paused already" if wanted else "the rollout is not paused"
        self._paused, self._paused_by = wanted, message.actor if wanted else ""
        return True, "nothing new begins" if wanted else "the rollout goes on"

    def _apply_stop(self, message: RolloutControl) -> tuple[bool, str]:
        if self._stop in {message.action, "rollback"}:
            return False, "the rollout is being stopped already"
        self._stop, self._stopped_by = message.action, message.actor
        return True, "every switched compute goes back" if message.action == "rollback" else "the rollout stops"

    async def _skip(self, message: RolloutControl) -> tuple[bool, str]:
        done = await workflow.execute_activity_method(
            ScopeActivities.skip_computes, self._scope(message), **policies.RECORD
        )
        if not done.skipped and not done.asked:
            return False, "nothing of it is left to skip; what has been switched can be rolled back"
        return True, f"{done.skipped} computes are skipped, {done.asked} are left out before their switch"

    async def _roll_back_part(self, message: RolloutControl) -> tuple[bool, str]:
        scope = self._scope(message)
        ids = await workflow.execute_activity_method(ScopeActivities.ask_back, scope, **policies.RECORD)
        if ids:
            self._background.append(asyncio.create_task(self._roll_back(ids, f"rolled back by {message.actor}")))
        if message.wave is not None:
            await self._report_wave_rolled_back(message.wave, message.actor)
        return True, f"{len(ids)} computes go back now, and those under way at their next step"

    async def _roll_back(self, ids: list[str], reason: str) -> None:
        await roll_back(self._id, ids, reason)

    async def _report_wave_rolled_back(self, wave: int, actor: str) -> None:
        """A wave that is under way reports itself when it is over."""
        if self._running is None or self._wave != wave:
            report = WaveReport(self._id, wave, "rolled_back", f"rolled back by {actor}", _now())
            await workflow.execute_activity_method(ReportActivities.report_wave, report, **policies.RECORD)

    def _scope(self, message: RolloutControl) -> ScopeInput:
        return ScopeInput(self._id, message.wave, message.compute_id, actor=message.actor)

    # Gates and waits.

    @property
    def stopping(self) -> bool:
        return self._stop is not None

    @property
    def paused(self) -> bool:
        return self._paused

    async def until_resumed(self) -> bool:
        """Waits while the rollout is paused. False once the rollout is to stop."""
        await workflow.wait_condition(lambda: not self._paused or self._stop is not None)
        return self._stop is None

    async def wait_for_approval(self, reason: str, gate: str) -> bool:
        """Waits at a gate until a person approves; False when the rollout is to stop. Every gate of a rollout has a
        name of its own."""
        self._held_for, self._gate_name = reason, gate
        seen = self._approvals
        await self._publish()
        await workflow.wait_condition(lambda: self._approvals > seen or self._stop is not None)
        self._held_for = None
        await self._publish()
        return self._stop is None

    async def pass_time(self, seconds: float) -> bool:
        """False when the rollout was stopped meanwhile."""
        try:
            await workflow.wait_condition(lambda: self._stop is not None, timeout=timedelta(seconds=seconds))
        except TimeoutError:
            return True
        return False

    async def _gate(self, wave: WavePlan, plan: Resumed, before: bool) -> bool:
        await self._publish()
        if not await self.until_resumed():
            return False
        if wave.state == "pending" and not before and plan.plan_approval_required and not self._plan_approved:
            if not await self.wait_for_approval("the plan waits for approval", "plan"):
                return False
            self._plan_approved = True
        between = wave.state == "pending" and before and plan.approval_required
        if between and not await self.wait_for_approval(
            f"wave {wave.name} waits for approval", f"wave-{wave.index}-begins"
        ):
            return False
        return await self.until_resumed()

    # Waves, and the end.

    async def _run_wave(self, wave: WavePlan, plan: Resumed) -> None:
        self._wave = wave.index
        await self._publish()
        last = wave.index == plan.waves[-1].index
        approved = self._approved_wave == wave.index
        self._running = WaveRun(
            self, self._id, wave, plan.max_failed_percent, self._next_batch, last=last, approved=approved
        )
        finished = await self._running.run()
        self._next_batch = self._running.next_batch
        self._approved_wave = wave.index if self._running.approved else None
        self._running = None
        if not finished:
            # The history is long; what is left of the wave is taken up by the next run.
            await self._go_on_as_new(within=True)

    async def _drain(self) -> None:
        """Waits until no batch, no control and no rollback of single computes is under way any more."""
        if self._running is not None:
            await self._running.drain()
        while True:
            await workflow.wait_condition(workflow.all_handlers_finished)
            aside, self._background = self._background, []
            if not aside:
                return
            await asyncio.gather(*aside, return_exceptions=True)

    async def _finish(self) -> None:
        await self._drain()
        if self._stop is None:
            self._wave = None
            await self._close("completed", None)
            return
        await self._publish()
        keep = self._stop == "abort"
        await workflow.execute_activity_method(ScopeActivities.leave_unswitched, self._id, **policies.RECORD)
        ids = await workflow.execute_activity_method(
            ScopeActivities.switched_computes, ScopeInput(self._id, keep_passed=keep), **policies.RECORD
        )
        who = f" by {self._stopped_by}" if self._stopped_by else ""
        reason = f"the rollout was {'aborted' if keep else 'rolled back'}{who}"
        failed = await roll_back(self._id, ids, reason)
        if self._wave is not None and not keep:
            for index in range(self._wave + 1):
                report = WaveReport(self._id, index, "rolled_back", reason, _now())
                await workflow.execute_activity_method(ReportActivities.report_wave, report, **policies.RECORD)
        await self._close("aborted" if keep else "rolled_back", "; ".join([reason, *failed]))
