"""Snapshots: what is kept, who sees it, and what becomes of it when other things go."""

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import select
from weir_testing.at_once import Project, make
from weir_testing.fixtures import Weir

from weir.branches.models import Branch
from weir.kit.clock import now
from weir.snapshots.models import Snapshot
from weir_workflows.reconciler.expiry import delete_expired

# Of the API that clients know; more is Weir's own.
PUBLISHED = {"id", "name", "lsn", "timestamp", "source_branch_id", "created_at", "expires_at", "manual", "full_size"}
OF_SERVER_ERRORS = 4


async def _taken(project: Project, branch: str, **asked: str) -> dict[str, Any]:
    made = await project.call("POST", f"/branches/{branch}/snapshot", params=asked)
    await project.weir.finish(made)
    return made["snapshot"]


async def _listed(project: Project) -> list[dict[str, Any]]:
    return (await project.call("GET", "/snapshots"))["snapshots"]


async def _held(project: Project, snapshot: str) -> Branch:
    """The branch that holds it, which the API shows nobody."""
    async with project.weir.resources.database.transaction() as session:
        statement = select(Branch).join(Snapshot, Snapshot.branch_id == Branch.id).where(Snapshot.id == snapshot)
        return (await session.scalars(statement)).one()


async def test_a_snapshot_is_taken_shown_changed_and_deleted(weir: Weir) -> None:
    project = await make(weir, "snapshots")
    main = project.main["id"]
    taken = await _taken(project, main)
    held = await _held(project, taken["id"])
    timeline = weir.storage.timelines[held.timeline_id]
    assert (timeline["ancestor_timeline_id"], timeline["ancestor_lsn"]) == (project.main["timeline_id"], taken["lsn"])

    (listed,) = await _listed(project)
    assert set(listed) >= PUBLISHED
    assert (listed["source_branch_id"], listed["manual"], listed["current_state"]) == (main, True, "ready")
    assert (listed["lsn"], listed["full_size"], listed["expires_at"]) == ("0/1900000", 1, None)
    assert listed["name"].startswith("main at 20")
    assert listed["name"].endswith("UTC (manual)")
    assert listed["created_by"]["name"]
    # It is no branch to anybody who asks for branches.
    assert {row["name"] for row in (await project.call("GET", "/branches"))["branches"]} == {"main", "dev"}
    assert (await project.call("GET", "/branches/count"))["count"] == 2
    points = (await project.call("GET", f"/branches/{main}/history"))["branch_points"]
    assert [point["name"] for point in points] == ["dev"]
    for method, rest in (("GET", ""), ("DELETE", ""), ("POST", "/detach"), ("POST", "/snapshot")):
        await project.call(method, f"/branches/{held.id}{rest}", 404)
    await project.call("POST", "/branches", 404, json={"branch": {"parent_id": held.id}})

    at = (now() + timedelta(days=3)).replace(microsecond=0)
    path = f"/snapshots/{taken['id']}"
    changed = await project.call("PATCH", path, json={"snapshot": {"name": "kept", "expires_at": at.isoformat()}})
    assert changed["snapshot"]["name"] == "kept"
    assert changed["snapshot"]["expires_at"] == at.isoformat().replace("+00:00", "Z")
    same = await project.call("PATCH", path, json={"snapshot": {"name": "kept 2"}})
    assert same["snapshot"]["expires_at"] is not None
    cleared = await project.call("PATCH", path, json={"snapshot": {"expires_at": None}})
    assert (cleared["snapshot"]["expires_at"], cleared["snapshot"]["name"]) == (None, "kept 2")

    async with weir.as_account("stranger-to-snapshots") as stranger:
        await stranger.call("GET", f"{project.path}/snapshots", 404)
        await stranger.call("DELETE", f"{project.path}{path}", 404)
    deleted = await project.call("DELETE", path, 202)
    assert [row["action"] for row in deleted["operations"]] == ["delete_timeline"]
    assert await _listed(project) == []
    await weir.finish(deleted)
    assert held.timeline_id not in weir.storage.timelines
    for method in ("DELETE", "PATCH"):
        await project.call(method, path, 404, **({"json": {"snapshot": {}}} if method == "PATCH" else {}))
    await project.call("POST", f"{path}/restore", 404)


