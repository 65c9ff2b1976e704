"""The list of projects and branches, made again from what the object store holds of them."""

from typing import Any

import pytest
from sqlalchemy import select
from weir_testing.fixtures import Weir, own_database

from weir.branches.models import Branch
from weir.cli.recover import describe as tell
from weir.config import Settings
from weir.db import Database
from weir.endpoints.models import Endpoint, EndpointState
from weir.errors import BadRequestError, ConflictError
from weir.identity import service as identity
from weir.identity.models import Account
from weir.identity.repository import IdentityRepository
from weir.kit.crypto import hash_token
from weir.projects.models import Project
from weir.recovery import service
from weir.recovery.description import describe, revision
from weir.recovery.inventory import FoundTenant, parse
from weir_workflows.computes.spec import load_spec
from weir_workflows.reconciler.storage import repair_descriptions


def _stored(weir: Weir, tenant: str) -> dict[str, Any]:
    """What the store holds of a tenant, as `weir-pageserver inventory` tells it."""
    return {
        "tenant_id": tenant,
        "about": weir.storage.described.get(tenant, {}).get("about"),
        "timelines": [
            {**timeline, "state": "whole"}
            for timeline in weir.storage.timelines.values()
            if timeline["tenant_id"] == tenant
        ],
    }


async def _project_with_branches(weir: Weir, name: str) -> tuple[str, str]:
    """Ids of a project and its tenant: two branches below each other, a role, a database, renamed at the end."""
    created = await weir.project(
        name=name,
        history_retention_seconds=7200,
        settings={"quota": {"logical_size_bytes": 1 << 40}, "durability": {"forbid": ["off"]}},
    )
    ident, main = created["project"]["id"], created["branch"]
    path = f"/projects/{ident}/branches"
    weir.storage.advance(main["timeline_id"], "0/1900000")
    made = await weir.call("POST", path, 201, json={"branch": {"name": "dev"}, "endpoints": [{"type": "read_write"}]})
    await weir.finish(made)
    role = {"role": {"name": "reports"}}
    await weir.finish(await weir.call("POST", f"{path}/{main['id']}/roles", 201, json=role))
    database = {"database": {"name": "ledger", "owner_name": "reports"}}
    await weir.finish(await weir.call("POST", f"{path}/{main['id']}/databases", 201, json=database))
    below = {"branch": {"name": "below", "parent_id": made["branch"]["id"], "protected": True, "durability": "apply"}}
    await weir.finish(await weir.call("POST", path, 201, json=below))
    await weir.call("PATCH", f"{path}/{made['branch']['id']}", json={"branch": {"name": "renamed"}})
    await repair_descriptions(weir.resources)
    async with weir.resources.database.transaction() as session:
        return ident, (await session.get_one(Project, ident)).tenant_id


async def _described(settings: Settings, ident: str) -> dict[str, Any]:
    database = Database(settings)
    try:
        async with database.transaction() as session:
            return (await describe(session, [await session.get_one(Project, ident)]))[ident]
    finally:
        await database.close()


async def _recover(settings: Settings, found: list[FoundTenant], *, beside: bool = False) -> service.Recovery:
    database = Database(settings)
    try:
        async with database.transaction() as session:
            return await service.recover(session, found, settings, beside_others=beside)
    finally:
        await database.close()


async def test_a_project_comes_back_as_it_was(weir: Weir, postgres_url: str) -> None:
    async with weir.as_account("somebody-else") as theirs:
        ident, tenant = await _project_with_branches(theirs, "shop")
    before = await _described(weir.settings, ident)
    assert {branch["name"] for branch in before["branches"]} == {"main", "renamed", "below"}
    found = parse({"tenants": [_stored(weir, tenant)]})
    levels = {branch["name"]: branch["durability"] for branch in before["branches"]}
    assert levels == {"main": "flush", "renamed": "flush", "below": "apply"}
    async with own_database(postgres_url) as empty:
        recovery = await _recover(empty, found)
        assert [built.project.id for built in recovery.made] == [ident]
        after = await _described(empty, ident)
        # Ports that the first control plane's computes listen on are not given out again: all else is the same.
        for document in (before, after):
            for branch in document["branches"]:
                branch.pop("parent_timestamp")
                for endpoint in branch["endpoints"]:
                    endpoint.pop("port")
        assert after == before
        again = await _recover(empty, found)
        assert (again.made, [row.id for row in again.known]) == ([], [ident])

        database = Database(empty)
        async with database.transaction() as session:
            endpoints = (await session.scalars(select(Endpoint))).all()
            assert {row.desired_state for row in endpoints} == {EndpointState.IDLE}
            owner = (await session.scalars(select(Account).where(Account.name == "somebody-else"))).one()
            assert not owner.operator
            key = await identity.create_another_key(session, "somebody-else")
            held = await IdentityRepository(session).account_of_key(hash_token(key))
            assert held is not None
            assert held[1].id == owner.id
            main = next(row for row in (await session.scalars(select(Branch))).all() if row.is_default)
            endpoint = next(row for row in endpoints if row.branch_id == main.id)
            spec = await load_spec(session, empty, endpoint, empty.pg_bin_dir)
        await database.close()
        # Nobody's password changes, and nothing is dropped: the lists are whole.
        assert {role["name"]: role["keep_password"] for role in spec["roles"]} == {"app_owner": True, "reports": True}
        assert [role["password"] for role in spec["roles"]] == [None, None]
        assert not spec["keep_unlisted"]


