"""A safekeeper that lost its disk never makes acknowledged rows disappear.

The story: one safekeeper of a majority is away while rows are acknowledged; another one loses its disk. Whoever votes
then, no compute starts on a log that lacks those rows, no log that holds them is changed, and they are there again as
soon as a safekeeper is that has them.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from harness import Compute, Engine, Timeline, engine, wait_for

ROWS = 777


@pytest.fixture(params=[3, 5], ids=["three_safekeepers", "five_safekeepers"])
def quorum(request: pytest.FixtureRequest) -> Iterator[Engine]:
    with engine(Path(tempfile.mkdtemp(prefix="weir-system-")), safekeeper_count=request.param) as running:
        yield running


def lose_disk(running: Engine, number: int, timeline: Timeline) -> None:
    """The safekeeper comes back without anything of this tenant."""
    running.safekeepers[number].stop()
    shutil.rmtree(running.root / f"safekeeper-{number + 1}" / timeline.tenant)
    running.safekeepers[number].start()
    assert httpx.get(running.safekeeper_url(number, timeline), timeout=10).status_code == 404


def acknowledge_rows(running: Engine) -> tuple[Timeline, str]:
    """Rows that only the first majority of the safekeepers holds; the compute is suspended afterwards, at the
    position returned, and the others run again."""
    timeline = running.create_timeline()
    compute = running.compute(timeline)
    compute.sql("CREATE TABLE story (id int)")
    late = running.safekeepers[running.safekeeper_count // 2 + 1 :]
    for safekeeper in late:
        safekeeper.stop()
    compute.sql(f"INSERT INTO story SELECT generate_series(1, {ROWS})")
    compute.suspend()
    committed = running.safekeeper_status(0, timeline)["commit_lsn"]
    running.wait_ingested(timeline, committed)
    return timeline, running.timeline_status(timeline)["last_record_lsn"]


def refuses_to_start(compute: Compute) -> dict[str, Any]:
    def refused() -> dict[str, Any] | None:
        status = compute.status()
        assert status["state"] != "running", "a compute runs on a log that lacks acknowledged rows"
        return status if "these voters of the log are not among them" in (status["reason"] or "") else None

    return wait_for("the start to be refused", refused, 60)


@pytest.mark.parametrize("loser", [0, 1], ids=["first_loses", "second_loses"])
def test_a_log_made_again_in_place_of_a_lost_one_does_not_vote(quorum: Engine, loser: int) -> None:
    timeline, committed = acknowledge_rows(quorum)
    lost = quorum.safekeeper_status(loser, timeline)["member"]
    holders = [number for number in range(quorum.safekeeper_count // 2 + 1) if number != loser]
    late = range(quorum.safekeeper_count // 2 + 1, quorum.safekeeper_count)
    lose_disk(quorum, loser, timeline)
    # As an operator, or a control plane, that knows no better would repair it.
    identifier = str(quorum.timeline_status(timeline)["system_identifier"])
    assert quorum.create_on_safekeeper(loser, timeline, identifier) == 201
    for number in holders:
        quorum.safekeepers[number].stop()
    for number in late:
        quorum.safekeepers[number].start()
    before = {number: quorum.safekeeper_status(number, timeline) for number in late}

    compute = quorum.compute(timeline, wait=False)
    reason = refuses_to_start(compute)["reason"]
    assert lost["disk"] in reason
    assert "delete" not in reason
    made = quorum.safekeeper_status(loser, timeline)
    assert (made["member"]["disk"], made["member"]["incarnation"]) == (lost["disk"], 2)
    assert made["members"] == [made["member"]], "it waits to be made a learner"
    for number, status in before.items():
        now = quorum.safekeeper_status(number, timeline)
        assert now["term_history"] == status["term_history"], "a term was announced"
        assert now["flush_lsn"] == status["flush_lsn"], "a log was cut"
    assert quorum.timeline_status(timeline)["last_record_lsn"] == committed

    quorum.safekeepers[holders[0]].start()
    compute.wait_running()
    assert compute.sql("SELECT count(*) FROM story") == [(ROWS,)]
    compute.sql("INSERT INTO story VALUES (0)")


def test_a_lost_disk_alone_leaves_no_majority_until_one_comes_back(quorum: Engine) -> None:
    timeline, _ = acknowledge_rows(quorum)
    majority = quorum.safekeeper_count // 2 + 1
    lose_disk(quorum, 1, timeline)
    for number in range(majority):
        if number != 1:
            quorum.safekeepers[number].stop()
    for number in range(majority, quorum.safekeeper_count):
        quorum.safekeepers[number].start()
    compute = quorum.compute(timeline, wait=False)
    wait_for(
        "the start to say that no majority answers",
        lambda: "does not exist on this safekeeper" in (compute.status()["reason"] or ""),
        60,
    )
    assert compute.status()["state"] != "running"

    quorum.safekeepers[0].start()
    compute.wait_running()
    assert compute.sql("SELECT count(*) FROM story") == [(ROWS,)]
