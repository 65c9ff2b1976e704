"""Windows of time in which a rollout may not begin anything (freezes) or may only then (maintenance). Pure; UTC."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Annotated, Self

from pydantic import Field, StringConstraints, model_validator

from weir.kit.schemas import Body, Timestamp

ClockTime = Annotated[str, StringConstraints(pattern=r"^([01]\d|2[0-3]):[0-5]\d$|^24:00$")]
_DAY = timedelta(days=1)


class WeeklyWindow(Body):
    """The same hours on some days of the week: 1 is Monday, 7 Sunday. A window whose end is not after its start
    runs past midnight."""

    weekdays: list[Annotated[int, Field(ge=1, le=7)]] = Field(min_length=1, max_length=7)
    start_time: ClockTime
    end_time: ClockTime
    reason: str | None = Field(default=None, max_length=200)

    def span_on(self, day: datetime) -> tuple[datetime, datetime]:
        midnight = day.replace(hour=0, minute=0, second=0, microsecond=0)
        start, end = midnight + _clock(self.start_time), midnight + _clock(self.end_time)
        return start, end if end > start else end + _DAY

    def holding(self, at: datetime) -> datetime | None:
        """The end of the window that `at` lies in, if it lies in one."""
        for day in (at - _DAY, at):
            start, end = self.span_on(day)
            if day.isoweekday() in self.weekdays and start <= at < end:
                return end
        return None

    def next_start(self, at: datetime) -> datetime:
        for ahead in range(8):
            day = at + ahead * _DAY
            start, _ = self.span_on(day)
            if day.isoweekday() in self.weekdays and start > at:
                return start
        raise AssertionError("a week has every weekday")


class FreezeSpan(Body):
    """From one moment to another."""

    from_: Timestamp = Field(alias="from", serialization_alias="from")
    to: Timestamp
    reason: str | None = Field(default=None, max_length=200)

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.to <= self.from_:
            raise ValueError("a freeze ends after it begins")
        return self

    def holding(self, at: datetime) -> datetime | None:
        return self.to if self.from_ <= at < self.to else None


def frozen_until(freezes: Sequence[WeeklyWindow | FreezeSpan], at: datetime) -> tuple[datetime, str] | None:
    """When the freeze that holds at `at` ends, and why it is; freezes that follow one another count as one."""
    until, reason = at, ""
    while True:
        holding = [(end, freeze) for freeze in freezes if (end := freeze.holding(until)) is not None]
        if not holding:
            return None if until == at else (until, reason)
        end, freeze = max(holding, key=lambda item: item[0])
        reason = reason or freeze.reason or "a freeze window"
        until = end
        if until - at > timedelta(days=366):
            return until, reason


def opens_at(window: WeeklyWindow | None, at: datetime) -> datetime:
    """`at` itself when the maintenance window is open then, or there is none; else when it opens next."""
    if window is None or window.holding(at) is not None:
        return at
    return window.next_start(at)


def _clock(text: str) -> timedelta:
    hours, minutes = text.split(":")
    return timedelta(hours=int(hours), minutes=int(minutes))
