"""Full page writes off, on and off again on a live compute; storage bounds the chains whoever did it."""

from __future__ import annotations

import re
from typing import Any

from harness import Compute, Engine, lsn, metric, wait_for
from workloads import amcheck, pgbench_init, pgbench_invariants, pgbench_start

SETTINGS = {"checkpoint_timeout": "30s", "max_wal_size": "64MB"}


def images_written(compute: Compute) -> float:
    return metric(compute, "weir_compute_wal_bytes_total", part="image")


def image_threshold(engine: Engine, compute: Compute) -> int:
    status = engine.timeline_status(compute.timeline)
    return int(status["image_threshold"])


def longest_chain(engine: Engine, compute: Compute) -> int:
    """The most deltas any page of the timeline has gathered since its newest image."""
    chains: dict[str, Any] = (
        engine.storage.get(f"/v1/tenant/{compute.timeline.tenant}/timeline/{compute.timeline.id}/chains")
        .raise_for_status()
        .json()
    )
    return int(chains["longest"])


def test_off_on_off_under_load_costs_no_transaction(own: Engine) -> None:
    compute = own.compute(own.create_timeline(), settings=SETTINGS)
    pgbench_init(compute)
    bench = pgbench_start(compute, 30)
    seen: list[int] = []
    for enabled in (False, True, False):
        answer = compute.switch_full_page_writes(enabled)
        assert answer["enabled"] is enabled
        assert answer["committed"] is True
        again = compute.switch_full_page_writes(enabled)
        assert again["lsn"] == answer["lsn"], "a repeat must change nothing"
        seen.append(lsn(answer["lsn"]))
        own.wait_ingested(compute.timeline, answer["lsn"])
        state = own.timeline_status(compute.timeline)["full_page_writes"]
        assert state == {"enabled": enabled, "lsn": answer["lsn"]}
    assert seen == sorted(set(seen))

    with compute.admin() as session:
        session.execute("CHECKPOINT")
    before = images_written(compute)
    rest = metric(compute, "weir_compute_wal_bytes_total", part="rest")
    compute.sql("UPDATE pgbench_accounts SET abalance = abalance + 0")
    assert metric(compute, "weir_compute_wal_bytes_total", part="rest") > rest
    assert images_written(compute) == before, "page images were logged although full page writes are off"

    output, _ = bench.communicate(timeout=90)
    assert bench.returncode == 0, output
    assert re.search(r"number of failed transactions: 0 ", output), output
    pgbench_invariants(compute)
    amcheck(compute)


def test_a_start_keeps_the_state_the_wal_says(own: Engine) -> None:
    timeline = own.create_timeline()
    compute = own.compute(timeline)
    lsn_off = compute.switch_full_page_writes(False)["lsn"]
    compute.suspend()
    again = own.compute(timeline, full_page_writes=False)
    assert again.sql("SHOW full_page_writes") == [("off",)]
    state = own.timeline_status(timeline)["full_page_writes"]
    assert state == {"enabled": False, "lsn": lsn_off}, "nothing changed, so nothing should have been logged"
    again.suspend()
    # A spec that wants it on makes Postgres log the change at the start.
    back = own.compute(timeline, full_page_writes=True)
    assert back.sql("SHOW full_page_writes") == [("on",)]
    own.wait_ingested(timeline, back.status()["commit_lsn"])
    wait_for("storage to see it on", lambda: own.timeline_status(timeline)["full_page_writes"]["enabled"])
    back.suspend()


def test_chains_stay_bounded_without_images_from_postgres(own: Engine) -> None:
    compute = own.compute(own.create_timeline(), settings=SETTINGS)
    pgbench_init(compute, scale=1)
    # Not through the agent: whoever switches it, storage keeps its duty.
    with compute.admin() as session:
        session.execute("ALTER SYSTEM SET full_page_writes = off")
        session.execute("SELECT pg_reload_conf()")
    bench = pgbench_start(compute, 15)
    output, _ = bench.communicate(timeout=60)
    assert bench.returncode == 0, output
    own.wait_ingested(compute.timeline, compute.status()["commit_lsn"])

    bound = image_threshold(own, compute)

    def bounded() -> bool:
        return longest_chain(own, compute) <= bound

    wait_for(f"pending chains to fall to {bound}", bounded)
    own.pageserver.kill9()
    own.pageserver.start()
    own.wait_ingested(compute.timeline, compute.status()["commit_lsn"])
    wait_for(f"pending chains to be at most {bound} after a restart", bounded)

    branch = own.branch(compute.timeline)
    on_branch = own.compute(branch, full_page_writes=False)
    assert image_threshold(own, on_branch) == bound, "a branch inherits the state, and the threshold with it"
    on_branch.sql("UPDATE pgbench_branches SET bbalance = bbalance")
    for _ in range(3 * bound):
        on_branch.sql("UPDATE pgbench_branches SET filler = 'x'")
    own.wait_ingested(branch, on_branch.status()["commit_lsn"])
    wait_for("pending chains on the branch to be bounded", lambda: longest_chain(own, on_branch) <= bound)
    pgbench_invariants(on_branch)
    amcheck(on_branch)
