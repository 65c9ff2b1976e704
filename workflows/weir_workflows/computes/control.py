"""Bringing one compute up or down, whatever state it is found in. Used by activities and by `weir-computes`."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import structlog

from weir.clients.compute import ComputeAgent, ComputeStatus, agent_of
from weir.clients.http import HttpClient, RemoteError
from weir_workflows.computes import stages
from weir_workflows.runtime.local import BusyError, LocalRuntime
from weir_workflows.runtime.process import ProcessId

log = structlog.get_logger()

POLL_SECONDS = 0.1
# A client may wait for a start: an agent that does not listen yet is tried again so soon, the first so many times.
FIRST_POLL_SECONDS = 0.01
FIRST_POLLS = 100
# An agent is asked to answer once its compute has started, or after so long. An answer within the half of it that
# says "starting" is an older agent's, which waits for nothing.
WAIT_SECONDS = 2.0
SUSPEND_PATIENCE_SECONDS = 60
TERM_PATIENCE_SECONDS = 10
KILL_PATIENCE_SECONDS = 10
LOCK_PATIENCE_SECONDS = 60
UNRESPONSIVE_SECONDS = 20
_BEYOND_HELP = {"failed", "fenced", "stopped"}


class ComputeStartError(Exception):
    """The compute did not come up; the message says why, with the end of its log."""


class Lock:
    """`LocalRuntime.exclusive`, waiting its turn."""

    def __init__(self, runtime: LocalRuntime, compute_id: str) -> None:
        self._runtime = runtime
        self._compute_id = compute_id

    async def __aenter__(self) -> int:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + LOCK_PATIENCE_SECONDS
        while True:
            held = self._runtime.exclusive(self._compute_id)
            try:
                descriptor = held.__enter__()
            except BusyError:
                if loop.time() > deadline:
                    raise
                await asyncio.sleep(POLL_SECONDS)
                continue
            self._held = held
            return descriptor

    async def __aexit__(self, *error: object) -> None:
        self._held.__exit__(None, None, None)


async def ensure_running(runtime: LocalRuntime, http: HttpClient, spec: dict[str, Any]) -> ComputeStatus:
    """Returns once the compute serves queries: at once when it does already, after a start otherwise."""
    compute_id: str = spec["compute_id"]
    agent = agent_of(compute_id, spec["listen"], spec["port"], http)
    laps = stages.Laps()
    async with Lock(runtime, compute_id):
        process = runtime.process(compute_id)
        if process is not None:
            status = await _settled(agent, process)
            # A branch that was put back has another timeline than when a late start of its compute was asked for.
            runs = (runtime.spec(compute_id) or spec)["timeline_id"]
            elsewhere = runs != spec["timeline_id"]
            if status is not None and status.state == "running" and status.compute_id == compute_id and not elsewhere:
                return status
            reason = "does not answer" if status is None else f"is {status.state}: {status.reason}"
            if elsewhere:
                reason = f"runs on timeline {runs}, not on its branch's {spec['timeline_id']}"
            log.warning("compute_replaced", compute_id=compute_id, reason=reason)
            await _end(runtime, process)
        runtime.clean(compute_id)
        process = runtime.spawn(compute_id, spec)
        laps.end("process")
        status = await _wait_running(runtime, agent, compute_id, process)
    laps.end("agent")
    stages.count_agent(status.start)
    return status


async def _settled(agent: ComputeAgent, process: ProcessId) -> ComputeStatus | None:
    """The status once it is no longer in between; None when the agent stays silent."""
    loop = asyncio.get_running_loop()
    silent_until = loop.time() + UNRESPONSIVE_SECONDS
    while process.alive():
        try:
            status = await agent.status()
        except RemoteError:
            if loop.time() > silent_until:
                return None
        else:
            silent_until = loop.time() + UNRESPONSIVE_SECONDS
            if status.state == "running" or status.state in _BEYOND_HELP:
                return status
        await asyncio.sleep(POLL_SECONDS)
    return None


async def _wait_running(
    runtime: LocalRuntime, agent: ComputeAgent, compute_id: str, process: ProcessId
) -> ComputeStatus:
    last: str | None = None
    loop = asyncio.get_running_loop()
    polls = 0
    while process.alive():
        polls += 1
        asked = loop.time()
        try:
            status = await agent.started(WAIT_SECONDS)
        except RemoteError:
            pass
        else:
            if status.compute_id != compute_id:
                raise ComputeStartError(
                    f"compute {compute_id} cannot have its port: {status.compute_id} answers there"
                )
            if status.state == "running":
                return status
            last = f"{status.state}: {status.reason}"
            if status.state in _BEYOND_HELP:
                await _end(runtime, process)
                break
        if loop.time() - asked < WAIT_SECONDS / 2:
            await asyncio.sleep(FIRST_POLL_SECONDS if polls <= FIRST_POLLS else POLL_SECONDS)
    why = runtime.how_it_ended(process) if last is None else f"{last}; {runtime.how_it_ended(process)}"
    raise ComputeStartError(
        f"compute {compute_id} did not start: {why}; its log ends with:\n{runtime.log_tail(compute_id)}"
    )


@asynccontextmanager
async def at_rest(runtime: LocalRuntime, compute_ids: Sequence[str]) -> AsyncGenerator[list[int] | None]:
    """Keeps these computes from being started while the body runs; None when one of them has a process. A program
    that is given the descriptors keeps them down for as long as it lives, whatever becomes of this process."""
    async with AsyncExitStack() as stack:
        # One order for everybody, so that two that want the same never wait for each other.
        held = [await stack.enter_async_context(Lock(runtime, ident)) for ident in sorted(compute_ids)]
        runs = any(runtime.process(ident) is not None for ident in compute_ids)
        yield None if runs else held


async def stop(runtime: LocalRuntime, http: HttpClient, compute_id: str, mode: str) -> None:
    """Ends the compute: cleanly if it can be (`suspend`), but ends it."""
    if not runtime.directory(compute_id).is_dir():
        return
    async with Lock(runtime, compute_id):
        process = runtime.process(compute_id)
        if process is not None:
            await _ask_to_stop(runtime, http, compute_id, process, mode)
            await _end(runtime, process)
        runtime.clean(compute_id)


async def _ask_to_stop(
    runtime: LocalRuntime, http: HttpClient, compute_id: str, process: ProcessId, mode: str
) -> None:
    spec = runtime.spec(compute_id)
    if spec is None:
        return
    agent = agent_of(compute_id, spec["listen"], spec["port"], http)
    try:
        status = await agent.status()
        if status.compute_id != compute_id:
            return
        await agent.terminate(mode)
    except RemoteError as error:
        log.warning("compute_not_told_to_stop", compute_id=compute_id, error=str(error))
        return
    await _gone(process, SUSPEND_PATIENCE_SECONDS)


async def _end(runtime: LocalRuntime, process: ProcessId) -> None:
    """What is committed is on the safekeepers: killing loses nothing that was acknowledged."""
    if not process.alive():
        return
    runtime.terminate(process)
    if await _gone(process, TERM_PATIENCE_SECONDS):
        return
    runtime.kill(process)
    if not await _gone(process, KILL_PATIENCE_SECONDS):
        raise RuntimeError(f"process {process.pid} survives SIGKILL; it hangs in the kernel")


async def _gone(process: ProcessId, within_seconds: float) -> bool:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within_seconds
    while process.alive():
        if loop.time() > deadline:
            return False
        await asyncio.sleep(POLL_SECONDS / 2)
    return True
