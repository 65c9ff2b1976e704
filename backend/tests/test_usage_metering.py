"""Which time and which bytes are counted: each once, in the hour in which they were, and in doubt none."""

import random
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from weir.usage.metering import AHEAD, LONGEST_GAP, Sizes, Span, Tally, floor, moved, pieces, uncounted, written
from weir.usage.models import Grain

AT = datetime(2026, 11, 20, 10, 30, tzinfo=UTC)
OWNER = (UUID(int=1), "p-1")


def _ago(**words: float) -> datetime:
    return AT - timedelta(**words)


@pytest.mark.parametrize(
    ("measured_to", "began", "end", "elapsed", "seconds"),
    [
        # Never measured: from the start on.
        (None, _ago(seconds=40), AT, None, 40),
        (_ago(seconds=60), _ago(hours=2), AT, 60, 60),
        # Started again since the last look: what ran before is not known.
        (_ago(seconds=60), _ago(seconds=20), AT, 60, 20),
        # It has stopped.
        (_ago(seconds=60), _ago(hours=2), _ago(seconds=15), None, 45),
        # Counted already, by this worker or another one.
        (AT, _ago(hours=2), AT, 60, 0),
        (_ago(seconds=10), _ago(hours=2), _ago(seconds=30), None, 0),
        # A worker that was away, and one that was away for too long.
        (_ago(hours=3), _ago(hours=9), AT, None, 3 * 3600),
        (_ago(days=10), _ago(days=20), AT, None, LONGEST_GAP.total_seconds()),
        # The clock was set forward by a day, as the process sees by its own.
        (_ago(days=1, seconds=60), _ago(days=3), AT, 60, 60),
        # It was set back: all that is ahead is counted.
        (AT + timedelta(days=1), _ago(days=3), AT, 60, 0),
        (AT + timedelta(seconds=1), _ago(days=3), AT, 60, 0),
        # It started by a clock that was set back since.
        (_ago(seconds=60), AT + timedelta(days=1), AT, 60, 60),
        (None, AT + timedelta(days=1), AT, None, 0),
        (None, None, AT, None, 0),
    ],
)
def test_how_much_time_is_to_be_added(
    measured_to: datetime | None, began: datetime | None, end: datetime, elapsed: float | None, seconds: float
) -> None:
    span = uncounted(measured_to, began, end, AT, elapsed)
    assert (0 if span is None else span.seconds) == seconds
    if span is not None:
        assert span.end <= AT
        assert measured_to is None or span.start >= measured_to


def test_whatever_the_looks_time_is_counted_once() -> None:
    """Looks at random moments, of several workers, some of them late by their clock."""
    for seed in range(200):
        chance = random.Random(seed)  # noqa: S311  the same at each run
        began = AT
        meter: datetime | None = None
        total, latest = 0.0, began
        for _ in range(50):
            at = latest + timedelta(seconds=chance.uniform(-30, 90))
            span = uncounted(meter, began, at, at, None)
            total += 0 if span is None else span.seconds
            meter = moved(meter, at)
            latest = max(latest, at)
        assert total == pytest.approx((latest - began).total_seconds()), seed


def test_a_meter_goes_back_only_where_the_clock_did() -> None:
    assert moved(None, AT) == AT
    assert moved(_ago(hours=1), AT) == AT
    assert moved(AT + AHEAD, AT) == AT + AHEAD
    assert moved(AT + AHEAD + timedelta(seconds=1), AT) == AT


