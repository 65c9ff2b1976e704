"""What commits wait for: chosen for a branch, inherited, given to its computes, and kept from being too little."""

import json
from collections.abc import Generator
from typing import Any

import pytest
from sqlalchemy import select
from weir_testing.fixtures import Weir

from weir.config import Settings, get_settings
from weir.durability.levels import SETTING, WEAK, Durability, level_of
from weir.durability.policy import Policy, wanted
from weir.endpoints.models import Endpoint
from weir.identity.models import AuditEntry
from weir_workflows.computes.spec import load_spec

LEVELS = list(Durability)


@pytest.fixture(name="forbid_off")
def _forbid_off(weir: Weir) -> Generator[Settings]:
    """The installation's policy, as weir.toml and the environment give it to the API."""
    del weir
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WEIR_DURABILITY_FORBID", "off")
        get_settings.cache_clear()
        yield get_settings()
    get_settings.cache_clear()


def _branch(created: dict[str, Any]) -> tuple[str, str]:
    return f"/projects/{created['project']['id']}/branches", created["branch"]["id"]


async def _actual(weir: Weir, compute: str) -> dict[str, Any]:
    return (await weir.call("GET", f"/computes/{compute}"))["compute"]["durability"]


async def _spec(weir: Weir, compute: str, settings: Settings) -> dict[str, Any]:
    async with weir.resources.database.transaction() as session:
        endpoint = await session.get_one(Endpoint, compute)
        return await load_spec(session, settings, endpoint, settings.pg_bin_dir)


async def _audited(weir: Weir, action: str, resource: str) -> list[dict[str, Any]]:
    async with weir.resources.database.transaction() as session:
        statement = select(AuditEntry).where(AuditEntry.action == action, AuditEntry.resource == resource)
        return [row.detail for row in (await session.scalars(statement.order_by(AuditEntry.id))).all()]


async def test_a_level_reaches_the_running_compute_and_is_audited(weir: Weir) -> None:
    created = await weir.project(name="dial")
    path, ident = _branch(created)
    compute = created["endpoints"][0]["id"]
    assert created["branch"]["durability"] == "flush"
    assert await _actual(weir, compute) == {"wanted": "flush", "actual": "flush"}
    for level in ("receive", "off", "apply"):
        changed = await weir.call("PATCH", f"{path}/{ident}", json={"branch": {"durability": level}})
        assert changed["branch"]["durability"] == level
        assert [item["action"] for item in changed["operations"]] == ["apply_config"]
        await weir.finish(changed)
        assert await _actual(weir, compute) == {"wanted": level, "actual": level}
        assert (await weir.call("GET", f"{path}/{ident}"))["branch"]["durability"] == level
    same = await weir.call("PATCH", f"{path}/{ident}", json={"branch": {"durability": "apply"}})
    assert same["operations"] == [], "nothing changes, so nothing is done"
    details = await _audited(weir, "branch.update", f"branch/{ident}")
    assert [(row["durability_before"], row["durability"]) for row in details if "durability_before" in row] == [
        ("flush", "receive"), ("receive", "off"), ("off", "apply"),
    ]  # fmt: skip
    await weir.call("PATCH", f"{path}/{ident}", 400, json={"branch": {"durability": "write"}})


async def test_a_branch_inherits_the_level_and_a_restore_keeps_it(weir: Weir) -> None:
    created = await weir.project(name="inherited level")
    path, ident = _branch(created)
    weir.storage.advance(created["branch"]["timeline_id"], "0/1800000")
    await weir.finish(await weir.call("PATCH", f"{path}/{ident}", json={"branch": {"durability": "apply"}}))
    child = await weir.call("POST", path, 201, json={"branch": {"name": "child"}})
    await weir.finish(child)
    own = await weir.call("POST", path, 201, json={"branch": {"name": "own", "durability": "receive"}})
    await weir.finish(own)
    assert (child["branch"]["durability"], own["branch"]["durability"]) == ("apply", "receive")
    back = {"source_branch_id": own["branch"]["id"], "preserve_under_name": "was"}
    await weir.finish(await weir.call("POST", f"{path}/{ident}/restore", json=back))
    levels = {item["name"]: item["durability"] for item in (await weir.call("GET", path))["branches"]}
    assert levels == {"main": "apply", "child": "apply", "own": "receive", "was": "apply"}


