"""Warm starts: pages that were in shared buffers at a suspend are there again before anybody asks (docs/adr/0076)."""

from __future__ import annotations

import io
import tarfile
import time
from collections.abc import Callable
from typing import Any

import pytest
from harness import Compute, Engine, Timeline, lsn, metric, wait_for

HOT_PAGES = 2_000
#: A catalog page or two may have been written between the list and the shutdown.
ALMOST_ALL = 0.95
KEPT = "weir.prewarm"
FIRST_READS = "weir.start"
HOT_BUFFERS = """
    SELECT count(*) FROM pg_buffercache WHERE relfilenode = pg_relation_filenode('hot') AND relforknumber = 0
      AND reldatabase = (SELECT oid FROM pg_database WHERE datname = current_database())"""


def filled(engine: Engine, timeline: Timeline) -> int:
    """Makes a hot and a cold table, reads the hot one, and suspends; returns how many pages the hot one has."""
    compute = engine.compute(timeline, prewarm=True)
    with compute.admin() as session:
        # What the tests look with: clients may not have it.
        session.execute("CREATE EXTENSION pg_buffercache")
    for table in ("cold", "hot"):
        compute.sql(f"CREATE TABLE {table} (id int PRIMARY KEY, f text)")
        compute.sql(
            f"INSERT INTO {table} SELECT n, repeat(md5(n::text), 30) FROM generate_series(1, {HOT_PAGES * 8}) n"
        )
    compute.sql("VACUUM ANALYZE cold, hot")
    [(pages,)] = compute.sql("SELECT relpages FROM pg_class WHERE relname = 'hot'")
    assert pages >= HOT_PAGES
    compute.suspend()
    compute = engine.compute(timeline, prewarm=True)
    # All of it, and of the other one nothing: a table of less than a quarter of the buffers is kept by a scan.
    compute.sql("SELECT sum(length(f)) FROM hot")
    with compute.admin() as session:
        [(there,)] = session.execute(HOT_BUFFERS).fetchall()
    assert there == pages
    compute.suspend()
    return pages


def loaded(compute: Compute, *states: str) -> dict[str, Any]:
    """What the agent says of the loading once it has ended, in one of these states."""
    wanted = states or ("loaded",)

    def ended() -> dict[str, Any] | None:
        said: dict[str, Any] = compute.status()["prewarm"]
        # The processes go on for a moment after one of them was stopped.
        return said if said["state"] in wanted and said["seconds"] is not None else None

    return wait_for(f"loading to be {wanted}", ended, 60)


def hot_buffers(compute: Compute) -> int:
    with compute.admin() as session:
        [(there,)] = session.execute(HOT_BUFFERS).fetchall()
        return there


def first_query(compute: Compute) -> tuple[float, str]:
    """Milliseconds of a scan of the hot table, and what Postgres says of the pages it touched."""
    with compute.connect() as session:
        began = time.perf_counter()
        plan = session.execute("EXPLAIN (ANALYZE, BUFFERS, TIMING off) SELECT sum(length(f)) FROM hot").fetchall()
        taken = (time.perf_counter() - began) * 1000
    return taken, next(row[0].strip() for row in plan if "Buffers:" in row[0])


@pytest.fixture(scope="module", name="warm")
def _warm(shared: Engine) -> tuple[Timeline, int]:
    """A suspended timeline with a list, and the pages of its hot table."""
    timeline = shared.create_timeline()
    return timeline, filled(shared, timeline)


def test_hot_pages_are_in_buffers_before_anybody_asks(
    shared: Engine, warm: tuple[Timeline, int], say: Callable[[str], None]
) -> None:
    timeline, pages = warm
    cold = shared.compute(timeline)
    assert cold.status()["prewarm"] == {
        "state": "off", "pages_listed": 0, "pages_loaded": None, "seconds": None, "reason": None,
    }  # fmt: skip
    assert hot_buffers(cold) == 0
    cold_ms, buffers = first_query(cold)
    assert "read=" in buffers
    # Without it a suspend makes no list, so that the next start has none.
    compute = restarted(shared, timeline, cold, prewarm=True)
    assert compute.status()["prewarm"]["state"] == "no_list"
    compute.sql("SELECT sum(length(f)) FROM hot")
    compute = restarted(shared, timeline, compute, prewarm=True)
    said = loaded(compute)
    assert said["reason"] is None
    assert said["pages_listed"] >= said["pages_loaded"] >= ALMOST_ALL * pages
    assert hot_buffers(compute) >= ALMOST_ALL * pages, "nobody has asked for them yet"
    assert metric(compute, "weir_compute_prewarmed_pages_total") == said["pages_loaded"]
    assert metric(compute, "weir_compute_prewarm_seconds") == pytest.approx(said["seconds"])
    assert metric(compute, "weir_compute_volume_reads_behind_total") > 0, "its reads were taken for a session's"
    warm_ms, buffers = first_query(compute)
    assert "hit=" in buffers
    hit = int(buffers.split("hit=")[1].split()[0])
    assert hit >= ALMOST_ALL * pages, buffers
    say(
        f"first scan of {pages} pages: {warm_ms:.0f} ms warm, {cold_ms:.0f} ms cold; {said['pages_loaded']} of "
        f"{said['pages_listed']} pages loaded {said['seconds']:.2f} s after the start of Postgres"
    )
    compute.suspend()


