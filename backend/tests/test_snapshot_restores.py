"""Going back to a snapshot: beside the branch it was taken of, in its place, and after the metadata was lost."""

from datetime import timedelta
from typing import Any, Never

import pytest
from sqlalchemy import select
from temporalio.exceptions import ApplicationError
from weir_testing.at_once import Project, make
from weir_testing.fixtures import Weir, own_database

from weir.authz.access import ProjectAccess
from weir.authz.principal import Principal
from weir.branches import restore
from weir.branches.models import Branch
from weir.config import Settings
from weir.db import Database
from weir.kit.clock import now
from weir.projects.models import Project as ProjectRow
from weir.recovery import service
from weir.recovery.description import describe
from weir.recovery.inventory import parse
from weir.snapshots import restoring
from weir.snapshots.models import BackupScheduleItem, Snapshot
from weir.snapshots.schemas import SnapshotRestoreRequest
from weir_workflows.reconciler.expiry import delete_expired
from weir_workflows.reconciler.storage import repair_descriptions


async def _taken(project: Project, branch: str) -> str:
    made = await project.call("POST", f"/branches/{branch}/snapshot")
    await project.weir.finish(made)
    return made["snapshot"]["id"]


async def _restored(project: Project, snapshot: str, **body: Any) -> dict[str, Any]:
    answer = await project.call("POST", f"/snapshots/{snapshot}/restore", json=body)
    await project.weir.finish(answer)
    return (await project.call("GET", f"/branches/{answer['branch']['id']}"))["branch"]


async def _branch(project: Project, ident: str) -> dict[str, Any]:
    return (await project.call("GET", f"/branches/{ident}"))["branch"]


def _timeline_of(project: Project, endpoint: str) -> str:
    spec = project.weir.resources.runtime.spec(endpoint)
    assert spec is not None
    return spec["timeline_id"]


async def test_a_branch_is_made_of_a_snapshot_and_outlives_it(weir: Weir) -> None:
    project = await make(weir, "restored")
    main = project.main["id"]
    await weir.finish(await project.call("POST", f"/branches/{main}/roles", 201, json={"role": {"name": "then"}}))
    snapshot = await _taken(project, main)
    await weir.finish(await project.call("DELETE", f"/branches/{main}/roles/then"))
    made = await _restored(project, snapshot, name="again")
    assert (made["name"], made["restored_from"], made["restored_as"]) == ("again", snapshot, main)
    assert (made["restore_status"], made["parent_id"], made["current_state"]) == ("restored", None, "ready")
    # With what the branch had then.
    roles = (await project.call("GET", f"/branches/{made['id']}/roles"))["roles"]
    assert sorted(role["name"] for role in roles) == ["app_owner", "then"]
    await project.call("POST", f"/snapshots/{snapshot}/restore", 409, json={"name": "again"})
    # One without a body, and one into another branch; a snapshot is there for as many as are wanted.
    other = await project.call("POST", f"/snapshots/{snapshot}/restore")
    await weir.finish(other)
    await project.call("POST", f"/snapshots/{snapshot}/restore", 404, json={"target_branch_id": "br-never-there"})

    async with weir.resources.database.transaction() as session:
        held = (await session.scalars(select(Branch).where(Branch.name == snapshot))).one()
    gone = await project.call("DELETE", f"/snapshots/{snapshot}", 202)
    assert gone["operations"] == []
    assert (await project.call("GET", "/snapshots"))["snapshots"] == []
    await project.call("POST", f"/snapshots/{snapshot}/restore", 404)
    # Its data stays for those that were restored from it, and no longer.
    assert held.id not in await delete_expired(weir.resources, now())
    await weir.finish(await project.call("DELETE", f"/branches/{other['branch']['id']}"))
    assert held.id not in await delete_expired(weir.resources, now())
    assert (await _branch(project, made["id"]))["restored_from"] == snapshot
    await weir.finish(await project.call("POST", f"/branches/{made['id']}/detach"))
    assert held.id in await delete_expired(weir.resources, now())
    await weir.idle(project.id)
    assert held.timeline_id not in weir.storage.timelines
    assert (await _branch(project, made["id"]))["current_state"] == "ready"


