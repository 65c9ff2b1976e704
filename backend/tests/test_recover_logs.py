"""Which branches `weir recover --logs` looks at, and what it says of those that are well. What it makes again is in
e2e/system/test_recover_logs.py, with a real storage engine."""

import asyncio

import pytest
from weir_testing.fixtures import Weir

from weir.cli.recover_logs import describe
from weir.endpoints.models import Endpoint
from weir.recovery.logs import (
    BranchLog,
    Lock,
    Outcome,
    RefusedError,
    Report,
    branch_logs,
    project_locked,
    recover_log,
)


async def _found(weir: Weir, project: str) -> list[BranchLog]:
    async with weir.resources.database.transaction() as session:
        found = await branch_logs(session, len(weir.resources.safekeepers))
    return [of for of in found if of.project_id == project]


def _lock(weir: Weir) -> Lock:
    return project_locked(weir.resources.database, len(weir.resources.safekeepers))


def _confirm(weir: Weir, of: BranchLog) -> None:
    """As the election of its first compute does with a log's members; the double holds none."""
    logs = [held[of.timeline] for held in weir.storage.keepers if of.timeline in held]
    assert len(logs) == len(of.members)
    for log in logs:
        log["generation_term"] = 1


@pytest.mark.asyncio
async def test_every_branch_is_looked_at_and_one_that_has_its_logs_is_kept(weir: Weir):
    created = await weir.project(name="with-logs")
    ident, main = created["project"]["id"], created["branch"]
    [of] = await _found(weir, ident)
    assert (of.project, of.branch_id, of.timeline) == ("with-logs", main["id"], main["timeline_id"])
    async with weir.resources.database.transaction() as session:
        endpoint = await session.get_one(Endpoint, created["endpoints"][0]["id"])
        assert of.busy == (None if endpoint.state == endpoint.desired_state == "idle" else endpoint.id)
    _confirm(weir, of)
    resources = weir.resources
    report = await recover_log(of, resources.pageserver, resources.safekeepers, lock=_lock(weir))
    assert report.outcome == Outcome.KEPT


@pytest.mark.asyncio
async def test_a_branch_that_storage_lacks_or_whose_compute_runs_is_refused(weir: Weir):
    created = await weir.project(name="without-logs")
    [of] = await _found(weir, created["project"]["id"])
    for held in weir.storage.keepers:
        held.pop(of.timeline, None)
    resources = weir.resources
    refused = await recover_log(of, resources.pageserver, resources.safekeepers, lock=_lock(weir))
    assert (refused.outcome, "suspend it" in refused.remark) == (Outcome.REFUSED, True)
    weir.storage.timelines.pop(of.timeline)
    refused = await recover_log(of, resources.pageserver, resources.safekeepers, lock=_lock(weir))
    assert (refused.outcome, refused.remark) == (Outcome.REFUSED, "storage does not have it")


@pytest.mark.asyncio
async def test_nothing_of_the_project_begins_while_its_log_is_made_again(weir: Weir):
    created = await weir.project(name="locked-logs")
    ident, endpoint = created["project"]["id"], created["endpoints"][0]["id"]
    [of] = await _found(weir, ident)
    async with _lock(weir)(of) as locked:
        assert locked == of
        # A request waits for the lock, and is refused when the lock is not free within its time.
        asked = asyncio.create_task(weir.client.post(f"/api/v2/projects/{ident}/endpoints/{endpoint}/suspend"))
        done, _ = await asyncio.wait({asked}, timeout=1)
        assert not done, (await asked).text
    answer = await asked
    assert answer.status_code == 200, answer.text
    with pytest.raises(RefusedError, match="is busy: operation"):
        async with _lock(weir)(of):
            pass
    await weir.finish(answer.json())


def test_the_table_says_what_each_branch_comes_back_to():
    of = BranchLog("shop", "p-1", "main", "br-1", "t", "tl", (1, 2, 3))
    told = describe([Report(of, Outcome.RECOVERED, "", "0/2000000", "2031-01-01T00:00:00Z", "offloaded")])
    assert [word in told for word in ("made again", "0/2000000", "offloaded", "2031-01-01T00:00:00Z")] == [True] * 4
