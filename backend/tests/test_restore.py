"""Restoring a branch: it gets another state and keeps everything else."""

from typing import Any

from weir_testing.fixtures import Weir


async def _with_history(weir: Weir, name: str) -> tuple[dict[str, Any], str]:
    created = await weir.project(name=name)
    weir.storage.advance(created["branch"]["timeline_id"], "0/1900000")
    return created, f"/projects/{created['project']['id']}/branches"


async def _branch(weir: Weir, path: str, ident: str) -> dict[str, Any]:
    return (await weir.call("GET", f"{path}/{ident}"))["branch"]


async def test_a_branch_goes_back_to_its_own_past_and_keeps_name_endpoint_and_address(weir: Weir) -> None:
    created, path = await _with_history(weir, "own-past")
    main, endpoint = created["branch"], created["endpoints"][0]
    child = await weir.call("POST", path, 201, json={"branch": {"name": "child"}})
    await weir.finish(child)
    body = {"source_branch_id": main["id"], "source_lsn": "0/1700000", "preserve_under_name": "before"}
    restored = await weir.call("POST", f"{path}/{main['id']}/restore", json=body)
    assert [item["action"] for item in restored["operations"]] == ["create_branch", "swap_binding_id"]
    await weir.finish(restored)

    now = await _branch(weir, path, main["id"])
    kept = next(row for row in (await weir.call("GET", path))["branches"] if row["name"] == "before")
    assert (now["name"], now["default"], now["parent_lsn"]) == ("main", True, "0/1700000")
    assert now["parent_id"] == kept["id"]
    assert now["timeline_id"] != main["timeline_id"] == kept["timeline_id"]
    assert weir.storage.timelines[now["timeline_id"]]["ancestor_timeline_id"] == main["timeline_id"]
    # What was made from the replaced state is a branch of what holds that state now.
    assert (await _branch(weir, path, child["branch"]["id"]))["parent_id"] == kept["id"]
    assert kept.get("parent_id") is None

    after = (await weir.call("GET", f"/projects/{created['project']['id']}/endpoints/{endpoint['id']}"))["endpoint"]
    assert (after["branch_id"], after["port"], after["current_state"]) == (main["id"], endpoint["port"], "active")
    spec = weir.resources.runtime.spec(endpoint["id"])
    assert spec is not None
    assert spec["timeline_id"] == now["timeline_id"]


async def test_a_branch_is_reset_to_another_and_its_replaced_state_goes(weir: Weir) -> None:
    created, path = await _with_history(weir, "reset")
    made = await weir.call("POST", path, 201, json={"branch": {"name": "dev"}, "endpoints": [{"type": "read_write"}]})
    await weir.finish(made)
    dev = made["branch"]
    project = f"/projects/{created['project']['id']}"
    for branch, name in ((created["branch"]["id"], "of_main"), (dev["id"], "of_dev")):
        await weir.finish(await weir.call("POST", f"{path}/{branch}/roles", 201, json={"role": {"name": name}}))
    await weir.finish(await weir.call("POST", f"{path}/{dev['id']}/roles/app_owner/reset_password"))
    reveal = f"{path}/{dev['id']}/roles/app_owner/reveal_password"
    password = await weir.call("GET", reveal)
    body = {"source_branch_id": created["branch"]["id"]}
    await weir.finish(await weir.call("POST", f"{path}/{dev['id']}/restore", json=body))
    now = await _branch(weir, path, dev["id"])
    assert now["parent_id"] == created["branch"]["id"]
    assert now["timeline_id"] != dev["timeline_id"]
    assert dev["timeline_id"] not in weir.storage.timelines
    assert not any(dev["timeline_id"] in keeper for keeper in weir.storage.keepers)
    assert (await weir.call("GET", f"{path}/count"))["count"] == 2
    # The source's roles, and the password that clients of the branch know.
    roles = (await weir.call("GET", f"{path}/{dev['id']}/roles"))["roles"]
    assert sorted(role["name"] for role in roles) == ["app_owner", "of_main"]
    assert await weir.call("GET", reveal) == password
    roles = (await weir.call("GET", f"{path}/{created['branch']['id']}/roles"))["roles"]
    assert sorted(role["name"] for role in roles) == ["app_owner", "of_main"]
    endpoint = (await weir.call("GET", f"{project}/endpoints/{made['endpoints'][0]['id']}"))["endpoint"]
    assert endpoint["current_state"] == "active"


async def test_a_restore_that_cannot_be_is_refused_with_the_reason(weir: Weir) -> None:
    created, path = await _with_history(weir, "refusals")
    main = created["branch"]["id"]
    weir.storage.trim(created["branch"]["timeline_id"], "0/1800000", "2026-01-02T03:04:05.678901Z")
    child = await weir.call("POST", path, 201, json={"branch": {"name": "child"}})
    await weir.finish(child)
    restore = f"{path}/{main}/restore"
    own = {"source_branch_id": main}
    for body, status, part in (
        (own, 400, "source_lsn or source_timestamp"),
        (own | {"source_lsn": "0/1900000"}, 400, "preserve_under_name"),
        (own | {"source_lsn": "0/1700000", "preserve_under_name": "x"}, 400, "0/1800000"),
        (own | {"source_lsn": "0/1900000", "preserve_under_name": "child"}, 409, "child"),
        ({"source_branch_id": child["branch"]["id"]}, 412, "child"),
        ({"source_branch_id": "br-none"}, 404, "br-none"),
    ):
        assert part in (await weir.call("POST", restore, status, json=body))["message"]
    ident = child["branch"]["id"]
    await weir.call("PATCH", f"{path}/{ident}", json={"branch": {"protected": True}})
    refused = await weir.call("POST", f"{path}/{ident}/restore", 412, json={"source_branch_id": main})
    assert "protected" in refused["message"]


async def test_a_restore_that_storage_refuses_changes_nothing(weir: Weir) -> None:
    created, path = await _with_history(weir, "unrestored")
    main = created["branch"]
    weir.storage.fail("pageserver", "POST", "/timeline", 400)
    body = {"source_branch_id": main["id"], "source_lsn": "0/1700000", "preserve_under_name": "before"}
    restored = await weir.call("POST", f"{path}/{main['id']}/restore", json=body)

    async def ended() -> list[str] | None:
        ids = {item["id"] for item in restored["operations"]}
        operations = (await weir.call("GET", f"/projects/{created['project']['id']}/operations"))["operations"]
        statuses = sorted(item["status"] for item in operations if item["id"] in ids)
        return statuses if not {"running", "scheduling"} & set(statuses) else None

    assert await weir.wait(ended) == ["failed", "skipped"]
    assert (await _branch(weir, path, main["id"]))["timeline_id"] == main["timeline_id"]
    assert (await weir.call("GET", f"{path}/count"))["count"] == 1
