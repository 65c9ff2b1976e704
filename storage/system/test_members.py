"""A log is given other members while its compute writes, and the next compute goes by what the log says."""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from harness import Compute, Engine, Timeline, engine, wait_for


@pytest.fixture
def four() -> Iterator[Engine]:
    with engine(Path(tempfile.mkdtemp(prefix="weir-system-")), safekeeper_count=4) as running:
        yield running


def spare_the_fourth(running: Engine, timeline: Timeline) -> list[str]:
    """The fourth safekeeper gets the timeline as one that waits to be a learner. WAL addresses of all."""
    identifier = running.timeline_status(timeline)["system_identifier"]
    url = running.safekeeper_url(3, timeline)
    assert httpx.delete(url, timeout=10).status_code == 204
    body = {"start_lsn": timeline.start_lsn, "system_identifier": str(identifier), "pg_version": 15, "learner": True}
    assert httpx.post(url, json=body, timeout=10).status_code == 201
    return running.wal_addresses()


def change(compute: Compute, **request: Any) -> dict[str, Any]:
    answer = compute.http.post("/members", json=request, timeout=60)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_lost_safekeeper_is_replaced_under_load_and_stays_replaced(four: Engine) -> None:
    timeline = four.create_timeline()
    addresses = spare_the_fourth(four, timeline)
    compute = four.compute(timeline, safekeepers=addresses[:3])
    compute.sql("CREATE TABLE written (id int PRIMARY KEY)")
    wait_for("the log to name its members", lambda: compute.status()["members"]["generation"] == 1, 30)
    stop, written = threading.Event(), []

    def write() -> None:
        while not stop.is_set():
            compute.sql(f"INSERT INTO written VALUES ({len(written)})")
            written.append(len(written))

    writer = threading.Thread(target=write)
    writer.start()
    four.safekeepers[0].stop()
    shutil.rmtree(four.root / "safekeeper-1")
    assert [m["role"] for m in change(compute, add=addresses[3])["members"]] == ["voter"] * 3 + ["learner"]
    change(compute, promote=4)
    replaced = change(compute, remove=1)
    assert [member["safekeeper"] for member in replaced["members"]] == [2, 3, 4]
    before = len(written)
    wait_for("commits to go on", lambda: len(written) > before + 20, 30)
    stop.set()
    writer.join(30)
    assert not writer.is_alive()
    compute.suspend()

    # Two of the first three are away now; the start finds a majority of those that the log names.
    four.safekeepers[1].stop()
    again = four.compute(timeline, safekeepers=addresses)
    assert again.sql("SELECT count(*) FROM written") == [(len(written),)]
    assert again.status()["members"]["members"] == replaced["members"]


def test_one_change_at_a_time_and_only_what_makes_sense(four: Engine) -> None:
    timeline = four.create_timeline()
    addresses = spare_the_fourth(four, timeline)
    compute = four.compute(timeline, safekeepers=addresses[:3])
    wait_for("the log to name its members", lambda: compute.status()["members"]["generation"] == 1, 30)
    cases: list[tuple[dict[str, Any], int, str]] = [
        ({"add": addresses[3], "remove": 1}, 400, "bad_request"),
        ({"promote": 4}, 404, "not_found"),
        ({"add": "127.0.0.1:1", "timeout_ms": 500}, 504, "timeout"),
    ]
    for request, status, code in cases:
        answer = compute.http.post("/members", json=request, timeout=30)
        assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text
    assert compute.status()["members"]["generation"] == 1, "nothing has changed"
    compute.sql("CREATE TABLE still_writes ()")
