"""Load that comes by the clock: when requests are due does not depend on how fast the answers to others come, and an
answer's time counts from when its request was due. So a server that stands still for a second is charged with every
request of that second, and not with the one that happened to be under way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Literal

from .tproc import percentile

Kind = Literal["read", "write"]
SHARES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}


@dataclass(frozen=True)
class Request:
    """`what`: the name under which its time is counted. `expect`: the statuses that are an answer."""

    what: str
    kind: Kind
    method: str
    path: str
    body: dict[str, Any] | None = None
    expect: tuple[int, ...] = (200,)


@dataclass(frozen=True)
class Answer:
    """Times in seconds since the load began. `status` 0: there was no answer."""

    request: Request
    due: float
    sent: float
    done: float
    status: int

    @property
    def milliseconds(self) -> float:
        return (self.done - self.due) * 1000

    @property
    def is_good(self) -> bool:
        return self.status in self.request.expect


def arrivals(rate: float, seconds: float, random: Random) -> list[float]:
    """When requests are due, seconds from the beginning: independent of each other, `rate` a second on average."""
    found: list[float] = []
    at = random.expovariate(rate)
    while at < seconds:
        found.append(at)
        at += random.expovariate(rate)
    return found


async def drive(planned: Iterable[tuple[float, Request]], send: Callable[[Request], Awaitable[int]]) -> list[Answer]:
    """Sends each request when it is due, however many are under way, and waits for all answers. `send` answers with
    the status, 0 where there was none."""
    loop = asyncio.get_running_loop()
    begun = loop.time()
    answers: list[Answer] = []

    async def one(due: float, request: Request) -> None:
        sent = loop.time() - begun
        status = await send(request)
        answers.append(Answer(request, due, sent, loop.time() - begun, status))

    async with asyncio.TaskGroup() as group:
        for due, request in planned:
            pause = due - (loop.time() - begun)
            if pause > 0:
                await asyncio.sleep(pause)
            group.create_task(one(due, request))
    return answers


def summary(answers: Sequence[Answer]) -> dict[str, Any]:
    """Milliseconds, of all answers: one that failed has taken its time too."""
    took = [answer.milliseconds for answer in answers]
    return {
        "requests": len(answers),
        "failed": sum(not answer.is_good for answer in answers),
        **{name: _rounded(percentile(took, share)) for name, share in SHARES.items()},
        "longest": _rounded(max(took, default=None)),
    }


def by_name(answers: Sequence[Answer]) -> dict[str, dict[str, Any]]:
    """The summary of each kind of request, the slowest first."""
    named: dict[str, list[Answer]] = {}
    for answer in answers:
        named.setdefault(answer.request.what, []).append(answer)
    found = {what: summary(of) for what, of in named.items()}
    return dict(sorted(found.items(), key=lambda pair: -(pair[1]["p99"] or 0.0)))


def statuses(answers: Sequence[Answer]) -> dict[str, int]:
    """How often each status came that is none of an answer, by what was asked."""
    found: dict[str, int] = {}
    for answer in answers:
        if not answer.is_good:
            name = f"{answer.request.what}: {answer.status or 'no answer'}"
            found[name] = found.get(name, 0) + 1
    return found


def late_ms(answers: Sequence[Answer]) -> float | None:
    """How long after its time the 99th of 100 requests was sent: what the generator itself adds."""
    return _rounded(percentile([(answer.sent - answer.due) * 1000 for answer in answers], 0.99))


def missed(answers: Sequence[Answer], targets: dict[Kind, float]) -> list[str]:
    """What does not hold of the promised 99th percentiles, in words; nothing failed either."""
    found: list[str] = []
    for kind, target in targets.items():
        of = summary([answer for answer in answers if answer.request.kind == kind])
        if of["p99"] is None:
            found.append(f"no {kind} was asked for")
        elif of["p99"] > target:
            found.append(f"{kind} p99 is {of['p99']:.1f} ms, and may be {target:g} ms")
        if of["failed"]:
            found.append(f"{of['failed']} of {of['requests']} {kind}s failed")
    return found


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 2)