def restarted(engine: Engine, timeline: Timeline, compute: Compute, **spec: Any) -> Compute:
    """Another compute of the timeline, once this one is suspended."""
    compute.suspend()
    return engine.compute(timeline, **spec)


def test_the_first_query_does_not_stand_behind_what_is_loaded(
    shared: Engine, warm: tuple[Timeline, int], say: Callable[[str], None]
) -> None:
    timeline, pages = warm
    taken: dict[bool, list[float]] = {True: [], False: []}
    for _ in range(5):
        for prewarm in (True, False):
            # Each is a branch of the same suspended head: what one does is nothing to the next.
            branch = shared.branch(timeline, ancestor_start_lsn=head(shared, timeline)[0])
            began = time.perf_counter()
            compute = shared.compute(branch, prewarm=prewarm)
            assert compute.sql("SELECT length(f) FROM cold WHERE id = 77") == [(960,)]
            taken[prewarm].append((time.perf_counter() - began) * 1000)
            if prewarm:
                assert loaded(compute)["pages_listed"] >= ALMOST_ALL * pages
            compute.suspend()
    text = {key: f"{min(values):.0f} to {max(values):.0f}" for key, values in taken.items()}
    say(f"start to first row: {text[True]} ms with {pages} pages to load, {text[False]} ms without")
    # On a machine that others use, too: what is looked for is a row behind thousands of pages.
    assert min(taken[True]) < min(taken[False]) + 250


def test_nothing_is_loaded_while_the_first_clients_are_served(shared: Engine, warm: tuple[Timeline, int]) -> None:
    timeline, pages = warm
    for suspended_at_once in (True, False):
        compute = shared.compute(timeline, prewarm=True)
        pipe = compute.directory / "pgdata" / "autoprewarm.blocks"
        if suspended_at_once:
            # Postgres still waits for its list, and is not kept from ending by that.
            began = time.monotonic()
            compute.suspend()
            assert time.monotonic() - began < 20
            continue
        assert loaded(compute)["pages_loaded"] >= ALMOST_ALL * pages
        assert 0.2 <= metric(compute, "weir_compute_prewarm_withheld_seconds") < 10
        wait_for("the pipe to go", lambda path=pipe: not path.exists() or None, 10)
        assert compute.sql("SELECT count(*) FROM hot") == [(HOT_PAGES * 8,)]
        # What Postgres had in its buffers at the end is listed in the pipe's place.
        compute = restarted(shared, timeline, compute, prewarm=True)
        assert loaded(compute)["pages_listed"] >= ALMOST_ALL * pages
        compute.suspend()


def test_a_suspend_in_the_middle_of_loading_keeps_the_list(shared: Engine, warm: tuple[Timeline, int]) -> None:
    timeline, pages = warm
    for _ in range(3):
        compute = shared.compute(timeline, prewarm=True)
        compute.suspend()
    compute = shared.compute(timeline, prewarm=True)
    assert loaded(compute)["pages_listed"] >= ALMOST_ALL * pages
    compute.suspend()


def test_a_branch_of_a_suspended_head_starts_warm(shared: Engine, warm: tuple[Timeline, int]) -> None:
    timeline, pages = warm
    at = head(shared, timeline)[0]
    branch = shared.branch(timeline, ancestor_start_lsn=at)
    compute = shared.compute(branch, prewarm=True)
    assert loaded(compute)["pages_loaded"] >= ALMOST_ALL * pages
    compute.suspend()


