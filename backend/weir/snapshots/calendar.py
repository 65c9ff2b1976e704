"""When a schedule's snapshots are due. Pure: UTC in, UTC out.

A day that a month does not have is its last one, so that a schedule for the 31st takes a snapshot in each month.
"""

import calendar
from datetime import UTC, datetime, timedelta

from weir.snapshots.models import Frequency


def next_after(frequency: Frequency, hour: int | None, day: int | None, after: datetime) -> datetime:
    """The first moment of the schedule that lies after `after`, which is aware. `hour`: 0 to 23, midnight unless
    given. `day`: of the week, 1 for Monday (unless given) to 7, or of the month, 1 (unless given) to 31."""
    at = after.astimezone(UTC)
    whole_hour = at.replace(minute=0, second=0, microsecond=0)
    if frequency == Frequency.HOURLY:
        return whole_hour + timedelta(hours=1)
    today = whole_hour.replace(hour=hour or 0)
    if frequency == Frequency.DAILY:
        return today if today > at else today + timedelta(days=1)
    if frequency == Frequency.WEEKLY:
        this_week = today + timedelta(days=(day or 1) - today.isoweekday())
        return this_week if this_week > at else this_week + timedelta(days=7)
    this_month = _in_month(today, day or 1)
    if this_month > at:
        return this_month
    return _in_month(_first(today) + timedelta(days=31), day or 1)


def _first(at: datetime) -> datetime:
    return at.replace(day=1)


def _in_month(at: datetime, day: int) -> datetime:
    """That day of the month `at` is in."""
    return at.replace(day=min(day, calendar.monthrange(at.year, at.month)[1]))
