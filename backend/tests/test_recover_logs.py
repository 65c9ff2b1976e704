"""Which branches `weir recover --logs` looks at, and what it says of those that are well. What it makes again is in
e2e/system/test_recover_logs.py, with a real storage engine."""

from dataclasses import replace

import pytest
from weir_testing.fixtures import Weir

from weir.cli.recover_logs import describe
from weir.endpoints.models import Endpoint
from weir.recovery.logs import BranchLog, Outcome, Report, branch_logs, recover_log


async def _found(weir: Weir, project: str) -> list[BranchLog]:
    async with weir.resources.database.transaction() as session:
        found = await branch_logs(session, len(weir.resources.safekeepers))
    return [of for of in found if of.project_id == project]


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
    report = await recover_log(of, resources.pageserver, resources.safekeepers)
    assert report.outcome == Outcome.KEPT


@pytest.mark.asyncio
async def test_a_branch_that_storage_lacks_or_whose_compute_runs_is_refused(weir: Weir):
    created = await weir.project(name="without-logs")
    [of] = await _found(weir, created["project"]["id"])
    for held in weir.storage.keepers:
        held.pop(of.timeline, None)
    resources = weir.resources
    busy = replace(of, busy="ep-1")
    refused = await recover_log(busy, resources.pageserver, resources.safekeepers)
    assert (refused.outcome, "suspend it" in refused.remark) == (Outcome.REFUSED, True)
    weir.storage.timelines.pop(of.timeline)
    refused = await recover_log(of, resources.pageserver, resources.safekeepers)
    assert (refused.outcome, refused.remark) == (Outcome.REFUSED, "storage does not have it")


def test_the_table_says_what_each_branch_comes_back_to():
    of = BranchLog("shop", "p-1", "main", "br-1", "t", "tl", (1, 2, 3))
    told = describe([Report(of, Outcome.RECOVERED, "", "0/2000000", "2031-01-01T00:00:00Z", "offloaded")])
    assert [word in told for word in ("made again", "0/2000000", "offloaded", "2031-01-01T00:00:00Z")] == [True] * 4
