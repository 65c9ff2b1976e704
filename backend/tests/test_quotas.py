"""How much an account and a project may have.

Threats: creations at once of which each sees room for itself; ways to a thing that count nothing (a branch with a
compute, a restore, a client that wakes a compute); another account's quota; a limit that nobody learns the reason of.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator
from typing import Any
from unittest.mock import AsyncMock
from uuid import UUID

import pytest
import pytest_asyncio
from sqlalchemy import select, update
from weir_testing.fixtures import Weir, own_database

from weir.clients.connections import Connections
from weir.clients.pageserver import Pageserver
from weir.config import Settings, get_settings
from weir.db import Database
from weir.endpoints.models import Endpoint, EndpointState
from weir.errors import BadRequestError, NotFoundError, QuotaExceededError, UnavailableError
from weir.identity import service as identity
from weir.identity.models import ApiKey, AuditEntry
from weir.kit.clock import now
from weir.proxy import service as proxy
from weir.quotas import command, setting
from weir.quotas import service as quotas
from weir.quotas.measuring import measure
from weir.quotas.names import QuotaName, parse_defaults, parse_value

AT_ONCE = 24


async def _set(weir: Weir, name: str, value: str, *, account: str | None = None, project: str | None = None) -> str:
    async with weir.resources.database.transaction() as session:
        return await setting.change(session, account, project, name, value)


async def _quotas(weir: Weir, project: str | None = None) -> dict[str, dict[str, Any]]:
    found = await weir.call("GET", f"/projects/{project}/quotas" if project else "/quotas")
    return {row["name"]: row for row in found["quotas"]}


async def _at_once(weir: Weir, count: int, method: str, path: str, **arguments: Any) -> list[Any]:
    """So many requests at once; only a refusal by a quota, or a success, is an answer."""
    answers = await asyncio.gather(
        *(weir.client.request(method, f"/api/v2{path}", **arguments) for _ in range(count))
    )
    for answer in answers:
        assert answer.is_success or answer.json()["code"] in {"QUOTA_EXCEEDED", "PROJECT_BUSY"}, answer.text
    return [answer for answer in answers if answer.is_success]


@pytest_asyncio.fixture(name="tenant", scope="module", loop_scope="session")
async def _tenant(weir: Weir) -> AsyncGenerator[Weir]:
    """An account of these tests alone, with the operator's control plane."""
    async with weir.as_account("quota-tenant") as tenant:
        yield tenant
        await asyncio.gather(*(tenant.delete(project["id"]) for project in await tenant.projects()))


@pytest_asyncio.fixture(autouse=True, loop_scope="session")
async def _no_quota_left(tenant: Weir) -> AsyncGenerator[None]:
    yield
    for name in QuotaName:
        await _set(tenant, name, "default", account="quota-tenant")


async def test_keys_made_at_once_never_exceed_the_quota(tenant: Weir) -> None:
    await _set(tenant, "api_keys", "9", account="quota-tenant")
    before = len(await tenant.call("GET", "/api_keys"))
    made = await _at_once(tenant, AT_ONCE, "POST", "/api_keys", json={"key_name": "one of many"})
    assert len(made) == 9 - before
    assert (await _quotas(tenant))["api_keys"]["used"] == 9
    refused = await tenant.call("POST", "/api_keys", 403, json={"key_name": "x"})
    assert refused["code"] == "QUOTA_EXCEEDED"
    assert refused["message"] == (
        "account quota-tenant has 9 API keys, and its quota api_keys is 9: revoke one, or have the installation's "
        "operator raise it by `weir-admin quotas set --account quota-tenant api_keys NUMBER`"
    )
    for answer in made:
        await tenant.call("DELETE", f"/api_keys/{answer.json()['id']}")
    await tenant.call("POST", "/api_keys", json={"key_name": "room again"})


async def test_without_the_owners_lock_they_would(tenant: Weir, monkeypatch: pytest.MonkeyPatch) -> None:
    """That the test above can fail: with nobody locked, creations at once see the same room."""
    met = asyncio.Barrier(8)

    async def together(self: object, owner: object) -> None:
        await met.wait()

    monkeypatch.setattr("weir.quotas.service.QuotaRepository.lock", together)
    used = len(await tenant.call("GET", "/api_keys"))
    async with tenant.resources.database.transaction() as session:
        # Noting a key's use would have the requests wait for each other.
        await session.execute(update(ApiKey).values(last_used_at=now()))
    await _set(tenant, "api_keys", str(used + 1), account="quota-tenant")
    made = await _at_once(tenant, 8, "POST", "/api_keys", json={"key_name": "unlocked"})
    assert len(made) > 1
    for answer in made:
        await tenant.call("DELETE", f"/api_keys/{answer.json()['id']}")


