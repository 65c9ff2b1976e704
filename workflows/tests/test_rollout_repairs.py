"""What a rollout must not lose or forget on the way: a hold, a note, a threshold; nor begin what may not begin."""

import asyncio
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import update
from test_rollout_controls import BARE, states, switches
from test_rollout_wishes import change, member
from weir_testing.fleet import Fleet

from weir.clients.compute import ComputeStatus
from weir.kit.clock import now
from weir.operations.starter import WorkflowStarter
from weir.rollouts.control import delivery as control
from weir.rollouts.control.dispatch import RolloutDispatch
from weir.rollouts.messages import rollout_workflow_id
from weir.rollouts.models import MemberState, Rollout, RolloutStatus, RolloutWave, Wish
from weir_workflows.reconciler import activities as reconciler
from weir_workflows.reconciler.rollouts import watch_deadlines
from weir_workflows.rollout import members
from weir_workflows.rollout.members import Member
from weir_workflows.rollout.messages import BatchInput, Members, PickedBatch, RolloutReport, ScopeInput, WaveReport
from weir_workflows.rollout.probes import Probes
from weir_workflows.rollout.report_activities import ReportActivities
from weir_workflows.rollout.rollback_activities import Rollback, reason_with_rollback
from weir_workflows.rollout.scope_activities import ScopeActivities
from weir_workflows.rollout.switch_activities import SwitchActivities


async def change_rollout(fleet: Fleet, ident: str, **values: Any) -> None:
    async with fleet.weir.resources.database.transaction() as session:
        await session.execute(update(Rollout).where(Rollout.id == ident).values(**values))


def switching(fleet: Fleet) -> SwitchActivities:
    probes = Probes(fleet.weir.resources)
    return SwitchActivities(fleet.weir.resources, probes, Rollback(fleet.weir.resources, probes))


async def test_a_failed_wave_stays_held_though_its_workflow_is_lost(fleet: Fleet) -> None:
    """Nobody of it is taken up before its failures are counted; who approves it gets the rest."""
    ids = await fleet.add(3)
    ident = await fleet.start(**BARE, waves=[{"percent": 100}], plan_approval_required=True)
    await fleet.until(ident, "held")
    bad, *rest = sorted(ids)
    await change(fleet, ident, bad, state=MemberState.FAILED, reason="planted")
    await fleet.control(ident, "approve")

    async def wave_failed() -> bool:
        rollout = await fleet.get(ident)
        return rollout["status"] == "held" and rollout["waves"][0]["state"] == "failed"

    await fleet.weir.wait(wave_failed)
    temporal, name = fleet.weir.temporal, rollout_workflow_id(ident)
    await temporal.get_workflow_handle(name).terminate("the test loses it")
    first = (await temporal.get_workflow_handle(name).describe()).run_id
    await change_rollout(fleet, ident, dispatched_at=now() - timedelta(minutes=10))
    async with fleet.weir.resources.database.transaction() as session:
        await session.execute(update(RolloutWave).where(RolloutWave.rollout_id == ident).values(reason="stale"))
    starter = WorkflowStarter(fleet.weir.settings, temporal)
    await RolloutDispatch(fleet.weir.resources.database, starter).recover_lost()

    async def holds_again() -> bool:
        rollout = await fleet.get(ident)
        return rollout["status"] == "held" and "planted" in (rollout["waves"][0]["reason"] or "")

    await fleet.weir.wait(holds_again)
    assert (await temporal.get_workflow_handle(name).describe()).run_id != first
    assert [await switches(fleet, compute) for compute in rest] == [0, 0]
    await fleet.control(ident, "approve")
    done = await fleet.until(ident, "completed")
    assert (done["counts"], done["waves"][0]["state"]) == ({"failed": 1, "passed": 2}, "passed")
    assert "approved all the same" in done["waves"][0]["reason"]
    assert [await switches(fleet, compute) for compute in rest] == [1, 1]


