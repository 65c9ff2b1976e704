"""What happens to a project while storage is asked where a branch of it is to begin: nobody waits for that, and no
branch is made of a state that storage did not speak of."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from weir_testing.fixtures import Weir

from weir.branches import restore, service
from weir.branches.head import Beginning, beginning

# By the running compute of a double; storage has to have it before a branch is made.
ACKNOWLEDGED = "0/1800000"
Meanwhile = Callable[[Callable[[], Awaitable[None]]], None]


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> Meanwhile:
    """Has something happen once, after storage has answered and before the branch is made of it."""

    def arrange(change: Callable[[], Awaitable[None]]) -> None:
        todo = [change]

        async def asked(*arguments: Any) -> Beginning:
            answer = await beginning(*arguments)
            if todo:
                await todo.pop()()
            return answer

        monkeypatch.setattr(service, "beginning", asked)
        monkeypatch.setattr(restore, "beginning", asked)

    return arrange


async def test_others_change_the_project_meanwhile_and_the_branch_is_refused(
    weir: Weir, meanwhile: Meanwhile
) -> None:
    """A compute that was suspended and started again may have written what storage did not speak of."""
    created = await weir.project(name="changed")
    weir.storage.advance(created["branch"]["timeline_id"], ACKNOWLEDGED)
    project, endpoint = created["project"]["id"], created["endpoints"][0]["id"]

    async def suspend() -> None:
        await weir.finish(await weir.call("POST", f"/projects/{project}/endpoints/{endpoint}/suspend"))

    meanwhile(suspend)
    answer = await weir.call("POST", f"/projects/{project}/branches", 423, json={})
    assert "was changed by another request" in answer["message"]
    branches = (await weir.call("GET", f"/projects/{project}/branches"))["branches"]
    assert [branch["id"] for branch in branches] == [created["branch"]["id"]]
    # Repeated, as it says.
    await weir.finish(await weir.call("POST", f"/projects/{project}/branches", 201, json={}))


async def test_two_that_are_made_at_once_do_not_take_one_name(weir: Weir, meanwhile: Meanwhile) -> None:
    created = await weir.project(name="same-name")
    weir.storage.advance(created["branch"]["timeline_id"], ACKNOWLEDGED)
    path = f"/projects/{created['project']['id']}/branches"
    body = {"branch": {"name": "dev"}}

    async def other() -> None:
        await weir.finish(await weir.call("POST", path, 201, json=body))

    meanwhile(other)
    await weir.call("POST", path, 423, json=body)
    assert len((await weir.call("GET", path))["branches"]) == 2


async def test_what_is_changed_without_an_operation_is_checked_again(weir: Weir, meanwhile: Meanwhile) -> None:
    """A parent that is to expire by now would be kept from it by the branch."""
    created = await weir.project(name="to-expire")
    weir.storage.advance(created["branch"]["timeline_id"], ACKNOWLEDGED)
    path = f"/projects/{created['project']['id']}/branches"
    parent = await weir.call("POST", path, 201, json={"branch": {"name": "parent"}})
    await weir.finish(parent)
    ident = parent["branch"]["id"]

    async def expire() -> None:
        body = {"branch": {"expires_at": "2100-01-01T00:00:00Z"}}
        await weir.call("PATCH", f"{path}/{ident}", json=body)

    meanwhile(expire)
    answer = await weir.call("POST", path, 412, json={"branch": {"parent_id": ident}})
    assert "expires at 2100-01-01" in answer["message"]


async def test_a_restore_of_a_branch_that_was_protected_meanwhile_is_refused(
    weir: Weir, meanwhile: Meanwhile
) -> None:
    created = await weir.project(name="protect")
    weir.storage.advance(created["branch"]["timeline_id"], ACKNOWLEDGED)
    path = f"/projects/{created['project']['id']}/branches"
    source = await weir.call("POST", path, 201, json={"branch": {"name": "source"}})
    await weir.finish(source)
    ident = created["branch"]["id"]

    async def protect() -> None:
        await weir.call("PATCH", f"{path}/{ident}", json={"branch": {"protected": True}})

    meanwhile(protect)
    body = {"source_branch_id": source["branch"]["id"], "preserve_under_name": "before"}
    answer = await weir.call("POST", f"{path}/{ident}/restore", 412, json=body)
    assert "is protected" in answer["message"]
    assert (await weir.call("GET", f"{path}/{ident}"))["branch"]["protected"]