async def test_projects_made_at_once_never_exceed_the_quota(tenant: Weir) -> None:
    await _set(tenant, "projects", "3", account="quota-tenant")
    before = len(await tenant.projects())
    made = await _at_once(tenant, 10, "POST", "/projects", json={"project": {}})
    assert len(made) == 3 - before
    assert len(await tenant.projects()) == 3
    refused = await tenant.call("POST", "/projects", 403, json={"project": {}})
    assert "has 3 projects, and its quota projects is 3: delete one" in refused["message"]
    await asyncio.gather(*(tenant.finish(answer.json()) for answer in made))


async def test_branches_made_at_once_never_exceed_the_quota_of_their_project(tenant: Weir) -> None:
    project = await tenant.project(name="branches")
    ident, main = project["project"]["id"], project["branch"]
    tenant.storage.advance(main["timeline_id"], "0/2000000")
    await _set(tenant, "branches", "3", project=ident)
    path = f"/projects/{ident}/branches"

    async def one() -> bool:
        """Repeated while the project is busy, as clients do, until it is made or refused."""
        while True:
            answer = await tenant.client.post(f"/api/v2{path}", json={})
            if answer.status_code != 423:
                assert answer.status_code == 201 or answer.json()["code"] == "QUOTA_EXCEEDED", answer.text
                return answer.is_success
            await asyncio.sleep(0.05)

    assert Counter(await asyncio.gather(*(one() for _ in range(6)))) == {True: 2, False: 4}
    assert len((await tenant.call("GET", path))["branches"]) == 3
    await tenant.idle(ident)
    # A restore makes a branch as well.
    body = {"source_branch_id": main["id"], "source_lsn": "0/1900000", "preserve_under_name": "before"}
    refused = await tenant.call("POST", f"{path}/{main['id']}/restore", 403, json=body)
    assert f"project {ident} has 3 branches" in refused["message"]
    assert f"--project {ident} branches" in refused["message"]
    rows = await _quotas(tenant, ident)
    assert (rows["branches"]["limit"], rows["branches"]["used"], rows["branches"]["per"]) == (3, 3, "project")


async def _idle_endpoints(tenant: Weir, count: int) -> list[tuple[str, str]]:
    """Suspended endpoints, each of a project of its own."""
    made = await asyncio.gather(*(tenant.project(name=f"compute-{n}") for n in range(count)))
    found = [(answer["project"]["id"], answer["endpoints"][0]["id"]) for answer in made]
    for project, endpoint in found:
        await tenant.finish(await tenant.call("POST", f"/projects/{project}/endpoints/{endpoint}/suspend"))
    return found


async def test_computes_started_at_once_in_many_projects_never_exceed_the_accounts_quota(tenant: Weir) -> None:
    running = (await _quotas(tenant))["computes"]["used"]
    endpoints = await _idle_endpoints(tenant, 4)
    assert (await _quotas(tenant))["computes"]["used"] == running
    await _set(tenant, "computes", str(running + 2), account="quota-tenant")
    answers = await asyncio.gather(
        *(tenant.client.post(f"/api/v2/projects/{p}/endpoints/{e}/start") for p, e in endpoints)
    )
    assert Counter(answer.status_code for answer in answers) == {200: 2, 403: 2}
    refused = next(answer.json() for answer in answers if answer.status_code == 403)
    assert "computes that run at once" in refused["message"]
    assert "suspend one" in refused["message"]
    for answer in answers:
        if answer.is_success:
            await tenant.finish(answer.json())
    started = [pair for pair, answer in zip(endpoints, answers, strict=True) if answer.is_success]
    waiting = [pair for pair, answer in zip(endpoints, answers, strict=True) if not answer.is_success]

    # No other way to a running compute: a client of the proxy, a new branch with one, a new project.
    with pytest.raises(UnavailableError, match="may not start: account quota-tenant has"):
        await proxy.wake(tenant.resources.database, waiting[0][1], 5)
    await tenant.call("POST", "/projects", 403, json={"project": {}})
    project = started[0][0]
    body = {"endpoints": [{"type": "read_write"}]}
    branches = (await tenant.call("GET", f"/projects/{project}/branches"))["branches"]
    tenant.storage.advance(branches[0]["timeline_id"], "0/2000000")
    assert (await tenant.call("POST", f"/projects/{project}/branches", 403, json=body))["code"] == "QUOTA_EXCEEDED"
    assert len((await tenant.call("GET", f"/projects/{project}/branches"))["branches"]) == 1

    # What runs may be restarted, also beyond a quota that was lowered since; then nothing starts.
    await _set(tenant, "computes", "0", account="quota-tenant")
    await tenant.finish(await tenant.call("POST", f"/projects/{project}/endpoints/{started[0][1]}/restart"))
    await tenant.finish(await tenant.call("POST", f"/projects/{project}/endpoints/{started[0][1]}/suspend"))
    await tenant.call("POST", f"/projects/{project}/endpoints/{started[0][1]}/start", 403)


