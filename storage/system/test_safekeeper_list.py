"""From whom a pageserver reads a timeline's WAL is changed while it runs."""

from __future__ import annotations

from harness import Engine, Timeline, lsn, wait_for
from stored_wal import flip
from test_sick_safekeeper import filler_behind, rows_nobody_has_read


def put(own: Engine, timeline: Timeline, safekeepers: list[str]) -> None:
    path = f"/v1/tenant/{timeline.tenant}/timeline/{timeline.id}/safekeepers"
    answer = own.storage.put(path, json={"safekeepers": safekeepers})
    assert answer.status_code == 200, answer.text
    assert answer.json()["safekeepers"] == safekeepers


def test_wal_comes_from_the_safekeepers_that_were_put(own: Engine) -> None:
    timeline = own.create_timeline()
    compute = own.compute(timeline)
    addresses = [f"127.0.0.1:{port}" for port in own.wal_ports]
    compute.sql("CREATE TABLE story (id int)")
    put(own, timeline, addresses[:1])
    end = compute.sql("SELECT pg_current_wal_flush_lsn()::text")[0][0]
    own.wait_ingested(timeline, end, 30)

    # The only one that is left is away.
    own.safekeepers[0].stop()
    compute.sql("INSERT INTO story SELECT generate_series(1, 1000)")
    end = compute.sql("SELECT pg_current_wal_flush_lsn()::text")[0][0]
    assert lsn(own.timeline_status(timeline)["last_record_lsn"]) < lsn(end)
    put(own, timeline, addresses[1:])
    own.wait_ingested(timeline, end, 10)
    own.pageserver.stop()
    own.pageserver.start()
    assert own.timeline_status(timeline)["safekeepers"] == addresses[1:]


def test_a_stopped_timeline_tries_again_with_those_that_were_put(own: Engine) -> None:
    timeline = own.create_timeline()
    compute = own.compute(timeline)
    compute.sql("CREATE TABLE story (id int, filler text)")
    addresses = [f"127.0.0.1:{port}" for port in own.wal_ports]
    put(own, timeline, addresses[:2])
    begin, end = rows_nobody_has_read(own, compute, timeline)
    place = filler_behind(own, timeline, begin)
    flip(own, 0, timeline, place)
    flip(own, 1, timeline, place)
    own.pageserver.start()
    wait_for("the timeline to stop", lambda: own.timeline_status(timeline)["state"] == "stopped", 30)

    put(own, timeline, addresses[1:])
    own.wait_ingested(timeline, end, 30)
    status = own.timeline_status(timeline)
    assert (status["state"], status["reason"]) == ("active", None)
    assert [sick["safekeeper"] for sick in status["sick_safekeepers"]] == addresses[1:2]
