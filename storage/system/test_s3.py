"""The pageserver on an S3 bucket: the bucket is the truth, the disk a cache, and the newest pageserver counts."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator

import httpx
import pytest
from harness import Engine, Timeline, free_port, lsn, wait_for
from s3 import S3Server, engine_on_s3, s3_server
from workloads import AcknowledgedInserts, amcheck

# Many small layers, so that uploads, merges and deletions all happen.
SMALL = {"checkpoint_distance_bytes": 256 << 10, "checkpoint_timeout_ms": 500, "compaction_threshold": 3}


@pytest.fixture
def s3() -> Iterator[S3Server]:
    with s3_server() as server:
        yield server


def checkpoint(running: Engine, timeline: Timeline) -> httpx.Response:
    return running.storage.post(f"/v1/tenant/{timeline.tenant}/timeline/{timeline.id}/checkpoint")


def verify(running: Engine, s3: S3Server, timeline: Timeline) -> None:
    """Reads the timeline's newest index and every layer it names from the bucket, past any pageserver. One that works
    on may put another index, and delete what that does not name, between the two: then again."""
    command = [
        str(running.bin_dir / "weir-pageserver"),
        *("index", "verify", "--layers", "--object-store", running.object_store),
        *("--tenant", timeline.tenant, "--timeline", timeline.id),
    ]
    environment = {**os.environ, **s3.environment}

    def whole() -> bool:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stdout + done.stderr[:2000]
        return json.loads(done.stdout)["problems"] == []

    wait_for("the bucket to hold the timeline whole", whole, 20)


def test_a_pageserver_that_lost_its_disk_attaches_again_from_s3(s3: S3Server) -> None:
    with engine_on_s3(s3) as running:
        timeline = running.create_timeline()
        running.configure_tenant(timeline.tenant, **SMALL)
        compute = running.compute(timeline)
        load = AcknowledgedInserts(compute)
        load.start()
        wait_for("rows", lambda: load.count() > 300)
        assert checkpoint(running, timeline).status_code == 200
        # A store that is away keeps nobody from committing, and uploads go on when it is back.
        s3.process.kill9()
        during = load.count()
        wait_for("rows while the store is away", lambda: load.count() > during + 300)
        s3.process.start()
        wait_for(
            "what was ingested meanwhile to be durable",
            lambda: checkpoint(running, timeline).status_code == 200,
        )
        more = load.count()
        wait_for("rows that are in no layer yet", lambda: load.count() > more + 100)
        running.pageserver.kill9()
        shutil.rmtree(running.root / "pageserver")
        running.pageserver.start()
        after = load.count()
        wait_for("rows after the loss", lambda: load.count() > after + 100)
        load.stop()
        assert load.errors == []
        compute.kill9()

        load.compute = running.compute(timeline)
        assert load.missing() == []
        amcheck(load.compute)
        said = "".join(path.read_text(errors="replace") for path in running.root.glob("*.log"))
        assert s3.environment["AWS_SECRET_ACCESS_KEY"] not in said, "a log holds the secret key"


def test_a_pageserver_that_was_believed_dead_neither_corrupts_nor_deletes(s3: S3Server) -> None:
    with engine_on_s3(s3) as running:
        timeline = running.create_timeline()
        running.configure_tenant(timeline.tenant, **SMALL)
        compute = running.compute(timeline)
        compute.sql(
            "CREATE TABLE t AS SELECT n AS id, 0 AS v, repeat('x', 300) AS pad FROM generate_series(1, 3000) n"
        )
        assert checkpoint(running, timeline).status_code == 200

        before = running.timeline_status(timeline)
        running.pageserver.signal(signal.SIGSTOP)
        pages, http = free_port(), free_port()
        successor = running.another_pageserver("successor", pages, http)

        def asked_to_write() -> str:
            """What it says when asked for something that changes its index."""
            body = {"lsn": before["last_record_lsn"], "seconds": 60}
            path = f"/v1/tenant/{timeline.tenant}/timeline/{timeline.id}/lease"
            answer = running.storage.post(path, json=body)
            assert answer.status_code >= 500, answer.text
            return answer.text

        try:
            path = f"http://127.0.0.1:{http}/v1/tenant/{timeline.tenant}/timeline/{timeline.id}"
            compute.sql("UPDATE t SET v = v + 1")
            newest = compute.status()["commit_lsn"]
            wait_for(
                "the successor to ingest",
                lambda: lsn(httpx.get(path, timeout=5).json()["last_record_lsn"]) >= lsn(newest),
            )
            # The first one wakes up and goes on as if nothing had happened: a write to the bucket tells it.
            running.pageserver.signal(signal.SIGCONT)
            for _ in range(3):
                compute.sql("UPDATE t SET v = v + 1")
                checkpoint(running, timeline)
                assert "superseded" in asked_to_write()
                httpx.post(f"{path}/checkpoint", timeout=60).raise_for_status()
                verify(running, s3, timeline)
                # What it reports lets safekeepers trim no more than before it was stopped.
                held = running.timeline_status(timeline)["remote_consistent_lsn"]
                assert lsn(held) <= lsn(before["last_record_lsn"])
        finally:
            successor.stop()
        running.pageserver.kill9()
        running.pageserver.start()
        compute.kill9()
        again = running.compute(timeline)
        assert again.sql("SELECT count(*), sum(v) FROM t") == [(3000, 4 * 3000)]
        amcheck(again)
