"""A pageserver that starts while a disk is full: it serves what it can, says of the rest which file and why, and
opens that without a restart once there is room."""

from __future__ import annotations

import secrets
import shutil
import tempfile
import time
from pathlib import Path

import httpx
from disks import FULL, fill, small_disk
from harness import Engine, Timeline, engine, lsn, wait_for
from workloads import GROW, ROWS, growing_table


def path_of(timeline: Timeline) -> str:
    return f"/v1/tenant/{timeline.tenant}/timeline/{timeline.id}"


def stored(running: Engine, timeline: Timeline, at: str) -> tuple[str, str]:
    """An LSN up to which everything is in the object store, and what is read there."""
    running.wait_ingested(timeline, at)
    running.storage.post(f"{path_of(timeline)}/checkpoint").raise_for_status()
    return at, running.digest(timeline, at)


def answer(running: Engine, timeline: Timeline) -> httpx.Response:
    return running.storage.get(path_of(timeline))


def test_a_full_local_disk_at_the_start_keeps_nothing_closed_for_good() -> None:
    root = Path(tempfile.mkdtemp(prefix="weir-system-"))
    disk = root / "pageserver"
    with small_disk(disk, 96) as ballast, engine(root, object_store="mount://{objects}") as running:
        compute = running.compute(running.create_timeline())
        timeline = compute.timeline
        growing_table(running, compute)
        compute.sql(GROW)
        running.wait_ingested(timeline, compute.status()["commit_lsn"])
        branch = running.branch(timeline)
        compute.sql(GROW)
        at, digest = stored(running, timeline, compute.status()["commit_lsn"])
        compute.suspend()
        of_branch = running.digest(branch)

        running.pageserver.kill9()
        for below in disk.iterdir():
            shutil.rmtree(below)
        fill(ballast)
        running.pageserver.start()
        assert running.pageserver.child is not None
        started = running.pageserver.child.pid
        # Both are known, neither is open; the branch for want of what it was branched from.
        said = answer(running, timeline)
        assert said.status_code == 500, said.text
        assert FULL in said.text, said.text
        assert f"{disk}/tenants/{timeline.tenant}/{timeline.id}" in said.text, said.text
        assert "tried again" in said.text, said.text
        assert "ancestor" in answer(running, branch).text
        tenant = running.storage.get(f"/v1/tenant/{timeline.tenant}").raise_for_status().json()
        assert set(tenant["timelines"]) == {timeline.id, branch.id}
        # A new project needs a template cluster on that disk.
        body = {"new_timeline_id": secrets.token_hex(16), "pg_version": 15, "safekeepers": []}
        new = running.storage.post(f"/v1/tenant/{timeline.tenant}/timeline", json=body)
        assert new.status_code == 500, new.text
        assert FULL in new.text, new.text
        assert f"{disk}/templates" in new.text, new.text
        # What stands in the way of one attempt after the other is no reason to give up.
        time.sleep(4)
        assert FULL in answer(running, timeline).text

        ballast.unlink()
        wait_for("the timeline to open", lambda: answer(running, timeline).status_code == 200)
        wait_for("its branch to open", lambda: answer(running, branch).status_code == 200)
        assert running.digest(timeline, at) == digest
        assert running.digest(branch, branch.start_lsn) == of_branch
        running.create_timeline(timeline.tenant)
        again = running.compute(timeline)
        assert again.sql(ROWS) == [(8000, 4000)]
        again.sql(GROW)
        assert running.compute(branch).sql(ROWS) == [(4000, 4000)]
        assert running.pageserver.child.poll() is None
        assert running.pageserver.child.pid == started


def test_a_full_object_store_of_one_tenant_at_the_start_heals_without_another() -> None:
    root = Path(tempfile.mkdtemp(prefix="weir-system-"))
    tenant = secrets.token_hex(16)
    with engine(root) as running, small_disk(root / "objects" / tenant, 96) as ballast:
        compute, other = running.compute(running.create_timeline(tenant)), running.compute(running.create_timeline())
        full = compute.timeline
        for it in (compute, other):
            growing_table(running, it)
            it.sql(GROW)
        at, digest = stored(running, full, compute.status()["commit_lsn"])
        fill(ballast)
        compute.sql(GROW)
        running.pageserver.kill9()
        running.pageserver.start()
        said = answer(running, full)
        assert said.status_code == 500, said.text
        assert FULL in said.text, said.text
        assert f"put {tenant}/{full.id}/" in said.text, said.text
        # Neither its commits nor the neighbour wait for it.
        compute.sql(GROW)
        committed = compute.status()["commit_lsn"]
        other.sql(GROW)
        running.wait_ingested(other.timeline, other.status()["commit_lsn"])

        ballast.unlink()
        wait_for("the timeline to open", lambda: answer(running, full).status_code == 200)
        running.wait_ingested(full, committed)
        assert running.digest(full, at) == digest
        running.storage.post(f"{path_of(full)}/checkpoint").raise_for_status()
        assert lsn(running.timeline_status(full)["remote_consistent_lsn"]) >= lsn(committed)
        compute.suspend()
        assert running.compute(full).sql(ROWS) == [(12000, 4000)]


def test_copies_that_are_there_serve_while_the_disk_is_full() -> None:
    """Promise: with its copies at hand a timeline opens and is read, though the start finds no byte free."""
    root = Path(tempfile.mkdtemp(prefix="weir-system-"))
    disk = root / "pageserver"
    with small_disk(disk, 96) as ballast, engine(root, object_store="mount://{objects}") as running:
        compute = running.compute(running.create_timeline())
        timeline = compute.timeline
        growing_table(running, compute)
        compute.sql(GROW)
        at, digest = stored(running, timeline, compute.status()["commit_lsn"])
        running.pageserver.kill9()
        fill(ballast)
        running.pageserver.start()
        # Copies give way to the share of the disk that is left free; what is needed again finds room there.
        assert running.digest(timeline, at) == digest
        compute.sql(GROW)
        running.wait_ingested(timeline, compute.status()["commit_lsn"])
        ballast.unlink()
        compute.suspend()
        assert running.compute(timeline).sql(ROWS) == [(8000, 4000)]


def test_a_whole_object_store_full_at_the_start_heals_without_another() -> None:
    """Promise: nothing is opened and each timeline says why; commits go on; all open once there is room."""
    root = Path(tempfile.mkdtemp(prefix="weir-system-"))
    with small_disk(root / "objects", 256) as ballast, engine(root) as running:
        computes = [running.compute(running.create_timeline()) for _ in range(2)]
        digests = []
        for compute in computes:
            growing_table(running, compute)
            compute.sql(GROW)
            digests.append(stored(running, compute.timeline, compute.status()["commit_lsn"]))
        fill(ballast)
        running.pageserver.kill9()
        running.pageserver.start()
        assert running.pageserver.child is not None
        started = running.pageserver.child.pid
        for compute in computes:
            said = answer(running, compute.timeline)
            assert said.status_code == 500, said.text
            assert FULL in said.text, said.text
            compute.sql(GROW)
        assert running.pageserver.child.poll() is None

        ballast.unlink()
        for compute, (at, digest) in zip(computes, digests, strict=True):
            timeline = compute.timeline
            wait_for("the timeline to open", lambda timeline=timeline: answer(running, timeline).status_code == 200)
            assert running.digest(timeline, at) == digest
            running.wait_ingested(timeline, compute.status()["commit_lsn"])
            compute.suspend()
            assert running.compute(timeline).sql(ROWS) == [(8000, 4000)]
        assert running.pageserver.child.pid == started
