"""Rollouts on real Temporal and real Prometheus, over compute doubles whose WAL is known."""

import asyncio
from typing import Any

import pytest
from weir_testing.fleet import WINDOW, Fleet

from weir_workflows.reconciler.activities import ReconcilerActivities


def assert_rate(seen: float, true: float) -> None:
    """A window this short has five scrapes, and Prometheus goes on from the outermost for half an interval only: its
    rate is short by a fifth for each that comes late at an edge, and never above the true one."""
    assert 0.35 * true < seen < 1.05 * true


async def test_two_waves_switch_everyone_and_keep_the_evidence(fleet: Fleet) -> None:
    ids = await fleet.add(3)
    tenants = [item["project"]["tenant_id"] for item in fleet.projects]
    ident = await fleet.start(image_threshold=16)
    plan = (await fleet.get(ident))["plan"]
    assert [wave["computes"] for wave in plan["waves"]] == [1, 2]
    (canary,) = await fleet.wave(ident, 0)
    # The rest is untouched while the canary bakes.
    baking = await fleet.until_member(ident, "baking")
    assert [item["compute_id"] for item in baking["computes"] if item["state"] == "baking"] == [canary]
    for other in set(ids) - {canary}:
        assert await fleet.switch_of(other) == (True, True)

    done = await fleet.until(ident, "completed")
    assert (await fleet.get(ident))["plan"] == plan
    assert [wave["state"] for wave in done["waves"]] == ["passed", "passed"]
    for item in done["computes"]:
        assert item["state"] == "passed", item
        assert item["fpw_change_lsn"] == "0/1800100"
        evidence = item["evidence"]
        assert evidence["verdict"] == "pass"
        figures = evidence["metrics"]
        assert figures["wal_image_bytes_per_second"]["after"] == pytest.approx(0, abs=1)
        assert_rate(figures["wal_bytes_per_second"]["before"], 1_000_000)
        assert_rate(figures["wal_bytes_per_second"]["after"], 100_000)
        assert_rate(figures["transactions_per_second"]["after"], 100)
        # Both of a quotient are of the same scrapes.
        assert figures["wal_bytes_per_transaction"]["before"] == pytest.approx(10_000, rel=0.05)
        assert figures["wal_bytes_per_transaction"]["after"] == pytest.approx(1_000, rel=0.05)
        assert await fleet.switch_of(item["compute_id"]) == (False, False)
    assert {fleet.weir.storage.tenants[tenant]["image_threshold_pushdown"] for tenant in tenants} == {16}

    again = await fleet.weir.call(
        "POST", "/rollouts/plan", json={"selector": {"project_ids": [fleet.projects[0]["project"]["id"]]}}
    )
    assert again["plan"]["waves"] == []
    assert "off already" in again["plan"]["excluded"][0]["reason"]
    empty = await fleet.weir.call(
        "POST", "/rollouts", 400, json={"selector": {"project_ids": [fleet.projects[0]["project"]["id"]]}}
    )
    assert "no compute would take part" in empty["message"]

    # Roll back long after the end; twice is the same as once.
    assert (await fleet.control(ident, "rollback"))["status"] == "rolling_back"
    back = await fleet.until(ident, "rolled_back")
    assert {item["state"] for item in back["computes"]} == {"rolled_back"}
    for compute in ids:
        assert await fleet.switch_of(compute) == (True, True)
    assert {fleet.weir.storage.tenants[tenant]["image_threshold_pushdown"] for tenant in tenants} == {32}
    assert (await fleet.control(ident, "rollback"))["status"] == "rolled_back"
    actions = [entry["action"] for entry in (await fleet.weir.call("GET", f"/rollouts/{ident}/audit"))["entries"]]
    assert actions[-1] == "rollout.create"
    assert "rollout.rollback" in actions


async def test_a_compute_that_regresses_goes_back_and_stops_the_wave(fleet: Fleet) -> None:
    """Its images stay, whatever the switch says: the bound on images must catch it."""
    ids = await fleet.add(1, test__mode="images-stay")
    await fleet.add(1)
    ident = await fleet.start(waves=[{"count": 2}], max_image_share=0.01)
    held = await fleet.until(ident, "held")
    states = {item["compute_id"]: item for item in held["computes"]}
    bad = states[ids[0]]
    assert bad["state"] == "regressed"
    assert "page images in the WAL" in bad["reason"]
    assert bad["evidence"]["verdict"] == "regress"
    assert await fleet.switch_of(ids[0]) == (True, True)
    told = {item["state"]: item["reason"] for item in held["computes"]}
    assert sorted(told) == ["passed", "regressed"], told
    assert held["waves"][0]["state"] == "failed"
    done = await fleet.control(ident, "abort")
    done = await fleet.until(ident, "aborted")
    # An abort keeps what has passed.
    good = next(item["compute_id"] for item in done["computes"] if item["compute_id"] != ids[0])
    assert await fleet.switch_of(good) == (False, False)


async def test_a_switch_that_is_not_committed_fails_that_compute_only(fleet: Fleet) -> None:
    ids = await fleet.add(1, test__mode="no-switch")
    ident = await fleet.start(waves=[{"count": 1}])
    held = await fleet.until(ident, "held")
    member = held["computes"][0]
    assert member["state"] == "failed"
    assert "no quorum" in member["reason"]
    assert (await fleet.switch_of(ids[0]))[0] is True
    await fleet.control(ident, "abort")
    await fleet.until(ident, "aborted")


