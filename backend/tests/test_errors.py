"""Bad requests get the documented error and change nothing."""

from typing import Any

import pytest
import pytest_asyncio
from sqlalchemy import func, select, text
from weir_testing.fixtures import Weir

from weir.models import Base

UNKNOWN = "no-such-thing"
NO_OPERATION = "00000000-0000-0000-0000-000000000000"


async def _everything(weir: Weir) -> dict[str, int]:
    """Row counts and last changes of every table but the ones that reading writes."""
    async with weir.resources.database.transaction() as session:
        counts: dict[str, int] = {}
        for table in Base.metadata.sorted_tables:
            # What the API writes by itself: when a key was used last, sessions that end, seals of the audit log.
            if table.name in {"api_keys", "console_sessions", "audit_pending", "audit_seals"}:
                continue
            rows = await session.execute(
                select(func.count(), func.max(text("xmin::text::bigint"))).select_from(table)
            )
            counts[table.name], newest = rows.one()
            counts[f"{table.name}.newest"] = newest or 0
        return counts


@pytest_asyncio.fixture(name="shop", scope="module", loop_scope="session")
async def _shop(weir: Weir) -> dict[str, Any]:
    return await weir.project(name="errors")


async def _refused(weir: Weir, method: str, path: str, status: int, code: str, **arguments: Any) -> str:
    before = await _everything(weir)
    response = await weir.client.request(method, "/api/v2" + path, **arguments)
    body = response.json()
    assert (response.status_code, body["code"]) == (status, code), body
    assert set(body) == {"request_id", "code", "message"}
    assert body["request_id"] == response.headers["x-request-id"]
    assert await _everything(weir) == before
    return body["message"]


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", f"/projects/{UNKNOWN}", None),
        ("PATCH", f"/projects/{UNKNOWN}", {"project": {"name": "x"}}),
        ("DELETE", f"/projects/{UNKNOWN}", None),
        ("GET", f"/projects/{UNKNOWN}/operations", None),
        ("GET", f"/projects/{UNKNOWN}/branches", None),
        ("POST", f"/projects/{UNKNOWN}/branches", {}),
        ("GET", f"/projects/{UNKNOWN}/endpoints", None),
        ("GET", f"/computes/{UNKNOWN}", None),
        ("GET", f"/computes/{UNKNOWN}/metrics", None),
        ("GET", f"/rollouts/{UNKNOWN}", None),
        ("GET", f"/rollouts/{UNKNOWN}/audit", None),
        ("POST", f"/rollouts/{UNKNOWN}/pause", None),
        ("POST", "/rollouts", {"selector": {"project_ids": [UNKNOWN]}}),
        ("GET", "/projects/SHOP/branches/" + UNKNOWN, None),
        ("DELETE", "/projects/SHOP/branches/" + UNKNOWN, None),
        ("POST", "/projects/SHOP/branches", {"branch": {"parent_id": UNKNOWN}}),
        ("GET", "/projects/SHOP/branches/BRANCH/roles/nobody", None),
        ("GET", "/projects/SHOP/branches/BRANCH/databases/nothing", None),
        ("GET", f"/projects/SHOP/endpoints/{UNKNOWN}", None),
        ("POST", f"/projects/SHOP/endpoints/{UNKNOWN}/start", None),
        ("POST", f"/projects/SHOP/endpoints/{UNKNOWN}/suspend", None),
        ("GET", f"/projects/SHOP/operations/{NO_OPERATION}", None),
        ("POST", "/projects/SHOP/branches/BRANCH/databases", {"database": {"name": "x", "owner_name": "nobody"}}),
    ],
)
async def test_unknown_ids_are_404(weir: Weir, shop: dict[str, Any], method: str, path: str, body: Any) -> None:
    path = path.replace("SHOP", shop["project"]["id"]).replace("BRANCH", shop["branch"]["id"])
    await _refused(weir, method, path, 404, "NOT_FOUND", json=body)


async def test_an_unknown_path_is_404_in_the_same_shape(weir: Weir) -> None:
    await _refused(weir, "GET", "/nothing/here", 404, "NOT_FOUND")


