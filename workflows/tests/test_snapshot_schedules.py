"""Snapshots by schedule, with the clock in the test's hands: one a time, however many came due and whoever looks."""

import asyncio
from datetime import datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import select, update
from weir_testing.at_once import Project, make
from weir_testing.fixtures import Weir

from weir.branches.models import Branch
from weir.kit.clock import now
from weir.snapshots.models import BackupScheduleItem
from weir_workflows.reconciler.expiry import delete_expired
from weir_workflows.reconciler.snapshots import take_due

HOUR, DAY = 3600, 86400


async def _schedule(project: Project, branch: str, *entries: dict[str, Any]) -> None:
    answer = await project.call("PUT", f"/branches/{branch}/backup_schedule", json={"schedule": list(entries)})
    assert answer == {}


async def _next(project: Project, branch: str) -> list[datetime]:
    shown = await project.call("GET", f"/branches/{branch}/backup_schedule")
    return [datetime.fromisoformat(entry["next_at"]) for entry in shown["schedule"]]


async def _snapshots(project: Project) -> list[dict[str, Any]]:
    return (await project.call("GET", "/snapshots"))["snapshots"]


async def _round(project: Project, at: datetime) -> list[dict[str, Any]]:
    """What of the project was taken in a round of the reconciler at that moment."""
    before = {row["id"] for row in await _snapshots(project)}
    await take_due(project.weir.resources, at)
    await project.weir.idle(project.id)
    return [row for row in await _snapshots(project) if row["id"] not in before]


async def test_a_snapshot_is_taken_each_day_and_goes_when_its_time_has_passed(weir: Weir) -> None:
    project = await make(weir, "scheduled")
    main = project.main["id"]
    assert (await project.call("GET", f"/branches/{main}/backup_schedule")) == {"schedule": []}
    await _schedule(project, main, {"frequency": "daily", "hour": 3, "retention_seconds": 2 * DAY})
    (due,) = await _next(project, main)
    assert (due.hour, due.minute) == (3, 0)
    assert now() < due <= now() + timedelta(days=1)
    assert await _round(project, due - timedelta(seconds=1)) == []
    (taken,) = await _round(project, due)
    assert (taken["manual"], taken["created_by"], taken["source_branch_id"]) == (False, {"name": "schedule"}, main)
    assert taken["name"] == f"main at {due:%Y-%m-%d %H:%M:%S} UTC (scheduled)"
    assert datetime.fromisoformat(taken["expires_at"]) == due + timedelta(days=2)
    assert await _round(project, due + timedelta(seconds=5)) == []
    assert await _next(project, main) == [due + timedelta(days=1)]

    async with weir.resources.database.transaction() as session:
        held = (await session.scalars(select(Branch).where(Branch.name == taken["id"]))).one()
    assert held.id not in await delete_expired(weir.resources, due + timedelta(days=2) - timedelta(seconds=1))
    assert held.id in await delete_expired(weir.resources, due + timedelta(days=2))
    await weir.idle(project.id)
    assert held.timeline_id not in weir.storage.timelines


async def test_times_that_were_missed_give_one_snapshot(weir: Weir) -> None:
    project = await make(weir, "missed")
    main = project.main["id"]
    await _schedule(project, main, {"frequency": "hourly", "retention_seconds": HOUR})
    late = now() + timedelta(days=10)
    assert len(await _round(project, late)) == 1
    assert await _round(project, late) == []
    (due,) = await _next(project, main)
    assert late < due <= late + timedelta(hours=1)


async def test_entries_that_fall_together_give_one_snapshot_kept_for_the_longest(weir: Weir) -> None:
    project = await make(weir, "together")
    main = project.main["id"]
    # Behind the weekly one, whatever day it is.
    in_two_weeks = now() + timedelta(days=14)
    await _schedule(
        project,
        main,
        {"frequency": "daily", "retention_seconds": DAY},
        {"frequency": "weekly", "day": 0, "retention_seconds": 30 * DAY},
        {"frequency": "monthly", "day": in_two_weeks.day, "hour": 23},
    )
    _, weekly, _ = await _next(project, main)
    assert weekly.isoweekday() == 7
    (taken,) = await _round(project, weekly)
    assert datetime.fromisoformat(taken["expires_at"]) == weekly + timedelta(days=30)
    daily, again, monthly = await _next(project, main)
    assert (daily, again) == (weekly + timedelta(days=1), weekly + timedelta(days=7))
    assert monthly > weekly


async def test_two_that_look_at_once_take_one(weir: Weir) -> None:
    """Two workers, each with a reconciler of its own."""
    project = await make(weir, "racing")
    await _schedule(project, project.main["id"], {"frequency": "daily"})
    (due,) = await _next(project, project.main["id"])
    await asyncio.gather(*(take_due(weir.resources, due) for _ in range(4)))
    await weir.idle(project.id)
    assert len(await _snapshots(project)) == 1


async def test_what_cannot_be_taken_now_is_taken_later(weir: Weir) -> None:
    project = await make(weir, "postponed")
    dev = project.dev["id"]
    await _schedule(project, dev, {"frequency": "daily"})
    (due,) = await _next(project, dev)
    await project.slow_detach()
    await take_due(weir.resources, due)
    assert await _snapshots(project) == []
    assert await _next(project, dev) == [due]
    weir.storage.slow_detaches.discard(project.dev["timeline_id"])
    await weir.idle(project.id)
    assert len(await _round(project, due + timedelta(minutes=1))) == 1


