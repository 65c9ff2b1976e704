"""Creating, reading and deleting projects through the public API."""

from weir_testing.fixtures import Weir


async def test_a_new_project_comes_with_all_that_is_needed_to_connect(weir: Weir) -> None:
    created = await weir.call("POST", "/projects", 201, json={"project": {"name": "shop"}})
    project, endpoint = created["project"], created["endpoints"][0]
    assert project["name"] == "shop"
    assert project["pg_version"] == 15
    assert created["branch"]["name"] == "main"
    assert created["branch"]["default"]
    assert [role["name"] for role in created["roles"]] == ["app_owner"]
    assert [row["name"] for row in created["databases"]] == ["appdb"]
    assert endpoint["type"] == "read_write"
    uri = created["connection_uris"][0]["connection_uri"]
    assert uri.startswith("postgresql://app_owner:")
    assert uri.endswith(f"@127.0.0.1:{endpoint['port']}/appdb")
    assert [item["action"] for item in created["operations"]] == ["create_timeline", "start_compute"]

    await weir.finish(created)
    found = await weir.call("GET", f"/projects/{project['id']}/endpoints/{endpoint['id']}")
    assert found["endpoint"]["current_state"] == "active"
    branch = await weir.call("GET", f"/projects/{project['id']}/branches/{created['branch']['id']}")
    assert branch["branch"]["current_state"] == "ready"
    timeline = created["branch"]["timeline_id"]
    assert timeline in weir.storage.timelines
    assert [timeline in keeper for keeper in weir.storage.keepers] == [True, True, True, False, False]


async def test_a_busy_project_answers_423_and_takes_the_change_afterwards(weir: Weir) -> None:
    created = await weir.call("POST", "/projects", 201, json={"project": {"name": "busy"}})
    path = f"/projects/{created['project']['id']}"
    endpoint = f"{path}/endpoints/{created['endpoints'][0]['id']}"
    # The start that follows waits for the timeline, so the project is busy for certain.
    busy = await weir.call("POST", f"{endpoint}/start", 423)
    assert busy["code"] == "PROJECT_BUSY"
    assert created["operations"][0]["id"] in busy["message"] or created["operations"][1]["id"] in busy["message"]
    await weir.finish(created)
    again = await weir.call("POST", f"{endpoint}/start")
    assert again["operations"] == []
    renamed = await weir.call("PATCH", path, json={"project": {"name": "free"}})
    assert renamed["project"]["name"] == "free"


async def test_projects_page_without_skipping_or_repeating(weir: Weir) -> None:
    for index in range(3):
        await weir.call("POST", "/projects", 201, json={"project": {"name": f"page-{index}"}})
    seen: list[str] = []
    cursor = None
    while True:
        parameters = {"limit": 2, "search": "page-"} | ({"cursor": cursor} if cursor else {})
        page = await weir.call("GET", "/projects", params=parameters)
        seen += [item["name"] for item in page["projects"]]
        cursor = page["pagination"]["cursor"]
        if not cursor:
            break
    assert seen == ["page-2", "page-1", "page-0"]


async def test_deleting_a_project_ends_its_computes_and_its_storage(weir: Weir) -> None:
    created = await weir.project(name="doomed")
    project, endpoint = created["project"], created["endpoints"][0]["id"]
    process = weir.resources.runtime.process(endpoint)
    assert process is not None
    deleted = await weir.call("DELETE", f"/projects/{project['id']}")
    await weir.finish(deleted)
    await weir.call("GET", f"/projects/{project['id']}", 404)
    assert not process.alive()
    assert endpoint not in weir.resources.runtime.known()
    assert project["tenant_id"] not in weir.storage.tenants
    assert not any(created["branch"]["timeline_id"] in keeper for keeper in weir.storage.keepers)


async def test_a_project_whose_storage_refuses_it_is_undone(weir: Weir) -> None:
    weir.storage.fail("pageserver", "POST", "/timeline", 400)
    created = await weir.call("POST", "/projects", 201, json={"project": {"name": "unlucky"}})
    path = f"/projects/{created['project']['id']}"

    async def ended() -> list[str] | None:
        operations = (await weir.call("GET", f"{path}/operations"))["operations"]
        statuses = sorted(item["status"] for item in operations)
        return statuses if not {"running", "scheduling"} & set(statuses) else None

    assert await weir.wait(ended) == ["failed", "skipped"]
    await weir.call("GET", path, 404)
    assert created["project"]["tenant_id"] not in weir.storage.tenants
    operations = (await weir.call("GET", f"{path}/operations"))["operations"]
    errors = {item["status"]: item["error"] for item in operations}
    assert "a fault of the test" in errors["failed"]
