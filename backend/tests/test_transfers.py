"""Projects that change hands: only where both sides allow it, with all that is in them, or not at all.

Threats: a project taken with an offer that is guessed, used, old or of another project; given into an organisation
that did not ask for it, or beyond its quotas; moved by somebody who may only look; a key, a request or a rollout of
the former organisation that still works on it; two who take it at once.
"""

import asyncio
from collections.abc import AsyncGenerator
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
import pytest_asyncio
from sqlalchemy import insert, select, update
from weir_testing import people
from weir_testing.people import Alone, browser, keyed, person, session_of

from weir.branches.models import Branch, BranchState
from weir.config import Settings
from weir.endpoints.models import Endpoint, EndpointState
from weir.identity.models import ApiKey, AuditEntry
from weir.kit.clock import now
from weir.kit.crypto import hash_token, new_api_key
from weir.operations.models import Operation, OperationKind
from weir.operations.service import enqueue, mark_done
from weir.people.models import Membership
from weir.people.roles import Role
from weir.projects.locking import lock_project
from weir.projects.models import Project
from weir.quotas import setting
from weir.rollouts.models import MemberMode, Rollout, RolloutMember, RolloutStatus
from weir.transfers.models import TransferRequest
from weir.usage.models import StorageMeter


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def alone(environment: Settings, postgres_url: str) -> AsyncGenerator[Alone]:
    del environment
    async with people.alone(postgres_url) as running:
        yield running


async def _key(alone: Alone, account: UUID, **values: Any) -> str:
    key = new_api_key()
    usual = {"account_id": account, "name": "k", "key_hash": hash_token(key), "role": Role.OWNER}
    async with alone.database.transaction() as session:
        await session.execute(insert(ApiKey).values(usual | values))
    return key


async def _owner(alone: Alone, project: str) -> UUID:
    async with alone.database.transaction() as session:
        return (await session.get_one(Project, project)).account_id


async def _branch(alone: Alone, project: str, *, running: bool = False) -> str | None:
    """A branch; with a compute, whose id is the answer."""
    branch, endpoint = f"br-{uuid4().hex[:12]}", f"ep-{uuid4().hex[:12]}"
    async with alone.database.transaction() as session:
        row = Branch(id=branch, project_id=project, name=branch, timeline_id=uuid4().hex, state=BranchState.READY)
        session.add(row)
        await session.flush()
        if running:
            session.add(
                Endpoint(
                    id=endpoint, project_id=project, branch_id=branch, type="read_write", host="127.0.0.1",
                    port=uuid4().int % 40_000 + 20_000, desired_state=EndpointState.ACTIVE,
                    state=EndpointState.ACTIVE,
                )
            )  # fmt: skip
    return endpoint if running else None


async def _offered(alone: Alone, key: str, project: str, expect: int = 201, **body: Any) -> Any:
    async with keyed(alone.url, key) as client:
        answer = await client.post(f"/projects/{project}/transfer_requests", json=body)
    assert answer.status_code == expect, answer.text
    return answer.json()


async def _accepted(alone: Alone, key: str, project: str, request: str, expect: int = 204, **body: Any) -> str:
    async with keyed(alone.url, key) as client:
        answer = await client.put(f"/projects/{project}/transfer_requests/{request}", json=body)
    assert answer.status_code == expect, answer.text
    return answer.text


async def test_an_offer_is_taken_once_and_what_was_the_givers_ends(alone: Alone) -> None:
    project = await people.project(alone.database, alone.home)
    giver, taker = await _key(alone, alone.home), await _key(alone, alone.elsewhere)
    narrow, wide = await _key(alone, alone.home, project_id=project), await _key(alone, alone.home)
    offer = await _offered(alone, giver, project)
    assert set(offer) == {"id", "project_id", "created_at", "expires_at"}
    assert offer["project_id"] == project
    async with alone.database.transaction() as session:
        kept = (await session.scalars(select(TransferRequest).where(TransferRequest.project_id == project))).one()
    assert kept.expires_at - kept.created_at == timedelta(days=1)
    assert offer["id"].encode() not in kept.id_hash
    assert UUID(offer["id"]).bytes not in kept.id_hash
    await _accepted(alone, taker, project, offer["id"])
    assert await _owner(alone, project) == alone.elsewhere
    for key, status in ((taker, 200), (giver, 404), (wide, 404), (narrow, 401)):
        async with keyed(alone.url, key) as client:
            assert (await client.get(f"/projects/{project}")).status_code == status
            assert (await client.delete(f"/projects/{project}/transfer_requests")).status_code == (
                204 if status == 200 else status
            )
    await _accepted(alone, taker, project, offer["id"], 404)
    # Each side has it in its log, with both names.
    async with alone.database.transaction() as session:
        statement = select(AuditEntry).where(
            AuditEntry.project_id == project, AuditEntry.action == "project.transfer"
        )
        entries = (await session.scalars(statement)).all()
    assert {entry.account_id for entry in entries} == {alone.home, alone.elsewhere}
    assert len({str(entry.detail) for entry in entries}) == 1
    for key, actions in (
        (giver, ["project.transfer", "project.offer"]),
        # Who did what before it came is not for the new organisation.
        (taker, ["project.offer_end", "project.transfer"]),
    ):
        async with keyed(alone.url, key) as client:
            shown = (await client.get("/audit", params={"project_id": project})).json()["entries"]
        assert [entry["action"] for entry in shown] == actions


