"""A step whose worker was given up for dead goes on beside its repetition: what it has read is old, and nothing that
the repetition has written since is undone."""

from typing import Any

import pytest
from test_rollout_controls import BARE, switches
from test_rollout_repairs import switching
from test_rollout_wishes import change, member
from weir_testing.fixtures import Weir
from weir_testing.fleet import Fleet

from weir.clients.http import RemoteError
from weir.rollouts.intent import Strategy
from weir.rollouts.models import MemberState
from weir_workflows.rollout import members
from weir_workflows.rollout.members import Member, Outcome
from weir_workflows.rollout.messages import BatchInput, PickedBatch
from weir_workflows.rollout.probes import Probes
from weir_workflows.rollout.rollback_activities import Rollback

UNREACHABLE = RemoteError("the compute", "POST /full_page_writes", None, "NO_ANSWER", "planted")


async def read(fleet: Fleet, ident: str, compute: str) -> list[Member]:
    async with fleet.weir.resources.database.transaction() as session:
        return await members.load(session, ident, [compute])


def written(row: Any) -> dict[str, Any]:
    return {column.key: getattr(row, column.key) for column in row.__table__.columns}


async def finished_after_reading(fleet: Fleet, state: MemberState) -> tuple[str, str, list[Member], Strategy]:
    """A compute that has passed, and what a step has read of it when it was in `state`, before its switch."""
    (compute,) = await fleet.add(1)
    ident = await fleet.start(**BARE, plan_approval_required=True)
    await fleet.until(ident, "held")
    await change(fleet, ident, compute, state=state, batch=0)
    stale = await read(fleet, ident, compute)
    await change(fleet, ident, compute, state=MemberState.PENDING, batch=None)
    await fleet.control(ident, "approve")
    await fleet.until(ident, "completed")
    return ident, compute, stale, Strategy.model_validate((await fleet.get(ident))["strategy"])


async def test_a_preflight_that_comes_late_leaves_a_switched_compute_alone(fleet: Fleet) -> None:
    ident, compute, stale, strategy = await finished_after_reading(fleet, MemberState.PREFLIGHT)
    before = written(await member(fleet, ident, compute))
    steps, batch = switching(fleet), BatchInput(ident, PickedBatch(0, [compute], 0, 0))
    await steps._measure(batch, stale, strategy, {compute: 0})
    await steps._defer(ident, stale, strategy)
    outcomes: dict[str, Outcome] = {compute: (MemberState.FAILED, "preflight: planted")}
    await members.record_outcomes(fleet.weir.resources.database, ident, outcomes, *members.UNSWITCHED)
    assert written(await member(fleet, ident, compute)) == before
    assert await fleet.switch_of(compute) == (False, False)


async def test_a_preflight_that_comes_late_does_not_switch_who_went_back(fleet: Fleet) -> None:
    ident, compute, stale, strategy = await finished_after_reading(fleet, MemberState.PREFLIGHT)
    await fleet.control(ident, "rollback")
    await fleet.until(ident, "rolled_back")
    before = written(await member(fleet, ident, compute))
    await switching(fleet)._defer(ident, stale, strategy)
    assert written(await member(fleet, ident, compute)) == before
    assert await fleet.switch_of(compute) == (True, True)


async def test_a_switch_that_comes_late_neither_sends_nor_takes_back(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither one that was cut off before its wish nor one that was cut off after it; nor when it fails."""
    ident, compute, stale, strategy = await finished_after_reading(fleet, MemberState.BASELINE)
    before = written(await member(fleet, ident, compute))
    steps = switching(fleet)

    async def unreachable(_: Member, failures: dict[str, Outcome]) -> None:
        failures[compute] = (MemberState.FAILED, str(UNREACHABLE))

    for send in (steps._send, unreachable):
        monkeypatch.setattr(steps, "_send", send)
        for switched_at in (None, before["switched_at"]):
            stale[0].member.switched_at = switched_at
            assert await steps._switch_chunk(ident, stale, strategy) == (0, 1)
    assert written(await member(fleet, ident, compute)) == before
    assert await switches(fleet, compute) == 1
    # Read before its confirmation, and failed: confirmed by the repetition, it stays.
    await steps._rollback.start(ident, {compute: (MemberState.FAILED, "not seen")}, *members.UNCONFIRMED)
    assert written(await member(fleet, ident, compute)) == before
    assert await fleet.switch_of(compute) == (False, False)


async def test_a_bake_that_comes_late_does_not_take_back_who_has_passed(fleet: Fleet) -> None:
    ident, compute, _, _ = await finished_after_reading(fleet, MemberState.BASELINE)
    before = written(await member(fleet, ident, compute))
    resources = fleet.weir.resources
    ends: dict[str, Outcome] = {compute: (MemberState.REGRESSED, "the port did not answer")}
    await Rollback(resources, Probes(resources)).start(ident, ends, *members.UNBAKED)
    await members.record_outcomes(resources.database, ident, ends, *members.UNBAKED)
    assert written(await member(fleet, ident, compute)) == before
    assert await fleet.switch_of(compute) == (False, False)


@pytest.mark.parametrize("only", [members.UNSWITCHED, members.UNCONFIRMED, members.UNBAKED, members.UNENDED])
async def test_ends_of_many_are_written_in_one_statement(weir: Weir, only: members.Only) -> None:
    ends: dict[str, Outcome] = {f"ep-{number}": (MemberState.FAILED, str(number)) for number in range(3)}
    await members.record_outcomes(weir.resources.database, "ro-of-nobody", ends, *only)
