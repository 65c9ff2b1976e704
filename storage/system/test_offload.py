"""Finished WAL in the object store brings a timeline back when all of its safekeepers are lost.

The pageserver is killed as well, so that it has nothing but what is durable as pages, which is next to nothing here:
every row comes from the WAL that the safekeepers had offloaded.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Any

import httpx
from harness import Compute, Engine, Timeline, engine, lsn, metric, wait_for

SEGMENT = 16 << 20


@contextlib.contextmanager
def offloading(idle_seconds: int) -> Generator[Engine]:
    options = ["--object-store", "file://{objects}", "--offload-idle-seconds", str(idle_seconds)]
    with engine(Path(tempfile.mkdtemp(prefix="weir-system-")), safekeeper_options=options) as running:
        yield running


def offloaded(running: Engine, timeline: Timeline) -> int:
    found = [running.safekeeper_status(number, timeline)["offloaded_lsn"] for number in range(3)]
    return max(lsn(at) if at else 0 for at in found)


def lose_everything_but_the_store(running: Engine) -> None:
    running.pageserver.kill9()
    for number, safekeeper in enumerate(running.safekeepers):
        safekeeper.kill9()
        shutil.rmtree(running.root / f"safekeeper-{number + 1}")
    for safekeeper in running.safekeepers:
        safekeeper.start()
    running.pageserver.start()


def found_and_fill(running: Engine, timeline: Timeline) -> dict[str, Any]:
    """New logs on the new disks, from where the pageserver is on, with what the store has; what each one answered."""
    status = running.timeline_status(timeline)
    disks = [httpx.get(f"http://127.0.0.1:{port}/v1/disk", timeout=10).json() for port in running.http_ports]
    body = {
        "start_lsn": status["last_record_lsn"],
        "system_identifier": str(status["system_identifier"]),
        "pg_version": 15,
        "founders": disks,
    }
    answers: list[dict[str, Any]] = []
    for number in range(3):
        url = running.safekeeper_url(number, timeline)
        assert httpx.post(url, json=body, timeout=10).status_code == 201
    for number in range(3):
        url = running.safekeeper_url(number, timeline)
        answer = httpx.post(f"{url}/fill", json={"min_term": status["max_term"]}, timeout=60)
        assert answer.status_code == 200, answer.text
        answers.append(answer.json())
    assert all(answer == answers[0] for answer in answers), answers
    return answers[0]


def write_until(compute: Compute, running: Engine, timeline: Timeline, target: int) -> list[tuple[int, int]]:
    """Rows of half a megabyte, one a transaction, until so much is offloaded: each row and where its commit ended."""
    written: list[tuple[int, int]] = []
    with compute.connect() as connection:
        while offloaded(running, timeline) < target:
            row = len(written)
            connection.execute(
                "INSERT INTO wide SELECT %s, string_agg(md5(random()::text), '') FROM generate_series(1, 16384)",
                (row,),
            )
            at = connection.execute("SELECT pg_current_wal_insert_lsn()::text").fetchone()
            assert at is not None
            written.append((row, lsn(at[0])))
            assert len(written) < 1000, "nothing is offloaded"
    return written


def test_rows_up_to_the_offloaded_lsn_survive_the_loss_of_all_safekeepers() -> None:
    """With the compute killed while it writes: nothing offloaded is missing, and what is there is whole."""
    with offloading(idle_seconds=600) as running:
        timeline = running.create_timeline()
        compute = running.compute(timeline)
        compute.sql("CREATE TABLE wide (id int PRIMARY KEY, filler text)")
        first = (lsn(timeline.start_lsn) // SEGMENT + 1) * SEGMENT
        written = write_until(compute, running, timeline, first + SEGMENT)
        compute.kill9()
        saved = offloaded(running, timeline)
        lose_everything_but_the_store(running)
        ingested = lsn(running.timeline_status(timeline)["last_record_lsn"])
        assert ingested < saved, "the pageserver has it already"

        filled = found_and_fill(running, timeline)
        assert saved - SEGMENT < lsn(filled["filled_to"]) <= saved
        again = running.compute(timeline)
        found = {row for (row,) in again.sql("SELECT id FROM wide WHERE length(filler) = 16384 * 32")}
        # The last record may go on in a segment that was not finished.
        promised = {row for row, at in written if at <= lsn(filled["filled_to"])}
        assert len(promised) > 20
        assert promised <= found <= {row for row, _ in written}
        again.sql("INSERT INTO wide VALUES (-1, '')")


def test_nothing_is_lost_once_the_end_of_an_idle_log_is_offloaded() -> None:
    """Promise: after a suspended compute, everything comes back, and the compute goes on from there."""
    with offloading(idle_seconds=2) as running:
        timeline = running.create_timeline()
        compute = running.compute(timeline)
        compute.sql("CREATE TABLE story (id int)")
        compute.sql("INSERT INTO story SELECT generate_series(1, 777)")
        compute.suspend()
        end = lsn(running.safekeeper_status(0, timeline)["commit_lsn"])
        wait_for("the end of the log to be offloaded", lambda: offloaded(running, timeline) >= end, 60)
        lose_everything_but_the_store(running)
        assert lsn(found_and_fill(running, timeline)["filled_to"]) == end
        again = running.compute(timeline)
        assert again.sql("SELECT count(*), sum(id) FROM story") == [(777, 777 * 778 // 2)]
        again.sql("INSERT INTO story VALUES (0)")
        again.suspend()


def test_logs_founded_anew_win_no_term_of_before() -> None:
    """With nothing in the store: storage would take a compute of a term that was used up for one of the past."""
    with offloading(idle_seconds=600) as running:
        timeline = running.create_timeline()
        for _ in range(2):
            compute = running.compute(timeline)
            compute.sql("SELECT 1")
            compute.suspend()
        used = running.timeline_status(timeline)["max_term"]
        running.storage.post(f"/v1/tenant/{timeline.tenant}/timeline/{timeline.id}/checkpoint").raise_for_status()
        lose_everything_but_the_store(running)
        found_and_fill(running, timeline)
        assert [running.safekeeper_status(number, timeline)["term"] for number in range(3)] == [used] * 3
        again = running.compute(timeline)
        again.sql("CREATE TABLE afterwards (id int)")
        assert again.status()["term"] > used


def orphaned(running: Engine) -> float:
    """Pieces of WAL that safekeepers have put into the store and taken back, because their timeline was deleted."""
    total = 0.0
    for port in running.http_ports:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=10) as client:
            total += metric(client, "weir_safekeeper_offloads_total", outcome="orphaned")
    return total


def test_a_timeline_that_is_deleted_before_its_logs_leaves_nothing_in_the_store() -> None:
    """Promise: in the order in which the control plane deletes, with safekeepers that are away meanwhile and
    offload for the first time after it. The timeline beside it stays whole."""
    root = Path(tempfile.mkdtemp(prefix="weir-system-"))
    offload = ["--object-store", "file://{objects}", "--offload-idle-seconds", "2"]
    with engine(root, safekeeper_options=offload, pageserver_options=["--tombstone-seconds", "25"]) as running:
        stays = running.create_timeline()
        timeline = running.create_timeline(stays.tenant)
        compute = running.compute(stays)
        compute.sql("CREATE TABLE story AS SELECT generate_series(1, 777) AS id")
        compute.suspend()
        end = lsn(running.safekeeper_status(0, stays)["commit_lsn"])
        wait_for("the log that stays to be offloaded", lambda: offloaded(running, stays) >= end, 60)
        doomed = running.compute(timeline)
        doomed.sql("CREATE TABLE t (i int)")
        # A log knows of a commit on disk a second later. One that knows of none has nothing to offload.
        committed = lsn(running.safekeeper_status(0, timeline)["commit_lsn"])
        wait_for(
            "the logs to have stored what is committed",
            lambda: min(map(lsn, running.stored_commits(timeline))) >= committed,
            20,
        )
        for safekeeper in running.safekeepers:
            safekeeper.kill9()
        doomed.kill9()
        objects = root / "objects"
        folder = objects / timeline.tenant / timeline.id
        running.storage.delete(f"/v1/tenant/{timeline.tenant}/timeline/{timeline.id}").raise_for_status()
        assert not folder.exists()
        for safekeeper in running.safekeepers:
            safekeeper.start()

        wait_for("WAL of the deleted timeline to be offloaded", lambda: orphaned(running), 60)
        for number in range(3):
            httpx.delete(running.safekeeper_url(number, timeline), timeout=30).raise_for_status()
        wait_for("the store to have nothing of it", lambda: not folder.exists(), 30)
        wait_for("the tombstone to go", lambda: not (objects / "deleted").exists(), 60)
        assert not folder.exists()
        assert list((objects / stays.tenant / stays.id / "wal").iterdir())
        lose_everything_but_the_store(running)
        found_and_fill(running, stays)
        again = running.compute(stays)
        assert again.sql("SELECT count(*) FROM story") == [(777,)]
