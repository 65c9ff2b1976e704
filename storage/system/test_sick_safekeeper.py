"""WAL that one safekeeper's disk has damaged is read from another one.

Damage is planted in what the pageserver has yet to read. As long as one safekeeper has a record whole, the timeline
goes on behind it; it stops when every one of them has sent other bytes, and says whose.
"""

from __future__ import annotations

from harness import Compute, Engine, Timeline, lsn, wait_for
from stored_wal import SEGMENT_BYTES, flip, segment

FILLER = b"x" * 50


def filler_behind(running: Engine, timeline: Timeline, place: int) -> int:
    """A position within the content of the first row that was inserted behind `place`."""
    whole = segment(running, 0, timeline, place).read_bytes()
    found = whole.find(FILLER, place % SEGMENT_BYTES)
    assert found >= 0
    return place - place % SEGMENT_BYTES + found + len(FILLER) // 2


def rows_nobody_has_read(running: Engine, compute: Compute, timeline: Timeline) -> tuple[int, str]:
    """Where WAL of new rows begins that the pageserver, stopped afterwards, has yet to read, and where it ends."""
    running.pageserver.stop()
    begin = lsn(running.safekeeper_status(0, timeline)["flush_lsn"])
    compute.sql("INSERT INTO story SELECT g, repeat('x', 100) FROM generate_series(1, 3000) g")
    end = compute.sql("SELECT pg_current_wal_flush_lsn()::text")[0][0]

    def is_everywhere() -> bool:
        statuses = [running.safekeeper_status(number, timeline) for number in range(3)]
        commits = {status["commit_lsn"] for status in statuses}
        stored = [lsn(commit) for commit in running.stored_commits(timeline)]
        return len(commits) == 1 and min(stored) >= lsn(end)

    # Then the first one is read first, and none takes damage below for the end of its log when it starts.
    wait_for("every safekeeper to have committed all", is_everywhere, 20)
    return begin, end


def test_damaged_wal_is_read_from_a_safekeeper_that_has_it_whole(own: Engine) -> None:
    timeline = own.create_timeline()
    compute = own.compute(timeline)
    compute.sql("CREATE TABLE story (id int, filler text)")
    addresses = [f"127.0.0.1:{port}" for port in own.wal_ports]

    begin, end = rows_nobody_has_read(own, compute, timeline)
    first = filler_behind(own, timeline, begin)
    flip(own, 0, timeline, first)
    flip(own, 1, timeline, filler_behind(own, timeline, first + 100_000))
    own.pageserver.start()
    own.wait_ingested(timeline, end, 30)
    status = own.timeline_status(timeline)
    assert status["state"] == "active"
    # The first one was left at its damage, read again behind that of the second one, and is forgotten.
    [sick] = status["sick_safekeepers"]
    assert (sick["safekeeper"], sick["kind"]) == (addresses[1], "damaged")
    assert begin <= lsn(sick["lsn"]) <= lsn(end)
    assert "damaged" in sick["reason"]
    of_all = own.storage.get("/v1/sick_safekeepers").raise_for_status().json()
    assert of_all == [sick | {"tenant_id": timeline.tenant, "timeline_id": timeline.id}]

    # One that cannot read its file at all.
    begin, end = rows_nobody_has_read(own, compute, timeline)
    with segment(own, 0, timeline, begin).open("r+b") as file:
        file.truncate(filler_behind(own, timeline, begin) % SEGMENT_BYTES)
    own.pageserver.start()
    own.wait_ingested(timeline, end, 30)
    assert own.timeline_status(timeline)["state"] == "active"


def test_a_timeline_stops_when_no_safekeeper_has_the_record_whole(own: Engine) -> None:
    timeline = own.create_timeline()
    compute = own.compute(timeline)
    compute.sql("CREATE TABLE story (id int, filler text)")
    begin, end = rows_nobody_has_read(own, compute, timeline)
    place = filler_behind(own, timeline, begin)
    for number in range(3):
        flip(own, number, timeline, place)
    # One that is away could have it.
    own.safekeepers[2].stop()
    own.pageserver.start()
    wait_for(
        "two to be found sick",
        lambda: len(own.timeline_status(timeline)["sick_safekeepers"]) == 2,
        30,
    )
    assert own.timeline_status(timeline)["state"] == "active"
    own.safekeepers[2].start()

    def stopped() -> str | None:
        status = own.timeline_status(timeline)
        return status["reason"] if status["state"] == "stopped" else None

    reason = wait_for("the timeline to stop", stopped, 30)
    for port in own.wal_ports:
        assert f"127.0.0.1:{port}: record at" in reason

    flip(own, 2, timeline, place)
    own.pageserver.stop()
    own.pageserver.start()
    own.wait_ingested(timeline, end, 30)
    assert compute.sql("SELECT count(*) FROM story") == [(3000,)]
