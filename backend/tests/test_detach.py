"""A branch becomes independent of its parent, which can then be deleted."""

from typing import Any

from weir_testing.fixtures import Weir


async def _project(weir: Weir, name: str) -> tuple[dict[str, Any], str]:
    created = await weir.project(name=name)
    # As far as its compute has written.
    weir.storage.advance(created["branch"]["timeline_id"], "0/1900000")
    return created, f"/projects/{created['project']['id']}/branches"


async def _branch(weir: Weir, path: str, name: str, **fields: Any) -> dict[str, Any]:
    made = await weir.call("POST", path, 201, json={"branch": {"name": name, **fields}})
    await weir.finish(made)
    return made["branch"]


async def test_a_detached_branch_outlives_its_parent_and_keeps_its_own_branches(weir: Weir) -> None:
    created, path = await _project(weir, "detached")
    parent = await _branch(weir, path, "parent")
    branch = await _branch(weir, path, "branch", parent_id=parent["id"])
    below = await _branch(weir, path, "below", parent_id=branch["id"])
    refused = await weir.call("DELETE", f"{path}/{parent['id']}", 412)
    assert "branch" in refused["message"]

    detached = await weir.call("POST", f"{path}/{branch['id']}/detach")
    assert [item["action"] for item in detached["operations"]] == ["detach_parent_branch"]
    await weir.finish(detached)
    now = (await weir.call("GET", f"{path}/{branch['id']}"))["branch"]
    assert [now.get(field) for field in ("parent_id", "parent_lsn", "parent_timestamp")] == [None] * 3
    assert now["timeline_id"] == branch["timeline_id"]
    assert weir.storage.timelines[branch["timeline_id"]]["ancestor_timeline_id"] is None
    assert (await weir.call("GET", f"{path}/{below['id']}"))["branch"]["parent_id"] == branch["id"]
    await weir.finish(await weir.call("DELETE", f"{path}/{parent['id']}"))
    assert parent["timeline_id"] not in weir.storage.timelines
    entries = (await weir.call("GET", "/audit", params={"project_id": created["project"]["id"]}))["entries"]
    assert "branch.detach" in {entry["action"] for entry in entries}


async def test_a_branch_without_a_parent_is_not_detached(weir: Weir) -> None:
    created, path = await _project(weir, "alone")
    refused = await weir.call("POST", f"{path}/{created['branch']['id']}/detach", 409)
    assert "has no parent" in refused["message"]


async def test_a_detach_that_storage_fails_at_first_is_done_in_the_end(weir: Weir) -> None:
    _, path = await _project(weir, "shaken")
    branch = await _branch(weir, path, "branch")
    weir.storage.fail("pageserver", "POST", "/detach", 500, times=2)
    await weir.finish(await weir.call("POST", f"{path}/{branch['id']}/detach"))
    assert (await weir.call("GET", f"{path}/{branch['id']}"))["branch"].get("parent_id") is None


async def test_a_detach_that_storage_refuses_leaves_the_parent(weir: Weir) -> None:
    created, path = await _project(weir, "refused")
    branch = await _branch(weir, path, "branch")
    weir.storage.fail("pageserver", "POST", "/detach", 409)
    detached = await weir.call("POST", f"{path}/{branch['id']}/detach")

    async def ended() -> str | None:
        ident = detached["operations"][0]["id"]
        operation = (await weir.call("GET", f"/projects/{created['project']['id']}/operations/{ident}"))["operation"]
        return None if operation["status"] in {"running", "scheduling"} else operation["status"]

    assert await weir.wait(ended) == "failed"
    assert (await weir.call("GET", f"{path}/{branch['id']}"))["branch"]["parent_id"] == created["branch"]["id"]