async def test_units_of_compute_are_limited_by_project(tenant: Weir) -> None:
    [(project, endpoint)] = await _idle_endpoints(tenant, 1)
    await _set(tenant, "compute_units", "0", project=project)
    refused = await tenant.call("POST", f"/projects/{project}/endpoints/{endpoint}/start", 403)
    assert (
        f"project {project} has 0 compute units that run at once, and its quota compute_units is 0"
        in refused["message"]
    )
    await _set(tenant, "compute_units", "1", project=project)
    await tenant.finish(await tenant.call("POST", f"/projects/{project}/endpoints/{endpoint}/start"))


async def test_one_that_is_being_stopped_runs_until_it_has_stopped(tenant: Weir) -> None:
    [(project, endpoint)] = await _idle_endpoints(tenant, 1)
    before = (await _quotas(tenant, project))["computes"]["used"]
    async with tenant.resources.database.transaction() as session:
        row = (await session.scalars(select(Endpoint).where(Endpoint.id == endpoint))).one()
        row.state = EndpointState.ACTIVE
    during = (await _quotas(tenant, project))["computes"]["used"]
    async with tenant.resources.database.transaction() as session:
        row = (await session.scalars(select(Endpoint).where(Endpoint.id == endpoint))).one()
        row.state = EndpointState.IDLE
    assert (before, during) == (0, 1)


async def test_roles_and_databases_of_a_branch(tenant: Weir) -> None:
    project = await tenant.project(name="names")
    ident, branch = project["project"]["id"], project["branch"]["id"]
    base = f"/projects/{ident}/branches/{branch}"
    await _set(tenant, "roles", "2", account="quota-tenant")
    await _set(tenant, "databases", "1", project=ident)
    await tenant.finish(await tenant.call("POST", f"{base}/roles", 201, json={"role": {"name": "second"}}))
    refused = await tenant.call("POST", f"{base}/roles", 403, json={"role": {"name": "third"}})
    assert f"branch {branch} has 2 roles, and its quota roles is 2" in refused["message"]
    body = {"database": {"name": "more", "owner_name": "app_owner"}}
    assert (await tenant.call("POST", f"{base}/databases", 403, json=body))["code"] == "QUOTA_EXCEEDED"
    rows = await _quotas(tenant, ident)
    assert (rows["roles"]["used"], rows["roles"]["fullest"], rows["roles"]["per"]) == (2, branch, "branch")
    # A project's own value stands in place of its account's.
    await _set(tenant, "roles", "3", project=ident)
    await tenant.finish(await tenant.call("POST", f"{base}/roles", 201, json={"role": {"name": "third"}}))