async def test_an_offer_that_is_unknown_old_withdrawn_or_of_another_project_takes_nothing(alone: Alone) -> None:
    project, other = [await people.project(alone.database, alone.home) for _ in range(2)]
    giver, taker = await _key(alone, alone.home), await _key(alone, alone.elsewhere)
    said = {await _accepted(alone, taker, project, str(uuid4()), 404)}
    offer = await _offered(alone, giver, other)
    await _accepted(alone, taker, project, offer["id"], 404)
    late = await _offered(alone, giver, project, ttl_seconds=60)
    async with alone.database.transaction() as session:
        old = update(TransferRequest).where(TransferRequest.project_id == project)
        await session.execute(old.values(expires_at=now() - timedelta(seconds=1)))
    said.add(await _accepted(alone, taker, project, late["id"], 404))
    withdrawn = await _offered(alone, giver, project)
    async with keyed(alone.url, giver) as client:
        assert (await client.delete(f"/projects/{project}/transfer_requests")).status_code == 204
    said.add(await _accepted(alone, taker, project, withdrawn["id"], 404))
    assert all("was not offered by transfer request" in text for text in said)
    assert await _owner(alone, project) == alone.home
    for seconds in (0, -1, 30 * 86400 + 1):
        await _offered(alone, giver, project, 400, ttl_seconds=seconds)


async def test_an_offer_is_made_by_admins_and_taken_by_who_may_make_projects(alone: Alone) -> None:
    project = await people.project(alone.database, alone.home)
    for role in (Role.VIEWER, Role.MEMBER):
        await _offered(alone, await _key(alone, alone.home, role=role), project, 403)
    await _offered(alone, await _key(alone, alone.elsewhere), project, 404)
    offer = await _offered(alone, await _key(alone, alone.home, role=Role.ADMIN), project)
    await _accepted(alone, await _key(alone, alone.elsewhere, role=Role.VIEWER), project, offer["id"], 403)
    theirs = await people.project(alone.database, alone.elsewhere)
    narrow = await _key(alone, alone.elsewhere, project_id=theirs)
    await _accepted(alone, narrow, project, offer["id"], 403)
    # A key takes it for its own organisation alone.
    other = str(alone.runs)
    key = await _key(alone, alone.elsewhere)
    await _accepted(alone, key, project, offer["id"], 403, org_id=other)
    assert "already" in await _accepted(alone, await _key(alone, alone.home), project, offer["id"], 400)
    # A person names one of their organisations, by their role there.
    who = await person(alone.database, {alone.elsewhere: Role.MEMBER, alone.runs: Role.VIEWER})
    async with browser(alone.url, await session_of(alone.database, who, alone.elsewhere)) as client:
        path = f"/projects/{project}/transfer_requests/{offer['id']}"
        assert (await client.put(path, json={"org_id": other})).status_code == 403
        assert (await client.put(path, json={"org_id": str(alone.home)})).status_code == 404
        assert await _owner(alone, project) == alone.home
        assert (await client.put(path, json={"org_id": str(alone.elsewhere)})).status_code == 204
    assert await _owner(alone, project) == alone.elsewhere