async def test_a_project_begins_with_the_level_asked_for(weir: Weir) -> None:
    created = await weir.project(name="begins", branch={"durability": "receive"})
    assert created["branch"]["durability"] == "receive"
    assert await _actual(weir, created["endpoints"][0]["id"]) == {"wanted": "receive", "actual": "receive"}


async def test_the_projects_policy_refuses_weak_levels_and_says_whose_it_is(weir: Weir) -> None:
    created = await weir.project(name="strict")
    path, ident = _branch(created)
    project, compute = f"/projects/{created['project']['id']}", created["endpoints"][0]["id"]
    await weir.finish(await weir.call("PATCH", f"{path}/{ident}", json={"branch": {"durability": "off"}}))
    weir.storage.advance(created["branch"]["timeline_id"], "0/1800000")

    forbid = {"project": {"settings": {"durability": {"forbid": ["receive", "off"]}}}}
    changed = await weir.call("PATCH", project, json=forbid)
    assert changed["project"]["settings"]["durability"] == {"forbid": ["off", "receive"]}
    await weir.finish(changed)
    # What was chosen before stays stored, and the compute is given what is allowed.
    assert (await weir.call("GET", f"{path}/{ident}"))["branch"]["durability"] == "off"
    assert await _actual(weir, compute) == {"wanted": "flush", "actual": "flush"}
    seen = await weir.call("GET", f"{path}/{ident}/durability")
    assert (seen["level"], seen["effective"]) == ("off", "flush")
    assert [(item["level"], item["forbidden_by"]) for item in seen["levels"]] == [
        ("off", "project"), ("receive", "project"), ("flush", None), ("apply", None),
    ]  # fmt: skip

    for method, where, body in (
        ("PATCH", f"{path}/{ident}", {"branch": {"durability": "receive"}}),
        ("POST", path, {"branch": {"durability": "receive"}}),
        ("PATCH", f"{project}/endpoints/{compute}", {"endpoint": {"settings": {"pg_settings": {SETTING: "local"}}}}),
        ("PATCH", project, {"project": {"default_endpoint_settings": {"pg_settings": {SETTING: "OFF"}}}}),
    ):
        refused = await weir.call(method, where, 412, json=body)
        assert "the project's policy (settings.durability.forbid) forbids" in refused["message"]
        assert "choose one of flush, apply" in refused["message"]
    for level in ("flush", "apply", "nothing"):
        await weir.call("PATCH", project, 400, json={"project": {"settings": {"durability": {"forbid": [level]}}}})

    lifted = await weir.call("PATCH", project, json={"project": {"settings": {"durability": {"forbid": []}}}})
    await weir.finish(lifted)
    assert await _actual(weir, compute) == {"wanted": "off", "actual": "off"}


async def test_the_installations_policy_holds_for_everybody(weir: Weir, forbid_off: Settings) -> None:
    created = await weir.project(name="installation")
    path, ident = _branch(created)
    refused = await weir.call("PATCH", f"{path}/{ident}", 412, json={"branch": {"durability": "off"}})
    assert "the installation's policy ([durability] forbid in weir.toml) forbids" in refused["message"]
    body = {"project": {"name": "refused", "branch": {"durability": "off"}}}
    assert "the installation's policy" in (await weir.call("POST", "/projects", 412, json=body))["message"]
    body = {"project": {"default_endpoint_settings": {"pg_settings": {SETTING: False}}}}
    assert "the installation's policy" in (await weir.call("POST", "/projects", 412, json=body))["message"]
    # A project cannot allow what the installation forbids.
    project = f"/projects/{created['project']['id']}"
    await weir.finish(
        await weir.call("PATCH", project, json={"project": {"settings": {"durability": {"forbid": []}}}})
    )
    await weir.call("PATCH", f"{path}/{ident}", 412, json={"branch": {"durability": "off"}})
    await weir.finish(await weir.call("PATCH", f"{path}/{ident}", json={"branch": {"durability": "receive"}}))
    levels = (await weir.call("GET", f"{path}/{ident}/durability"))["levels"]
    assert [item["forbidden_by"] for item in levels] == ["installation", None, None, None]
    assert (await _spec(weir, created["endpoints"][0]["id"], forbid_off))["durability"] == "receive"


