"""Branches: of the head, of a past LSN, of a past moment; what they inherit; how they go."""

from weir_testing.fixtures import Weir

from weir.kit.ids import format_lsn, parse_lsn


async def test_a_branch_of_the_head_has_everything_acknowledged_so_far(weir: Weir) -> None:
    created = await weir.project(name="head")
    path = f"/projects/{created['project']['id']}/branches"
    # The running compute has acknowledged this much; storage must ingest it before the branch is made.
    acknowledged = "0/1800000"
    weir.storage.advance(created["branch"]["timeline_id"], acknowledged)
    made = await weir.call("POST", path, 201, json={"branch": {"name": "dev"}, "endpoints": [{"type": "read_write"}]})
    assert [item["action"] for item in made["operations"]] == ["create_branch", "start_compute"]
    await weir.finish(made)
    branch = (await weir.call("GET", f"{path}/{made['branch']['id']}"))["branch"]
    assert branch["parent_id"] == created["branch"]["id"]
    assert parse_lsn(branch["parent_lsn"]) >= parse_lsn(acknowledged)
    assert weir.storage.timelines[branch["timeline_id"]]["ancestor_lsn"] == branch["parent_lsn"]


async def test_a_branch_has_its_parents_roles_passwords_and_databases(weir: Weir) -> None:
    created = await weir.project(name="inherit")
    path = f"/projects/{created['project']['id']}/branches"
    weir.storage.advance(created["branch"]["timeline_id"], "0/1800000")
    made = await weir.call("POST", path, 201, json={"endpoints": [{"type": "read_write"}]})
    await weir.finish(made)
    old, new = (
        f"{path}/{ident}/roles/app_owner/reveal_password" for ident in (created["branch"]["id"], made["branch"]["id"])
    )
    assert await weir.call("GET", old) == await weir.call("GET", new)
    uri = made["connection_uris"][0]["connection_uri"]
    assert uri.endswith("/appdb")
    assert str(made["endpoints"][0]["port"]) in uri
    assert made["endpoints"][0]["port"] != created["endpoints"][0]["port"]


async def test_a_branch_of_a_past_lsn_starts_there(weir: Weir) -> None:
    created = await weir.project(name="past")
    path = f"/projects/{created['project']['id']}/branches"
    timeline = created["branch"]["timeline_id"]
    weir.storage.advance(timeline, "0/1900000")
    past = format_lsn(parse_lsn(weir.storage.timelines[timeline]["start_lsn"]) + 0x100)
    made = await weir.call("POST", path, 201, json={"branch": {"parent_lsn": past}})
    await weir.finish(made)
    assert weir.storage.timelines[made["branch"]["timeline_id"]]["ancestor_lsn"] == past


async def test_a_branch_with_children_or_protection_or_the_default_stays(weir: Weir) -> None:
    created = await weir.project(name="family")
    path = f"/projects/{created['project']['id']}/branches"
    weir.storage.advance(created["branch"]["timeline_id"], "0/1800000")
    child = await weir.call("POST", path, 201, json={"branch": {"name": "child"}})
    await weir.finish(child)
    ident = child["branch"]["id"]
    grandchild = await weir.call("POST", path, 201, json={"branch": {"name": "grandchild", "parent_id": ident}})
    await weir.finish(grandchild)

    assert "default" in (await weir.call("DELETE", f"{path}/{created['branch']['id']}", 400))["message"]
    assert grandchild["branch"]["id"] in (await weir.call("DELETE", f"{path}/{ident}", 412))["message"]
    await weir.finish(await weir.call("DELETE", f"{path}/{grandchild['branch']['id']}"))
    await weir.call("PATCH", f"{path}/{ident}", json={"branch": {"protected": True}})
    assert "protected" in (await weir.call("DELETE", f"{path}/{ident}", 412))["message"]
    await weir.call("PATCH", f"{path}/{ident}", json={"branch": {"protected": False}})
    await weir.finish(await weir.call("DELETE", f"{path}/{ident}"))
    assert (await weir.call("GET", f"{path}/count"))["count"] == 1
    assert child["branch"]["timeline_id"] not in weir.storage.timelines


