"""The pageserver's memory is bounded over all its timelines, and no tenant's load stalls another's."""

from __future__ import annotations

import tempfile
import threading
import time
from pathlib import Path

from harness import Compute, engine, metric

LIMIT_MIB = 64
# What may be ingested between two looks at everybody's memory.
SLACK = 24 << 20


def bulk_load(compute: Compute) -> None:
    compute.sql("CREATE TABLE t (id int, f text)")
    compute.sql("ALTER TABLE t ALTER f SET STORAGE PLAIN")
    compute.sql("INSERT INTO t SELECT n, repeat(md5(n::text), 30) FROM generate_series(1, 120000) n")


def test_bulk_loads_of_several_tenants_stay_within_the_budget_and_stall_no_neighbour() -> None:
    root = Path(tempfile.mkdtemp(prefix="weir-system-"))
    with engine(root, pageserver_options=["--memory-mib", str(LIMIT_MIB)]) as running:
        loaded = [running.compute(running.create_timeline(), full_page_writes=False) for _ in range(3)]
        neighbour = running.compute(running.create_timeline())
        neighbour.sql("CREATE TABLE small (id int)")
        highest, slowest = 0.0, 0.0
        threads = [threading.Thread(target=bulk_load, args=(compute,), daemon=True) for compute in loaded]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            neighbour.sql("INSERT INTO small VALUES (1)")
            began = time.monotonic()
            running.wait_ingested(neighbour.timeline, neighbour.status()["commit_lsn"], 30)
            slowest = max(slowest, time.monotonic() - began)
            highest = max(highest, metric(running.storage, "weir_pageserver_memory_layers_bytes"))
        for compute in loaded:
            running.wait_ingested(compute.timeline, compute.status()["commit_lsn"], 60)
            highest = max(highest, metric(running.storage, "weir_pageserver_memory_layers_bytes"))
        assert highest < (LIMIT_MIB << 20) + SLACK
        assert highest > (LIMIT_MIB << 20) / 4, "the load was too small to come near the limit"
        assert slowest < 10, f"a commit of the quiet tenant took {slowest:.1f} s to be ingested"
        for compute in loaded:
            assert compute.sql("SELECT count(*) FROM t") == [(120000,)]
