"""What goes on at the same time in one project, and what waits: a running detach, a start that hangs, and everything
else beside them."""

import asyncio
from typing import Any

from sqlalchemy import select
from weir_testing.at_once import Project, make
from weir_testing.fixtures import Weir, serve

from weir.endpoints.models import Endpoint, EndpointState
from weir.main import create_app
from weir.operations import scopes
from weir.operations.models import OPEN, Operation
from weir.projects.models import Project as ProjectRow
from weir_workflows.reconciler.activities import ReconcilerActivities


async def test_endpoints_of_one_project_start_suspend_and_restart_at_the_same_time(weir: Weir) -> None:
    project = await make(weir, "two-endpoints")
    both = (project.main_endpoint, project.dev_endpoint)
    for action in ("suspend", "start", "restart"):
        # Both are let in: neither waits for the other's end.
        asked = [await project.call("POST", f"/endpoints/{endpoint}/{action}") for endpoint in both]
        await asyncio.gather(*(weir.finish(answer) for answer in asked))
    async with weir.resources.database.transaction() as session:
        states = await session.scalars(select(Endpoint.state).where(Endpoint.id.in_(both)))
        assert list(states) == [EndpointState.ACTIVE, EndpointState.ACTIVE]
    assert await project.held() == []


async def test_a_start_that_hangs_holds_its_endpoint_and_nothing_else(weir: Weir) -> None:
    project = await make(weir, "hanging-start")
    ident = await project.hanging_start(project.dev_endpoint)
    assert await project.held() == [scopes.of_endpoint(project.id, project.dev["id"], project.dev_endpoint)]
    dev, endpoint = f"/branches/{project.dev['id']}", f"/endpoints/{project.dev_endpoint}"
    restored = {"source_branch_id": project.main["id"], "preserve_under_name": "old"}
    for method, rest, body in (
        ("POST", f"{endpoint}/start", None),
        ("POST", f"{endpoint}/suspend", None),
        ("DELETE", endpoint, None),
        ("DELETE", dev, None),
        ("POST", f"{dev}/restore", restored),
        ("POST", f"{dev}/roles", {"role": {"name": "reader"}}),
        ("POST", "/branches", {"branch": {"parent_id": project.dev["id"]}}),
        ("DELETE", "", None),
        ("PATCH", "", {"project": {"history_retention_seconds": 86_400}}),
    ):
        refused = await project.call(method, rest, 423, **({"json": body} if body else {}))
        assert refused["code"] == "PROJECT_BUSY", rest
        assert ident in refused["message"], rest
    # Nothing of what was refused is stored.
    assert [row["name"] for row in (await project.call("GET", f"{dev}/roles"))["roles"]] == ["app_owner"]
    await project.call("PATCH", dev, json={"branch": {"name": "renamed"}})
    await project.call("PATCH", "", json={"project": {"name": "renamed-too"}})
    await weir.finish(await project.call("POST", f"{dev}/detach"))
    await weir.finish(await project.call("POST", f"/endpoints/{project.main_endpoint}/restart"))
    made = await project.call("POST", "/branches", 201, json={"branch": {"parent_id": project.main["id"]}})
    await weir.finish(made)
    await weir.finish(await project.call("DELETE", f"/branches/{made['branch']['id']}"))
    assert (await project.operation(ident))["status"] == "running"
    assert (await project.cancel(ident))["status"] == "cancelled"
    assert await project.held() == []