async def test_a_snapshot_is_of_the_state_asked_for_or_is_refused(weir: Weir) -> None:
    project = await make(weir, "snapshots-past")
    timeline, main = project.main["timeline_id"], project.main["id"]
    weir.storage.committed(timeline, "0/1700000", "2026-01-02T03:04:05+00:00")
    past = await _taken(project, main, lsn="0/1700000", name="of the past")
    assert (past["lsn"], past["timestamp"], past["name"]) == ("0/1700000", "2026-01-02T03:04:05Z", "of the past")
    weir.storage.trim(timeline, "0/1650000", "2026-01-02T03:00:00+00:00")
    soon = (now() + timedelta(hours=1)).isoformat()
    path = f"/branches/{main}/snapshot"
    for asked, status, part in (
        ({"lsn": "0/1600000"}, 400, "0/1650000"),
        ({"lsn": "0/1700000", "timestamp": "2026-01-02T03:04:05Z"}, 400, "not both"),
        ({"timestamp": "2200-01-01T00:00:00Z"}, 400, "in the future"),
        ({"expires_at": "2026-01-01T00:00:00Z"}, 400, "in the past"),
        ({"lsn": "nonsense"}, 400, "lsn"),
        ({"name": ""}, 400, "name"),
        ({"name": "a\0b"}, 400, "name"),
    ):
        assert part in (await project.call("POST", path, status, params=asked))["message"]
    await project.call("PATCH", f"/branches/{project.dev['id']}", json={"branch": {"expires_at": soon}})
    refused = await project.call("POST", f"/branches/{project.dev['id']}/snapshot", 412)
    assert "would keep it from going" in refused["message"]
    # And the other way round.
    await project.call("PATCH", f"/branches/{project.dev['id']}", json={"branch": {"expires_at": None}})
    taken = await _taken(project, project.dev["id"])
    body = {"branch": {"expires_at": soon}}
    refused = await project.call("PATCH", f"/branches/{project.dev['id']}", 412, json=body)
    assert f"has snapshots that need its data: snapshot {taken['id']}" in refused["message"]


async def test_a_branch_with_snapshots_goes_with_them_or_stays(weir: Weir) -> None:
    project = await make(weir, "snapshots-parent")
    dev = project.dev["id"]
    taken = await _taken(project, dev)
    held = await _held(project, taken["id"])
    refused = await project.call("DELETE", f"/branches/{dev}", 412)
    assert f"has snapshots that need its data: snapshot {taken['id']}" in refused["message"]
    child = await project.call("POST", "/branches", 201, json={"branch": {"name": "child", "parent_id": dev}})
    await weir.finish(child)
    refused = await project.call("DELETE", f"/branches/{dev}", 412)
    assert "has branches and snapshots that need its data" in refused["message"]
    # A restore that would throw away what the snapshot needs is refused with the same words.
    refused = await project.call(
        "POST", f"/branches/{dev}/restore", 412, json={"source_branch_id": project.main["id"]}
    )
    assert f"snapshot {taken['id']}" in refused["message"]
    await weir.finish(await project.call("DELETE", f"/branches/{dev}", params={"children": "delete"}))
    assert await _listed(project) == []
    assert held.timeline_id not in weir.storage.timelines


async def test_a_snapshot_outlives_what_its_branch_becomes(weir: Weir) -> None:
    """A restore moves the state that the snapshot needs to another branch; the snapshot is the first one's still."""
    project = await make(weir, "snapshots-moved")
    main = project.main["id"]
    taken = await _taken(project, main)
    body = {"source_branch_id": main, "source_lsn": "0/1700000", "preserve_under_name": "before"}
    await weir.finish(await project.call("POST", f"/branches/{main}/restore", json=body))
    (listed,) = await _listed(project)
    assert (listed["source_branch_id"], listed["lsn"]) == (main, taken["lsn"])
    rows = (await project.call("GET", "/branches"))["branches"]
    before = next(row for row in rows if row["name"] == "before")
    assert (await _held(project, taken["id"])).parent_id == before["id"]
    assert f"snapshot {taken['id']}" in (await project.call("DELETE", f"/branches/{before['id']}", 412))["message"]


