"""The default branch, branches that expire, and what clients send back unchanged."""

from datetime import datetime, timedelta
from typing import Any

import httpx
import pytest
from weir_testing.fixtures import Weir

from weir.kit.clock import now
from weir_workflows.reconciler.expiry import delete_expired


async def _family(weir: Weir, name: str) -> tuple[str, str, str]:
    """Project, main branch, and one of it."""
    created = await weir.project(name=name)
    project, main = created["project"]["id"], created["branch"]["id"]
    weir.storage.advance(created["branch"]["timeline_id"], "0/2000000")
    made = await weir.call("POST", f"/projects/{project}/branches", 201, json={"branch": {"name": "dev"}})
    await weir.finish(made)
    return project, main, made["branch"]["id"]


async def _branch(weir: Weir, project: str, ident: str) -> dict[str, Any]:
    return (await weir.call("GET", f"/projects/{project}/branches/{ident}"))["branch"]


async def test_the_default_moves_and_the_one_before_may_go(weir: Weir) -> None:
    project, main, dev = await _family(weir, "default")
    path = f"/projects/{project}/branches"
    for _ in range(2):
        answer = await weir.call("POST", f"{path}/{dev}/set_as_default")
        assert (answer["branch"]["id"], answer["branch"]["default"], answer["operations"]) == (dev, True, [])
    assert not (await _branch(weir, project, main))["default"]
    assert "default" in (await weir.call("DELETE", f"{path}/{dev}", 400))["message"]
    # A branch of no named parent is one of the new default.
    made = await weir.call("POST", path, 201, json={"branch": {"name": "of-dev"}})
    await weir.finish(made)
    assert made["branch"]["parent_id"] == dev
    # What was the default keeps its data while it has branches, like any other.
    assert dev in (await weir.call("DELETE", f"{path}/{main}", 412))["message"]
    # Protection is another matter.
    await weir.call("PATCH", f"{path}/{main}", json={"branch": {"protected": True}})
    assert (await weir.call("POST", f"{path}/{main}/set_as_default"))["branch"]["protected"]
    await weir.call("POST", f"{path}/br-never-there-00000000/set_as_default", 404)


async def test_a_branch_goes_when_it_expires_and_not_before(weir: Weir) -> None:
    project, _, dev = await _family(weir, "expires")
    path = f"/projects/{project}/branches"
    at = (now() + timedelta(hours=1)).replace(microsecond=0)
    shown = await weir.call("PATCH", f"{path}/{dev}", json={"branch": {"expires_at": at.isoformat()}})
    assert shown["branch"]["expires_at"] == at.isoformat().replace("+00:00", "Z")
    lifetime = at - datetime.fromisoformat(shown["branch"]["created_at"])
    assert shown["branch"]["ttl_interval_seconds"] == round(lifetime.total_seconds())
    assert "expires" in (await weir.call("POST", f"{path}/{dev}/set_as_default", 412))["message"]
    assert "expires" in (await weir.call("POST", path, 412, json={"branch": {"parent_id": dev}}))["message"]
    assert (
        "clear one of the two"
        in (await weir.call("PATCH", f"{path}/{dev}", 412, json={"branch": {"protected": True}}))["message"]
    )

    assert dev not in await delete_expired(weir.resources, at - timedelta(seconds=1))
    # A change of something else leaves it, and null takes it back.
    assert (await weir.call("PATCH", f"{path}/{dev}", json={"branch": {"name": "dev2"}}))["branch"]["expires_at"]
    cleared = await weir.call("PATCH", f"{path}/{dev}", json={"branch": {"expires_at": None}})
    assert cleared["branch"]["expires_at"] is None
    assert dev not in await delete_expired(weir.resources, at + timedelta(days=1))

    made = await weir.call("POST", path, 201, json={"branch": {"name": "ci", "expires_at": at.isoformat()}})
    await weir.finish(made)
    assert made["branch"]["id"] in await delete_expired(weir.resources, at)

    async def gone() -> bool:
        return (await weir.client.get(f"/api/v2{path}/{made['branch']['id']}")).status_code == 404

    await weir.wait(gone)
    listed = (await weir.call("GET", f"/projects/{project}/operations"))["operations"]
    assert "delete_timeline" in [row["action"] for row in listed]


async def test_what_may_not_be_deleted_cannot_expire(weir: Weir) -> None:
    project, main, dev = await _family(weir, "stays")
    path = f"/projects/{project}/branches"
    body = {"branch": {"expires_at": (now() + timedelta(hours=1)).isoformat()}}
    assert "default" in (await weir.call("PATCH", f"{path}/{main}", 412, json=body))["message"]
    past = {"branch": {"expires_at": (now() - timedelta(seconds=1)).isoformat()}}
    assert "in the past" in (await weir.call("PATCH", f"{path}/{dev}", 400, json=past))["message"]
    child = await weir.call("POST", path, 201, json={"branch": {"name": "child", "parent_id": dev}})
    await weir.finish(child)
    assert child["branch"]["id"] in (await weir.call("PATCH", f"{path}/{dev}", 412, json=body))["message"]
    await weir.call("PATCH", f"{path}/{child['branch']['id']}", json={"branch": {"protected": True}})
    protected = await weir.call("PATCH", f"{path}/{child['branch']['id']}", 412, json=body)
    assert "protected" in protected["message"]


