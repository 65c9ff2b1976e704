"""What people ask for is done, whenever it comes; a step cut off leaves nobody switched, and nobody forgotten."""

from typing import Any

from sqlalchemy import select, update
from test_rollout_controls import BARE, states, switches
from weir_testing.fleet import Fleet

from weir.rollouts.models import MemberState, RolloutMember, Wish
from weir_workflows.rollout.messages import BatchInput, PickedBatch
from weir_workflows.rollout.probes import Probes
from weir_workflows.rollout.rollback_activities import Rollback
from weir_workflows.rollout.switch_activities import SwitchActivities


async def change(fleet: Fleet, ident: str, compute: str, **values: Any) -> None:
    async with fleet.weir.resources.database.transaction() as session:
        chosen = (RolloutMember.rollout_id == ident, RolloutMember.endpoint_id == compute)
        await session.execute(update(RolloutMember).where(*chosen).values(**values))


async def member(fleet: Fleet, ident: str, compute: str) -> RolloutMember:
    async with fleet.weir.resources.database.transaction() as session:
        chosen = (RolloutMember.rollout_id == ident, RolloutMember.endpoint_id == compute)
        return (await session.scalars(select(RolloutMember).where(*chosen))).one()


async def test_who_is_asked_back_as_the_bake_ends_goes_back(fleet: Fleet) -> None:
    (compute,) = await fleet.add(1)
    ident = await fleet.start(**BARE)
    await fleet.until(ident, "completed")
    await change(fleet, ident, compute, wish=Wish.BACK, wish_by="somebody")
    resources = fleet.weir.resources
    await Rollback(resources, Probes(resources)).carry_out_wishes(ident, [compute])
    assert await fleet.switch_of(compute) == (True, True)
    row = await member(fleet, ident, compute)
    assert (row.state, row.reason) == (MemberState.ROLLED_BACK, "rolled back by somebody")


async def test_a_wave_rolled_back_before_its_turn_is_never_switched(fleet: Fleet) -> None:
    await fleet.add(3)
    ident = await fleet.start(**BARE, waves=[{"count": 1}, {"percent": 100}], approval_required=True)
    await fleet.until(ident, "held")
    rest = await fleet.wave(ident, 1)
    await fleet.control(ident, "rollback", body={"scope": "wave", "wave": 1})
    await fleet.control(ident, "approve")
    await fleet.until(ident, "completed")
    assert {(await states(fleet, ident))[compute] for compute in rest} == {"skipped"}
    assert [await switches(fleet, compute) for compute in rest] == [0, 0]


async def test_an_abort_takes_back_who_would_switch_at_the_next_start(fleet: Fleet) -> None:
    await fleet.add(2)
    waves = [{"count": 1}, {"percent": 100}]
    ident = await fleet.start(**BARE, waves=waves, plan_approval_required=True, approval_required=True)
    await fleet.until(ident, "held")
    (suspended,) = await fleet.wave(ident, 0)
    project = next(p["project"]["id"] for p in fleet.projects if p["endpoints"][0]["id"] == suspended)
    await fleet.weir.finish(await fleet.weir.call("POST", f"/projects/{project}/endpoints/{suspended}/suspend"))
    await fleet.control(ident, "approve")
    await fleet.until_member(ident, "deferred")
    await fleet.until(ident, "held")
    await fleet.control(ident, "abort")
    await fleet.until(ident, "aborted")
    await fleet.weir.finish(await fleet.weir.call("POST", f"/projects/{project}/endpoints/{suspended}/start"))
    assert await fleet.switch_of(suspended) == (True, True)


async def test_a_preflight_cut_off_after_arming_takes_its_computes_up_again(fleet: Fleet) -> None:
    (compute,) = await fleet.add(1)
    ident = await fleet.start(**BARE, plan_approval_required=True)
    await fleet.until(ident, "held")
    await change(fleet, ident, compute, state=MemberState.ARMING, batch=7)
    resources = fleet.weir.resources
    probes = Probes(resources)
    activities = SwitchActivities(resources, probes, Rollback(resources, probes))
    begun = await activities.begin_batch(BatchInput(ident, PickedBatch(7, [compute], 0, 0), 0))
    assert begun.measuring == 1
    assert (await member(fleet, ident, compute)).state == MemberState.BASELINE
    await fleet.control(ident, "abort")
    await fleet.until(ident, "aborted")
    assert (await member(fleet, ident, compute)).state == MemberState.SKIPPED
