"""Roles, passwords, databases and connection strings."""

import base64
import hashlib
import hmac

from sqlalchemy import select
from weir_testing.fixtures import Weir

from weir.databases.models import Role
from weir.kit import crypto


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