@pytest.mark.parametrize("how", ["removed", "demoted", "revoked"])
async def test_an_offer_ends_with_what_let_its_maker_make_it(alone: Alone, how: str) -> None:
    """An admin who is taken out has kept an offer, to take the project into an organisation of their own."""
    project = await people.project(alone.database, alone.home)
    who = await person(alone.database, {alone.home: Role.ADMIN, alone.elsewhere: Role.OWNER})
    if how == "revoked":
        offer = await _offered(alone, await _key(alone, alone.home, user_id=who.id, name="theirs"), project)
    else:
        async with browser(alone.url, await session_of(alone.database, who)) as client:
            offer = (await client.post(f"/projects/{project}/transfer_requests", json={})).json()
    async with alone.database.transaction() as session:
        membership = await session.get_one(Membership, who.members[alone.home])
        if how == "removed":
            await session.delete(membership)
        elif how == "demoted":
            membership.role = Role.MEMBER
        else:
            mine = update(ApiKey).where(ApiKey.user_id == who.id)
            await session.execute(mine.values(revoked_at=now()))
    taker = await _key(alone, alone.elsewhere)
    assert "was not offered" in await _accepted(alone, taker, project, offer["id"], 404)
    assert await _owner(alone, project) == alone.home


async def test_two_who_take_it_at_once_do_not_both_have_it(alone: Alone) -> None:
    project = await people.project(alone.database, alone.home)
    offer = await _offered(alone, await _key(alone, alone.home), project)
    takers = [await _key(alone, alone.elsewhere), await _key(alone, alone.runs)]
    answers: list[int] = []

    async def take(key: str) -> None:
        async with keyed(alone.url, key) as client:
            path = f"/projects/{project}/transfer_requests/{offer['id']}"
            answers.append((await client.put(path, json={})).status_code)

    await asyncio.gather(*(take(key) for key in takers * 3))
    assert sorted(answers) == [204, 404, 404, 404, 404, 404]


async def test_a_request_that_waited_while_the_project_went_changes_nothing(alone: Alone) -> None:
    """The project is locked by a transfer that has not committed; what the former organisation asks meanwhile waits
    for it, and is told that it has no such project."""
    project = await people.project(alone.database, alone.home)
    async with keyed(alone.url, await _key(alone, alone.home)) as client:
        async with alone.database.transaction() as session:
            row = await lock_project(session, project)
            asked = asyncio.create_task(client.patch(f"/projects/{project}", json={"project": {"name": "mine"}}))
            await asyncio.sleep(0.5)
            assert not asked.done()
            row.account_id = alone.elsewhere
        assert (await asked).status_code == 404
    async with alone.database.transaction() as session:
        assert (await session.get_one(Project, project)).name != "mine"


async def test_the_receiving_side_needs_room_for_all_that_is_in_it(alone: Alone) -> None:
    name = f"org-{uuid4().hex[:12]}"
    small = await people.organization(alone.database, name)
    project = await people.project(alone.database, alone.home)
    await _branch(alone, project, running=True)
    await _branch(alone, project)
    async with alone.database.transaction() as session:
        session.add(
            StorageMeter(
                project_id=project, measured_to=now(), root_bytes=60, child_bytes=20, snapshot_bytes=10,
                history_bytes=10,
            )
        )  # fmt: skip
    giver, taker = await _key(alone, alone.home), await _key(alone, small)
    offer = await _offered(alone, giver, project)
    for quota, little, enough in (
        ("projects", "0", "1"),
        ("branches", "1", "2"),
        ("computes", "0", "1"),
        ("compute_units", "0", "1"),
        ("storage_bytes", "99", "100"),
    ):
        async with alone.database.transaction() as session:
            await setting.change(session, name, None, quota, little)
        assert f"quota {quota} is {little}" in await _accepted(alone, taker, project, offer["id"], 403), quota
        async with alone.database.transaction() as session:
            await setting.change(session, name, None, quota, enough)
    assert await _owner(alone, project) == alone.home
    await _accepted(alone, taker, project, offer["id"])
    # And now it is full.
    other = await people.project(alone.database, alone.home)
    offer = await _offered(alone, giver, other)
    assert "quota projects is 1" in await _accepted(alone, taker, other, offer["id"], 403)


