"""All safekeepers of a branch are lost: its log is made again from what they had offloaded, or from where storage is.

The recovery of the control plane on a real storage engine, without the rest of Weir.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "storage" / "system"))

from harness import Engine, Timeline, lsn
from test_offload import lose_everything_but_the_store, offloaded, offloading, wait_for

from weir.clients.pageserver import Pageserver
from weir.clients.safekeeper import Safekeeper
from weir.recovery.logs import BranchLog, Outcome, Report, recover_log


@asynccontextmanager
async def nobody_else(of: BranchLog) -> AsyncGenerator[BranchLog]:
    """There is no control plane that could start a compute meanwhile."""
    yield of


def recover(running: Engine, timeline: Timeline, *, dry_run: bool = False, accept_loss: bool = False) -> Report:
    of = BranchLog("shop", "p-1", "main", "br-1", timeline.tenant, timeline.id, (1, 2, 3))

    async def ask() -> Report:
        async with httpx.AsyncClient() as client:
            addresses = enumerate(running.http_ports, 1)
            keepers = [Safekeeper(number, f"http://127.0.0.1:{port}", client) for number, port in addresses]
            storage = Pageserver(f"http://127.0.0.1:{running.pageserver_http_port}", client)
            return await recover_log(of, storage, keepers, lock=nobody_else, dry_run=dry_run, accept_loss=accept_loss)

    return asyncio.run(ask())


def lose(running: Engine, number: int) -> None:
    running.safekeepers[number].kill9()
    shutil.rmtree(running.root / f"safekeeper-{number + 1}")


def rows_offloaded(running: Engine) -> tuple[Timeline, int]:
    """777 rows of a suspended branch, and the end of its log, which is in the object store."""
    timeline = running.create_timeline()
    compute = running.compute(timeline)
    compute.sql("CREATE TABLE story (id int)")
    compute.sql("INSERT INTO story SELECT generate_series(1, 777)")
    compute.suspend()
    end = lsn(running.safekeeper_status(0, timeline)["commit_lsn"])
    wait_for("the end of the log to be offloaded", lambda: offloaded(running, timeline) >= end, 60)
    return timeline, end


def test_a_log_that_is_lost_everywhere_is_made_again_to_where_it_was_offloaded() -> None:
    with offloading(idle_seconds=2) as running:
        timeline, end = rows_offloaded(running)
        lose_everything_but_the_store(running)
        planned = recover(running, timeline, dry_run=True)
        assert (planned.outcome, planned.origin) == (Outcome.PLANNED, "ingested")
        assert lsn(planned.lsn or "0/0") < end, "storage has it already"
        done = recover(running, timeline)
        assert (done.outcome, done.origin, lsn(done.lsn or "0/0")) == (Outcome.RECOVERED, "offloaded", end)
        assert done.at is not None
        assert recover(running, timeline).outcome == Outcome.KEPT
        compute = running.compute(timeline)
        assert compute.sql("SELECT count(*) FROM story") == [(777,)]
        compute.sql("INSERT INTO story VALUES (0)")
        compute.suspend()
        assert recover(running, timeline).outcome == Outcome.KEPT

        # What storage has is durable as pages, and not in the object store as WAL.
        for number in range(3):
            lose(running, number)
        for safekeeper in running.safekeepers:
            safekeeper.start()
        done = recover(running, timeline)
        assert (done.outcome, done.origin) == (Outcome.RECOVERED, "ingested")
        assert running.compute(timeline).sql("SELECT count(*) FROM story") == [(778,)]


def test_nothing_is_made_in_place_of_a_log_that_somebody_may_hold() -> None:
    with offloading(idle_seconds=2) as running:
        timeline, end = rows_offloaded(running)
        lose(running, 1)
        running.safekeepers[1].start()
        kept = recover(running, timeline)
        assert (kept.outcome, "safekeeper 2 has lost it" in kept.remark) == (Outcome.KEPT, True)
        lose(running, 2)
        running.safekeepers[2].start()
        held = recover(running, timeline, accept_loss=True)
        assert held.outcome == Outcome.REFUSED
        assert "safekeeper 1 (up to" in held.remark

        running.safekeepers[0].kill9()
        silent = recover(running, timeline)
        assert (silent.outcome, "--accept-loss-of br-1" in silent.remark) == (Outcome.REFUSED, True)
        for number in (1, 2):
            url = running.safekeeper_url(number, timeline)
            assert httpx.get(url, timeout=10).status_code == 404, "something was made"
        done = recover(running, timeline, accept_loss=True)
        assert (done.outcome, lsn(done.lsn or "0/0") >= end) == (Outcome.RECOVERED, True)
        assert running.compute(timeline).sql("SELECT count(*) FROM story") == [(777,)]
