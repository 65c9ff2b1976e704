"""The safekeepers of a branch: what is shown of them, what may be asked for, and replacing one for everybody."""

from typing import Any

import pytest
from weir_testing.fixtures import Weir


def _path(created: dict[str, Any]) -> str:
    return f"/projects/{created['project']['id']}/branches/{created['branch']['id']}/safekeepers"


async def test_the_members_are_shown_as_the_safekeepers_say(weir: Weir) -> None:
    created = await weir.project(name="shown")
    timeline = created["branch"]["timeline_id"]
    weir.storage.advance(timeline, "0/1900000")
    weir.storage.keepers[1][timeline]["flush_lsn"] = "0/18FFF00"
    lost = weir.storage.keepers[2].pop(timeline)
    shown = await weir.call("GET", _path(created))
    assert (shown["generation"], shown["reason"], shown["operation_id"]) == (1, None, None)
    assert shown["available"] == [4, 5]
    first, second, third = shown["members"]
    assert (first["role"], first["state"], first["reason"], first["lag_bytes"]) == ("voter", "active", None, 0)
    assert first["disk"] == f"{1:032x}"
    assert first["since"] is not None
    assert second["lag_bytes"] == 0x100
    assert (third["state"], third["flush_lsn"], third["lag_bytes"]) == ("lost", None, None)
    assert "lacks this log" in third["reason"]
    weir.storage.keepers[2][timeline] = lost
    lost |= {"state": "stopped", "reason": "its disk is full"}
    weir.storage.fail("safekeeper-2", "GET", timeline, 503)
    first, second, third = (await weir.call("GET", _path(created)))["members"]
    assert (second["state"], second["term"]) == ("unreachable", None)
    assert (third["state"], third["reason"]) == ("stopped", "its disk is full")


async def test_without_a_majority_it_is_said_that_the_members_may_be_others(weir: Weir) -> None:
    created = await weir.project(name="doubt")
    for number in (1, 2):
        weir.storage.fail(f"safekeeper-{number}", "GET", created["branch"]["timeline_id"], 503, times=100)
    shown = await weir.call("GET", _path(created))
    assert "may have changed" in shown["reason"]
    refused = await weir.call("POST", _path(created), 412, json={"safekeepers": [1, 3, 4]})
    assert "stay as they are" in refused["message"]
    weir.storage.fail("safekeeper-3", "GET", created["branch"]["timeline_id"], 503, times=100)
    shown = await weir.call("GET", _path(created))
    assert (shown["generation"], len(shown["members"])) == (None, 3)


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        ([1, 2, 6], "no safekeeper 6"),
        ([1, 1, 2], "named twice"),
        ([1, 2], "3 or 5"),
        ([1, 2, 3, 4], "3 or 5"),
        ([1], "3 or 5"),
        ([], "safekeepers"),
        ([0, 1, 2], "greater than or equal to 1"),
    ],
)
async def test_a_set_that_no_log_may_have_is_refused(weir: Weir, wanted: list[int], why: str) -> None:
    created = await weir.project(name="sets")
    refused = await weir.call("POST", _path(created), 400, json={"safekeepers": wanted})
    assert why in refused["message"]


async def test_a_safekeeper_that_is_away_is_not_made_a_member(weir: Weir) -> None:
    created = await weir.project(name="away")
    weir.storage.fail("safekeeper-4", "GET", created["branch"]["timeline_id"], 503)
    refused = await weir.call("POST", _path(created), 412, json={"safekeepers": [1, 2, 4]})
    assert "safekeeper 4 does not answer" in refused["message"]


async def test_the_branches_of_others_have_no_safekeepers(weir: Weir) -> None:
    created = await weir.project(name="mine")
    async with weir.as_account("a-stranger") as stranger:
        await stranger.call("GET", _path(created), 404)
        await stranger.call("POST", _path(created), 404, json={"safekeepers": [1, 2, 4]})
        await stranger.call("POST", "/fleet/storage/safekeepers/1/replace", 403, json={"with": 4})


async def test_an_operator_replaces_a_safekeeper_for_all_branches(weir: Weir) -> None:
    created = await weir.project(name="everywhere")
    branches = f"/projects/{created['project']['id']}/branches"
    weir.storage.advance(created["branch"]["timeline_id"], "0/1800000")
    made = await weir.call("POST", branches, 201, json={"branch": {"name": "second"}})
    await weir.finish(made)
    mine = {created["branch"]["id"]: created["branch"], made["branch"]["id"]: made["branch"]}
    async with weir.as_account("an-operator", operator=True) as operator:
        path = "/fleet/storage/safekeepers/3/replace"
        assert "no safekeeper 9" in (await operator.call("POST", path, 400, json={"with": 9}))["message"]
        weir.storage.fail("safekeeper-5", "GET", "/healthz", 503)
        await operator.call("POST", path, 412, json={"with": 5})
        answer = await operator.call("POST", path, json={"with": 5})
        assert (answer["remaining"], answer["next"]) == (0, None)
        assert answer["queued"] == len(answer["operations"])
        queued = {row["branch_id"]: row["operation_id"] for row in answer["operations"]}
        assert set(mine) <= set(queued)
        listed = [{"id": queued[ident], "project_id": created["project"]["id"]} for ident in mine]
        await weir.finish({"operations": listed})
        for branch in mine.values():
            assert weir.storage.members.voters(branch["timeline_id"]) == [1, 2, 5]
        again = await operator.call("POST", path, json={"with": 5})
        assert not set(mine) & {row["branch_id"] for row in again["operations"] + again["not_queued"]}
