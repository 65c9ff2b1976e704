"""Roles, passwords, databases and connection strings."""

import base64
import hashlib
import hmac
from typing import Any
from urllib.parse import quote

import pytest
import pytest_asyncio
from sqlalchemy import select
from starlette.types import Receive, Scope, Send
from weir_testing.fixtures import Weir

from weir.databases.models import Role
from weir.kit import crypto
from weir.kit.path_names import PathNames


def test_the_verifier_is_the_one_of_rfc_5803() -> None:
    """Recomputed here from the definition: what Postgres checks a login against."""
    salt = bytes(range(16))
    verifier = crypto.scram_verifier("pencil", salt)
    mechanism, iterations_salt, keys = verifier.split("$")
    assert mechanism == "SCRAM-SHA-256"
    assert iterations_salt == f"4096:{base64.b64encode(salt).decode()}"
    salted = hashlib.pbkdf2_hmac("sha256", b"pencil", salt, 4096)
    stored = hashlib.sha256(hmac.new(salted, b"Client Key", "sha256").digest()).digest()
    server = hmac.new(salted, b"Server Key", "sha256").digest()
    assert keys == f"{base64.b64encode(stored).decode()}:{base64.b64encode(server).decode()}"


async def test_passwords_are_encrypted_at_rest_and_can_be_revealed(weir: Weir) -> None:
    created = await weir.project(name="secrets")
    branch = created["branch"]["id"]
    password = created["roles"][0]["password"]
    async with weir.resources.database.transaction() as session:
        role = (await session.scalars(select(Role).where(Role.branch_id == branch))).one()
    assert password.encode() not in role.password_sealed
    assert password not in role.scram_verifier
    path = f"/projects/{created['project']['id']}/branches/{branch}/roles"
    assert (await weir.call("GET", f"{path}/app_owner/reveal_password"))["password"] == password
    assert (await weir.call("GET", path))["roles"][0]["password"] is None
    assert password in created["connection_uris"][0]["connection_uri"]


async def test_new_roles_databases_and_passwords_reach_the_compute(weir: Weir) -> None:
    created = await weir.project(name="more")
    project, branch, ident = created["project"]["id"], created["branch"]["id"], created["endpoints"][0]["id"]
    base = f"/projects/{project}/branches/{branch}"
    made = await weir.call("POST", f"{base}/roles", 201, json={"role": {"name": "reporter"}})
    assert made["role"]["password"]
    await weir.finish(made)
    body = {"database": {"name": "reports", "owner_name": "reporter"}}
    await weir.finish(await weir.call("POST", f"{base}/databases", 201, json=body))
    spec = weir.resources.runtime.spec(ident)
    assert spec is not None
    assert [role["name"] for role in spec["roles"]] == ["app_owner", "reporter"]
    assert {"name": "reports", "owner": "reporter"} in spec["databases"]

    before = spec["roles"][1]["password"]
    reset = await weir.call("POST", f"{base}/roles/reporter/reset_password")
    await weir.finish(reset)
    assert reset["role"]["password"] != made["role"]["password"]
    spec = weir.resources.runtime.spec(ident)
    assert spec is not None
    assert spec["roles"][1]["password"] != before

    query = {"database_name": "reports", "role_name": "reporter"}
    uri = (await weir.call("GET", f"/projects/{project}/connection_uri", params=query))["uri"]
    assert (
        uri
        == f"postgresql://reporter:{reset['role']['password']}@127.0.0.1:{created['endpoints'][0]['port']}/reports"
    )


async def test_names_that_urls_must_escape_survive_the_connection_string(weir: Weir) -> None:
    created = await weir.project(name="odd", branch={"role_name": "o'brien@x", "database_name": "a/b c"})
    uri = created["connection_uris"][0]["connection_uri"]
    assert "//o%27brien%40x:" in uri
    assert uri.endswith("/a%2Fb%20c")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def odd(weir: Weir) -> str:
    """The path of a branch for names of all kinds."""
    created = await weir.project(name="names")
    return f"/projects/{created['project']['id']}/branches/{created['branch']['id']}"


@pytest.mark.parametrize("name", ["a/b", "50%2F", "%", "a/../b", "ä/ ?#&", "reveal_password"])
async def test_roles_and_databases_are_reached_by_any_name_they_can_have(weir: Weir, odd: str, name: str) -> None:
    """A client encodes the name as one part of the path: a slash in it divides nothing."""
    for kind, one, fields in (("roles", "role", {}), ("databases", "database", {"owner_name": "app_owner"})):
        await weir.finish(await weir.call("POST", f"{odd}/{kind}", 201, json={one: {"name": name, **fields}}))
        there = f"{odd}/{kind}/{quote(name, safe='')}"
        assert (await weir.call("GET", there))[one]["name"] == name
        if kind == "roles":
            assert (await weir.call("GET", f"{there}/reveal_password"))["password"]
            reset = await weir.call("POST", f"{there}/reset_password")
            assert reset["role"]["name"] == name
            await weir.finish(reset)
        await weir.finish(await weir.call("DELETE", there))
        assert name not in [row["name"] for row in (await weir.call("GET", f"{odd}/{kind}"))[kind]]


@pytest.mark.parametrize(
    ("raw", "path"),
    [
        (b"/api/v2/roles/a%2Fb/reveal", "/api/v2/roles/a%2Fb/reveal"),
        (b"/api/v2/roles/a%252Fb", "/api/v2/roles/a%252Fb"),
        (b"/api/v2/roles/%C3%A4%20", "/api/v2/roles/\u00e4 "),
        (b"/api/v2/roles/%FF?x=%2F", "/api/v2/roles/\ufffd"),
        # What is not the API's is as the server has decoded it.
        (b"/assets/a%2Fb", "as it was"),
        (b"/api/v2/roles/plain", "as it was"),
    ],
)
async def test_a_part_of_a_path_stays_one_part(raw: bytes, path: str) -> None:
    seen: list[str] = []

    async def app(scope: Scope, _receive: Receive, _send: Send) -> None:
        seen.append(scope["path"])

    async def nothing(*_: object) -> Any:
        raise AssertionError("nobody reads or writes here")

    given = {"type": "http", "path": "as it was", "raw_path": raw}
    await PathNames(app)(given, nothing, nothing)
    assert seen == [path]
    assert given["path"] == "as it was"