async def test_a_database_in_use_is_not_mixed_with_another_by_accident(weir: Weir, postgres_url: str) -> None:
    _, first = await _project_with_branches(weir, "first")
    _, second = await _project_with_branches(weir, "second")
    found = {tenant: parse({"tenants": [_stored(weir, tenant)]}) for tenant in (first, second)}
    async with own_database(postgres_url) as settings:
        await _recover(settings, found[first])
        with pytest.raises(ConflictError, match=r"1 project\(s\) already: first .*--beside-others"):
            await _recover(settings, found[second])
        await _recover(settings, found[second], beside=True)
        database = Database(settings)
        async with database.transaction() as session:
            names = (await session.scalars(select(Project.name))).all()
        await database.close()
        assert sorted(names) == ["first", "second"]


async def test_what_nobody_described_is_kept_and_its_computes_drop_nothing(weir: Weir, postgres_url: str) -> None:
    ident, tenant = await _project_with_branches(weir, "half-known")
    stored = _stored(weir, tenant)
    gone = next(item for item in stored["about"]["branches"] if item["name"] == "below")
    stored["timelines"] = [item for item in stored["timelines"] if item["timeline_id"] != gone["timeline_id"]]
    main = next(item for item in stored["about"]["branches"] if item["is_default"])
    stranger = {"timeline_id": "ab" * 16, "ancestor_timeline_id": main["timeline_id"], "ancestor_lsn": "0/1700000"}
    stored["timelines"].append({**stranger, "state": "whole", "pg_version": 15})
    leaving = {"timeline_id": "cd" * 16, "state": "deleting"}
    undescribed = {
        "tenant_id": "ef" * 16,
        "timelines": [{"timeline_id": "12" * 16, "state": "whole", "pg_version": 15}],
    }
    empty = {"tenant_id": "aa" * 16, "timelines": [leaving]}
    found = parse({"tenants": [stored, undescribed, empty]})
    async with own_database(postgres_url) as settings:
        recovery = await _recover(settings, found)
        told = tell(recovery)
        assert "below" in told
        assert "LOST" in told
        assert "recovered-abababab" in told
        assert "recovered-efefefef" in told
        assert "has no branch left" in told
        database = Database(settings)
        async with database.transaction() as session:
            branch = (await session.scalars(select(Branch).where(Branch.timeline_id == "ab" * 16))).one()
            assert (branch.parent_id, branch.parent_lsn) == (main["id"], "0/1700000")
            assert (await session.get_one(Project, ident)).keeps_unlisted
            other = (await session.scalars(select(Project).where(Project.tenant_id == "ef" * 16))).one()
            assert other.keeps_unlisted
            alone = (await session.scalars(select(Branch).where(Branch.project_id == other.id))).one()
            assert alone.is_default
        await database.close()


async def test_a_newer_description_is_refused(weir: Weir) -> None:
    with pytest.raises(BadRequestError, match="recover with that one"):
        parse({"tenants": [{"tenant_id": "ab" * 16, "about": {"version": 99}, "timelines": []}]})


async def test_storage_knows_of_a_branch_and_a_role_before_they_are_made(weir: Weir) -> None:
    created = await weir.project(name="ordered")
    ident, main = created["project"]["id"], created["branch"]
    path = f"/projects/{ident}/branches"
    await weir.finish(await weir.call("POST", f"{path}/{main['id']}/roles", 201, json={"role": {"name": "early"}}))
    weir.storage.advance(main["timeline_id"], "0/1900000")
    await weir.finish(await weir.call("POST", path, 201, json={"branch": {"name": "dev"}}))
    async with weir.resources.database.transaction() as session:
        tenant = (await session.get_one(Project, ident)).tenant_id
    calls = [call for call in weir.storage.calls if call.server == "pageserver" and tenant in call.path]
    told: set[str] = set()
    for call in calls:
        if call.path.endswith("/about"):
            assert call.body["revision"] == revision(call.body["about"])
            told = {branch["timeline_id"] for branch in call.body["about"]["branches"]}
        if call.method == "POST" and call.path.endswith("/timeline"):
            assert call.body["new_timeline_id"] in told
    # Only changes are written; secrets never are.
    put = [call.body for call in calls if call.path.endswith("/about")]
    assert len({body["revision"] for body in put}) == len(put)
    assert "SCRAM" not in str(put)
    assert created["roles"][0]["password"] not in str(put)
