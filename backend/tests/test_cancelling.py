"""An operation that is cancelled stops, undoes what it has done, and lets go of what it held; what cannot be
cancelled says why."""

from typing import Any

import pytest
from sqlalchemy import select
from weir_testing.at_once import Project, make
from weir_testing.fixtures import Weir

from weir.endpoints.models import Endpoint, EndpointState
from weir.identity.models import AuditEntry
from weir.operations import cancellable
from weir.operations.models import Operation, OperationKind, OperationStatus
from weir_workflows.reconciler.activities import ReconcilerActivities

CAN = {
    OperationKind.START_COMPUTE,
    OperationKind.CREATE_BRANCH,
    OperationKind.DETACH_BRANCH,
    OperationKind.REPLACE_SAFEKEEPER,
}


@pytest.mark.parametrize("kind", list(OperationKind))
def test_what_can_be_cancelled_before_it_has_ended(kind: OperationKind) -> None:
    for status in OperationStatus:
        reason = cancellable.why_not(Operation(kind=kind, status=status))
        begun_or_waits = status in {OperationStatus.SCHEDULING, OperationStatus.RUNNING}
        assert (reason is None) == (begun_or_waits and kind in CAN)
        assert reason is None or begun_or_waits or str(status) in reason


async def _wish(weir: Weir, endpoint: str) -> tuple[EndpointState, EndpointState]:
    async with weir.resources.database.transaction() as session:
        row = await session.get_one(Endpoint, endpoint)
    return row.desired_state, row.state


async def test_a_start_that_hangs_is_cancelled_and_nobody_wants_it_any_more(weir: Weir) -> None:
    project = await make(weir, "cancel-start")
    ident = await project.hanging_start(project.dev_endpoint)
    assert (await project.operation(ident))["cancellable"]
    asked = await project.call("POST", f"/operations/{ident}/cancel")
    assert asked["operation"]["status"] in {"cancelling", "cancelled"}
    # Again: the same answer, whether it is under way or over.
    again = await project.call("POST", f"/operations/{ident}/cancel")
    assert again["operation"]["status"] in {"cancelling", "cancelled"}
    await project.until(ident, "cancelled")
    ended = await project.operation(ident)
    assert (ended.get("error"), ended["cancellable"]) == (None, False)
    assert await project.held() == []
    assert await _wish(weir, project.dev_endpoint) == (EndpointState.IDLE, EndpointState.IDLE)
    assert weir.resources.runtime.process(project.dev_endpoint) is None
    assert project.dev_endpoint not in (await ReconcilerActivities(weir.resources).reconcile()).started
    async with weir.resources.database.transaction() as session:
        statement = select(AuditEntry).where(AuditEntry.resource == f"operation/{ident}")
        assert [entry.action for entry in await session.scalars(statement)] == ["operation.cancel"]
    await project.set(project.dev_endpoint, {})
    await weir.finish(await project.call("POST", f"/endpoints/{project.dev_endpoint}/start"))


async def test_a_detach_is_cancelled_and_the_branch_keeps_its_parent(weir: Weir) -> None:
    project = await make(weir, "cancel-detach")
    ident = await project.slow_detach()
    timeline = project.dev["timeline_id"]
    assert (await project.cancel(ident))["status"] == "cancelled"
    assert timeline not in weir.storage.detaching
    assert weir.storage.calls_of("pageserver", "DELETE", f"{timeline}/detach")
    branch = (await project.call("GET", f"/branches/{project.dev['id']}"))["branch"]
    assert branch["parent_id"] == project.main["id"]
    # It can be asked for again.
    weir.storage.slow_detaches.clear()
    await weir.finish(await project.call("POST", f"/branches/{project.dev['id']}/detach"))


async def test_a_detach_that_is_done_when_storage_hears_of_the_cancelling_is_done(weir: Weir) -> None:
    project = await make(weir, "cancel-late")
    ident = await project.slow_detach()
    await project.call("POST", f"/operations/{ident}/cancel")
    weir.storage.timelines[project.dev["timeline_id"]] |= {"ancestor_timeline_id": None, "ancestor_lsn": None}
    await project.until(ident, "cancelled", "finished", "failed")
    ended = await project.operation(ident)
    assert ended["status"] == "finished"
    assert "before it could be cancelled" in ended["warning"]
    branch = (await project.call("GET", f"/branches/{project.dev['id']}"))["branch"]
    assert branch.get("parent_id") is None
    assert await project.held() == []


async def test_storage_that_does_not_stop_a_detach_fails_the_cancelling_and_says_so(weir: Weir) -> None:
    project = await make(weir, "cancel-refused")
    ident = await project.slow_detach()
    weir.storage.fail("pageserver", "DELETE", "/detach", 405)
    ended = await project.cancel(ident)
    assert ended["status"] == "failed"
    assert "it was cancelled, and undoing it failed" in ended["error"]
    assert await project.held() == []