async def test_a_branch_is_put_back_to_a_snapshot_in_place(weir: Weir) -> None:
    project = await make(weir, "restored-in-place")
    main, before = project.main["id"], project.main["timeline_id"]
    snapshot = await _taken(project, main)
    asked = {"name": "as clients send it", "target_branch_id": main, "finalize_restore": True}
    for turn in range(2):
        after = await _restored(project, snapshot, **(asked if turn else {"finalize_restore": True}))
        assert (after["id"], after["name"], after["default"]) == (main, "main", True)
        assert (after["restored_from"], after["restore_status"], after["parent_id"]) == (snapshot, "finalized", None)
        assert after["timeline_id"] not in {before, project.main["timeline_id"]}
        assert _timeline_of(project, project.main_endpoint) == after["timeline_id"]
        rows = (await project.call("GET", "/branches"))["branches"]
        kept = [row for row in rows if row["name"].startswith("main_old_2")]
        assert len(kept) == turn + 1
        assert before in {row["timeline_id"] for row in kept}
        before = after["timeline_id"]
    # The snapshot is there still, and is main's.
    (listed,) = (await project.call("GET", "/snapshots"))["snapshots"]
    assert (listed["id"], listed["source_branch_id"]) == (snapshot, main)
    await project.call("PATCH", f"/branches/{main}", json={"branch": {"protected": True}})
    body = {"finalize_restore": True}
    assert "protected" in (await project.call("POST", f"/snapshots/{snapshot}/restore", 412, json=body))["message"]


async def test_a_restore_is_looked_at_and_finalized(weir: Weir) -> None:
    project = await make(weir, "finalized")
    dev = project.dev["id"]
    snapshot = await _taken(project, project.main["id"])
    made = await _restored(project, snapshot, target_branch_id=dev, name="to look at")
    endpoint = {"endpoint": {"branch_id": made["id"], "type": "read_write"}}
    started = await project.call("POST", "/endpoints", 201, json=endpoint)
    await weir.finish(started)
    own = started["endpoint"]["id"]
    below = await project.call("POST", "/branches", 201, json={"branch": {"name": "below", "parent_id": made["id"]}})
    await weir.finish(below)
    path = f"/branches/{made['id']}/finalize_restore"
    await project.call("POST", path, 409, json={"name": "main"})
    await weir.finish(await project.call("POST", path, json={"name": "dev before"}))

    after, kept = await _branch(project, dev), await _branch(project, made["id"])
    assert (after["name"], after["timeline_id"], after["restored_from"]) == ("dev", made["timeline_id"], snapshot)
    assert (kept["name"], kept["timeline_id"]) == ("dev before", project.dev["timeline_id"])
    assert (kept["parent_id"], kept["restored_from"]) == (project.main["id"], None)
    # A branch made of what was looked at is one of the branch that has it now.
    assert (await _branch(project, below["branch"]["id"]))["parent_id"] == dev
    # No two computes on one timeline.
    assert _timeline_of(project, project.dev_endpoint) == after["timeline_id"]
    assert _timeline_of(project, own) == kept["timeline_id"]
    refused = await project.call("POST", path, 400)
    assert "restored_as" in refused["message"]
    await project.call("POST", f"/branches/{project.main['id']}/finalize_restore", 400)


async def test_what_was_replaced_does_not_expire_with_what_was_looked_at(weir: Weir) -> None:
    project = await make(weir, "finalized-expiring")
    snapshot = await _taken(project, project.main["id"])
    made = await _restored(project, snapshot, target_branch_id=project.dev["id"])
    soon = now() + timedelta(hours=1)
    await project.call("PATCH", f"/branches/{made['id']}", json={"branch": {"expires_at": soon.isoformat()}})
    await weir.finish(await project.call("POST", f"/branches/{made['id']}/finalize_restore"))
    kept = await _branch(project, made["id"])
    assert kept["name"].startswith("dev_old_2")
    assert (kept["timeline_id"], kept["expires_at"]) == (project.dev["timeline_id"], None)
    assert made["id"] not in await delete_expired(weir.resources, soon + timedelta(days=1))