async def test_the_clocks_hand_does_not_delete_what_became_the_default_or_a_parent(weir: Weir) -> None:
    """By a restore, say, which makes a branch of an expiring one: the row is the last word, not what was checked."""
    project, main, dev = await _family(weir, "became")
    path = f"/projects/{project}/branches"
    at = now() + timedelta(hours=1)
    await weir.call("PATCH", f"{path}/{dev}", json={"branch": {"expires_at": at.isoformat()}})
    other = await weir.call("POST", path, 201, json={"branch": {"name": "other", "parent_id": main}})
    await weir.finish(other)
    restored = await weir.call("POST", f"{path}/{other['branch']['id']}/restore", json={"source_branch_id": dev})
    await weir.finish(restored)
    after = await _branch(weir, project, other["branch"]["id"])
    assert after["parent_id"] == dev
    assert after["last_reset_at"] is not None
    assert dev not in await delete_expired(weir.resources, at + timedelta(days=1))


async def test_empty_texts_are_fields_left_out(weir: Weir) -> None:
    """The community Terraform provider sends one for each optional text that is not set."""
    project, main, _ = await _family(weir, "empty")
    body = {"branch": {"name": "", "parent_id": "", "parent_lsn": "", "parent_timestamp": "", "init_source": ""}}
    made = await weir.call("POST", f"/projects/{project}/branches", 201, json=body)
    await weir.finish(made)
    assert (made["branch"]["parent_id"], made["branch"]["name"]) == (main, made["branch"]["id"])
    endpoint = {
        "branch_id": made["branch"]["id"], "type": "read_write", "region_id": "", "provisioner": "", "name": "",
        "disabled": False, "pooler_mode": "",
    }  # fmt: skip
    started = await weir.call("POST", f"/projects/{project}/endpoints", 201, json={"endpoint": endpoint})
    await weir.finish(started)
    # Where a text is needed an empty one is still none.
    await weir.call("POST", f"/projects/{project}/endpoints", 400, json={"endpoint": endpoint | {"branch_id": ""}})
    await weir.finish(await weir.call("DELETE", f"/projects/{project}/endpoints/{started['endpoint']['id']}"))


@pytest.mark.parametrize(
    ("sent", "refused"),
    [
        ({}, None),
        ({"autoscaling_limit_min_cu": 1.0, "autoscaling_limit_max_cu": 1}, None),
        ({"autoscaling_limit_min_cu": 0, "suspend_timeout_seconds": -1}, None),
        ({"autoscaling_limit_max_cu": 4}, "autoscaling_limit_max_cu 4: computes do not change their size here"),
        ({"suspend_timeout_seconds": 0}, None),
    ],
)
async def test_an_endpoint_sent_back_as_it_was_read_changes_nothing(
    weir: Weir, sent: dict[str, Any], refused: str | None
) -> None:
    projects = [row["id"] for row in await weir.projects() if row["name"] == "echo"]
    project = projects[0] if projects else (await weir.project(name="echo"))["project"]["id"]
    before = (await weir.call("GET", f"/projects/{project}/endpoints"))["endpoints"][0]
    names = (
        "branch_id", "autoscaling_limit_min_cu", "autoscaling_limit_max_cu", "provisioner", "pooler_enabled",
        "pooler_mode", "disabled", "passwordless_access", "suspend_timeout_seconds", "settings", "name",
        "prewarm",
    )  # fmt: skip
    body = {"endpoint": {name: before[name] for name in names} | sent}
    path = f"/projects/{project}/endpoints/{before['id']}"
    answer = await weir.call("PATCH", path, 400 if refused else 200, json=body)
    if refused:
        assert answer["code"] == "NOT_SUPPORTED"
        assert refused in answer["message"]
    else:
        assert answer["operations"] == []


async def test_read_only_computes_and_branches_without_rows_are_refused_with_the_reason(weir: Weir) -> None:
    project, main, _ = await _family(weir, "refused")

    async def refusal(path: str, body: dict[str, Any]) -> str:
        response: httpx.Response = await weir.client.post(f"/api/v2/projects/{project}/{path}", json=body)
        assert (response.status_code, response.json()["code"]) == (400, "NOT_SUPPORTED")
        return response.json()["message"]

    endpoint = {"endpoint": {"branch_id": main, "type": "read_only"}}
    assert "no other can follow it; make a branch" in await refusal("endpoints", endpoint)
    assert "make a branch" in await refusal("branches", {"endpoints": [{"type": "read_only"}]})
    schema_only = {"branch": {"init_source": "schema-only"}}
    assert "has no way to leave the rows behind" in await refusal("branches", schema_only)
