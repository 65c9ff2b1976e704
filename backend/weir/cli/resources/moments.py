"""Moments and spans as people write them."""

import re
from datetime import UTC, datetime, timedelta

import click

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_SPAN = re.compile(r"^(\d{1,9})([smhdw])$")
_LSN = re.compile(r"^[0-9A-Fa-f]{1,8}/[0-9A-Fa-f]{1,8}$")


def seconds_of(text: str) -> int | None:
    """Of `90s`, `15m`, `2h`, `7d`, `1w`; None for anything else."""
    found = _SPAN.match(text)
    return int(found[1]) * _UNITS[found[2]] if found else None


class SpanType(click.ParamType[int]):
    """A length of time; its value is in seconds."""

    name = "span"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        found = seconds_of(str(value))
        if found is None:
            self.fail(f"{value!r} is no length of time; write it as 90s, 15m, 2h, 7d or 1w.", param, ctx)
        return found


class MomentType(click.ParamType[str]):
    """A moment, absolute with its zone, or as a span from now: back, or ahead. Its value is RFC 3339 in UTC."""

    name = "moment"

    def __init__(self, direction: int) -> None:
        self._direction = direction

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(value)
        span = seconds_of(text)
        try:
            if span is not None:
                return written(datetime.now(UTC) + self._direction * timedelta(seconds=span))
            moment = datetime.fromisoformat(text)
        except (ValueError, OverflowError):
            self.fail(f"{text!r} is no moment; write it as 2026-05-04T12:30:00Z, or as 10m, 2h or 3d.", param, ctx)
        if moment.tzinfo is None:
            self.fail(f"{text!r} does not say its zone; write {text}Z for UTC, or {text}+02:00.", param, ctx)
        return written(moment.astimezone(UTC))


class LsnType(click.ParamType[str]):
    name = "lsn"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not _LSN.match(str(value)):
            self.fail(f"{value!r} is no LSN; write it as two hex numbers with a slash, as in 0/16B3748.", param, ctx)
        return str(value)


def written(moment: datetime) -> str:
    return moment.isoformat().replace("+00:00", "Z")


SPAN = SpanType()
BACK = MomentType(-1)
AHEAD = MomentType(1)
LSN = LsnType()
