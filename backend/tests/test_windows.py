"""Freezes and maintenance windows: when something may begin."""

from datetime import UTC, datetime, timedelta

import pytest

from weir.kit.windows import FreezeSpan, WeeklyWindow, frozen_until, opens_at

# A Saturday.
SATURDAY = datetime(2026, 11, 21, tzinfo=UTC)


def at(hours: float) -> datetime:
    return SATURDAY + timedelta(hours=hours)


def weekly(days: list[int], start: str, end: str) -> WeeklyWindow:
    return WeeklyWindow(weekdays=days, start_time=start, end_time=end)


def test_a_weekly_window_holds_on_its_days_only() -> None:
    window = weekly([6], "02:00", "04:00")
    assert window.holding(at(1.9)) is None
    assert window.holding(at(2)) == at(4)
    assert window.holding(at(4)) is None
    assert window.holding(at(24 + 3)) is None
    assert opens_at(window, at(3)) == at(3)
    assert opens_at(window, at(5)) == at(7 * 24 + 2)
    assert opens_at(None, at(5)) == at(5)


def test_a_window_past_midnight_belongs_to_the_day_it_begins() -> None:
    window = weekly([6], "23:00", "01:00")
    assert window.holding(at(23.5)) == at(25)
    assert window.holding(at(24.5)) == at(25)
    assert window.holding(at(0.5)) is None


def test_freezes_that_follow_one_another_are_one() -> None:
    weekend = weekly([6, 7], "00:00", "24:00")
    monday = FreezeSpan.model_validate({"from": at(48), "to": at(60), "reason": "a release"})
    assert frozen_until([weekend, monday], at(1)) == (at(60), "a freeze window")
    assert frozen_until([weekend, monday], at(50)) == (at(60), "a release")
    assert frozen_until([weekend, monday], at(60)) is None
    assert frozen_until([], at(1)) is None


def test_a_freeze_that_never_ends_is_reported_all_the_same() -> None:
    always = weekly([1, 2, 3, 4, 5, 6, 7], "00:00", "24:00")
    found = frozen_until([always], at(1))
    assert found is not None
    assert found[0] - at(1) > timedelta(days=300)


def test_a_span_ends_after_it_begins() -> None:
    with pytest.raises(ValueError, match="ends after it begins"):
        FreezeSpan.model_validate({"from": at(2), "to": at(1)})