async def test_storage_is_measured_where_it_is_limited_and_keeps_new_things_from_being_made(
    tenant: Weir, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The rounds of the control plane itself, of which one can come between any two lines of the test.
    monkeypatch.setattr("weir.quotas.measuring.measure", AsyncMock())
    project = await tenant.project(name="storage")
    ident, main = project["project"]["id"], project["branch"]
    timeline = tenant.storage.timelines[main["timeline_id"]]
    timeline |= {"current_logical_size": 700, "history_bytes": 300}
    tenant.storage.advance(main["timeline_id"], "0/2000000")
    async with Connections() as http:
        pageserver = Pageserver(tenant.settings.pageserver_http_url, http)
        await measure(tenant.resources.database, pageserver)
        assert (await _quotas(tenant, ident))["storage_bytes"]["used"] is None
        await _set(tenant, "storage_bytes", "1001", project=ident)
        assert await measure(tenant.resources.database, pageserver) == 1
        row = (await _quotas(tenant, ident))["storage_bytes"]
        assert (row["used"], row["limit"]) == (1000, 1001)
        assert row["measured_at"] is not None
        made = await tenant.call("POST", f"/projects/{ident}/branches", 201, json={})
        await tenant.finish(made)
        timeline["history_bytes"] = 301
        # Storage that does not answer leaves what is known.
        assert await measure(tenant.resources.database, Pageserver("http://127.0.0.1:1", http)) == 0
        assert (await _quotas(tenant, ident))["storage_bytes"]["used"] == 1000
        await measure(tenant.resources.database, pageserver)
    refused = await tenant.call("POST", f"/projects/{ident}/branches", 403, json={})
    assert "bytes of storage" in refused["message"]
    # Of the account as a whole, by what is measured of its projects.
    await _set(tenant, "storage_bytes", "default", project=ident)
    await _set(tenant, "storage_bytes", "10", account="quota-tenant")
    assert "account quota-tenant" in (await tenant.call("POST", "/projects", 403, json={"project": {}}))["message"]
    # What is there can be looked after: a compute still starts, for rows to be deleted.
    endpoint = project["endpoints"][0]["id"]
    await tenant.idle(ident)
    await tenant.finish(await tenant.call("POST", f"/projects/{ident}/endpoints/{endpoint}/suspend"))
    await tenant.finish(await tenant.call("POST", f"/projects/{ident}/endpoints/{endpoint}/start"))


async def test_quotas_are_an_accounts_own(weir: Weir, tenant: Weir) -> None:
    await _set(tenant, "api_keys", "1", account="quota-tenant")
    await tenant.call("POST", "/api_keys", 403, json={"key_name": "x"})
    made = await weir.call("POST", "/api_keys", json={"key_name": "another account's"})
    await weir.call("DELETE", f"/api_keys/{made['id']}")
    ident = (await tenant.project(name="mine"))["project"]["id"]
    await weir.call("GET", f"/projects/{ident}/quotas", 404)


async def test_what_is_set_is_in_the_audit_log_and_shown(weir: Weir, tenant: Weir) -> None:
    said = await _set(tenant, "projects", "77", account="quota-tenant")
    assert said.startswith("account/quota-tenant: projects is 77, used ")
    async with weir.resources.database.transaction() as session:
        newest = select(AuditEntry).where(AuditEntry.action == "quota.set").order_by(AuditEntry.id.desc()).limit(1)
        entry = (await session.scalars(newest)).one()
    assert (entry.actor, entry.resource) == ("weir-admin", "account/quota-tenant")
    assert entry.detail == {"quota": "projects", "value": "77"}
    async with weir.resources.database.transaction() as session:
        rows = {row.name: row for row in await setting.listed(session, "quota-tenant", None)}
    assert (rows[QuotaName.PROJECTS].limit, rows[QuotaName.PROJECTS].own) == (77, True)
    assert (rows[QuotaName.API_KEYS].limit, rows[QuotaName.API_KEYS].own) == (1000, False)
    assert "projects       account  77" in command._table(list(rows.values()))


@pytest.mark.parametrize(
    ("name", "value", "error", "says"),
    [
        ("projcts", "1", BadRequestError, "is no quota of an account; there are projects, api_keys"),
        ("projects", "-1", BadRequestError, "must be a whole number from 0"),
        ("projects", "many", BadRequestError, "or 'none', or 'default'"),
        ("projects", "9" * 40, BadRequestError, "must be a whole number"),
        ("branches", "0", BadRequestError, "must be a whole number from 1"),
    ],
)
async def test_what_is_no_quota_is_not_set(
    tenant: Weir, name: str, value: str, error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        await _set(tenant, name, value, account="quota-tenant")


async def test_quotas_of_nobody_are_not_set(tenant: Weir) -> None:
    with pytest.raises(NotFoundError, match="account nobody does not exist"):
        await _set(tenant, "projects", "1", account="nobody")
    with pytest.raises(NotFoundError, match="project no-such does not exist"):
        await _set(tenant, "branches", "1", project="no-such")
    ident = (await tenant.project(name="quota-of"))["project"]["id"]
    with pytest.raises(BadRequestError, match="is no quota of a project"):
        await _set(tenant, "projects", "1", project=ident)


async def test_what_an_installation_says_of_all() -> None:
    assert parse_defaults("projects=20, computes = 8,storage_bytes=none,") == {
        QuotaName.PROJECTS: 20,
        QuotaName.COMPUTES: 8,
        QuotaName.STORAGE_BYTES: None,
    }
    assert parse_value(QuotaName.PROJECTS, "0") == 0
    for wrong in ("projects", "projects=", "projects=x", "things=1", "projects=1,projects=2", "branches=0"):
        with pytest.raises(ValueError, match=r"quota|whole number|twice"):
            parse_defaults(wrong)


async def test_the_installations_quotas_hold_where_an_account_has_none(
    environment: Settings, postgres_url: str
) -> None:
    del environment
    async with own_database(postgres_url, WEIR_QUOTAS="api_keys=2"):
        database = Database(get_settings())
        try:
            async with database.transaction() as session:
                await identity.create_account(session, "small", "small@localhost", operator=False)
                owner, _ = await setting.find_owner(session, "small", None)
                assert (await quotas.in_force(session, owner)).owner[QuotaName.API_KEYS] == 2
            async with database.transaction() as session:
                await setting.change(session, "small", None, "api_keys", "none")
                assert (await quotas.in_force(session, owner)).owner[QuotaName.API_KEYS] is None
                await setting.change(session, "small", None, "api_keys", "1")
                with pytest.raises(QuotaExceededError):
                    await quotas.admit_api_key(session, UUID(owner.id))
        finally:
            await database.close()
