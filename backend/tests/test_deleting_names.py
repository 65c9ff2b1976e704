"""Deleting roles and databases of a branch: what is refused, what reaches the compute, and what branches keep."""

from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import select
from weir_testing.fixtures import Weir

from weir.clients.compute import ComputeAgent
from weir.clients.http import RemoteError
from weir.databases.models import DroppedName
from weir.kit.clock import now
from weir_workflows.computes.activities import ComputeActivities
from weir_workflows.reconciler.activities import ReconcilerActivities


async def _with_reporter(weir: Weir, name: str) -> tuple[str, str, str]:
    """Project, branch path and endpoint; the branch has a second role and a database of it."""
    created = await weir.project(name=name)
    weir.storage.advance(created["branch"]["timeline_id"], "0/2000000")
    base = f"/projects/{created['project']['id']}/branches/{created['branch']['id']}"
    await weir.finish(await weir.call("POST", f"{base}/roles", 201, json={"role": {"name": "reporter"}}))
    body = {"database": {"name": "reports", "owner_name": "reporter"}}
    await weir.finish(await weir.call("POST", f"{base}/databases", 201, json=body))
    return created["project"]["id"], base, created["endpoints"][0]["id"]


async def _names(weir: Weir, base: str) -> tuple[list[str], list[str]]:
    roles = (await weir.call("GET", f"{base}/roles"))["roles"]
    databases = (await weir.call("GET", f"{base}/databases"))["databases"]
    return [row["name"] for row in roles], [row["name"] for row in databases]


def _spec(weir: Weir, endpoint: str) -> dict[str, Any]:
    spec = weir.resources.runtime.spec(endpoint)
    assert spec is not None
    return spec


async def _left_to_drop(weir: Weir, base: str) -> list[str]:
    statement = select(DroppedName).where(DroppedName.branch_id == base.rsplit("/", 1)[1])
    async with weir.resources.database.transaction() as session:
        return [row.name for row in (await session.scalars(statement)).all() if row.dropped_at is None]


async def test_a_deletion_reaches_the_running_compute_and_can_be_repeated(weir: Weir) -> None:
    _, base, endpoint = await _with_reporter(weir, "deletes")
    deleted = await weir.call("DELETE", f"{base}/databases/reports")
    assert (deleted["database"]["name"], deleted["database"]["owner_name"]) == ("reports", "reporter")
    assert [operation["action"] for operation in deleted["operations"]] == ["apply_config"]
    await weir.finish(deleted)
    assert _spec(weir, endpoint)["dropped_databases"] == ["reports"]
    assert (await weir.call("DELETE", f"{base}/databases/reports", 204)) is None

    deleted = await weir.call("DELETE", f"{base}/roles/reporter")
    await weir.finish(deleted)
    assert deleted["role"]["password"] is None
    # What has been dropped once is not to be dropped again: somebody may have made another of that name by SQL.
    assert (_spec(weir, endpoint)["dropped_roles"], _spec(weir, endpoint)["dropped_databases"]) == (["reporter"], [])
    assert await weir.call("DELETE", f"{base}/roles/reporter", 204) is None
    assert await weir.call("DELETE", f"{base}/roles/never-there", 204) is None
    assert await _names(weir, base) == (["app_owner"], ["appdb"])
    assert await _left_to_drop(weir, base) == []
    await weir.call("GET", f"{base}/roles/reporter", 404)
    # The names are free again.
    await weir.finish(await weir.call("POST", f"{base}/roles", 201, json={"role": {"name": "reporter"}}))


async def test_what_others_need_is_refused_with_what_to_do(weir: Weir) -> None:
    _, base, _ = await _with_reporter(weir, "needed")
    refusal = await weir.call("DELETE", f"{base}/roles/reporter", 412)
    assert "owns database 'reports'" in refusal["message"]
    assert "delete them first, or give them another owner" in refusal["message"]
    given = await weir.call(
        "PATCH", f"{base}/databases/reports", json={"database": {"name": "reports", "owner_name": "app_owner"}}
    )
    assert given["database"]["owner_name"] == "app_owner"
    await weir.finish(given)
    await weir.call("PATCH", f"{base}/databases/reports", 404, json={"database": {"owner_name": "nobody"}})
    renamed = await weir.call("PATCH", f"{base}/databases/reports", 400, json={"database": {"name": "other"}})
    assert renamed["code"] == "NOT_SUPPORTED"
    await weir.finish(await weir.call("DELETE", f"{base}/roles/reporter"))

    for database in ("reports", "appdb"):
        await weir.finish(await weir.call("DELETE", f"{base}/databases/{database}"))
    assert "create another one first" in (await weir.call("DELETE", f"{base}/roles/app_owner", 412))["message"]
    for own in ("roles/weir_admin", "roles/pg_monitor", "databases/postgres", "databases/template1"):
        assert "Weir's own" in (await weir.call("DELETE", f"{base}/{own}", 400))["message"]


