"""People's controls over parts of a rollout, what is lost on the way and found again, and who waits for what.

Most of these rollouts neither measure nor judge: the switch and its confirmation are what is looked at."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import select
from weir_testing.fleet import Fleet

from weir.kit.clock import now
from weir.rollouts.messages import ROLLOUT_WORKFLOW, RolloutInput, rollout_workflow_id
from weir.rollouts.models import MemberState, RolloutMember
from weir_workflows.reconciler.activities import ReconcilerActivities
from weir_workflows.reconciler.rollouts import watch_deadlines
from weir_workflows.rollout import limits
from weir_workflows.rollout.messages import BatchInput, Members, PickedBatch
from weir_workflows.rollout.probes import Probes
from weir_workflows.rollout.progress_activities import ProgressActivities
from weir_workflows.rollout.rollback_activities import Rollback
from weir_workflows.rollout.switch_activities import SwitchActivities

# Switch and confirm, nothing else.
BARE: dict[str, Any] = {"baseline_seconds": 0, "bake_seconds": 0, "settle_seconds": 0}


async def states(fleet: Fleet, ident: str) -> dict[str, str]:
    return {item["compute_id"]: item["state"] for item in (await fleet.get(ident))["computes"]}


async def switches(fleet: Fleet, compute: str) -> int:
    """How often the double's switch was really thrown: its LSN moves by 0x100 each time."""
    status = await fleet.weir.call("GET", f"/computes/{compute}")
    lsn = status["compute"]["full_page_writes"]["lsn"]
    return 0 if lsn is None else (int(lsn.split("/")[1], 16) - 0x1800000) // 0x100


async def test_a_plan_that_needs_approval_touches_nothing_before(fleet: Fleet) -> None:
    ids = await fleet.add(1)
    ident = await fleet.start(**BARE, plan_approval_required=True)
    held = await fleet.until(ident, "held")
    assert held["status_reason"] == "the plan waits for approval"
    assert await states(fleet, ident) == {ids[0]: "pending"}
    await fleet.control(ident, "approve")
    done = await fleet.until(ident, "completed")
    assert done["computes"][0]["confirmed_at"] is not None
    assert "nothing was judged" in done["computes"][0]["reason"]
    coverage = await fleet.weir.call("GET", "/fleet/features/image_pushdown", params={"q": ids[0]})
    assert coverage["counts"] == {"computes": 1, "has": 1, "has_not": 0}
    assert coverage["computes"][0]["since"] is not None
    assert coverage["computes"][0]["rollout_id"] == ident
    await fleet.control(ident, "rollback")
    await fleet.until(ident, "rolled_back")
    coverage = await fleet.weir.call("GET", "/fleet/features/image_pushdown", params={"q": ids[0]})
    assert coverage["computes"][0]["has"] is False
    assert "rolled back by" in coverage["computes"][0]["why_not"]


async def test_an_approval_opens_the_gate_it_names_and_no_other(fleet: Fleet) -> None:
    """One that comes late, or twice, finds the next gate as closed as it was."""
    await fleet.add(2)
    waves = [{"count": 1}, {"percent": 100}]
    ident = await fleet.start(**BARE, waves=waves, plan_approval_required=True, approval_required=True)

    async def held_at(gate: str) -> bool:
        rollout = await fleet.get(ident)
        return rollout["status"] == "held" and rollout["gate"] == gate

    await fleet.weir.wait(lambda: held_at("plan"))
    refused = await fleet.control(ident, "approve", 409, {"gate": "wave-1-begins"})
    assert "held at the gate plan, not at wave-1-begins" in refused["message"]
    assert await held_at("plan")
    await fleet.control(ident, "approve", body={"gate": "plan"})
    await fleet.weir.wait(lambda: held_at("wave-1-begins"))
    await fleet.control(ident, "approve", 409, {"gate": "plan"})
    assert await held_at("wave-1-begins")
    await fleet.control(ident, "approve", body={"gate": "wave-1-begins"})
    done = await fleet.until(ident, "completed")
    assert done["gate"] is None
    assert done["counts"] == {"passed": 2}