async def test_finalizing_that_fails_leaves_both_branches_as_they_were(
    weir: Weir, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = await make(weir, "unfinalized")
    snapshot = await _taken(project, project.main["id"])
    made = await _restored(project, snapshot, target_branch_id=project.dev["id"])

    async def fails(*_: object) -> Never:
        raise ApplicationError("a defect of the test", non_retryable=True)

    with monkeypatch.context() as patched:
        patched.setattr(restore, "exchange", fails)
        await weir.finish(await project.call("POST", f"/branches/{made['id']}/finalize_restore"), "failed")
    assert (await _branch(project, made["id"]))["timeline_id"] == made["timeline_id"]
    assert made["timeline_id"] in weir.storage.timelines
    assert (await _branch(project, project.dev["id"]))["timeline_id"] == project.dev["timeline_id"]
    assert _timeline_of(project, project.dev_endpoint) == project.dev["timeline_id"]
    # And again, when it works.
    await weir.finish(await project.call("POST", f"/branches/{made['id']}/finalize_restore"))
    assert (await _branch(project, project.dev["id"]))["timeline_id"] == made["timeline_id"]


async def test_a_name_that_is_taken_meanwhile_does_not_stop_the_restore(weir: Weir) -> None:
    project = await make(weir, "renamed")
    snapshot = await _taken(project, project.main["id"])
    made = await _restored(project, snapshot, target_branch_id=project.dev["id"])
    async with weir.resources.database.transaction() as session:
        row = await session.get_one(Branch, made["id"])
        assert await restore.free_name(session, row.project_id, "dev") == "dev-2"
        assert await restore.free_name(session, row.project_id, "free") == "free"


async def test_the_last_snapshot_is_not_deleted_below_a_restore(weir: Weir) -> None:
    project = await make(weir, "restoring")
    snapshot = await _taken(project, project.main["id"])
    weir.storage.fail("pageserver", "POST", "/timeline", 503, times=4)
    answer = await project.call("POST", f"/snapshots/{snapshot}/restore", json={"finalize_restore": True})
    assert "is busy" in (await project.call("DELETE", f"/snapshots/{snapshot}", 423))["message"]
    await weir.finish(answer)
    # What was restored needs it.
    assert (await project.call("DELETE", f"/snapshots/{snapshot}", 202))["operations"] == []


async def test_the_branch_it_was_taken_of_may_be_gone(weir: Weir) -> None:
    """Put back to another state, it needs nothing that the snapshot is made of, and can be deleted."""
    project = await make(weir, "source-gone")
    dev = project.dev["id"]
    snapshot = await _taken(project, dev)
    body = {"source_branch_id": project.main["id"], "preserve_under_name": "dev before"}
    await weir.finish(await project.call("POST", f"/branches/{dev}/restore", json=body))
    await weir.finish(await project.call("DELETE", f"/branches/{dev}"))
    refused = await project.call("POST", f"/snapshots/{snapshot}/restore", 412, json={"finalize_restore": True})
    assert "target_branch_id" in refused["message"]
    made = await _restored(project, snapshot)
    assert (made["restored_as"], made["restored_from"]) == (None, snapshot)


async def _described(settings: Settings, ident: str) -> dict[str, Any]:
    database = Database(settings)
    try:
        async with database.transaction() as session:
            return (await describe(session, [await session.get_one(ProjectRow, ident)]))[ident]
    finally:
        await database.close()


async def test_snapshots_and_schedules_come_back_with_a_lost_project(weir: Weir, postgres_url: str) -> None:
    project = await make(weir, "recovered-snapshots")
    main = project.main["id"]
    snapshot = await _taken(project, main)
    schedule = {"schedule": [{"frequency": "daily", "hour": 3, "retention_seconds": 86400}]}
    await project.call("PUT", f"/branches/{main}/backup_schedule", json=schedule)
    made = await _restored(project, snapshot, target_branch_id=project.dev["id"])
    await repair_descriptions(weir.resources)
    before = await _described(weir.settings, project.id)
    tenant = next(row["tenant_id"] for row in [weir.storage.timelines[project.main["timeline_id"]]])
    timelines = [
        {**timeline, "state": "whole"}
        for timeline in weir.storage.timelines.values()
        if timeline["tenant_id"] == tenant
    ]
    stored = {"tenant_id": tenant, "about": weir.storage.described[tenant]["about"], "timelines": timelines}
    async with own_database(postgres_url) as empty:
        database = Database(empty)
        async with database.transaction() as session:
            await service.recover(session, parse({"tenants": [stored]}), empty, beside_others=False)
        after = await _described(empty, project.id)
        for document in (before, after):
            for branch in document["branches"]:
                branch.pop("parent_timestamp")
                for endpoint in branch["endpoints"]:
                    endpoint.pop("port")
        assert after == before

        async with database.transaction() as session:
            row = await session.get_one(ProjectRow, project.id)
            back = await session.get_one(Branch, made["id"])
            assert (back.restored_from, back.restored_as) == (snapshot, project.dev["id"])
            (entry,) = (await session.scalars(select(BackupScheduleItem))).all()
            assert entry.next_at > now()
            held = await session.get_one(Branch, (await session.get_one(Snapshot, snapshot)).branch_id)
            assert held.is_snapshot
            # What the snapshot was taken of, and no snapshot, is the default.
            principal = Principal(row.account_id, "of-a-test", "of@a.test", "api_key", 0, "")
            access = ProjectAccess(session, principal)
            branch, operations = await restoring.restore(
                access, project.id, snapshot, SnapshotRestoreRequest(finalize_restore=True)
            )
            assert (branch.id, branch.is_default) == (main, True)
            assert [operation.kind.value for operation in operations] == ["create_branch", "restore_branch"]
        await database.close()
