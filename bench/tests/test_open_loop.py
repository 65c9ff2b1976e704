"""A server that stands still is charged with every request that was due meanwhile, and what fails is counted."""

import asyncio
import sys
from collections import Counter
from pathlib import Path
from random import Random

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from weirbench import api_seed, open_loop, reconciler_seed
from weirbench.open_loop import Answer, Kind, Request

SEEDED = Random(7)  # noqa: S311  the same load in every run
READ = Request("look", "read", "GET", "/")
WRITE = Request("change", "write", "POST", "/", {}, (201,))


def test_arrivals_come_at_the_rate_and_in_order():
    due = open_loop.arrivals(200, 50, SEEDED)
    assert due == sorted(due)
    assert 0 < due[0] < due[-1] < 50
    assert len(due) == pytest.approx(10_000, rel=0.05)


def test_a_server_that_stands_still_is_charged_with_all_that_was_due():
    """It answers one after the other, and the first takes long: nobody sent later, since the clock sends."""
    turn = asyncio.Lock()
    first = [True]

    async def send(request: Request) -> int:
        del request
        async with turn:
            if first:
                first.clear()
                await asyncio.sleep(0.3)
        return 200

    due = [0.01 * number for number in range(20)]
    answers = asyncio.run(open_loop.drive([(at, READ) for at in due], send))
    waited = sorted(answer.milliseconds for answer in answers)
    assert waited[0] > 80
    assert waited[-1] > 280
    assert all(answer.sent - answer.due < 0.1 for answer in answers)


def answer(request: Request, milliseconds: float, status: int) -> Answer:
    return Answer(request, 1.0, 1.001, 1.0 + milliseconds / 1000, status)


def test_what_is_missed_is_said():
    good = [answer(READ, 10, 200)] * 100 + [answer(WRITE, 100, 201)] * 100
    targets: dict[Kind, float] = {"read": 50.0, "write": 150.0}
    assert open_loop.missed(good, targets) == []
    assert open_loop.missed([*good, *[answer(READ, 60, 200)] * 2], targets) == [
        "read p99 is 60.0 ms, and may be 50 ms"
    ]
    failed = [*good, answer(WRITE, 1, 423), answer(READ, 1, 0)]
    assert open_loop.missed(failed, targets) == ["1 of 101 reads failed", "1 of 101 writes failed"]
    assert open_loop.statuses(failed) == {"change: 423": 1, "look: no answer": 1}
    assert open_loop.missed(good[:100], targets) == ["no write was asked for"]


def test_the_mix_is_mostly_reads_and_starts_no_compute_twice():
    mix = api_seed.Mix(reconciler_seed.fleet_of(500), SEEDED)
    drawn = [mix.draw() for _ in range(10_000)]
    kinds = Counter(request.kind for request in drawn)
    assert kinds["read"] / len(drawn) == pytest.approx(0.8, abs=0.03)
    starts = [request.path for request in drawn if request.what == "start a compute"]
    assert len(starts) == len(set(starts)) == pytest.approx(100, rel=0.4)