async def test_a_branch_that_is_being_made_is_cancelled_with_what_waits_for_it(weir: Weir) -> None:
    project = await make(weir, "cancel-create")
    weir.storage.fail("pageserver", "POST", "/timeline", 503, times=1_000)
    body = {"branch": {"parent_id": project.main["id"], "name": "never"}, "endpoints": [{"type": "read_write"}]}
    made = await project.call("POST", "/branches", 201, json=body)
    create, start = (str(operation["id"]) for operation in made["operations"])
    await project.until(create, "running")
    assert (await project.cancel(create))["status"] == "cancelled"
    await project.until(start, "skipped")
    weir.storage.faults.clear()
    await project.call("GET", f"/branches/{made['branch']['id']}", 404)
    assert made["branch"]["timeline_id"] not in weir.storage.timelines
    assert await project.held() == []
    # Name and port are free.
    again = await project.call("POST", "/branches", 201, json=body)
    await weir.finish(again)


async def test_a_start_that_waits_for_its_branch_is_cancelled_before_it_begins(weir: Weir) -> None:
    project = await make(weir, "cancel-waiting")
    weir.storage.fail("pageserver", "POST", "/timeline", 503, times=1_000)
    body = {"branch": {"parent_id": project.main["id"]}, "endpoints": [{"type": "read_write"}]}
    made = await project.call("POST", "/branches", 201, json=body)
    create, start = (str(operation["id"]) for operation in made["operations"])
    answer = await project.call("POST", f"/operations/{start}/cancel")
    assert answer["operation"]["status"] == "cancelled"
    weir.storage.faults.clear()
    await project.until(create, "finished")
    endpoint = made["endpoints"][0]["id"]
    assert await _wish(weir, endpoint) == (EndpointState.IDLE, EndpointState.IDLE)
    assert await project.held() == []
    await weir.finish(await project.call("POST", f"/endpoints/{endpoint}/start"))


async def test_a_change_of_safekeepers_is_cancelled_between_its_steps(weir: Weir) -> None:
    """The log keeps members that work, and the same can be asked for again."""
    project = await make(weir, "cancel-members")
    weir.storage.fail("safekeeper-4", "POST", "/timeline", 503, times=1_000)
    where = f"/branches/{project.dev['id']}/safekeepers"
    asked = await project.call("POST", where, json={"safekeepers": [1, 2, 4]})
    ident = str(asked["operations"][0]["id"])
    await project.until(ident, "running")
    assert (await project.cancel(ident))["status"] == "cancelled"
    assert await project.held() == []
    weir.storage.faults.clear()
    members = (await project.call("GET", where))["members"]
    assert sorted(row["safekeeper_id"] for row in members if row["role"] == "voter") == [1, 2, 3]
    await weir.finish(await project.call("POST", where, json={"safekeepers": [1, 2, 4]}))


async def test_what_cannot_be_cancelled_is_refused_with_the_reason(weir: Weir) -> None:
    project = await make(weir, "cannot-cancel")
    suspended = await project.call("POST", f"/endpoints/{project.dev_endpoint}/suspend")
    ident = suspended["operations"][0]["id"]
    assert suspended["operations"][0]["cancellable"] is False
    refused = await project.call("POST", f"/operations/{ident}/cancel", 409)
    assert "cannot be cancelled" in refused["message"]
    await weir.finish(suspended)
    refused = await project.call("POST", f"/operations/{ident}/cancel", 409)
    assert "it is finished already" in refused["message"]
    await project.call("POST", "/operations/00000000-0000-4000-8000-000000000000/cancel", 404)
    async with weir.as_account("stranger-who-cancels") as stranger:
        await stranger.call("POST", f"{project.path}/operations/{ident}/cancel", 404)


async def test_a_cancelling_that_only_the_database_knows_of_is_carried_out(weir: Weir) -> None:
    """The API died after its commit: the next look of any dispatcher asks the workflow."""
    project: Project = await make(weir, "cancel-unheard")
    ident = await project.slow_detach()
    async with weir.resources.database.transaction() as session:
        row = (await session.scalars(select(Operation).where(Operation.id == ident))).one()
        row.status = OperationStatus.CANCELLING
    await project.until(ident, "cancelled")
    assert await project.held() == []


async def test_an_operation_says_by_its_view_whether_it_can_be_cancelled(weir: Weir) -> None:
    created: dict[str, Any] = await weir.call("POST", "/projects", 201, json={"project": {"name": "views"}})
    create, start = created["operations"]
    assert (create["cancellable"], start["cancellable"]) == (False, True)
    await weir.finish(created)
