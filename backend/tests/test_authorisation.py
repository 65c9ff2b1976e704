"""Every operation of the API has a rule of who may use it, and lets in those whom the rule lets in, nobody else."""

import re
from collections.abc import AsyncGenerator
from typing import Any
from uuid import UUID, uuid4

import pytest
import pytest_asyncio
from fastapi import Request
from fastapi.routing import RouteContext, iter_route_contexts
from weir_testing import people
from weir_testing.people import Alone, browser, person, session_of

from weir.authz import rules
from weir.authz.principal import Principal, current_principal, guard, refusal
from weir.authz.rules import RULES, Reach, Rule
from weir.config import Settings
from weir.errors import UnauthorizedError
from weir.main import create_app
from weir.people.roles import Role, least

# What is not below /api/v2 asks for no person: health, and what answers this machine and the proxy alone.
ELSEWHERE = {"/healthz", "/metrics", "/internal/prometheus/targets"}
STRANGER, NOBODY = "stranger", "nobody"
WHO = [*(role.value for role in Role), STRANGER, NOBODY]
# Of things that there are not, but for the project and the organisation.
MADE_UP: dict[str, str] = {
    "branch_id": "br-none-1",
    "endpoint_id": "ep-none-1",
    "compute_id": "ep-none-1",
    "rollout_id": "ro-none-1",
    "role_name": "nobody",
    "database_name": "nothing",
    "operation_id": str(UUID(int=1)),
    "member_id": str(UUID(int=1)),
    "organization_id": str(UUID(int=1)),
    "session_id": str(UUID(int=1)),
    "key_id": "999999",
    "safekeeper_id": "1",
    "snapshot_id": "snap-none-1",
    "feature": "none",
    "provider_id": "none",
    "invitation_id": str(UUID(int=1)),
    "offered_project_id": "p-none",
    "request_id": str(UUID(int=1)),
    "permission_id": str(UUID(int=1)),
    "jwks_id": "none",
}


def _routes() -> list[RouteContext]:
    return [route for route in iter_route_contexts(create_app().routes) if hasattr(route, "dependant")]


def _operations() -> dict[str, tuple[str, str]]:
    """Method and path below /api/v2, by name."""
    found: dict[str, tuple[str, str]] = {}
    for route in _routes():
        path = route.path or ""
        if path.startswith("/api/v2"):
            assert route.name not in found, f"two operations are called {route.name}"
            found[str(route.name)] = (min(route.methods or {"GET"}), path.removeprefix("/api/v2"))
    return found


OPERATIONS = _operations()


def test_each_operation_has_a_rule_and_each_rule_an_operation() -> None:
    assert len(OPERATIONS) > 100
    assert set(RULES) == set(OPERATIONS)


def test_the_guard_stands_before_each_operation() -> None:
    guarded = {
        str(route.name) for route in _routes() if any(sub.call is guard for sub in route.dependant.dependencies)
    }
    assert guarded == set(OPERATIONS)


async def test_a_route_without_the_guard_has_no_caller() -> None:
    with pytest.raises(UnauthorizedError, match="no caller"):
        await current_principal(Request({"type": "http", "method": "GET", "path": "/", "headers": []}))


def test_what_is_elsewhere_is_known() -> None:
    paths = {str(route.path) for route in _routes()}
    elsewhere = {path for path in paths if not path.startswith(("/api/v2", "/internal/proxy"))}
    assert elsewhere - ELSEWHERE <= {"/{path:path}", "/"}, "a route without a rule: name it here, or give it one"


def test_a_rule_names_a_project_where_the_path_does() -> None:
    """A key of one project is kept to it by the path: what names a project has to reach no further."""
    for name, (_, path) in OPERATIONS.items():
        if "{project_id}" in path:
            assert RULES[name].reach is Reach.PROJECT, name
        elif RULES[name].reach is Reach.PROJECT:
            # Lists, which are narrowed to the key's project.
            assert name in {
                "list_projects",
                "list_shared_projects",
                "get_consumption_history_per_project",
                "get_consumption_history_per_project_v2",
                "get_consumption_history_per_branch_v2",
            }


def test_no_operation_that_changes_something_is_for_readers() -> None:
    reads = {"plan_rollout"}
    for name, (method, _) in OPERATIONS.items():
        rule = RULES[name]
        if method != "GET" and rule.least is Role.VIEWER:
            assert name in reads, f"a read-only key may use {name}"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def alone(environment: Settings, postgres_url: str) -> AsyncGenerator[Alone]:
    del environment
    async with people.alone(postgres_url) as running:
        yield running


async def _token(alone: Alone, who: str, home: UUID) -> str | None:
    if who == NOBODY:
        return None
    if who == STRANGER:
        return await session_of(alone.database, await person(alone.database, {alone.elsewhere: Role.OWNER}))
    return await session_of(alone.database, await person(alone.database, {home: Role(who)}), home)


def _expected(rule: Rule, path: str, who: str) -> int | None:
    """The status of a refusal; None is to be let in."""
    if rule.reach is Reach.OPEN:
        return None
    if who == NOBODY:
        return 401
    if who == STRANGER:
        if "{project_id}" in path or "{org_id}" in path:
            return 404
        return 403 if rule.reach is Reach.INSTALLATION else None
    return None if rule.least is None or Role(who).covers(rule.least) else 403