async def test_nothing_is_wished_after_a_pause_and_nobody_alerted_about_a_freeze(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pause comes between the look whether a chunk may go on and its wish."""
    ids = await fleet.add(2)
    ident = await fleet.start(**BARE, plan_approval_required=True)
    await fleet.until(ident, "held")
    overdue = now() - timedelta(seconds=1)
    for compute in ids:
        await change(fleet, ident, compute, state=MemberState.BASELINE, batch=0, deadline_at=overdue)
    await change_rollout(fleet, ident, status=RolloutStatus.RUNNING)
    steps = switching(fleet)
    arm = steps._arm

    async def pause_meanwhile(*arguments: Any) -> list[Member]:
        armed = await arm(*arguments)
        await change_rollout(fleet, ident, status=RolloutStatus.PAUSED)
        return armed

    monkeypatch.setattr(steps, "_arm", pause_meanwhile)
    done = await steps.switch_batch(Members(ident, ids))
    assert (done.confirmed, done.waiting) == (0, 2)
    assert [await switches(fleet, compute) for compute in ids] == [0, 0]
    # Going on again gives them their time anew; so does a freeze that begins.
    reporting = ReportActivities(fleet.weir.resources)
    at = now().isoformat()
    await reporting.report_rollout(RolloutReport(ident, "running", None, 0, at))
    assert all([(await member(fleet, ident, compute)).deadline_at > overdue for compute in ids])  # type: ignore[operator]
    strategy = (await fleet.get(ident))["strategy"]
    freeze = {"from": overdue.isoformat(), "to": (now() + timedelta(hours=1)).isoformat(), "reason": "a release"}
    await change_rollout(fleet, ident, strategy=strategy | {"freeze_windows": [freeze]})
    for compute in ids:
        await change(fleet, ident, compute, deadline_at=overdue)
    assert (await steps.switch_batch(Members(ident, ids))).waiting == 2
    assert not [text for text in await watch_deadlines(fleet.weir.resources) if ids[0] in text or ids[1] in text]
    await fleet.control(ident, "abort")
    await fleet.until(ident, "aborted")
    # Storage was armed for nothing, and is as before again.
    round_ = reconciler.ReconcilerActivities(fleet.weir.resources)

    async def restored() -> bool:
        await round_.reconcile()
        return all([(await member(fleet, ident, compute)).previous_threshold is None for compute in ids])

    await fleet.weir.wait(restored)


async def test_a_suspended_compute_is_not_deferred_in_a_pause_nor_when_it_is_to_be_left_out(fleet: Fleet) -> None:
    (compute,) = await fleet.add(1)
    project = fleet.projects[0]["project"]["id"]
    await fleet.weir.finish(await fleet.weir.call("POST", f"/projects/{project}/endpoints/{compute}/suspend"))
    ident = await fleet.start(**BARE, plan_approval_required=True)
    await fleet.until(ident, "held")
    steps, batch = switching(fleet), BatchInput(ident, PickedBatch(0, [compute], 0, 0))
    await change(fleet, ident, compute, state=MemberState.PREFLIGHT, batch=0)
    await change_rollout(fleet, ident, status=RolloutStatus.PAUSED)
    await steps.begin_batch(batch)
    row = await member(fleet, ident, compute)
    assert (row.state, row.batch, row.switched_at) == (MemberState.PENDING, None, None)
    await change_rollout(fleet, ident, status=RolloutStatus.RUNNING)
    await change(fleet, ident, compute, state=MemberState.PREFLIGHT, batch=0, wish=Wish.SKIP, wish_by="somebody")
    await steps.begin_batch(batch)
    row = await member(fleet, ident, compute)
    assert (row.state, row.reason, row.switched_at) == (MemberState.SKIPPED, "skipped by somebody", None)
    await fleet.control(ident, "abort")
    await fleet.until(ident, "aborted")


async def test_what_going_back_left_open_is_ended_by_the_reconciler(fleet: Fleet) -> None:
    """Of a failed rollout, one compute goes back whose batch was lost; and one that could not be confirmed gets its
    threshold back once it writes images again."""
    ids = await fleet.add(2)
    ident = await fleet.start(**BARE, image_threshold=7)
    await fleet.until(ident, "completed")
    before = {compute: (await member(fleet, ident, compute)).previous_threshold for compute in ids}
    await change_rollout(fleet, ident, status=RolloutStatus.FAILED)
    await change(fleet, ident, ids[0], state=MemberState.BAKING)
    scopes = ScopeActivities(fleet.weir.resources)
    assert await scopes.switched_computes(ScopeInput(ident, compute_id=ids[0])) == [ids[0]]
    await fleet.control(ident, "rollback")
    await fleet.until(ident, "rolled_back")
    first = (await member(fleet, ident, ids[1])).reason
    await change(fleet, ident, ids[1], rollback_lsn=None, reason=f"{first}; going back is not confirmed: no answer")
    resources = fleet.weir.resources
    async with resources.database.transaction() as session:
        (item,) = await _loaded(session, ident, ids[1])
    await resources.pageserver.configure_tenant(item.row.project.tenant_id, {"image_threshold_pushdown": 7})
    round_ = reconciler.ReconcilerActivities(resources)

    async def ended() -> bool:
        await round_.reconcile()
        return (await member(fleet, ident, ids[1])).rollback_lsn is not None

    await fleet.weir.wait(ended)
    assert (await member(fleet, ident, ids[1])).reason == first
    config = (await resources.pageserver.tenant(item.row.project.tenant_id))["config"]
    assert config["image_threshold_pushdown"] == before[ids[1]]


async def _loaded(session: Any, ident: str, compute: str) -> list[Member]:
    return await members.load(session, ident, [compute])


async def test_the_note_of_a_wave_outlasts_its_soak_and_the_end_of_a_rollback_its_beginning(fleet: Fleet) -> None:
    await fleet.add(1)
    ident = await fleet.start(**BARE)
    await fleet.until(ident, "completed")
    reporting, at = ReportActivities(fleet.weir.resources), now().isoformat()
    await reporting.report_wave(WaveReport(ident, 0, "passed", "1 compute did not pass", at))
    await reporting.report_wave(WaveReport(ident, 0, "soaking", None, at, at))
    await reporting.report_wave(WaveReport(ident, 0, "passed", None, at))
    assert (await fleet.get(ident))["waves"][0]["reason"] == "1 compute did not pass"

    # The workflow is through before the request that began it has been committed.
    reports: list[asyncio.Task[None]] = []

    async def start_workflow(*_: Any, **__: Any) -> None:
        reports.append(
            asyncio.create_task(reporting.report_rollout(RolloutReport(ident, "rolled_back", None, None, at)))
        )
        await asyncio.sleep(0.3)

    principal: Any = SimpleNamespace(name="somebody", request_id="r", account_id=None, address="", api_key_id=1)
    temporal: Any = SimpleNamespace(start_workflow=start_workflow)
    async with fleet.weir.resources.database.transaction() as session:
        access: Any = SimpleNamespace(session=session, principal=principal)
        rollout = await session.get_one(Rollout, ident)
        await control.control(access, temporal, rollout, "rollback")
    await asyncio.gather(*reports)
    assert (await fleet.get(ident))["status"] == "rolled_back"
    assert await states(fleet, ident) == {(await fleet.wave(ident, 0))[0]: "passed"}
    await change_rollout(fleet, ident, status=RolloutStatus.COMPLETED)
    await fleet.control(ident, "rollback")
    await fleet.until(ident, "rolled_back")


def test_a_reason_does_not_grow_with_each_attempt() -> None:
    item: Any = SimpleNamespace(member=SimpleNamespace(reason="slower", state=MemberState.REGRESSED))
    for attempt in range(3):
        item.member.reason = reason_with_rollback(item, "full_page_writes is on again", f"no answer {attempt}")
    assert item.member.reason == "slower; going back is not confirmed: no answer 2"
    for _ in range(3):
        item.member.reason = reason_with_rollback(item, "full_page_writes is on again", None)
    assert item.member.reason == "slower; full_page_writes is on again"


async def test_drift_is_repaired_together_and_first_where_images_are_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that does not answer keeps nobody from being repaired, and a round has an end."""
    begun: list[str] = []
    all_begun = asyncio.Event()

    async def repair(_self: Any, endpoint: Any, _status: Any) -> bool:
        begun.append(endpoint.id)
        if len(begun) == reconciler.REPAIRS_AT_ONCE:
            all_begun.set()
        await asyncio.wait_for(all_begun.wait(), 10)
        return True

    monkeypatch.setattr(reconciler.ReconcilerActivities, "_repair_switch", repair)
    numbers = range(reconciler.REPAIRS_A_ROUND * 2)
    rows: list[Any] = [
        SimpleNamespace(
            endpoint=SimpleNamespace(
                id=f"ep-{number}",
                full_page_writes=number % 2 == 1,
                full_page_writes_since=now() - timedelta(seconds=number),
            )
        )
        for number in numbers
    ]
    seen: Any = {row.endpoint.id: _status(row.endpoint) for row in rows}
    round_ = reconciler.ReconcilerActivities(SimpleNamespace())  # type: ignore[arg-type]
    done = await round_._repair_switches(rows, seen, {"ep-1": "a rollout works on it"})
    assert len(done) == reconciler.REPAIRS_A_ROUND
    assert begun[:2] == [f"ep-{numbers[-1]}", f"ep-{numbers[-3]}"]
    wanted = [ident for ident in done if int(ident[3:]) % 2]
    assert len(wanted) == len(numbers) // 2 - 1
    assert "ep-1" not in done


def _status(endpoint: Any) -> ComputeStatus:
    body = {
        "compute_id": endpoint.id,
        "state": "running",
        "full_page_writes": {"enabled": not endpoint.full_page_writes},
    }
    return ComputeStatus.parse(body)
