"""What the pageserver does with its layers over time: level 0 stays small, history goes when its time is over."""

from __future__ import annotations

import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from harness import Compute, Engine, Timeline, engine, lsn, metric, wait_for
from workloads import amcheck

# Many small layers: what takes days at the usual sizes happens in seconds.
SMALL_LAYERS = {"checkpoint_distance_bytes": 256 << 10, "compaction_target_bytes": 1 << 20}


def test_level_0_stays_below_30_layers_under_a_sustained_load() -> None:
    root = Path(tempfile.mkdtemp(prefix="weir-system-"))
    with engine(root) as running:
        compute = running.compute(running.create_timeline(), full_page_writes=False)
        running.configure_tenant(compute.timeline.tenant, **SMALL_LAYERS)
        compute.sql("CREATE TABLE t (id int, f text)")
        compute.sql("ALTER TABLE t ALTER f SET STORAGE PLAIN")

        def load() -> None:
            compute.sql("INSERT INTO t SELECT n, repeat(md5(n::text), 30) FROM generate_series(1, 60000) n")

        most = 0.0
        loading = threading.Thread(target=load, daemon=True)
        loading.start()
        while loading.is_alive():
            most = max(most, metric(running.storage, "weir_pageserver_l0_layers"))
            time.sleep(0.02)
        running.wait_ingested(compute.timeline, compute.status()["commit_lsn"], 120)
        flushed = metric(running.storage, "weir_pageserver_flush_seconds_count")
        assert flushed > 60, f"only {flushed} layers were flushed: the load was too small to say anything"
        assert 2 <= most < 30
        assert compute.sql("SELECT count(*) FROM t") == [(60000,)]


def churn(compute: Compute, rounds: int) -> None:
    for _ in range(rounds):
        compute.sql("UPDATE t SET v = v + 1, pad = repeat(md5(random()::text), 8)")
        compute.sql("VACUUM t")


def refused(running: Engine, timeline: Timeline, at: str) -> bool:
    body: dict[str, Any] = {
        "new_timeline_id": "f" * 32,
        "pg_version": 15,
        "safekeepers": [],
        "ancestor_timeline_id": timeline.id,
        "ancestor_start_lsn": at,
    }
    answer = running.storage.post(f"/v1/tenant/{timeline.tenant}/timeline", json=body)
    return answer.status_code in (400, 404) and "history" in answer.json()["message"]


def test_history_goes_after_its_window_but_not_what_branches_and_leases_hold() -> None:
    root = Path(tempfile.mkdtemp(prefix="weir-system-"))
    with engine(root) as running:
        compute = running.compute(running.create_timeline(), full_page_writes=False)
        timeline = compute.timeline
        path = f"/v1/tenant/{timeline.tenant}/timeline/{timeline.id}"
        running.configure_tenant(timeline.tenant, **SMALL_LAYERS, compaction_threshold=2)
        compute.sql("CREATE TABLE t AS SELECT n AS id, 0 AS v, '' AS pad FROM generate_series(1, 2000) n")
        compute.sql("CREATE INDEX ON t (id)")
        compute.sql("CREATE TABLE dropped AS SELECT n, repeat(md5(n::text), 60) AS f FROM generate_series(1, 6000) n")

        def position() -> str:
            at = compute.status()["commit_lsn"]
            running.wait_ingested(timeline, at)
            return at

        at_branch = position()
        branch = running.branch(timeline, ancestor_start_lsn=at_branch)
        churn(compute, 4)
        at_lease = position()
        given = running.storage.post(f"{path}/lease", json={"lsn": at_lease, "seconds": 600})
        assert given.status_code == 200, given.text
        assert given.json()["lsn"] == at_lease
        churn(compute, 4)
        at_nothing = position()
        compute.sql("DROP TABLE dropped")
        churn(compute, 4)
        running.storage.post(f"{path}/checkpoint").raise_for_status()
        running.configure_tenant(timeline.tenant, history_window_seconds=1)

        def trimmed() -> bool:
            churn(compute, 1)
            settled = metric(
                running.storage, "weir_pageserver_compaction_seconds_count", timeline_id=timeline.id, level="2"
            )
            oldest = running.timeline_status(timeline)["oldest_lsn"]
            return settled > 0 and lsn(oldest) > lsn(at_nothing)

        wait_for("history to be trimmed", trimmed, 90)
        read = metric(running.storage, "weir_pageserver_compaction_bytes_total", level="2", direction="read")
        written = metric(running.storage, "weir_pageserver_compaction_bytes_total", level="2", direction="written")
        assert written < read, f"{read} bytes became {written}"

        wait_for("the past to be refused", lambda: refused(running, timeline, at_nothing), 10)
        # Everything again from object storage, as after a crash.
        running.pageserver.kill9()
        running.pageserver.start()
        assert refused(running, timeline, at_nothing)
        old = running.compute(branch)
        assert old.sql("SELECT count(*), sum(v) FROM t") == [(2000, 0)]
        assert old.sql("SELECT count(*) FROM dropped") == [(6000,)]
        amcheck(old)
        leased = running.compute(running.branch(timeline, ancestor_start_lsn=at_lease))
        assert leased.sql("SELECT count(*), sum(v) FROM t") == [(2000, 4 * 2000)]
        assert leased.sql("SELECT count(*) FROM dropped") == [(6000,)]
        total = compute.sql("SELECT count(*), sum(v) FROM t")
        compute.suspend()
        again = running.compute(timeline)
        assert again.sql("SELECT count(*), sum(v) FROM t") == total
        amcheck(again)