@pytest.mark.parametrize("who", WHO)
@pytest.mark.parametrize("name", sorted(RULES))
async def test_an_operation_lets_in_whom_its_rule_lets_in(alone: Alone, name: str, who: str) -> None:
    method, path = OPERATIONS[name]
    rule = RULES[name]
    home = alone.runs if rule.reach is Reach.INSTALLATION else alone.home
    project = await people.project(alone.database, home)
    given = MADE_UP | {"project_id": project, "org_id": str(home)}
    concrete = re.sub(r"\{(\w+)\}", lambda match: given[match[1]], path)
    body: dict[str, Any] = {} if method in {"GET", "DELETE"} else {"json": {}}
    async with browser(alone.url, await _token(alone, who, home)) as client:
        response = await client.request(method, concrete, **body)
    said = "" if response.is_success else response.json()["message"]
    unseen = said.startswith((f"project {project} does not exist", f"organization {home} does not exist"))
    expected = _expected(rule, path, who)
    if expected is None:
        assert response.status_code not in {401, 403}, said
        assert not unseen, said
    else:
        assert response.status_code == expected, said or response.text
        assert unseen == (expected == 404), said


async def test_an_operation_without_a_rule_is_for_nobody(alone: Alone, monkeypatch: pytest.MonkeyPatch) -> None:
    token = await _token(alone, Role.OWNER.value, alone.home)
    async with browser(alone.url, token) as client:
        assert (await client.get("/regions")).status_code == 200
        monkeypatch.delitem(rules.RULES, "get_active_regions")
        refused = await client.get("/regions")
    assert refused.status_code == 403
    assert "no rule says who may use 'get_active_regions'" in refused.json()["message"]


async def test_a_stranger_learns_no_difference_between_a_project_of_others_and_none(alone: Alone) -> None:
    project = await people.project(alone.database, alone.home)
    async with browser(alone.url, await _token(alone, STRANGER, alone.home)) as client:
        of_others = await client.get(f"/projects/{project}")
        none = await client.get("/projects/p-none")
        deleted = await client.delete(f"/projects/{project}")
        listed = await client.get("/projects", params={"org_id": str(alone.home)})
        nowhere = await client.get("/projects", params={"org_id": str(uuid4())})
    assert of_others.status_code == none.status_code == deleted.status_code == 404
    assert of_others.json()["message"].replace(project, "p-none") == none.json()["message"]
    assert listed.status_code == nowhere.status_code == 403
    assert listed.json()["code"] == nowhere.json()["code"]


async def test_a_person_in_no_organisation_sees_themselves_and_nothing_else(alone: Alone) -> None:
    token = await session_of(alone.database, await person(alone.database, {}))
    async with browser(alone.url, token) as client:
        assert (await client.get("/users/me")).status_code == 200
        assert (await client.get("/users/me/organizations")).json() == {"organizations": []}
        session = (await client.get("/auth/session")).json()["user"]
        assert (session["organization_id"], session["role"]) == (None, None)
        for path in ("/projects", "/computes", "/fleet", "/rollouts", "/audit", "/api_keys"):
            refused = await client.get(path)
            assert refused.status_code == 403, path
            assert "no organisation" in refused.json()["message"]


async def test_a_person_in_two_organisations_acts_in_one_at_a_time(alone: Alone) -> None:
    mine = {alone.home: Role.VIEWER, alone.elsewhere: Role.ADMIN}
    here, there = (
        await people.project(alone.database, alone.home),
        await people.project(alone.database, alone.elsewhere),
    )
    token = await session_of(alone.database, await person(alone.database, mine), alone.home)
    async with browser(alone.url, token) as client:
        # The path's project says where, and the role there counts.
        assert (await client.delete(f"/projects/{here}")).status_code == 403
        assert (await client.delete(f"/projects/{there}")).status_code == 200
        assert (await client.get("/audit")).status_code == 403
        assert (await client.get("/audit", params={"org_id": str(alone.elsewhere)})).status_code == 200
        # A project is not reached by naming another organisation beside it.
        crossed = await client.get(f"/projects/{here}", params={"org_id": str(alone.elsewhere)})
        assert crossed.status_code == 404
        chosen = await client.put("/auth/session/organization", json={"org_id": str(alone.elsewhere)})
        assert chosen.status_code == 204
        assert (await client.get("/audit")).status_code == 200
        strange = await client.put("/auth/session/organization", json={"org_id": str(alone.runs)})
        assert strange.status_code == 404


def test_roles_are_in_one_order() -> None:
    order = [Role.VIEWER, Role.MEMBER, Role.ADMIN, Role.OWNER]
    for at, role in enumerate(order):
        assert [role.covers(other) for other in order] == [other <= at for other in range(len(order))]
    assert least(*order) is Role.VIEWER


def test_a_principal_that_nothing_is_known_of_may_nothing() -> None:
    unknown = Principal(UUID(int=7), "unknown", "", "", None, "")
    for name, rule in RULES.items():
        if rule.reach not in {Reach.OPEN, Reach.SELF}:
            assert refusal(rule, unknown) is not None, name
