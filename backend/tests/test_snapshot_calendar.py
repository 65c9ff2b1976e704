"""When snapshots are due, by the calendar alone."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weir.snapshots.calendar import next_after
from weir.snapshots.models import Frequency

# A Wednesday.
AT = datetime(2026, 1, 28, 10, 30, 15, 5, tzinfo=UTC)


@pytest.mark.parametrize(
    ("frequency", "hour", "day", "expected"),
    [
        (Frequency.HOURLY, None, None, "2026-01-28T11:00"),
        (Frequency.DAILY, 11, None, "2026-01-28T11:00"),
        (Frequency.DAILY, 10, None, "2026-01-29T10:00"),
        (Frequency.DAILY, None, None, "2026-01-29T00:00"),
        (Frequency.WEEKLY, 11, 3, "2026-01-28T11:00"),
        (Frequency.WEEKLY, 10, 3, "2026-02-04T10:00"),
        (Frequency.WEEKLY, 0, 1, "2026-02-02T00:00"),
        (Frequency.WEEKLY, 0, 7, "2026-02-01T00:00"),
        (Frequency.MONTHLY, 0, 31, "2026-01-31T00:00"),
        (Frequency.MONTHLY, 0, 1, "2026-02-01T00:00"),
        (Frequency.MONTHLY, 10, 28, "2026-02-28T10:00"),
    ],
)
def test_the_next_time(frequency: Frequency, hour: int | None, day: int | None, expected: str) -> None:
    assert next_after(frequency, hour, day, AT) == datetime.fromisoformat(f"{expected}:00+00:00")


def test_a_month_without_the_day_takes_its_last_one_and_the_next_the_day_again() -> None:
    found = [datetime(2028, 1, 31, 5, tzinfo=UTC)]
    for _ in range(3):
        found.append(next_after(Frequency.MONTHLY, 5, 31, found[-1]))
    assert [(at.month, at.day) for at in found] == [(1, 31), (2, 29), (3, 31), (4, 30)]


def test_whatever_the_zone_of_the_moment_the_schedule_is_in_utc() -> None:
    at = datetime(2026, 1, 29, 1, tzinfo=timezone(timedelta(hours=5)))
    assert next_after(Frequency.DAILY, 0, None, at) == datetime(2026, 1, 29, tzinfo=UTC)


@given(
    frequency=st.sampled_from(Frequency),
    hour=st.integers(0, 23),
    day=st.integers(1, 7),
    after=st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1)),  # noqa: DTZ001  made aware below
)
def test_each_time_is_later_and_none_is_left_out(frequency: Frequency, hour: int, day: int, after: datetime) -> None:
    after = after.replace(tzinfo=UTC)
    first = next_after(frequency, hour, day, after)
    assert first > after
    # From any moment in between the answer is the same.
    assert next_after(frequency, hour, day, after + (first - after) / 2) == first
    assert next_after(frequency, hour, day, first - timedelta(microseconds=1)) == first
    longest = {"hourly": timedelta(hours=1), "daily": timedelta(days=1), "weekly": timedelta(days=7)}
    assert next_after(frequency, hour, day, first) - first <= longest.get(frequency.value, timedelta(days=31))