def head(engine: Engine, timeline: Timeline) -> tuple[str, int]:
    """Where a suspended timeline ends, and the newest term."""
    numbers = range(len(engine.safekeepers))
    end = max((engine.safekeeper_status(number, timeline)["flush_lsn"] for number in numbers), key=lsn)
    engine.wait_ingested(timeline, end)
    status = engine.timeline_status(timeline)
    return status["last_record_lsn"], status["max_term"]


def kept(ranges: list[tuple[int, ...]], pages: int | None = None, count: int | None = None) -> bytes:
    """A list as an agent keeps it, unless `pages` or `count` say otherwise than its ranges."""
    pages = sum(item[5] for item in ranges) if pages is None else pages
    header = f"weir-prewarm 1 {len(ranges) if count is None else count} {pages}\n"
    return (header + "".join(" ".join(map(str, item)) + "\n" for item in ranges)).encode()


def put_list(engine: Engine, timeline: Timeline, content: bytes, name: str = KEPT) -> None:
    """Gives the timeline's next start this list, in place of what its compute shipped."""
    at, term = head(engine, timeline)
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        entry = tarfile.TarInfo(name)
        entry.size = len(content)
        tar.addfile(entry, io.BytesIO(content))
    path = f"/v1/tenant/{timeline.tenant}/timeline/{timeline.id}/aux"
    answer = engine.storage.put(path, params={"lsn": at, "term": term}, content=archive.getvalue())
    assert answer.is_success, answer.text


@pytest.fixture(scope="module", name="plain")
def _plain(shared: Engine) -> Timeline:
    """A suspended timeline with a small table."""
    timeline = shared.create_timeline()
    compute = shared.compute(timeline, prewarm=True)
    compute.sql("CREATE TABLE t AS SELECT 1 AS n")
    compute.suspend()
    return timeline


ONE = [(5, 1663, 16_384, 0, 0, 3)]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        pytest.param(kept(ONE)[:-9], "torn", id="breaks off within a line"),
        pytest.param(kept(ONE, count=2), "torn", id="lacks a line"),
        pytest.param(kept(ONE, pages=4), "torn", id="lacks a page"),
        pytest.param(b"", "first line", id="empty"),
        pytest.param(b"\x00\xff" * 5_000, "first line", id="no text"),
        pytest.param(b"<<1>>\n5,1663,16384,0,0\n", "first line", id="another's form"),
        pytest.param(kept([(5, 1663, 1 + n, 0, 0, 1) for n in range(1_000_000)]), "too long", id="a million"),
        pytest.param(kept([(5, 1663, 16_384, 0, 0, 4_000_000_000)]), "too long", id="a page of each number"),
        pytest.param(kept([(5, 1663, 16_384, 0, 4_294_967_290, 9)]), "line 2", id="beyond the last page"),
        pytest.param(kept([(5, 16_400, 16_384, 0, 0, 1)]), "line 2", id="another tablespace"),
    ],
)
def test_a_list_that_cannot_be_used_is_ignored_loudly(
    shared: Engine, plain: Timeline, content: bytes, why: str
) -> None:
    put_list(shared, plain, content)
    compute = shared.compute(plain, prewarm=True)
    said = compute.status()["prewarm"]
    assert (said["state"], said["pages_listed"]) == ("ignored", 0)
    assert why in said["reason"]
    assert metric(compute, "weir_compute_prewarm_lists_ignored_total") == 1
    assert "the list of pages to load ahead of need is ignored" in compute.process.log.read_text()
    assert compute.sql("SELECT n FROM t") == [(1,)]
    # The next start has a list of its own again.
    compute = restarted(shared, plain, compute, prewarm=True)
    assert loaded(compute)["pages_loaded"] > 0
    compute.suspend()