async def test_pause_approve_abort_and_their_repetition(fleet: Fleet) -> None:
    await fleet.add(2)
    ident = await fleet.start(approval_required=True)
    await fleet.until_member(ident, "baseline")
    assert (await fleet.control(ident, "pause"))["status"] == "paused"
    assert (await fleet.control(ident, "pause"))["status"] == "paused"
    # The baseline runs on; the switch does not come.
    await asyncio.sleep(WINDOW + 2)
    rollout = await fleet.get(ident)
    assert rollout["computes"][0]["state"] == "baseline"
    assert rollout["computes"][0]["switched_at"] is None
    assert (await fleet.control(ident, "resume"))["status"] == "running"
    held = await fleet.until(ident, "held")
    assert "waits for approval" in held["status_reason"]
    assert held["computes"][0]["state"] == "passed"
    assert (await fleet.control(ident, "approve"))["status"] == "running"
    await fleet.until_member(ident, "baking")
    await fleet.control(ident, "abort")
    done = await fleet.until(ident, "aborted")
    # The canary had passed and stays; the one that was baking went back.
    states = [item["state"] for item in done["computes"]]
    assert states == ["passed", "rolled_back"]
    assert [await fleet.switch_of(item["compute_id"]) for item in done["computes"]] == [(False, False), (True, True)]
    assert (await fleet.control(ident, "abort"))["status"] == "aborted"
    assert "nothing to act on" in (await fleet.control(ident, "pause", 409))["message"]


async def test_rolling_back_in_the_middle_takes_everyone_back(fleet: Fleet) -> None:
    ids = await fleet.add(2)
    ident = await fleet.start()
    await fleet.until_member(ident, "passed")
    assert (await fleet.control(ident, "rollback"))["status"] in {"rolling_back", "rolled_back"}
    done = await fleet.until(ident, "rolled_back")
    assert {item["state"] for item in done["computes"]} <= {"rolled_back", "skipped", "pending"}
    for compute in ids:
        assert await fleet.switch_of(compute) == (True, True)


async def test_a_compute_suspended_meanwhile_switches_when_it_starts_next(fleet: Fleet) -> None:
    """And one that takes part in a rollout is not taken by another."""
    ids = await fleet.add(2)
    ident = await fleet.start()
    other = await fleet.weir.call(
        "POST", "/rollouts/plan", json={"selector": {"project_ids": [p["project"]["id"] for p in fleet.projects]}}
    )
    assert {item["reason"] for item in other["plan"]["excluded"]} == {
        f"takes part in rollout {ident}, which is still open"
    }
    (late,) = await fleet.wave(ident, 1)
    project = next(p["project"]["id"] for p in fleet.projects if p["endpoints"][0]["id"] == late)
    await fleet.weir.finish(await fleet.weir.call("POST", f"/projects/{project}/endpoints/{late}/suspend"))
    done = await fleet.until(ident, "completed")
    member = next(item for item in done["computes"] if item["compute_id"] == late)
    assert member["state"] == "deferred"
    assert "starts next" in member["reason"]
    assert "switch when they start next" in done["waves"][1]["reason"]
    await fleet.weir.finish(await fleet.weir.call("POST", f"/projects/{project}/endpoints/{late}/start"))
    assert await fleet.switch_of(late) == (False, False)
    await fleet.control(ident, "rollback")
    back = await fleet.until(ident, "rolled_back")
    assert {item["state"] for item in back["computes"]} == {"rolled_back"}
    for compute in ids:
        assert await fleet.switch_of(compute) == (True, True)


async def test_a_switched_compute_that_is_killed_starts_switched(fleet: Fleet) -> None:
    ids = await fleet.add(1)
    ident = await fleet.start(waves=[{"count": 1}])
    await fleet.until(ident, "completed")
    runtime = fleet.weir.resources.runtime
    process = runtime.process(ids[0])
    assert process is not None
    runtime.kill(process)
    round_ = ReconcilerActivities(fleet.weir.resources)

    async def started() -> bool:
        return ids[0] in (await round_.reconcile()).started

    await fleet.weir.wait(started)

    async def back() -> bool:
        return (await fleet.switch_of(ids[0])) == (False, False)

    await fleet.weir.wait(back)


async def test_charts_show_the_switch(fleet: Fleet) -> None:
    ids = await fleet.add(1)

    async def charted() -> dict[str, Any] | None:
        answer = await fleet.weir.call("GET", f"/computes/{ids[0]}/metrics", params={"step_seconds": 1})
        # A rate needs two scrapes, and its window must be filled before it is the real one.
        newest = answer["series"]["wal_rest_bytes_per_second"][-1]
        return answer if newest == pytest.approx(100_000, rel=0.3) else None

    answer = await fleet.weir.wait(charted)
    assert len(answer["times"]) == len(answer["series"]["wal_image_bytes_per_second"])
    assert answer["from"] < answer["to"]
    fleet_answer = await fleet.weir.call("GET", "/fleet/metrics")
    assert set(fleet_answer["series"]) == set(answer["series"])
    compute = (await fleet.weir.call("GET", f"/computes/{ids[0]}"))["compute"]
    assert compute["rates"]["wal_rest_bytes_per_second"] > 0
    summary = await fleet.weir.call("GET", "/fleet")
    assert summary["wal"]["rest_bytes_per_second"] > 0