async def test_a_branch_goes_with_everything_below_it_when_asked(weir: Weir) -> None:
    created = await weir.project(name="cascade")
    path = f"/projects/{created['project']['id']}/branches"
    weir.storage.advance(created["branch"]["timeline_id"], "0/1800000")
    made = {}
    for name, parent in (("a", None), ("b", "a"), ("c", "b"), ("d", "a"), ("other", None)):
        fields = {"name": name} | ({"parent_id": made[parent]["id"]} if parent else {})
        body = {"branch": fields, "endpoints": [{"type": "read_write"}] if name == "c" else []}
        answer = await weir.call("POST", path, 201, json=body)
        await weir.finish(answer)
        made[name] = answer["branch"]
    refused = await weir.call("DELETE", f"{path}/{made['a']['id']}", 412)
    for name in ("b", "c", "d"):
        assert f"{name} ({made[name]['id']})" in refused["message"]
    assert "children=delete" in refused["message"]
    await weir.call("PATCH", f"{path}/{made['c']['id']}", json={"branch": {"protected": True}})
    cascade = {"children": "delete"}
    refused = await weir.call("DELETE", f"{path}/{made['a']['id']}", 412, params=cascade)
    assert made["c"]["id"] in refused["message"]
    assert (await weir.call("GET", f"{path}/count"))["count"] == 6
    await weir.call("PATCH", f"{path}/{made['c']['id']}", json={"branch": {"protected": False}})
    await weir.finish(await weir.call("DELETE", f"{path}/{made['a']['id']}", params=cascade))
    left = [item["name"] for item in (await weir.call("GET", path))["branches"]]
    assert sorted(left) == ["main", "other"]
    assert not {made[name]["timeline_id"] for name in "abcd"} & set(weir.storage.timelines)


async def test_a_deletion_that_broke_off_refuses_new_uses_and_goes_on_when_repeated(weir: Weir) -> None:
    created = await weir.project(name="broken-off")
    path = f"/projects/{created['project']['id']}/branches"
    weir.storage.advance(created["branch"]["timeline_id"], "0/1800000")
    made = {}
    for name, parent in (("a", None), ("b", "a"), ("c", "b")):
        fields = {"name": name} | ({"parent_id": made[parent]["id"]} if parent else {})
        answer = await weir.call("POST", path, 201, json={"branch": fields, "endpoints": [{"type": "read_write"}]})
        await weir.finish(answer)
        made[name] = answer["branch"]
    weir.storage.fail("pageserver", "DELETE", made["b"]["timeline_id"], 400)
    cascade = {"children": "delete"}
    answer = await weir.call("DELETE", f"{path}/{made['a']['id']}", params=cascade)

    async def ended() -> bool:
        operations = (await weir.call("GET", f"/projects/{created['project']['id']}/operations"))["operations"]
        return not any(item["status"] in {"running", "scheduling"} for item in operations)

    await weir.wait(ended)
    left = [item["name"] for item in (await weir.call("GET", path))["branches"]]
    assert sorted(left) == ["a", "b", "main"]
    # Whatever is left of them is nothing to build on.
    for ident, body in (
        (made["b"]["id"], {"source_branch_id": created["branch"]["id"]}),
        (created["branch"]["id"], {"source_branch_id": made["b"]["id"], "preserve_under_name": "x"}),
    ):
        refused = await weir.call("POST", f"{path}/{ident}/restore", 412, json=body)
        assert "being deleted" in refused["message"]
    refused = await weir.call("POST", path, 412, json={"branch": {"parent_id": made["b"]["id"]}})
    assert made["b"]["id"] in refused["message"]
    await weir.finish(await weir.call("DELETE", f"{path}/{made['a']['id']}", params=cascade))
    assert [item["name"] for item in (await weir.call("GET", path))["branches"]] == ["main"]
    assert not {made[name]["timeline_id"] for name in "abc"} & set(weir.storage.timelines)


async def test_a_branch_storage_refuses_leaves_nothing_behind(weir: Weir) -> None:
    created = await weir.project(name="refused")
    path = f"/projects/{created['project']['id']}/branches"
    weir.storage.advance(created["branch"]["timeline_id"], "0/1800000")
    weir.storage.fail("safekeeper-2", "POST", "/timeline", 409)
    made = await weir.call("POST", path, 201, json={"branch": {"name": "never"}})
    await weir.finish(made, expect="failed")
    assert made["branch"]["timeline_id"] not in weir.storage.timelines
    assert [item["name"] for item in (await weir.call("GET", path))["branches"]] == ["main"]
    # And the name is free again.
    await weir.finish(await weir.call("POST", path, 201, json={"branch": {"name": "never"}}))


