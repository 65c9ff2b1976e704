"""What workflows of operations have in common: they carry out, undo what they made when that fails, and report; some
can be asked to stop.

Whoever asks sends a signal and does not cancel the workflow in Temporal's sense: the undoing and the report must not
be cancelled with it. A step that runs is asked to stop, and nothing is undone before it has: what comes in late would
make again what was just undone.
"""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from temporalio import workflow
from temporalio.exceptions import ActivityError
from temporalio.workflow import ActivityCancellationType

with workflow.unsafe.imports_passed_through():
    from weir.operations.messages import CANCEL_SIGNAL, OperationInput
    from weir_workflows.common import policies
    from weir_workflows.common.errors import reason_of
    from weir_workflows.operations.activities import OperationActivities, OperationDone

Self_ = TypeVar("Self_")
Argument = TypeVar("Argument")
Answer = TypeVar("Answer")
# Answers with what it could not do beside its purpose, if anything.
Step = Callable[[], Awaitable[str | None]]
# False: the operation was done before it could be undone.
GiveUp = Callable[[], Awaitable[bool]]
TOO_LATE = "it was done before it could be cancelled"


class StoppedError(Exception):
    """The operation was asked to stop before this step began."""


async def carry_out(operation: OperationInput, do: Step, undo: Step | None = None) -> None:
    try:
        done = OperationDone(operation.operation_id, None, await do())
    except ActivityError as failure:
        done = OperationDone(operation.operation_id, await _failed(failure, undo))
    await _report(done)


async def _failed(failure: ActivityError, undo: Step | None) -> str:
    error = reason_of(failure)
    if undo is None:
        return error
    try:
        left = await undo()
    except ActivityError as second:
        return f"{error}; undoing it failed too: {reason_of(second)}"
    return error if left is None else f"{error}; {left}"


async def _report(done: OperationDone) -> None:
    await workflow.execute_activity_method(OperationActivities.report_operation, done, **policies.RECORD)


class Cancellable:
    """Of a workflow that can be asked to stop. What it does goes through `step`."""

    _asked = False
    _running: "workflow.ActivityHandle[Any] | None" = None

    @workflow.signal(name=CANCEL_SIGNAL)
    def ask_to_stop(self) -> None:
        self._asked = True
        if self._running is not None:
            self._running.cancel()

    async def step(
        self,
        activity: Callable[[Self_, Argument], Awaitable[Answer]],
        argument: Argument,
        options: policies.ActivityOptions,
    ) -> Answer:
        """Raises StoppedError when the operation has been asked to stop; ActivityError, once the activity has ended,
        when it is asked meanwhile and the activity heeds it."""
        if self._asked:
            raise StoppedError
        self._running = workflow.start_activity_method(
            activity, argument, cancellation_type=ActivityCancellationType.WAIT_CANCELLATION_COMPLETED, **options
        )
        try:
            return await self._running
        finally:
            self._running = None

    async def carry_out(
        self, operation: OperationInput, do: Step, undo: Step | None = None, give_up: GiveUp | None = None
    ) -> None:
        """`undo` is for what fails; `give_up` for what was asked to stop, where there is anything to undo."""
        try:
            warning = await do()
            done = OperationDone(operation.operation_id, None, warning or (TOO_LATE if self._asked else None))
        except (ActivityError, StoppedError) as failure:
            if self._asked or isinstance(failure, StoppedError):
                done = await self._given_up(operation, give_up)
            else:
                done = OperationDone(operation.operation_id, await _failed(failure, undo))
        await _report(done)

    async def _given_up(self, operation: OperationInput, give_up: GiveUp | None) -> OperationDone:
        try:
            is_undone = give_up is None or await give_up()
        except ActivityError as failure:
            error = f"it was cancelled, and undoing it failed: {reason_of(failure)}"
            return OperationDone(operation.operation_id, error)
        warning = None if is_undone else TOO_LATE
        return OperationDone(operation.operation_id, None, warning, cancelled=is_undone)
