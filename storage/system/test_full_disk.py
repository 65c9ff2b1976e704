"""Disks that are full: of the object store, of the copies of layers. Errors name file and reason, the rest goes on,
and all heals when there is space again."""

from __future__ import annotations

import secrets
import tempfile
import time
from pathlib import Path

import disks
import httpx
import pytest
from disks import FULL, small_disk
from harness import Engine, Timeline, engine, lsn, metric, wait_for
from workloads import GROW, amcheck, growing_table

# Layers that are not written yet, and those that are not stored yet.
WAITING = ("memory", "uploading")


def fill(ballast: Path) -> None:
    disks.fill(ballast)
    with ballast.open("ab", buffering=0) as file, pytest.raises(OSError, match=FULL):
        file.write(b"x")


def trouble(running: Engine, timeline: Timeline) -> dict[str, str] | None:
    return running.timeline_status(timeline)["uploads_failing"]


def test_a_full_object_store_stops_one_tenant_and_loses_nothing() -> None:
    root = Path(tempfile.mkdtemp(prefix="weir-system-"))
    tenant = secrets.token_hex(16)
    with engine(root) as running, small_disk(root / "objects" / tenant, 96) as ballast:
        compute, other = running.compute(running.create_timeline(tenant)), running.compute(running.create_timeline())
        full, healthy = compute.timeline, other.timeline
        for it in (compute, other):
            growing_table(running, it)
            it.sql("CREATE INDEX ON t (hash)")
        fill(ballast)
        before = running.timeline_status(full)["remote_consistent_lsn"]
        compute.sql(GROW)
        found = wait_for("the status to say it", lambda: trouble(running, full))
        assert FULL in found["reason"], found
        assert "layer " in found["reason"], found
        assert found["since"].startswith("20"), found

        # Ingest goes on up to its bound, commits go on beyond it, reads of what is there too.
        at = running.timeline_status(full)["last_record_lsn"]
        digest = running.digest(full, at)
        grown = 1

        def ingested() -> int:
            return lsn(running.timeline_status(full)["last_record_lsn"])

        def is_held() -> bool:
            """Whether ingest stands still behind a commit: it waits rather than fill the memory."""
            nonlocal grown
            compute.sql(GROW)
            grown += 1
            committed = lsn(compute.status()["commit_lsn"])
            reached = ingested()
            time.sleep(2)
            return reached < committed and ingested() == reached

        wait_for("ingest to reach its bound", is_held)
        kept = [metric(running.storage, f"weir_pageserver_{it}_layer_bytes", timeline_id=full.id) for it in WAITING]
        assert sum(kept) > 0, "what is not stored is in memory"
        committed = compute.status()["commit_lsn"]
        assert running.digest(full, at) == digest
        assert running.timeline_status(full)["remote_consistent_lsn"] == before
        for port in running.http_ports:
            keeper = f"http://127.0.0.1:{port}/v1/tenant/{full.tenant}/timeline/{full.id}"
            assert lsn(httpx.get(keeper).json()["remote_consistent_lsn"]) <= lsn(before)
        failing = "weir_pageserver_uploads_failing_seconds"
        wait_for("the metric", lambda: metric(running.storage, failing, timeline_id=full.id) >= 1)

        # The neighbour does not notice.
        other.sql(GROW)
        its_own = other.status()["commit_lsn"]
        running.wait_ingested(healthy, its_own)
        running.storage.post(f"/v1/tenant/{healthy.tenant}/timeline/{healthy.id}/checkpoint").raise_for_status()
        assert lsn(running.timeline_status(healthy)["remote_consistent_lsn"]) >= lsn(its_own)
        assert trouble(running, healthy) is None

        ballast.unlink()
        wait_for("uploads to go on", lambda: trouble(running, full) is None)
        running.wait_ingested(full, committed)
        path = f"/v1/tenant/{full.tenant}/timeline/{full.id}/checkpoint"
        running.storage.post(path).raise_for_status()
        assert lsn(running.timeline_status(full)["remote_consistent_lsn"]) >= lsn(committed)
        assert running.digest(full, at) == digest
        rows = compute.sql("SELECT count(*), count(DISTINCT hash) FROM t")
        assert rows == [(grown * 4000, 4000)]
        running.pageserver.kill9()
        running.pageserver.start()
        compute.suspend()
        again = running.compute(full)
        assert again.sql("SELECT count(*), count(DISTINCT hash) FROM t") == rows
        amcheck(again)


def test_a_full_disk_for_copies_is_an_error_that_names_the_file_and_heals() -> None:
    root = Path(tempfile.mkdtemp(prefix="weir-system-"))
    disk = root / "pageserver"
    copies = disk / "tenants"
    with small_disk(disk, 64) as ballast, engine(root, object_store="mount://{objects}") as running:
        compute = running.compute(running.create_timeline())
        timeline = compute.timeline
        growing_table(running, compute)
        for _ in range(3):
            compute.sql(GROW)
        at = compute.status()["commit_lsn"]
        running.wait_ingested(timeline, at)
        running.storage.post(f"/v1/tenant/{timeline.tenant}/timeline/{timeline.id}/checkpoint").raise_for_status()
        digest = running.digest(timeline, at)
        evicted = metric(running.storage, "weir_pageserver_layers_evicted_total")

        # Whatever copies give way to is taken at once, until there are none and no room for any.
        path = f"/v1/tenant/{timeline.tenant}/timeline/{timeline.id}/digest"

        def says_why() -> str | None:
            fill(ballast)
            answer = running.storage.get(path)
            return answer.text if answer.status_code >= 500 else None

        why = wait_for("an error", says_why)
        assert FULL in why, why
        assert f"{copies}/{timeline.tenant}/{timeline.id}/" in why, why
        # Copies give way at the next look at the disk.
        wait_for("copies to go", lambda: metric(running.storage, "weir_pageserver_layers_evicted_total") > evicted)
        assert not list(copies.rglob("*.part")), "half a layer helps nobody"
        ballast.unlink()
        assert running.digest(timeline, at) == digest
        compute.suspend()
        assert running.compute(timeline).sql("SELECT count(*) FROM t") == [(3 * 4000,)]


def test_a_compute_that_starts_while_its_object_store_is_full_says_why_and_runs_once_there_is_room() -> None:
    root = Path(tempfile.mkdtemp(prefix="weir-system-"))
    tenant = secrets.token_hex(16)
    with engine(root) as running, small_disk(root / "objects" / tenant, 96) as ballast:
        compute = running.compute(running.create_timeline(tenant))
        compute.sql("CREATE TABLE t (id int, hash text, filler text)")
        compute.sql(GROW)
        fill(ballast)
        compute.kill9()
        again = running.compute(compute.timeline, wait=False)

        def reason() -> str:
            return again.status()["reason"] or ""

        wait_for("the reason", lambda: FULL in reason(), 45)
        assert again.status()["state"] == "starting"
        assert f"put {tenant}/{compute.timeline.id}/" in reason(), reason()
        ballast.unlink()
        again.wait_running()
        assert again.status()["reason"] is None
        assert again.sql("SELECT count(*) FROM t") == [(4000,)]