async def test_a_project_that_is_worked_on_stays(alone: Alone) -> None:
    project = await people.project(alone.database, alone.home)
    endpoint = await _branch(alone, project, running=True)
    taker = await _key(alone, alone.elsewhere)
    offer = await _offered(alone, await _key(alone, alone.home), project)
    async with alone.database.transaction() as session:
        operation = await enqueue(session, OperationKind.APPLY_STORAGE_CONFIG, project)
    await _accepted(alone, taker, project, offer["id"], 423)
    async with alone.database.transaction() as session:
        await mark_done(session, operation.id, None)
        rollout = Rollout(
            id=f"ro-{uuid4().hex[:12]}", name="under way", account_id=alone.home, status=RolloutStatus.RUNNING,
            feature="image_pushdown", selector={}, strategy={}, plan={},
        )  # fmt: skip
        session.add(rollout)
        await session.flush()
        session.add(
            RolloutMember(
                rollout_id=rollout.id, endpoint_id=endpoint or "", project_id=project, mode=MemberMode.RUNNING,
                wave=0, baseline_seconds=1, bake_seconds=1,
            )
        )  # fmt: skip
    assert rollout.id in await _accepted(alone, taker, project, offer["id"], 409)
    async with alone.database.transaction() as session:
        await session.execute(update(Rollout).where(Rollout.id == rollout.id).values(status=RolloutStatus.COMPLETED))
    await _accepted(alone, taker, project, offer["id"])
    async with alone.database.transaction() as session:
        assert (await session.get_one(Operation, operation.id)).project_id == project


async def _moves(
    alone: Alone, roles: dict[UUID, Role], source: UUID, target: UUID, *projects: str
) -> tuple[int, str]:
    who = await person(alone.database, roles)
    async with browser(alone.url, await session_of(alone.database, who)) as client:
        body = {"destination_org_id": str(target), "project_ids": list(projects)}
        answer = await client.post(f"/organizations/{source}/projects/transfer", json=body)
    return answer.status_code, answer.text


async def test_a_person_of_both_sides_moves_projects_all_or_none(alone: Alone) -> None:
    first, second = [await people.project(alone.database, alone.home) for _ in range(2)]
    theirs = await people.project(alone.database, alone.runs)
    mine = {alone.home: Role.ADMIN, alone.elsewhere: Role.MEMBER}
    for roles, status in (
        ({alone.home: Role.ADMIN}, 404),
        ({alone.elsewhere: Role.OWNER}, 404),
        ({alone.home: Role.MEMBER, alone.elsewhere: Role.OWNER}, 403),
        ({alone.home: Role.ADMIN, alone.elsewhere: Role.VIEWER}, 403),
    ):
        assert (await _moves(alone, roles, alone.home, alone.elsewhere, first))[0] == status, roles
    assert (await _moves(alone, mine, alone.home, alone.elsewhere, first, theirs))[0] == 404
    assert (await _moves(alone, mine, alone.home, alone.elsewhere, first, "p-none"))[0] == 404
    assert (await _moves(alone, mine, alone.home, alone.home, first))[0] == 400
    assert (await _moves(alone, mine, alone.home, alone.elsewhere))[0] == 400
    assert await _owner(alone, first) == alone.home
    assert await _moves(alone, mine, alone.home, alone.elsewhere, second, first, first) == (200, "{}")
    assert {await _owner(alone, first), await _owner(alone, second)} == {alone.elsewhere}
    assert await _owner(alone, theirs) == alone.runs


async def test_keys_move_nothing_to_another_organization(alone: Alone) -> None:
    project = await people.project(alone.database, alone.home)
    who = await person(alone.database, {alone.home: Role.OWNER, alone.elsewhere: Role.OWNER})
    body = {"destination_org_id": str(alone.elsewhere), "project_ids": [project]}
    for key in (await _key(alone, alone.home), await _key(alone, alone.home, user_id=who.id)):
        async with keyed(alone.url, key) as client:
            answer = await client.post(f"/organizations/{alone.home}/projects/transfer", json=body)
        assert answer.status_code == 403
        assert "an API key acts in one organization" in answer.json()["message"]
    async with browser(alone.url, await session_of(alone.database, who)) as client:
        answer = await client.post("/users/me/projects/transfer", json=body)
    assert answer.json()["code"] == "NOT_SUPPORTED"
    assert await _owner(alone, project) == alone.home


@pytest.mark.parametrize(
    ("path", "name", "body"),
    [("permissions", "project_permissions", {"email": "x@example.org"}), ("jwks", "jwks", {"jwks_url": "https://x"})],
)
async def test_what_is_not_built_is_listed_empty_and_refused_with_a_reason(
    alone: Alone, path: str, name: str, body: dict[str, str]
) -> None:
    project = await people.project(alone.database, alone.home)
    async with keyed(alone.url, await _key(alone, alone.home)) as client:
        assert (await client.get(f"/projects/{project}/{path}")).json() == {name: []}
        refused = await client.post(f"/projects/{project}/{path}", json=body)
        assert (refused.status_code, refused.json()["code"]) == (400, "NOT_SUPPORTED")
        assert (await client.delete(f"/projects/{project}/{path}/some")).status_code == 404