async def test_a_branch_is_made_while_one_safekeeper_is_down(weir: Weir) -> None:
    created = await weir.project(name="two-of-three")
    path = f"/projects/{created['project']['id']}/branches"
    weir.storage.advance(created["branch"]["timeline_id"], "0/1800000")
    weir.storage.fail("safekeeper-1", "POST", "/timeline", 503, times=100)
    made = await weir.call("POST", path, 201, json={"branch": {"name": "majority"}})
    await weir.finish(made)
    held = [made["branch"]["timeline_id"] in keeper for keeper in weir.storage.keepers[:3]]
    assert held == [False, True, True]


async def test_branches_are_listed_in_the_order_asked_for(weir: Weir) -> None:
    created = await weir.project(name="listed")
    path = f"/projects/{created['project']['id']}/branches"
    weir.storage.advance(created["branch"]["timeline_id"], "0/1800000")
    for name in ("a", "b"):
        await weir.finish(await weir.call("POST", path, 201, json={"branch": {"name": name}}))
    answer = await weir.call("GET", path, params={"limit": 2, "sort_order": "asc"})
    rest = await weir.call(
        "GET", path, params={"limit": 2, "sort_order": "asc", "cursor": answer["pagination"]["next"]}
    )
    assert [item["name"] for item in answer["branches"] + rest["branches"]] == ["main", "a", "b"]
    assert answer["annotations"] == {}


async def test_a_committed_lsn_that_storage_has_yet_to_ingest_is_good(weir: Weir) -> None:
    created = await weir.project(name="ahead")
    path = f"/projects/{created['project']['id']}/branches"
    timeline = created["branch"]["timeline_id"]
    for keeper in weir.storage.keepers[:2]:
        keeper[timeline]["flush_lsn"] = keeper[timeline]["commit_lsn"] = "0/1900000"
    made = await weir.call("POST", path, 201, json={"branch": {"parent_lsn": "0/1900000"}})
    weir.storage.advance(timeline, "0/1900000")
    await weir.finish(made)
    assert weir.storage.timelines[made["branch"]["timeline_id"]]["ancestor_lsn"] == "0/1900000"


async def test_a_branch_of_the_head_has_what_is_acknowledged_and_storage_has_yet_to_ingest(weir: Weir) -> None:
    created = await weir.project(name="ahead of storage")
    path = f"/projects/{created['project']['id']}/branches"
    timeline = created["branch"]["timeline_id"]
    for keeper in weir.storage.keepers[:2]:
        keeper[timeline]["flush_lsn"] = keeper[timeline]["commit_lsn"] = "0/1900000"
    made = await weir.call("POST", path, 201, json={"branch": {"name": "head"}})
    assert parse_lsn(made["branch"]["parent_lsn"]) >= parse_lsn("0/1900000")
    # What is committed later is not part of it.
    weir.storage.advance(timeline, "0/F000000")
    await weir.finish(made)
    assert weir.storage.timelines[made["branch"]["timeline_id"]]["ancestor_lsn"] == made["branch"]["parent_lsn"]


async def test_a_branch_of_the_head_is_refused_while_nobody_knows_what_is_committed(weir: Weir) -> None:
    created = await weir.project(name="in the dark")
    project, timeline = created["project"]["id"], created["branch"]["timeline_id"]
    endpoint = created["endpoints"][0]["id"]
    await weir.finish(await weir.call("POST", f"/projects/{project}/endpoints/{endpoint}/suspend"))
    logs = [keeper.pop(timeline) for keeper in weir.storage.keepers if timeline in keeper]
    refused = await weir.call("POST", f"/projects/{project}/branches", 503, json={"branch": {"name": "head"}})
    assert created["branch"]["id"] in refused["message"]
    assert "try again" in refused["message"]
    for keeper, log in zip(weir.storage.keepers, logs, strict=False):
        keeper[timeline] = log
    await weir.finish(
        await weir.call("POST", f"/projects/{project}/branches", 201, json={"branch": {"name": "head"}})
    )