async def test_a_suspended_compute_drops_when_it_has_started(weir: Weir) -> None:
    project, base, endpoint = await _with_reporter(weir, "asleep")
    at = f"/projects/{project}/endpoints/{endpoint}"
    await weir.finish(await weir.call("POST", f"{at}/suspend"))
    assert (await weir.call("DELETE", f"{base}/databases/reports"))["operations"] == []
    assert (await weir.call("DELETE", f"{base}/databases/reports"))["database"]["name"] == "reports"
    body = {"database": {"name": "reports", "owner_name": "app_owner"}}
    assert "start the branch's endpoint" in (await weir.call("POST", f"{base}/databases", 409, json=body))["message"]
    assert await _left_to_drop(weir, base) == ["reports"]

    # A branch of the head is made of what the suspended compute has left: it has to drop the database as well.
    child = await weir.call("POST", f"/projects/{project}/branches", 201, json={})
    await weir.finish(child)
    child_base = f"/projects/{project}/branches/{child['branch']['id']}"
    assert await _names(weir, child_base) == (["app_owner", "reporter"], ["appdb"])
    assert await _left_to_drop(weir, child_base) == ["reports"]

    await weir.finish(await weir.call("POST", f"{at}/start"))
    assert await _left_to_drop(weir, base) == []
    assert await _left_to_drop(weir, child_base) == ["reports"]
    await weir.finish(await weir.call("POST", f"{base}/databases", 201, json=body))


async def test_branches_keep_theirs_and_the_past_has_what_was_deleted_since(weir: Weir) -> None:
    project, base, _ = await _with_reporter(weir, "keeps")
    before = await weir.call("POST", f"/projects/{project}/branches", 201, json={})
    await weir.finish(before)
    moment = now()
    await weir.finish(await weir.call("DELETE", f"{base}/databases/reports"))
    await weir.finish(await weir.call("DELETE", f"{base}/roles/reporter"))
    kept = f"/projects/{project}/branches/{before['branch']['id']}"
    assert await _names(weir, kept) == (["app_owner", "reporter"], ["appdb", "reports"])

    for asked, names in (
        ({}, (["app_owner"], ["appdb"])),
        ({"parent_timestamp": moment.isoformat()}, (["app_owner", "reporter"], ["appdb", "reports"])),
    ):
        made = await weir.call("POST", f"/projects/{project}/branches", 201, json={"branch": asked})
        await weir.finish(made)
        child = f"/projects/{project}/branches/{made['branch']['id']}"
        assert await _names(weir, child) == names
        assert await _left_to_drop(weir, child) == []
        if "reporter" in names[0]:
            # Only that state of Postgres knows the password.
            assert (
                "resetting it" in (await weir.call("GET", f"{child}/roles/reporter/reveal_password", 404))["message"]
            )

    # Putting the branch back brings back what was deleted by mistake.
    body = {
        "source_branch_id": base.rsplit("/", 1)[1],
        "source_timestamp": moment.isoformat(),
        "preserve_under_name": "without",
    }
    await weir.finish(await weir.call("POST", f"{base}/restore", json=body))
    assert await _names(weir, base) == (["app_owner", "reporter"], ["appdb", "reports"])
    branches = (await weir.call("GET", f"/projects/{project}/branches"))["branches"]
    without = next(row["id"] for row in branches if row["name"] == "without")
    assert await _names(weir, f"/projects/{project}/branches/{without}") == (["app_owner"], ["appdb"])


async def test_a_drop_that_breaks_off_is_finished_by_the_reconciler(
    weir: Weir, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the row and Postgres, and between Postgres and the row."""
    project, base, endpoint = await _with_reporter(weir, "breaks")

    async def refuses(*_: object) -> None:
        raise RemoteError("the agent", "POST /configure", 409, "refused", "something is in the way")

    with monkeypatch.context() as patched:
        patched.setattr(ComputeAgent, "configure", refuses)
        ended = await weir.finish(await weir.call("DELETE", f"{base}/databases/reports"), "failed")
        assert "something is in the way" in ended[0]["error"]
        assert await _left_to_drop(weir, base) == ["reports"]
    reconciler = ReconcilerActivities(weir.resources)

    async def repaired() -> bool:
        await reconciler.reconcile()
        return await _left_to_drop(weir, base) == []

    await weir.wait(repaired)
    # The repair's operation ends after the name's row does, and its project takes no other until then.
    await weir.idle(project)
    assert _spec(weir, endpoint)["dropped_databases"] == ["reports"]

    async def dies(*_: object) -> None:
        raise ConnectionError("the worker died here")

    activities = ComputeActivities(replace(weir.resources))
    with monkeypatch.context() as patched:
        patched.setattr(ComputeActivities, "_dropped", dies)
        await weir.finish(await weir.call("DELETE", f"{base}/roles/reporter"), "failed")
    assert await _left_to_drop(weir, base) == ["reporter"]
    await activities.configure_compute(endpoint)
    assert await _left_to_drop(weir, base) == []