def test_pages_of_what_is_not_there_cost_nothing_but_time(shared: Engine, say: Callable[[str], None]) -> None:
    timeline = shared.create_timeline()
    compute = shared.compute(timeline, prewarm=True)
    compute.sql("CREATE TABLE t AS SELECT n FROM generate_series(1, 10000) n")
    compute.sql("CREATE TABLE gone AS SELECT n FROM generate_series(1, 10000) n")
    [(database, there, gone)] = compute.sql(
        "SELECT oid::int, pg_relation_filenode('t')::int, pg_relation_filenode('gone')::int FROM pg_database"
        " WHERE datname = 'appdb'"
    )
    compute.sql("DROP TABLE gone")
    compute.suspend()
    foreign = [(database, 1663, 1_000_000 + n, 0, 0, 1) for n in range(30_000)]
    # A relation that is as the list says, and is shorter than it says, one that was dropped, and a database that is
    # not there.
    listed = [(0, 1664, 1_260, 0, 0, 1), (database, 1663, there, 0, 0, 20), (database, 1663, there, 0, 50_000, 20)]
    elsewhere = [(4_000_000_000, 1663, 16_384, 0, 0, 500)]
    ranges = sorted([*listed, (database, 1663, gone, 0, 0, 40), *foreign]) + elsewhere
    put_list(shared, timeline, kept(ranges))
    compute = shared.compute(timeline, prewarm=True)
    # Others are served meanwhile.
    assert compute.sql("SELECT count(*) FROM t") == [(10_000,)]
    said = loaded(compute)
    assert said["pages_listed"] == sum(item[5] for item in ranges) - 500
    assert said["pages_loaded"] == 21
    say(f"30,000 relations that are not there were looked for in {said['seconds']:.2f} s")
    log = (compute.directory / "postgres.log").read_text()
    assert "ERROR" not in log
    assert "4000000000" not in log
    assert compute.status()["restarts"] == 0
    compute.suspend()


def test_a_start_after_a_crash_is_cold(own: Engine) -> None:
    timeline = own.create_timeline()
    compute = own.compute(timeline, prewarm=True)
    compute.sql("CREATE TABLE t AS SELECT 1 AS n")
    compute.kill9()
    compute = own.compute(timeline, prewarm=True)
    assert compute.status()["prewarm"]["state"] == "no_list"
    assert compute.sql("SELECT n FROM t") == [(1,)]
    compute.suspend()


def test_a_session_that_needs_the_table_alone_does_not_wait_for_the_loading(
    shared: Engine, warm: tuple[Timeline, int]
) -> None:
    timeline, _ = warm
    compute = shared.compute(timeline, prewarm=True)
    began = time.monotonic()
    compute.sql("TRUNCATE hot")
    assert time.monotonic() - began < 3
    said = loaded(compute, "loaded", "stopped")
    if said["state"] == "stopped":
        assert "waited for it" in said["reason"]
    compute.suspend()


def test_a_start_has_the_pages_of_catalogs_that_the_one_before_read_first(
    own: Engine, say: Callable[[str], None]
) -> None:
    timeline = own.create_timeline()
    compute = own.compute(timeline)
    compute.sql("CREATE TABLE t AS SELECT 1 AS n")
    counted: dict[str, float] = {}
    for start in ("first", "second", "third"):
        if start != "first":
            assert compute.sql("SELECT n FROM t") == [(1,)]
            # What is read later is no part of a start.
            time.sleep(2)
        # Of the first start there is a list of what the making of the table read.
        compute = restarted(own, timeline, compute)
        assert compute.sql("SELECT n FROM t") == [(1,)]
        # Counted by the watch, four times a second.
        time.sleep(0.6)
        counted[start] = metric(compute, "weir_compute_volume_pages_read_ahead_total")
        used = metric(compute, "weir_compute_volume_read_ahead_used_total")
        assert counted[start] > 50
        if start == "third":
            # What is read ahead of sequential readers counts, too, and some of it in vain.
            assert used >= 0.7 * counted[start], "it asks for what nobody reads"
    say(f"pages of catalogs that came before they were read, in three starts: {counted}")
    compute.suspend()


@pytest.mark.parametrize(
    ("content", "logged"),
    [
        pytest.param(b"\x00\xff" * 5_000, True, id="no list"),
        pytest.param(kept(ONE)[:-9], True, id="torn"),
        pytest.param(
            kept([(4_000_000_000, 1663, 1259, 0, 0, 9), (4_000_000_001, 1663, 99, 0, 4_000_000_000, 9)]),
            False,
            id="of what is not there",
        ),
        pytest.param(kept([(5, 1663, 1259, 0, 0, 100_000)]), False, id="of a catalog's every page and more"),
    ],
)
def test_a_list_of_first_pages_that_is_nonsense_costs_nothing(
    shared: Engine, plain: Timeline, content: bytes, logged: bool
) -> None:
    put_list(shared, plain, content, FIRST_READS)
    compute = shared.compute(plain, prewarm=True)
    assert compute.sql("SELECT n FROM t") == [(1,)]
    assert ("pages that a start reads first is ignored" in compute.process.log.read_text()) == logged
    assert metric(compute, "weir_compute_volume_pages_read_ahead_total") < 1_100
    compute.suspend()