async def test_who_paused_or_stopped_a_rollout_is_known_to_a_workflow_that_begins_afresh(fleet: Fleet) -> None:
    await fleet.add(1)
    ident = await fleet.start(**BARE, plan_approval_required=True)
    await fleet.until(ident, "held")
    progress = ProgressActivities(fleet.weir.resources)
    assert (await progress.resume_rollout(ident)).asked_by == ""
    await fleet.control(ident, "pause")
    resumed = await progress.resume_rollout(ident)
    assert (resumed.status, f"paused by {resumed.asked_by}") == ("paused", (await fleet.get(ident))["status_reason"])
    await fleet.control(ident, "resume")
    assert (await progress.resume_rollout(ident)).asked_by == ""
    await fleet.control(ident, "abort")
    await fleet.until(ident, "aborted")


async def test_one_compute_is_skipped_another_taken_back_and_the_rollout_goes_on(fleet: Fleet) -> None:
    await fleet.add(4)
    waves = [{"count": 1}, {"count": 3}, {"percent": 100}]
    ident = await fleet.start(**BARE, waves=waves, approval_required=True)
    await fleet.until(ident, "held")
    (canary,) = await fleet.wave(ident, 0)
    skipped, *rest = await fleet.wave(ident, 1)
    await fleet.control(ident, "skip", body={"compute_id": skipped})
    await fleet.control(ident, "skip", body={"compute_id": skipped})
    await fleet.control(ident, "rollback", body={"scope": "compute", "compute_id": canary})

    async def canary_is_back() -> bool:
        return await fleet.switch_of(canary) == (True, True)

    await fleet.weir.wait(canary_is_back)
    await fleet.control(ident, "approve")
    done = await fleet.until(ident, "completed")
    assert done["counts"] == {"rolled_back": 1, "skipped": 1, "passed": 2}
    assert done["switched_total"] == 2
    by_id = {item["compute_id"]: item for item in done["computes"]}
    assert "skipped by" in by_id[skipped]["reason"]
    assert by_id[canary]["rollback_lsn"] is not None
    assert await fleet.switch_of(skipped) == (True, True)
    # After the end: one wave goes back, and that is not the whole rollout.
    assert (await fleet.control(ident, "rollback", body={"scope": "wave", "wave": 1}))["status"] == "completed"

    async def wave_is_back() -> bool:
        return all([await fleet.switch_of(compute) == (True, True) for compute in rest])

    await fleet.weir.wait(wave_is_back)
    entries = (await fleet.weir.call("GET", f"/rollouts/{ident}/audit"))["entries"]
    skip = next(entry for entry in entries if entry["action"] == "rollout.skip")
    assert skip["detail"]["compute_id"] == skipped
    assert skip["actor"] != "rollout"
    missing = await fleet.control(ident, "rollback", 404, body={"scope": "compute", "compute_id": "ep-nobody"})
    assert "ep-nobody" in missing["message"]
    assert "neither" in (await fleet.control(ident, "rollback", 400, body={"scope": "all", "wave": 1}))["message"]


