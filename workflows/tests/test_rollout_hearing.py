"""What people say reaches the rollout whatever it is doing at that moment, and costs nothing while it waits."""

import asyncio
import time
from datetime import timedelta
from typing import Any

import pytest
from test_rollout_controls import BARE, switches
from test_rollout_repairs import change_rollout, switching
from test_rollout_wishes import change, member
from weir_testing.fleet import Fleet

from weir.kit.clock import now
from weir.rollouts.messages import batch_workflow_id
from weir.rollouts.models import MemberState, RolloutStatus
from weir_workflows.rollout import probes as probing
from weir_workflows.rollout.messages import BatchInput, PickedBatch
from weir_workflows.rollout.pick_activities import PickActivities
from weir_workflows.rollout.probes import Probes


async def test_an_abort_is_heard_while_the_rollout_looks_whom_to_take_up(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody can be taken up and no batch runs: what is said now is the only thing that can end the waiting."""
    await fleet.add(1)
    looks = asyncio.Event()
    candidates = PickActivities._candidates

    async def slow(self: PickActivities, *arguments: Any) -> Any:
        looks.set()
        await asyncio.sleep(1.5)
        return await candidates(self, *arguments)

    monkeypatch.setattr(PickActivities, "_candidates", slow)
    until = (now() + timedelta(hours=1)).replace(microsecond=0).isoformat()
    freeze = {"from": (now() - timedelta(minutes=1)).isoformat(), "to": until, "reason": "a release"}
    ident = await fleet.start(**BARE, freeze_windows=[freeze])
    await asyncio.wait_for(looks.wait(), 60)
    await fleet.control(ident, "abort")
    await fleet.until(ident, "aborted", seconds=60)


async def test_a_batch_that_begins_after_a_stop_does_not_wait_for_its_baseline(fleet: Fleet) -> None:
    (compute,) = await fleet.add(1)
    ident = await fleet.start(**BARE, plan_approval_required=True)
    await fleet.until(ident, "held")
    await change(fleet, ident, compute, state=MemberState.PREFLIGHT, batch=0, baseline_seconds=3600)
    await change_rollout(fleet, ident, status=RolloutStatus.ABORTING)
    begun = await switching(fleet).begin_batch(BatchInput(ident, PickedBatch(0, [compute], 3600, 0)))
    assert (begun.measuring, begun.switched, begun.wait_seconds) == (0, 0, 0)
    assert (await member(fleet, ident, compute)).baseline_start is None
    await fleet.control(ident, "abort")
    await fleet.until(ident, "aborted")


async def test_a_batch_waits_out_a_pause_without_asking_again(fleet: Fleet) -> None:
    (compute,) = await fleet.add(1)
    ident = await fleet.start(**BARE | {"baseline_seconds": 15})
    await fleet.until_member(ident, "baseline")
    await fleet.control(ident, "pause")
    # Longer than the baseline, and than a few of the intervals in which a freeze is looked at.
    await asyncio.sleep(18)
    assert (await switches(fleet, compute), (await fleet.get(ident))["status"]) == (0, "paused")
    await fleet.control(ident, "resume")
    await fleet.until(ident, "completed")
    assert await switches(fleet, compute) == 1
    history = await fleet.weir.temporal.get_workflow_handle(batch_workflow_id(ident, 0)).fetch_history()
    scheduled = [event.activity_task_scheduled_event_attributes.activity_type.name for event in history.events]
    assert scheduled.count("switch_batch") == 2


async def test_a_fault_lasts_from_the_look_that_found_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A compute that stood in line for its first look is not faulty for that long."""
    monkeypatch.setattr(probing, "FAULT_SECONDS", 0.3)
    monkeypatch.setattr(probing, "FAULT_POLL_SECONDS", 0.05)
    probes = Probes(None)  # type: ignore[arg-type]
    answers = iter(["a call was not answered in time", None])

    async def faults(_row: Any) -> tuple[str | None, None]:
        return next(answers), None

    monkeypatch.setattr(probes, "faults", faults)
    for _ in range(probing.PROBES_AT_ONCE):
        await probes._probes.acquire()
    waiting = asyncio.create_task(probes.lasting_fault(None))  # type: ignore[arg-type]
    await asyncio.sleep(0.5)
    probes._probes.release()
    assert await waiting == (None, None)

    async def broken(_row: Any) -> tuple[str | None, None]:
        return "broken", None

    monkeypatch.setattr(probes, "faults", broken)
    began = time.monotonic()
    assert await probes.lasting_fault(None) == ("broken", None)  # type: ignore[arg-type]
    assert time.monotonic() - began >= 0.3
