"""Heartbeats for activities that wait, so that a dead worker is noticed in seconds."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

from temporalio import activity

EVERY_SECONDS = 3.0
T = TypeVar("T")


@asynccontextmanager
async def heartbeats() -> AsyncGenerator[None]:
    """Beats while the body runs; also where activities are called outside Temporal, as tests do."""

    async def beat() -> None:
        while True:
            activity.heartbeat()
            await asyncio.sleep(EVERY_SECONDS)

    task = asyncio.create_task(beat()) if activity.in_activity() else None
    try:
        yield
    finally:
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


async def all_of(parts: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """What the parts of a step answer. When one fails the others end before the step does: a repetition must not meet
    what is left of this attempt."""
    tasks: list[asyncio.Task[T]] = []
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(part) for part in parts]
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from failed
    return [task.result() for task in tasks]


async def until(
    what: Callable[[], Awaitable[str | None]],
    within_seconds: float,
    every_seconds: float = 0.2,
) -> None:
    """Repeats `what` until it answers None; its last answer says what was still missing."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within_seconds
    while True:
        pending = await what()
        if pending is None:
            return
        if loop.time() >= deadline:
            raise TimeoutError(f"{pending} (waited {within_seconds:.0f} s)")
        await asyncio.sleep(every_seconds)
