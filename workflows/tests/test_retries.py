"""Repeating what may be repeated: until something is so, while the other side is away, and for a compute's lock."""

import asyncio
from pathlib import Path

import pytest

from weir.clients.http import RemoteError
from weir.config import Settings
from weir_workflows.common.heartbeat import until
from weir_workflows.computes import control
from weir_workflows.computes.control import Lock
from weir_workflows.rollout.probes import retrying
from weir_workflows.runtime.local import BusyError, LocalRuntime


class Scripted:
    """Answers or raises one thing after the other, and the last one for ever."""

    def __init__(self, *answers: object) -> None:
        self._answers = list(answers)
        self.calls = 0

    async def __call__(self) -> str | None:
        answer = self._answers[min(self.calls, len(self._answers) - 1)]
        self.calls += 1
        if isinstance(answer, BaseException):
            raise answer
        return None if answer is None else str(answer)


def away(status: int | None = None) -> RemoteError:
    return RemoteError("pageserver", "GET /v1/tenant", status, "UNAVAILABLE", "being restarted")


async def test_until_returns_once_nothing_is_missing():
    check = Scripted("two computes lag", "one compute lags", None)
    await until(check, 5, every_seconds=0.01)
    assert check.calls == 3


async def test_until_says_what_was_missing_last():
    check = Scripted("two computes lag", "one compute lags")
    with pytest.raises(TimeoutError, match=r"^one compute lags \(waited 0 s\)$"):
        await until(check, 0.05, every_seconds=0.01)


async def test_until_looks_at_least_once_and_passes_errors_on():
    check = Scripted(None)
    await until(check, 0)
    assert check.calls == 1
    with pytest.raises(RemoteError):
        await until(Scripted(away()), 5)


async def test_a_call_is_repeated_while_the_other_side_is_away():
    call = Scripted(away(), away(503), away(423), "done")
    assert await retrying(call) == "done"
    assert call.calls == 4


async def test_a_refusal_is_not_repeated():
    call = Scripted(away(409), "done")
    with pytest.raises(RemoteError) as refused:
        await retrying(call)
    assert (refused.value.status, call.calls) == (409, 1)


@pytest.mark.parametrize("seconds", [0.0, 0.1])
async def test_no_attempt_would_begin_after_the_time_that_was_given(seconds: float):
    call = Scripted(away())
    with pytest.raises(RemoteError):
        await retrying(call, seconds)
    assert call.calls == 1


async def test_a_cancelled_repetition_ends_at_once():
    task = asyncio.create_task(retrying(Scripted(away())))
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_compute_s_lock_is_waited_for_and_then_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    runtime = LocalRuntime(Settings(home=tmp_path))
    async with Lock(runtime, "ep-one"):
        monkeypatch.setattr(control, "LOCK_PATIENCE_SECONDS", 0.3)
        with pytest.raises(BusyError, match="another activity works on compute ep-one"):
            async with Lock(runtime, "ep-one"):
                pass
        monkeypatch.undo()
        second = Lock(runtime, "ep-one")
        waiting = asyncio.create_task(second.__aenter__())
        await asyncio.sleep(0.15)
        assert not waiting.done()
    await asyncio.wait_for(waiting, 5)
    await second.__aexit__(None, None, None)
    async with Lock(runtime, "ep-one"):
        pass
