"""Who may come in, and that nothing of a key is kept but its hash."""

import httpx
import pytest
from fastapi.routing import APIRoute, iter_route_contexts
from sqlalchemy import select
from weir_testing.fixtures import Weir

from weir.identity.models import ApiKey
from weir.kit.crypto import hash_token
from weir.main import create_app

OPEN = {
    ("POST", "/api/v2/auth/session"),
    ("DELETE", "/api/v2/auth/session"),
    ("POST", "/api/v2/auth/sign_in"),
    ("GET", "/api/v2/auth/providers"),
    ("GET", "/api/v2/auth/oidc/{provider_id}/start"),
    ("GET", "/api/v2/auth/oidc/{provider_id}/callback"),
    ("POST", "/api/v2/auth/oidc/{provider_id}/backchannel-logout"),
    ("POST", "/api/v2/invitations/accept"),
}


def _routes() -> list[tuple[str, str]]:
    paths = create_app().openapi()["paths"]
    return sorted((method.upper(), path) for path, methods in paths.items() for method in methods)


@pytest.mark.parametrize(("method", "path"), [route for route in _routes() if route not in OPEN])
async def test_every_route_wants_a_key(weir: Weir, method: str, path: str) -> None:
    concrete = path
    uuids = "operation_id org_id organization_id member_id session_id invitation_id request_id permission_id"
    for name in uuids.split():
        concrete = concrete.replace(f"{{{name}}}", "00000000-0000-0000-0000-000000000000")
    names = (
        "project_id branch_id endpoint_id rollout_id role_name database_name snapshot_id offered_project_id jwks_id"
    )
    for name in names.split():
        concrete = concrete.replace(f"{{{name}}}", "some-id")
    concrete = concrete.replace("{key_id}", "1")
    async with httpx.AsyncClient(base_url=weir.url) as stranger:
        response = await stranger.request(method, concrete, json={})
    assert response.status_code == 401
    assert set(response.json()) == {"request_id", "code", "message"}


def test_no_route_below_the_api_escapes_the_list() -> None:
    app = create_app()
    documented = {path for _, path in _routes()}
    found = {
        str(route.path)
        for route in iter_route_contexts(app.routes)
        if isinstance(route.original_route, APIRoute) and str(route.path).startswith("/api")
    }
    assert found == documented


async def test_a_wrong_key_is_refused(weir: Weir) -> None:
    response = await weir.client.get("/api/v2/projects", headers={"Authorization": "Bearer weir_wrong"})
    assert response.status_code == 401
    assert response.json()["code"] == "UNAUTHORIZED"


async def test_keys_are_made_used_revoked_and_kept_as_hashes(weir: Weir) -> None:
    made = await weir.call("POST", "/api_keys", json={"key_name": "ci"})
    async with weir.resources.database.transaction() as session:
        row = (await session.scalars(select(ApiKey).where(ApiKey.id == made["id"]))).one()
    assert row.key_hash == hash_token(made["key"])
    assert made["key"].encode() not in row.key_hash

    headers = {"Authorization": f"Bearer {made['key']}"}
    assert (await weir.client.get("/api/v2/users/me", headers=headers)).status_code == 200
    listed = await weir.call("GET", "/api_keys")
    assert "ci" in [item["name"] for item in listed]
    assert all("key" not in item for item in listed)

    revoked = await weir.call("DELETE", f"/api_keys/{made['id']}")
    assert revoked["revoked"]
    assert (await weir.client.get("/api/v2/users/me", headers=headers)).status_code == 401


async def test_a_key_cannot_revoke_itself(weir: Weir) -> None:
    made = await weir.call("POST", "/api_keys", json={"key_name": "self"})
    headers = {"Authorization": f"Bearer {made['key']}"}
    response = await weir.client.delete(f"/api/v2/api_keys/{made['id']}", headers=headers)
    assert response.status_code == 400


async def test_the_console_signs_in_and_out_with_a_cookie_scripts_cannot_read(weir: Weir) -> None:
    async with httpx.AsyncClient(base_url=weir.url) as browser:
        signed_in = await browser.post("/api/v2/auth/session", json={"api_key": weir.api_key})
        assert signed_in.status_code == 204
        cookie = signed_in.headers["set-cookie"].lower()
        assert "httponly" in cookie
        assert "samesite=lax" in cookie
        assert (await browser.get("/api/v2/auth/session")).json()["user"]["name"] == "admin"
        assert (await browser.get("/api/v2/projects")).status_code == 200

        foreign = {"Origin": "https://elsewhere.example"}
        assert (await browser.post("/api/v2/api_keys", json={"key_name": "x"}, headers=foreign)).status_code == 403

        token = browser.cookies["weir_session"]
        assert (await browser.delete("/api/v2/auth/session")).status_code == 204
        browser.cookies.set("weir_session", token)
        assert (await browser.get("/api/v2/projects")).status_code == 401


async def test_a_wrong_key_opens_no_session(weir: Weir) -> None:
    async with httpx.AsyncClient(base_url=weir.url) as browser:
        assert (await browser.post("/api/v2/auth/session", json={"api_key": "nope"})).status_code == 401
        assert not browser.cookies


async def test_every_change_leaves_a_line_in_the_audit_log(weir: Weir) -> None:
    created = await weir.project(name="audited")
    ident = created["project"]["id"]
    await weir.call("PATCH", f"/projects/{ident}", json={"project": {"name": "renamed"}})
    entries = (await weir.call("GET", "/audit", params={"project_id": ident}))["entries"]
    assert [entry["action"] for entry in entries] == ["project.update", "project.create"]
    assert all(entry["actor"] == "admin" and entry["request_id"] for entry in entries)
    first = await weir.call("GET", "/audit", params={"project_id": ident, "limit": 1})
    rest = await weir.call(
        "GET", "/audit", params={"project_id": ident, "limit": 1, "cursor": first["pagination"]["cursor"]}
    )
    assert [entry["action"] for entry in rest["entries"]] == ["project.create"]