@pytest.mark.parametrize("grain", list(Grain))
def test_a_span_is_shared_out_to_the_periods_it_lies_in(grain: Grain) -> None:
    length = 3600 if grain is Grain.HOUR else 86400
    for seed in range(200):
        chance = random.Random(seed)  # noqa: S311  the same at each run
        start = AT + timedelta(seconds=chance.uniform(0, 10**6))
        span = Span(start, start + timedelta(seconds=chance.choice([1e-6, 1, 59, 3600, 86400, 3e5])))
        found = list(pieces(span, grain))
        assert sum(seconds for _, seconds in found) == pytest.approx(span.seconds)
        assert found[0][0] == floor(start, grain)
        assert [begun for begun, _ in found] == sorted({begun for begun, _ in found})
        for begun, seconds in found:
            assert begun == floor(begun, grain)
            assert 0 < seconds <= length


def test_hours_and_days_are_those_of_utc() -> None:
    elsewhere = datetime.fromisoformat("2026-11-21T01:30:00+05:30")
    assert floor(elsewhere, Grain.HOUR) == datetime(2026, 11, 20, 20, tzinfo=UTC)
    assert floor(elsewhere, Grain.DAY) == datetime(2026, 11, 20, tzinfo=UTC)


def test_wal_is_counted_once_and_none_of_before_it_was_looked_at() -> None:
    assert written(None, 100, 150, since_start=True) == (50, 150)
    assert written(None, 100, 150, since_start=False) == (0, 150)
    assert written(150, 100, 180, since_start=True) == (30, 180)
    # Storage was started again, is behind, and takes the same WAL in again.
    assert written(180, 100, 120, since_start=True) == (0, 180)
    assert written(180, 100, 181, since_start=True) == (1, 181)
    # A timeline of which nothing has arrived yet.
    assert written(None, 100, 0, since_start=True) == (0, 0)


def test_what_is_added_to_hours_is_added_to_days() -> None:
    tally = Tally()
    tally.ran(OWNER, "br", Span(_ago(hours=1), AT), 0.5, 0.25)
    tally.held(OWNER, Span(_ago(hours=1), AT), Sizes(root=100, child=10, snapshot=4, history=6))
    tally.saw(OWNER, AT, 7, Sizes(root=200, history=1))
    for grain in Grain:
        found = [amounts for period, amounts in tally.found.items() if period[2] is grain]
        assert len(found) == (2 if grain is Grain.HOUR else 1)
        assert sum(each.active_seconds for each in found) == 3600
        assert sum(each.unit_seconds for each in found) == 1800
        assert sum(each.processor_seconds for each in found) == 900
        assert sum(each.written_bytes for each in found) == 7
        assert [sum(getattr(each, name) for each in found) for name in
                ("root_byte_hours", "child_byte_hours", "snapshot_byte_hours", "history_byte_hours")] == [
            pytest.approx(each) for each in (100, 10, 4, 6)
        ]  # fmt: skip
        assert (found[-1].logical_bytes, found[-1].history_bytes) == (200, 1)


def test_a_branch_has_its_part_and_nothing_of_another() -> None:
    tally = Tally()
    span = Span(_ago(hours=1), AT)
    tally.ran(OWNER, "one", span, 1, None)
    tally.ran(OWNER, "two", span, 2, None)
    for branch, size in (("one", 10), ("two", 30)):
        tally.held(OWNER, span, Sizes(child=size), branch)
        tally.saw(OWNER, AT, size, Sizes(child=size), branch)
    days = {period[2]: amounts for period, amounts in tally.branches.items() if period[3] is Grain.DAY}
    assert {name: each.unit_seconds for name, each in days.items()} == {"one": 3600, "two": 7200}
    assert {name: each.written_bytes for name, each in days.items()} == {"one": 10, "two": 30}
    assert {name: each.logical_bytes for name, each in days.items()} == {"one": 10, "two": 30}
    assert [each.child_byte_hours for each in days.values()] == [pytest.approx(10), pytest.approx(30)]
    # Computes' time is the project's, too; storage is told of the project apart, since it holds snapshots as well.
    (project,) = [amounts for period, amounts in tally.found.items() if period[2] is Grain.DAY]
    assert (project.active_seconds, project.unit_seconds, project.child_byte_hours) == (7200, 10800, 0)