async def test_a_running_detach_blocks_neither_starts_nor_repairs(weir: Weir) -> None:
    project = await make(weir, "detaching")
    ident = await project.slow_detach()
    assert await project.held() == [scopes.history_of(project.id, project.dev["id"])]
    dev = f"/branches/{project.dev['id']}"
    for endpoint in (project.main_endpoint, project.dev_endpoint):
        await weir.finish(await project.call("POST", f"/endpoints/{endpoint}/restart"))
    # Computes that die meanwhile, of this branch too, are started again.
    reconciler = ReconcilerActivities(weir.resources)
    for endpoint in (project.main_endpoint, project.dev_endpoint):
        process = weir.resources.runtime.process(endpoint)
        assert process is not None
        weir.resources.runtime.kill(process)

    async def started(endpoint: str) -> None:
        async def again() -> bool:
            await reconciler.reconcile()
            process = weir.resources.runtime.process(endpoint)
            return process is not None and process.alive()

        await weir.wait(again)

    for endpoint in (project.main_endpoint, project.dev_endpoint):
        await started(endpoint)
    await _all_but(project, ident)
    await weir.finish(await project.call("POST", f"{dev}/roles", 201, json={"role": {"name": "reader"}}))
    made = await project.call("POST", "/branches", 201, json={"branch": {"parent_id": project.main["id"]}})
    await weir.finish(made)
    # What would have other pages than those that are copied waits.
    restored = {"source_branch_id": project.main["id"], "preserve_under_name": "old"}
    from_dev = {"source_branch_id": project.dev["id"], "preserve_under_name": "old"}
    for method, rest, body in (
        ("DELETE", dev, None),
        ("POST", f"{dev}/detach", None),
        ("POST", f"{dev}/restore", restored),
        ("POST", f"/branches/{project.main['id']}/restore", from_dev),
        ("POST", "/branches", {"branch": {"parent_id": project.dev["id"]}}),
        ("DELETE", "", None),
    ):
        refused = await project.call(method, rest, 423, **({"json": body} if body else {}))
        assert ident in refused["message"], rest
    assert (await project.operation(ident))["status"] == "running"
    weir.storage.slow_detaches.clear()
    await project.until(ident, "finished")
    assert (await project.call("GET", dev))["branch"].get("parent_id") is None
    await _all_but(project)
    assert await project.held() == []


async def _all_but(project: Project, *idents: str) -> None:
    """Until these alone are open."""

    async def so() -> bool:
        async with project.weir.resources.database.transaction() as session:
            statement = select(Operation.id).where(Operation.project_id == project.id, Operation.status.in_(OPEN))
            return {str(ident) for ident in await session.scalars(statement)} == set(idents)

    await project.weir.wait(so)


async def test_a_branch_that_is_made_holds_its_parents_history_until_it_is_made(weir: Weir) -> None:
    """And its own endpoint until that runs: the start of a compute is nothing to the parent."""
    project = await make(weir, "making")
    async with weir.resources.database.transaction() as session:
        row = await session.get_one(ProjectRow, project.id)
        row.default_endpoint_settings = {"pg_settings": {"test.mode": "stuck"}}
    body = {"branch": {"parent_id": project.dev["id"], "name": "child"}, "endpoints": [{"type": "read_write"}]}
    made = await project.call("POST", "/branches", 201, json=body)
    create, start = (str(operation["id"]) for operation in made["operations"])
    await project.until(create, "finished")
    await project.until(start, "running")
    child, endpoint = made["branch"]["id"], made["endpoints"][0]["id"]
    assert await project.held() == [scopes.of_endpoint(project.id, child, endpoint)]
    await weir.finish(await project.call("POST", f"/branches/{project.dev['id']}/detach"))
    assert (await project.cancel(start))["status"] == "cancelled"


async def test_many_requests_of_two_api_processes_at_once_never_hold_the_same(weir: Weir) -> None:
    """Each is let in or answered 423, and what is held never overlaps, which the table would not take."""
    project = await make(weir, "two-processes")
    server, task, url = await serve(create_app())
    try:
        requests: list[tuple[str, str, dict[str, Any] | None]] = []
        for endpoint in (project.main_endpoint, project.dev_endpoint):
            requests += [("POST", f"/endpoints/{endpoint}/{action}", None) for action in ("suspend", "restart")]
        requests += [("POST", "/branches", {"branch": {"parent_id": project.main["id"]}})] * 2
        requests += [("POST", f"/branches/{project.dev['id']}/detach", None)]
        bases = (weir.url, url)

        async def ask(number: int, method: str, rest: str, body: dict[str, Any] | None) -> tuple[int, Any]:
            where = f"{bases[number % 2]}/api/v2{project.path}{rest}"
            answer = await weir.client.request(method, where, json=body)
            return answer.status_code, answer.json()

        answers = await asyncio.gather(*(ask(number, *request) for number, request in enumerate(requests * 3)))
        assert {status for status, _ in answers} <= {200, 201, 409, 423}
        taken = [answer for status, answer in answers if status in {200, 201}]
        assert len(taken) >= 3
        for answer in taken:
            await weir.finish(answer)
        await _all_but(project)
        assert await project.held() == []
    finally:
        server.should_exit = True
        await task