async def test_a_wrong_method_is_405_in_the_same_shape(weir: Weir) -> None:
    await _refused(weir, "PUT", "/projects", 405, "METHOD_NOT_ALLOWED")


@pytest.mark.parametrize(
    ("path", "body", "names"),
    [
        ("/projects", {"project": {"name": 7}}, "project.name"),
        ("/projects", {"project": {"name": "x" * 300}}, "project.name"),
        ("/projects", {}, "project"),
        ("/projects", {"project": {"history_retention_seconds": -1}}, "history_retention_seconds"),
        ("/projects", {"project": {"history_retention_seconds": 30 * 86_400 + 1}}, "less than or equal to 2592000"),
        ("/projects", {"project": {"region_id": "mars-1"}}, "region mars-1"),
        ("/projects", {"project": {"branch": {"role_name": "postgres"}}}, "reserved"),
        ("/projects", {"project": {"branch": {"database_name": "template1"}}}, "reserved"),
        ("/projects/SHOP/branches", {"branch": {"parent_lsn": "zebra"}}, "is not an LSN"),
        ("/projects/SHOP/branches", {"branch": {"parent_lsn": "0/123456789"}}, "is not an LSN"),
        ("/projects/SHOP/branches", {"branch": {"parent_lsn": "FF/0"}}, "is ahead of branch"),
        ("/projects/SHOP/branches", {"branch": {"parent_lsn": "0/1"}}, "is before the history of branch"),
        ("/projects/SHOP/branches", {"branch": {"parent_timestamp": "2999-01-01T00:00:00Z"}}, "in the future"),
        ("/projects/SHOP/branches", {"branch": {"parent_timestamp": "2020-01-01T00:00:00"}}, "parent_timestamp"),
        ("/projects/SHOP/endpoints", {"endpoint": {"branch_id": "BRANCH", "type": "both"}}, "endpoint.type"),
        ("/projects/SHOP/endpoints", {"endpoint": {"type": "read_write"}}, "endpoint.branch_id"),
        ("/rollouts", {"feature": "teleport"}, "feature"),
        ("/rollouts", {"strategy": {"waves": []}}, "strategy.waves"),
        ("/rollouts", {"strategy": {"waves": [{"count": 1, "percent": 5}]}}, "one of the two"),
        ("/rollouts", {"strategy": {"baseline_seconds": "soon"}}, "baseline_seconds"),
    ],
)
async def test_requests_that_are_not_valid_are_400_and_name_the_field(
    weir: Weir, shop: dict[str, Any], path: str, body: Any, names: str
) -> None:
    def fill(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: fill(item) for key, item in value.items()}
        return shop["branch"]["id"] if value == "BRANCH" else value

    path = path.replace("SHOP", shop["project"]["id"])
    message = await _refused(weir, "POST", path, 400, "BAD_REQUEST", json=fill(body))
    assert names in message


@pytest.mark.parametrize("query", ["limit=0", "limit=1000", "limit=x", "cursor=gibberish", "cursor=W10%3D"])
async def test_bad_pages_are_400(weir: Weir, query: str) -> None:
    await _refused(weir, "GET", f"/projects?{query}", 400, "BAD_REQUEST")


async def test_bad_ids_are_400(weir: Weir) -> None:
    await _refused(weir, "GET", "/projects/UPPER_case", 400, "BAD_REQUEST")
    await _refused(weir, "GET", "/projects/a/operations/not-a-uuid", 400, "BAD_REQUEST")


