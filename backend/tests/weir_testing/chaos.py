"""A worker interceptor that makes activities fail, lose their answers and run twice."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from temporalio import activity
from temporalio.exceptions import ApplicationError
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

# One round is never repeated, so its answer may not be lost.
NEVER_LOST = {"reconcile"}


@dataclass
class Chaos(Interceptor):
    """`lose_answers`: every activity does its work, and then fails at its first attempt as if the worker had died
    before it could say so; Temporal repeats it. `fail`: these are refused for good, before they do anything."""

    lose_answers: bool = False
    fail: set[str] = field(default_factory=set)
    runs: Counter[str] = field(default_factory=Counter)

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002
        return _Inbound(next, self)


class _Inbound(ActivityInboundInterceptor):
    def __init__(self, following: ActivityInboundInterceptor, chaos: Chaos) -> None:
        super().__init__(following)
        self._chaos = chaos

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002
        info = activity.info()
        name = info.activity_type
        if name in self._chaos.fail:
            raise ApplicationError(f"{name} was told to fail", non_retryable=True)
        self._chaos.runs[name] += 1
        result = await super().execute_activity(input)
        if self._chaos.lose_answers and info.attempt == 1 and name not in NEVER_LOST:
            raise RuntimeError(f"the answer of {name} was lost")
        return result
