"""A rollout outlives what is lost below it: a step that was given up for dead and lives, a workflow that ended before
its rollout did, a verdict that nobody can give."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import update
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError
from test_rollout_controls import BARE, switches
from test_rollout_repairs import change_rollout, switching
from test_rollout_wishes import change, member
from weir_testing.fleet import Fleet

from weir.endpoints.models import Endpoint
from weir.kit.clock import now
from weir.operations.starter import WorkflowStarter
from weir.rollouts.control import dispatch as dispatching
from weir.rollouts.models import MemberState, RolloutStatus
from weir_workflows.reconciler import activities as reconciler
from weir_workflows.reconciler import rollouts as reconciling
from weir_workflows.reconciler.rollouts import watch_deadlines
from weir_workflows.rollout.judge_activities import WaveActivities
from weir_workflows.rollout.messages import Members
from weir_workflows.rollout.probes import Probes
from weir_workflows.rollout.rollback_activities import Rollback


async def test_a_step_given_up_for_dead_writes_nothing_about_who_went_back_meanwhile(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its worker stood still between wish and switch, longer than its heartbeat; its compute was taken back."""
    (compute,) = await fleet.add(1)
    ident = await fleet.start(**BARE, plan_approval_required=True)
    await fleet.until(ident, "held")
    await change(fleet, ident, compute, state=MemberState.BASELINE, batch=0)
    await change_rollout(fleet, ident, status=RolloutStatus.RUNNING)
    resources = fleet.weir.resources
    back, stale = Rollback(resources, Probes(resources)), switching(fleet)
    send = stale._send

    async def late(*arguments: Any) -> dict[str, Any]:
        await back.start(ident, {compute: (MemberState.ROLLED_BACK, "by somebody")})
        return await send(*arguments)

    monkeypatch.setattr(stale, "_send", late)
    await stale.switch_batch(Members(ident, [compute]))
    row = await member(fleet, ident, compute)
    assert (row.state, row.confirmed_at, row.fpw_change_lsn) == (MemberState.ROLLED_BACK, None, None)
    # Nor, when it fails late, does it take back again who is back.
    await back.start(ident, {compute: (MemberState.FAILED, "not seen in storage")})
    again = await member(fleet, ident, compute)
    assert (again.state, again.rolled_back_at) == (MemberState.ROLLED_BACK, row.rolled_back_at)
    # Nor does it wish anew what it had wished before.
    monkeypatch.setattr(stale, "_send", send)
    await change(fleet, ident, compute, state=MemberState.SWITCHING)
    await stale.switch_batch(Members(ident, [compute]))
    round_ = reconciler.ReconcilerActivities(resources)

    async def repaired() -> bool:
        await change(fleet, ident, compute, state=MemberState.ROLLED_BACK)
        await round_.reconcile()
        return await fleet.switch_of(compute) == (True, True)

    await fleet.weir.wait(repaired)
    await fleet.control(ident, "abort")
    await fleet.until(ident, "aborted")


async def test_a_rollback_after_the_end_that_was_lost_is_begun_again(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when Temporal has forgotten the rollout's own workflow, which is not begun beside it."""
    ids = await fleet.add(2)
    ident = await fleet.start(**BARE)
    await fleet.until(ident, "completed")
    monkeypatch.setattr(dispatching, "rollout_workflow_id", lambda ident: f"forgotten-{ident}")
    long_ago = now() - timedelta(minutes=10)
    asked = {"status": RolloutStatus.ROLLING_BACK, "asked_by": "maria"}
    await change_rollout(fleet, ident, **asked, dispatched_at=long_ago)
    starter = WorkflowStarter(fleet.weir.settings, fleet.weir.temporal)
    dispatcher = dispatching.RolloutDispatch(fleet.weir.resources.database, starter)
    await dispatcher.recover_lost()
    done = await fleet.until(ident, "rolled_back")
    assert done["status_reason"].startswith("rolled back by maria")
    assert [await fleet.switch_of(compute) for compute in ids] == [(True, True)] * 2
    with pytest.raises(RPCError, match="not found"):
        await fleet.weir.temporal.get_workflow_handle(f"forgotten-{ident}").describe()
    # Ended, it is left alone.
    await dispatcher.recover_lost()
    assert (await fleet.get(ident))["status"] == "rolled_back"


async def rolled_back(fleet: Fleet) -> str:
    """A rollout over the whole fleet that went all the way there and back."""
    ident = await fleet.start(**BARE)
    await fleet.until(ident, "completed")
    await fleet.control(ident, "rollback")
    await fleet.until(ident, "rolled_back")
    return ident


async def unable(*_: Any) -> list[str]:
    """In place of what ends the going back: it never does."""
    return []


async def started(fleet: Fleet, compute: str, at: datetime) -> None:
    async with fleet.weir.resources.database.transaction() as session:
        await session.execute(update(Endpoint).where(Endpoint.id == compute).values(started_at=at))


async def test_going_back_that_does_not_end_alerts_a_person(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    (compute,) = await fleet.add(1)
    ident = await rolled_back(fleet)

    async def alerts() -> dict[str, bool]:
        await watch_deadlines(fleet.weir.resources)
        found = (await fleet.weir.call("GET", f"/rollouts/{ident}/alerts"))["alerts"]
        return {alert["kind"]: alert["cleared_at"] is None for alert in found}

    with monkeypatch.context() as patch:
        patch.setattr(reconciler, "finish_rollbacks", unable)
        await change(fleet, ident, compute, rollback_lsn=None)
        assert await alerts() == {}
        long_ago = now() - timedelta(hours=1)
        await started(fleet, compute, long_ago)
        await change(fleet, ident, compute, rollback_lsn=None, rolled_back_at=long_ago)
        assert await alerts() == {"back_overdue": True}
    await change(fleet, ident, compute, rollback_lsn="0/1800300")
    assert await alerts() == {"back_overdue": False}


async def test_going_back_has_its_time_from_the_start_of_an_idle_compute_and_hides_no_other(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = await fleet.add(2)
    ident = await rolled_back(fleet)

    async def alerted() -> set[str]:
        await watch_deadlines(fleet.weir.resources)
        found = (await fleet.weir.call("GET", f"/rollouts/{ident}/alerts", params={"open": True}))["alerts"]
        return {alert["compute_id"] for alert in found}

    # As many as a round has room for: the next one sees the others.
    monkeypatch.setattr(reconciling, "ALERTS_A_ROUND", 1)
    long_ago = now() - timedelta(hours=1)
    with monkeypatch.context() as patch:
        patch.setattr(reconciler, "finish_rollbacks", unable)
        for compute in ids:
            await change(fleet, ident, compute, rollback_lsn=None, rolled_back_at=long_ago)
            await started(fleet, compute, now())
        assert await alerted() == set()
        for compute in ids:
            await started(fleet, compute, long_ago)
        assert len(await alerted()) == 1
        assert await alerted() == set(ids)
        for compute in ids:
            await change(fleet, ident, compute, rollback_lsn="0/1800300")
    assert await alerted() == set()


async def test_a_wave_that_cannot_be_judged_is_held_for_a_person(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    (compute,) = await fleet.add(1)

    async def broken(*_: Any) -> Any:
        raise ApplicationError("planted", non_retryable=True)

    monkeypatch.setattr(WaveActivities, "_judge_wave", broken)
    ident = await fleet.start(**BARE)
    held = await fleet.until(ident, "held")
    assert "could not be judged together: planted" in held["status_reason"]
    await fleet.control(ident, "approve")
    await fleet.until(ident, "completed")
    assert await switches(fleet, compute) == 1