async def test_an_endpoints_setting_wins_unless_a_policy_forbids_it(weir: Weir, forbid_off: Settings) -> None:
    settings = {"pg_settings": {SETTING: "remote_apply", "work_mem": "8MB"}}
    created = await weir.project(name="own setting", default_endpoint_settings=settings)
    compute = created["endpoints"][0]["id"]
    assert await _actual(weir, compute) == {"wanted": "apply", "actual": "apply"}
    async with weir.resources.database.transaction() as session:
        # As it was stored before the policy was.
        endpoint = await session.get_one(Endpoint, compute)
        endpoint.pg_settings = {SETTING: "off", "work_mem": "8MB"}
    spec = await _spec(weir, compute, forbid_off)
    assert (spec["durability"], spec["settings"]) == ("flush", {"work_mem": "8MB"})
    allowing = forbid_off.model_copy(update={"durability_forbid": ""})
    assert (await _spec(weir, compute, allowing))["settings"][SETTING] == "off"


async def test_what_roles_have_chosen_is_shown_beside_the_level(weir: Weir) -> None:
    chosen = [
        {"role": "batch", "database": None, SETTING: "off"},
        {"role": None, "database": "ledger", SETTING: "remote_apply"},
        {"role": "odd", "database": "ledger", SETTING: "sometimes"},
    ]
    settings = {"pg_settings": {"test.chosen": json.dumps(chosen)}}
    created = await weir.project(name="roles", default_endpoint_settings=settings)
    compute = created["endpoints"][0]["id"]
    project = f"/projects/{created['project']['id']}"
    forbid = {"project": {"settings": {"durability": {"forbid": ["off"]}}}}
    await weir.finish(await weir.call("PATCH", project, json=forbid))
    seen = await weir.call("GET", f"/computes/{compute}/durability")
    assert [(item["role"], item["level"], item["weaker"], item["forbidden"]) for item in seen["chosen"]] == [
        ("batch", "off", True, True), (None, "apply", False, False), ("odd", None, False, False),
    ]  # fmt: skip
    await weir.finish(await weir.call("POST", f"{project}/endpoints/{compute}/suspend"))
    assert "does not run" in (await weir.call("GET", f"/computes/{compute}/durability", 409))["message"]
    async with weir.as_account("somebody without computes") as stranger:
        await stranger.call("GET", f"/computes/{compute}/durability", 404)
        await stranger.call("GET", f"{project}/branches/{created['branch']['id']}/durability", 404)


def test_an_effective_level_is_never_weaker_than_the_one_chosen_and_always_allowed() -> None:
    subsets = [frozenset[Durability](), frozenset({WEAK[0]}), frozenset({WEAK[1]}), frozenset(WEAK)]
    for installation in subsets:
        for project in subsets:
            policy = Policy.of(installation, project)
            for level in LEVELS:
                effective = policy.effective(level)
                assert effective not in installation | project
                assert not effective.weaker_than(level)
                assert effective == level or level in installation | project
                for value in ("local", "OFF", "remote_write", "on", "remote_apply"):
                    given = wanted(policy, level, {SETTING: value})
                    assert given.level is not None
                    assert given.level not in installation | project


def test_postgres_words_are_read_as_postgres_reads_them() -> None:
    assert [level_of(level.synchronous_commit) for level in LEVELS] == LEVELS
    assert {level_of(word) for word in ("local", "off", "No", "false", "0")} == {Durability.OFF}
    assert {level_of(word) for word in ("ON", "true", "yes", "1")} == {Durability.FLUSH}
    assert level_of("remote") is None


def test_a_policy_of_no_level_is_refused_at_the_start() -> None:
    with pytest.raises(ValueError, match="'flush' is no level that can be forbidden"):
        Settings(durability_forbid="off,flush")