async def test_one_that_failed_is_repeated_after_a_pause_and_not_when_it_was_cancelled(weir: Weir) -> None:
    project = await make(weir, "repeated")
    main = project.main["id"]
    await _schedule(project, main, {"frequency": "monthly", "day": 31})
    item = BackupScheduleItem.branch_id == main
    for status in (400, 503):
        async with weir.resources.database.transaction() as session:
            await session.execute(update(BackupScheduleItem).where(item).values(next_at=now()))
        weir.storage.fail("pageserver", "POST", "/timeline", status, times=1 if status == 400 else 1000)
        before = {row["id"] for row in (await project.call("GET", "/operations"))["operations"]}
        await take_due(weir.resources, now())
        (begun,) = [
            row for row in (await project.call("GET", "/operations"))["operations"] if row["id"] not in before
        ]
        if status == 503:
            await project.until(begun["id"], "running")
            assert (await project.cancel(begun["id"]))["status"] == "cancelled"
            weir.storage.faults.clear()
        await weir.idle(project.id)
        assert await _snapshots(project) == []
        assert await _round(project, now() + timedelta(minutes=5)) == []
        again = await _round(project, now() + timedelta(minutes=11))
        assert len(again) == (1 if status == 400 else 0)
        assert await _round(project, now() + timedelta(minutes=11)) == []
        for row in again:
            await weir.finish(await project.call("DELETE", f"/snapshots/{row['id']}", 202))


async def test_no_snapshot_is_taken_of_what_leaves_and_none_by_a_schedule_that_was_ended(weir: Weir) -> None:
    project = await make(weir, "ended")
    dev = project.dev["id"]
    await _schedule(project, dev, {"frequency": "daily"})
    (due,) = await _next(project, dev)
    path = f"/branches/{dev}"
    await project.call("PATCH", path, json={"branch": {"expires_at": (due + timedelta(days=9)).isoformat()}})
    assert await _round(project, due) == []
    refused = await project.call("PUT", f"{path}/backup_schedule", 412, json={"schedule": [{"frequency": "daily"}]})
    assert "would keep it from going" in refused["message"]
    await project.call("PATCH", path, json={"branch": {"expires_at": None}})
    await _schedule(project, dev)
    assert await _next(project, dev) == []
    assert await _round(project, due + timedelta(days=5)) == []
    await _schedule(project, dev, {"frequency": "daily"})
    await weir.finish(await project.call("DELETE", path))
    assert await _round(project, due + timedelta(days=5)) == []


async def test_a_schedule_is_the_branchs_whatever_state_it_is_given(weir: Weir) -> None:
    project = await make(weir, "goes-on")
    main = project.main["id"]
    await _schedule(project, main, {"frequency": "daily"})
    (due,) = await _next(project, main)
    (first,) = await _round(project, due)
    body = {"finalize_restore": True}
    await weir.finish(await project.call("POST", f"/snapshots/{first['id']}/restore", json=body))
    (second,) = await _round(project, due + timedelta(days=1))
    assert second["source_branch_id"] == main


@pytest.mark.parametrize(
    ("entry", "part"),
    [
        ({"frequency": "yearly"}, "frequency"),
        ({"frequency": "daily", "hour": 24}, "hour"),
        ({"frequency": "hourly", "hour": 5}, "hour cannot be said of hourly"),
        ({"frequency": "daily", "day": 3}, "day cannot be said of daily"),
        ({"frequency": "weekly", "day": 8}, "no day of a week"),
        ({"frequency": "monthly", "day": 32}, "day"),
        ({"frequency": "monthly", "month": 2}, "month cannot be said of monthly"),
        ({"frequency": "daily", "retention_seconds": 60}, "retention_seconds"),
        ({"frequency": "daily", "retention_seconds": 36 * DAY}, "retention_seconds"),
    ],
)
async def test_what_a_schedule_cannot_be_is_refused(weir: Weir, entry: dict[str, Any], part: str) -> None:
    projects = [row for row in await weir.projects() if row["name"] == "refused-schedules"]
    ident = projects[0]["id"] if projects else (await weir.project(name="refused-schedules"))["project"]["id"]
    (main,) = (await weir.call("GET", f"/projects/{ident}/branches"))["branches"]
    path = f"/projects/{ident}/branches/{main['id']}/backup_schedule"
    assert part in (await weir.call("PUT", path, 400, json={"schedule": [entry]}))["message"]
    assert (await weir.call("GET", path))["schedule"] == []


async def test_many_branches_are_taken_in_parts(weir: Weir, monkeypatch: pytest.MonkeyPatch) -> None:
    project = await make(weir, "parts")
    for branch in (project.main["id"], project.dev["id"]):
        await _schedule(project, branch, {"frequency": "daily"})
    (due,) = await _next(project, project.main["id"])
    async with weir.resources.database.transaction() as session:
        branches = [project.main["id"], project.dev["id"]]
        of_others = BackupScheduleItem.branch_id.not_in(branches)
        await session.execute(update(BackupScheduleItem).where(of_others).values(next_at=due + timedelta(days=99)))
    monkeypatch.setattr("weir_workflows.reconciler.snapshots.BRANCHES_A_ROUND", 1)
    assert len(await _round(project, due)) == 1
    assert len(await _round(project, due)) == 1
    assert await _round(project, due) == []