async def test_a_long_rollout_goes_on_as_new_and_switches_everyone_once(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its history is cut between waves and within one, at a pause too, and nobody is switched twice."""
    monkeypatch.setattr(limits, "BATCH_SIZE", 1)
    monkeypatch.setattr(limits, "HISTORY_EVENTS", 40)
    ids = await fleet.add(5)
    ident = await fleet.start(**BARE, waves=[{"count": 1}, {"percent": 100}], max_concurrent=1)
    await fleet.until_member(ident, "passed")
    await fleet.control(ident, "pause")
    await asyncio.sleep(1)
    before = await states(fleet, ident)
    await asyncio.sleep(2)
    assert await states(fleet, ident) == before
    await fleet.control(ident, "resume")
    await fleet.until(ident, "completed")
    assert [await switches(fleet, compute) for compute in ids] == [1] * 5
    runs = [run async for run in fleet.weir.temporal.list_workflows(f"WorkflowId = '{rollout_workflow_id(ident)}'")]
    assert len(runs) >= 2
    for run in runs:
        history = await fleet.weir.temporal.get_workflow_handle(run.id, run_id=run.run_id).fetch_history()
        assert len(history.events) < 120


async def test_a_rollout_that_temporal_lost_goes_on_from_the_database(fleet: Fleet) -> None:
    ids = await fleet.add(2)
    ident = await fleet.start(**BARE, waves=[{"count": 1}, {"percent": 100}], approval_required=True)
    await fleet.until(ident, "held")
    handle = fleet.weir.temporal.get_workflow_handle(rollout_workflow_id(ident))
    await handle.terminate("the test loses it")
    await fleet.weir.temporal.start_workflow(
        ROLLOUT_WORKFLOW,
        RolloutInput(ident),
        id=rollout_workflow_id(ident),
        task_queue=fleet.weir.settings.task_queue,
    )
    await asyncio.sleep(1)
    await fleet.until(ident, "held")
    await fleet.control(ident, "approve")
    await fleet.until(ident, "completed")
    assert [await switches(fleet, compute) for compute in ids] == [1, 1]


async def test_a_switch_that_was_cut_off_is_finished_and_not_repeated(fleet: Fleet) -> None:
    """The worker dies after the wish, or after the switch, and another takes the step up."""
    ids = await fleet.add(3)
    ident = await fleet.start(**BARE, waves=[{"count": 3}], plan_approval_required=True)
    await fleet.until(ident, "held")
    probes = Probes(fleet.weir.resources)
    steps = SwitchActivities(fleet.weir.resources, probes, Rollback(fleet.weir.resources, probes))
    members = Members(ident, ids)
    async with fleet.weir.resources.database.transaction() as session:
        rows = await session.scalars(select(RolloutMember).where(RolloutMember.rollout_id == ident))
        for row in rows.all():
            row.state, row.batch = MemberState.PREFLIGHT, 0
    begun = await steps.begin_batch(BatchInput(ident, PickedBatch(0, ids, 0, 0)))
    assert (begun.measuring, begun.switched) == (3, 0)
    cut = asyncio.create_task(steps.switch_batch(members))

    async def one_is_thrown() -> bool:
        return any([(await fleet.switch_of(compute))[1] is False for compute in ids])

    await fleet.weir.wait(one_is_thrown)
    cut.cancel()
    await asyncio.gather(cut, return_exceptions=True)
    again = await steps.switch_batch(members)
    assert (again.waiting, again.stopped) == (0, False)
    await steps.switch_batch(members)
    assert [await switches(fleet, compute) for compute in ids] == [1, 1, 1]
    rollout = await fleet.get(ident)
    assert all(item["confirmed_at"] and item["fpw_change_lsn"] == "0/1800100" for item in rollout["computes"])
    await fleet.control(ident, "rollback")
    await fleet.until(ident, "rolled_back")
    assert [await fleet.switch_of(compute) for compute in ids] == [(True, True)] * 3


async def test_a_freeze_holds_everything_and_says_until_when(fleet: Fleet) -> None:
    ids = await fleet.add(1)
    until = (now() + timedelta(hours=1)).replace(microsecond=0)
    freeze = {"from": (now() - timedelta(minutes=1)).isoformat(), "to": until.isoformat(), "reason": "a release"}
    ident = await fleet.start(**BARE, freeze_windows=[freeze])

    async def says_so() -> bool:
        reason = (await fleet.get(ident))["status_reason"] or ""
        return until.isoformat() in reason and "a release" in reason

    await fleet.weir.wait(says_so)
    assert await fleet.switch_of(ids[0]) == (True, True)
    # Paused, it can be stopped all the same.
    await fleet.control(ident, "pause")
    await fleet.control(ident, "abort")
    await fleet.until(ident, "aborted")


async def test_a_base_backup_is_waited_for(fleet: Fleet) -> None:
    """It forces page images, so that a switch meanwhile would prove nothing."""
    (compute,) = await fleet.add(1, test__mode="backup")
    project = fleet.projects[0]["project"]["id"]
    ident = await fleet.start(**BARE)

    async def waits() -> bool:
        (member,) = (await fleet.get(ident))["computes"]
        return member["state"] == "pending" and "base backup" in (member["reason"] or "")

    await fleet.weir.wait(waits)
    assert await fleet.switch_of(compute) == (True, True)
    path = f"/projects/{project}/endpoints/{compute}"
    settings = {"endpoint": {"settings": {"pg_settings": {"checkpoint_timeout": "5s"}}}}
    await fleet.weir.finish(await fleet.weir.call("PATCH", path, json=settings))
    await fleet.until(ident, "completed")
    assert await fleet.switch_of(compute) == (False, False)
    await fleet.control(ident, "rollback")
    await fleet.until(ident, "rolled_back")


async def test_drift_is_repaired_while_the_rollout_is_still_open(fleet: Fleet) -> None:
    await fleet.add(2)
    ident = await fleet.start(**BARE, waves=[{"count": 1}, {"percent": 100}], approval_required=True)
    await fleet.until(ident, "held")
    (canary,) = await fleet.wave(ident, 0)
    spec = fleet.weir.resources.runtime.spec(canary)
    assert spec is not None
    agent = f"http://{spec['listen']}:{spec['port'] + 1}/full_page_writes"
    await fleet.weir.resources.http.request("POST", agent, json={"enabled": True, "timeout_ms": 1000})
    assert await fleet.switch_of(canary) == (False, True)
    round_ = ReconcilerActivities(fleet.weir.resources)

    async def repaired() -> bool:
        return canary in (await round_.reconcile()).switched or (await fleet.switch_of(canary)) == (False, False)

    await fleet.weir.wait(repaired)
    assert await fleet.switch_of(canary) == (False, False)
    await fleet.control(ident, "rollback")
    await fleet.until(ident, "rolled_back")


async def test_a_step_past_its_deadline_alerts_once_and_is_cleared(fleet: Fleet) -> None:
    ids = await fleet.add(1)
    ident = await fleet.start(baseline_seconds=60, bake_seconds=0, settle_seconds=0)
    await fleet.until_member(ident, "baseline")
    async with fleet.weir.resources.database.transaction() as session:
        member = await session.get_one(RolloutMember, (ident, ids[0]))
        member.deadline_at = now() - timedelta(seconds=1)

    async def raised() -> list[dict[str, Any]]:
        await watch_deadlines(fleet.weir.resources)
        return (await fleet.weir.call("GET", f"/rollouts/{ident}/alerts"))["alerts"]

    (alert,) = await fleet.weir.wait(raised)
    await watch_deadlines(fleet.weir.resources)
    assert len(await raised()) == 1
    assert (alert["kind"], alert["compute_id"], alert["cleared_at"]) == ("step_overdue", ids[0], None)
    assert "still baseline" in alert["message"]
    assert (await fleet.get(ident))["alerts_total"] == 1
    # Asked to stop, the compute is left out before its switch, and nobody needs to look any more.
    await fleet.control(ident, "abort")
    await fleet.until(ident, "aborted")
    (alert,) = await raised()
    assert alert["cleared_at"] is not None
    assert await fleet.switch_of(ids[0]) == (True, True)


async def test_new_computes_start_as_the_completed_rollout_left_the_fleet(fleet: Fleet) -> None:
    tags = {"fleet": "new-computes"}
    await fleet.add(1, tags=tags)
    body = {"selector": {"tags": tags}, "strategy": {**BARE, "soak_seconds": 0}}
    ident = (await fleet.weir.call("POST", "/rollouts", 201, json=body))["rollout"]["id"]
    assert (await fleet.until(ident, "completed"))["computes_total"] == 1
    (late,) = await fleet.add(1, tags=tags)
    assert await fleet.switch_of(late) == (False, False)
    (other,) = await fleet.add(1)
    assert await fleet.switch_of(other) == (True, True)
    diff = await fleet.weir.call("GET", f"/rollouts/{ident}/plan/diff")
    assert diff["computes_frozen"] == 1
    grid = await fleet.weir.call("GET", f"/rollouts/{ident}/grid")
    assert len(grid["computes"]["compute_id"]) == 1
    assert grid["states"][grid["computes"]["state"][0]] == "passed"
    later = await fleet.weir.call("GET", f"/rollouts/{ident}/grid", params={"since": grid["at"]})
    assert later["computes"]["compute_id"] == []
    await fleet.control(ident, "rollback")
    await fleet.until(ident, "rolled_back")
    # Each reason stands once, however many computes have it.
    grid = await fleet.weir.call("GET", f"/rollouts/{ident}/grid")
    assert len(grid["reasons"]) == 1
    assert grid["computes"]["reason"] == [0] * len(grid["computes"]["compute_id"])
    (last,) = await fleet.add(1, tags=tags)
    assert await fleet.switch_of(last) == (True, True)