async def test_one_that_cannot_be_taken_leaves_nothing(weir: Weir) -> None:
    project = await make(weir, "snapshots-untaken")
    weir.storage.fail("pageserver", "POST", "/timeline", 400)
    made = await project.call("POST", f"/branches/{project.main['id']}/snapshot")
    await weir.finish(made, "failed")
    assert await _listed(project) == []
    await project.call("POST", f"/snapshots/{made['snapshot']['id']}/restore", 404)


async def test_a_snapshot_goes_when_it_expires_and_is_not_shown_from_then_on(weir: Weir) -> None:
    project = await make(weir, "snapshots-expire")
    at = now() + timedelta(hours=1)
    taken = await _taken(project, project.main["id"], expires_at=at.isoformat())
    held = await _held(project, taken["id"])
    assert held.id not in await delete_expired(weir.resources, at - timedelta(seconds=1))
    assert held.id in await delete_expired(weir.resources, at)
    await weir.idle(project.id)
    assert held.timeline_id not in weir.storage.timelines
    assert await _listed(project) == []
    entries = (await weir.call("GET", "/audit", params={"limit": 100}))["entries"]
    assert ("snapshot.delete", f"snapshot/{taken['id']}") in {(row["action"], row["resource"]) for row in entries}


async def test_deleting_the_project_deletes_its_snapshots(weir: Weir) -> None:
    project = await make(weir, "snapshots-project")
    taken = await _taken(project, project.main["id"])
    held = await _held(project, taken["id"])
    await weir.finish(await project.call("DELETE", ""))
    assert held.timeline_id not in weir.storage.timelines
    assert not any(held.timeline_id in keeper for keeper in weir.storage.keepers)


@pytest.mark.parametrize("change", ["detach", "delete", "restore"])
async def test_no_snapshot_is_taken_of_what_changes_meanwhile(weir: Weir, change: str) -> None:
    project = await make(weir, f"snapshots-{change}")
    dev, timeline = project.dev["id"], project.dev["timeline_id"]
    if change == "detach":
        await project.slow_detach()
    elif change == "delete":
        weir.storage.fail("pageserver", "DELETE", timeline, 503, times=OF_SERVER_ERRORS)
        await project.call("DELETE", f"/branches/{dev}")
    else:
        weir.storage.fail("pageserver", "POST", "/timeline", 503, times=OF_SERVER_ERRORS)
        await project.call("POST", f"/branches/{dev}/restore", json={"source_branch_id": project.main["id"]})
    assert "is busy" in (await project.call("POST", f"/branches/{dev}/snapshot", 423))["message"]
    assert await _listed(project) == []
    weir.storage.slow_detaches.discard(timeline)
    await weir.idle(project.id)
    if change == "delete":
        await project.call("POST", f"/branches/{dev}/snapshot", 404)
    else:
        assert (await _taken(project, dev))["source_branch_id"] == dev


async def test_a_branch_is_not_changed_below_a_snapshot_that_is_being_taken(weir: Weir) -> None:
    project = await make(weir, "snapshots-under-way")
    dev = project.dev["id"]
    weir.storage.fail("pageserver", "POST", "/timeline", 503, times=OF_SERVER_ERRORS)
    made = await project.call("POST", f"/branches/{dev}/snapshot")
    await project.call("DELETE", f"/branches/{dev}", 423, params={"children": "delete"})
    await project.call("POST", f"/branches/{dev}/detach", 423)
    await project.call("POST", f"/branches/{dev}/restore", 423, json={"source_branch_id": project.main["id"]})
    await project.call("DELETE", f"/snapshots/{made['snapshot']['id']}", 423)
    assert "init" in (await project.call("POST", f"/snapshots/{made['snapshot']['id']}/restore", 400))["message"]
    # Computes of the branch are another matter.
    await weir.finish(await project.call("POST", f"/endpoints/{project.dev_endpoint}/restart"))
    await weir.finish(made)


async def test_taking_one_can_be_cancelled(weir: Weir) -> None:
    project = await make(weir, "snapshots-cancelled")
    weir.storage.fail("pageserver", "POST", "/timeline", 503, times=1000)
    made = await project.call("POST", f"/branches/{project.main['id']}/snapshot")
    await project.until(made["operations"][0]["id"], "running")
    ended = await project.cancel(made["operations"][0]["id"])
    assert ended["status"] == "cancelled"
    assert await _listed(project) == []