@pytest.mark.parametrize(
    ("path", "body", "what"),
    [
        ("/projects", {"project": {"pg_version": 17}}, "Postgres 17"),
        ("/projects", {"project": {"settings": {"enable_logical_replication": True}}}, "logical replication"),
        ("/projects", {"project": {"settings": {"allowed_ips": {"ips": ["1.2.3.4"]}}}}, "allowed_ips"),
        ("/projects", {"project": {"autoscaling_limit_max_cu": 4}}, "autoscaling"),
        ("/projects/SHOP/endpoints", {"endpoint": {"branch_id": "BRANCH", "type": "read_only"}}, "read-only"),
        (
            "/projects/SHOP/branches",
            {"endpoints": [{"type": "read_write", "pooler_enabled": True}]},
            "pooling",
        ),
        ("/projects/SHOP/branches", {"endpoints": [{"type": "read_only"}]}, "read-only"),
        ("/projects/SHOP/branches", {"branch": {"init_source": "schema-only"}}, "schema-only"),
        ("/projects/SHOP/branches/BRANCH/roles", {"role": {"name": "r", "no_login": True}}, "without login"),
    ],
)
async def test_what_is_not_built_is_refused_with_the_reason(
    weir: Weir, shop: dict[str, Any], path: str, body: Any, what: str
) -> None:
    if "endpoint" in body:
        body = {"endpoint": body["endpoint"] | {"branch_id": shop["branch"]["id"]}}
    path = path.replace("SHOP", shop["project"]["id"]).replace("BRANCH", shop["branch"]["id"])
    assert what in await _refused(weir, "POST", path, 400, "NOT_SUPPORTED", json=body)


async def test_names_that_are_taken_are_409(weir: Weir, shop: dict[str, Any]) -> None:
    base = f"/projects/{shop['project']['id']}/branches"
    branch = shop["branch"]["id"]
    await _refused(weir, "POST", base, 409, "CONFLICT", json={"branch": {"name": "main"}})
    await _refused(weir, "POST", f"{base}/{branch}/roles", 409, "CONFLICT", json={"role": {"name": "app_owner"}})
    body = {"database": {"name": "appdb", "owner_name": "app_owner"}}
    await _refused(weir, "POST", f"{base}/{branch}/databases", 409, "CONFLICT", json=body)
    endpoint = {"endpoint": {"branch_id": branch, "type": "read_write"}}
    path = f"/projects/{shop['project']['id']}/endpoints"
    assert "at most one" in await _refused(weir, "POST", path, 409, "CONFLICT", json=endpoint)


async def test_settings_that_belong_to_weir_are_refused(weir: Weir, shop: dict[str, Any]) -> None:
    path = f"/projects/{shop['project']['id']}/endpoints/{shop['endpoints'][0]['id']}"
    for name in ("full_page_writes", "wal_level", "synchronous_standby_names", "port", "fsync", "lc_messages"):
        body = {"endpoint": {"settings": {"pg_settings": {name: "x"}}}}
        assert name in await _refused(weir, "PATCH", path, 400, "BAD_REQUEST", json=body)
    refused = (
        ("ssl_passphrase_command", "x"), ("jit_provider", "x"), ("local_preload_libraries", "x"),
        ("dynamic_library_path", "x"), ("archive_cleanup_command", "x"), ("recovery_end_command", "x"),
        ("include", "x"), ("log_directory", "x"), ("shared_buffers", "64GB"), ("nonsense", "1"), ("work_mem", "lots"),
        ("search_path", "a\nfsync = off"), ("search_path", "\x00"), ("work_mem", None), ("work_mem", {"a": 1}),
    )  # fmt: skip
    before = (await weir.call("GET", path))["endpoint"]
    for name, value in refused:
        body = {"endpoint": {"name": "renamed", "settings": {"pg_settings": {"jit": "off", name: value}}}}
        assert name in await _refused(weir, "PATCH", path, 400, "BAD_REQUEST", json=body)
        body = {"project": {"default_endpoint_settings": {"pg_settings": {name: value}}}}
        project = f"/projects/{shop['project']['id']}"
        assert name in await _refused(weir, "PATCH", project, 400, "BAD_REQUEST", json=body)
    assert (await weir.call("GET", path))["endpoint"] == before, "nothing is changed"
    body = {"endpoint": {"settings": {"pg_settings": {"work_mem": "1MB", "WORK_MEM": "2MB"}}}}
    assert "twice" in await _refused(weir, "PATCH", path, 400, "BAD_REQUEST", json=body)
    body = {"endpoint": {"settings": {"pg_settings": {"log_min_messages": "Error"}}}}
    assert "unconfirmed commits" in await _refused(weir, "PATCH", path, 400, "BAD_REQUEST", json=body)
    body = {"endpoint": {"settings": {"pg_settings": {"work_mem; DROP": "x"}}}}
    await _refused(weir, "PATCH", path, 400, "BAD_REQUEST", json=body)
