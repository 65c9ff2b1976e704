"""`weir-members` changes the members of a log that has no compute, and gives way to a compute that comes."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from harness import Compute, Engine, Timeline, engine, wait_for

REFUSED, NO_MAJORITY = 4, 5


@pytest.fixture
def four() -> Iterator[Engine]:
    with engine(Path(tempfile.mkdtemp(prefix="weir-system-")), safekeeper_count=4) as running:
        yield running


def spare_the_fourth(running: Engine, timeline: Timeline) -> list[str]:
    """The fourth safekeeper has the timeline as one that waits to be a learner. WAL addresses of all."""
    url = running.safekeeper_url(3, timeline)
    assert httpx.delete(url, timeout=10).status_code == 204
    make_learner(running, timeline, 3)
    return running.wal_addresses()


def make_learner(running: Engine, timeline: Timeline, index: int) -> None:
    identifier = running.timeline_status(timeline)["system_identifier"]
    body = {"start_lsn": timeline.start_lsn, "system_identifier": str(identifier), "pg_version": 15, "learner": True}
    assert httpx.post(running.safekeeper_url(index, timeline), json=body, timeout=10).status_code == 201


def members(running: Engine, timeline: Timeline, asked: list[str], *words: str, **options: Any) -> Any:
    """What the program prints; its exit code where that is not 0."""
    ingested = options.pop("ingested_lsn", running.timeline_status(timeline)["last_record_lsn"])
    command = [
        *(str(running.bin_dir / "weir-members"), "--tenant", timeline.tenant, "--timeline", timeline.id),
        *("--safekeepers", ",".join(asked), "--ingested-lsn", ingested),
        *("--timeout-ms", str(options.pop("timeout_ms", 20_000)), *words),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
    return json.loads(done.stdout) if done.returncode == 0 else done.returncode


def written(running: Engine, timeline: Timeline, asked: list[str]) -> Compute:
    compute = running.compute(timeline, safekeepers=asked)
    compute.sql("CREATE TABLE kept AS SELECT generate_series(1, 777) AS id")
    wait_for("the log to name its members", lambda: compute.status()["members"]["generation"] == 1, 30)
    return compute


def voters(answer: dict[str, Any]) -> list[int]:
    return [member["safekeeper"] for member in answer["members"] if member["role"] == "voter"]


def test_a_lost_member_of_a_suspended_branch_is_replaced_and_nothing_acknowledged_is_gone(four: Engine) -> None:
    timeline = four.create_timeline()
    addresses = spare_the_fourth(four, timeline)
    written(four, timeline, addresses[:3]).suspend()
    four.safekeepers[0].kill9()
    shutil.rmtree(four.root / "safekeeper-1")

    added = members(four, timeline, addresses, "add", addresses[3])
    assert [member["role"] for member in added["members"]] == ["voter"] * 3 + ["learner"]
    again = members(four, timeline, addresses, "add", addresses[3])
    assert again["members"] == added["members"], "a repetition changes nothing"
    assert voters(members(four, timeline, addresses, "promote", "4")) == [1, 2, 3, 4]
    assert voters(members(four, timeline, addresses, "remove", "1")) == [2, 3, 4]

    # With 2 away the new member is half of the majority.
    four.safekeepers[1].stop()
    assert four.compute(timeline, safekeepers=addresses).sql("SELECT count(*) FROM kept") == [(777,)]


def test_what_the_log_refuses_and_a_majority_that_is_away_have_codes_of_their_own(four: Engine) -> None:
    timeline = four.create_timeline()
    addresses = spare_the_fourth(four, timeline)
    written(four, timeline, addresses[:3]).suspend()
    assert members(four, timeline, addresses, "promote", "4") == REFUSED
    # The pageserver has more than the safekeepers that answer: this would be an election without acknowledged WAL.
    assert members(four, timeline, addresses, "remove", "3", ingested_lsn="F/0", timeout_ms=2_000) == REFUSED
    for index in (0, 1):
        four.safekeepers[index].stop()
    assert members(four, timeline, addresses, "remove", "1", timeout_ms=2_000) == NO_MAJORITY


def test_a_compute_takes_over_from_it_and_is_not_hindered_by_what_it_did(four: Engine) -> None:
    timeline = four.create_timeline()
    addresses = spare_the_fourth(four, timeline)
    written(four, timeline, addresses[:3]).suspend()
    added = members(four, timeline, addresses, "add", addresses[3])
    # Whoever made the change is gone; a compute finishes it.
    compute = four.compute(timeline, safekeepers=addresses)
    assert compute.status()["members"]["members"] == added["members"]
    promoted = compute.http.post("/members", json={"promote": 4, "timeline_id": timeline.id}, timeout=60)
    assert voters(promoted.json()) == [1, 2, 3, 4]
    other = compute.http.post("/members", json={"remove": 4, "timeline_id": "ab" * 16}, timeout=60)
    assert (other.status_code, other.json()["code"]) == (409, "other_timeline")
    assert compute.sql("SELECT count(*) FROM kept") == [(777,)]
