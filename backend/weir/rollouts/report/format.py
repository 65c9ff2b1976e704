"""Figures of a report as people read them: three digits and a unit, and a dash for what was not measured."""

from datetime import datetime

NONE = "\N{EN DASH}"
MINUS = "\N{MINUS SIGN}"


def _scaled(value: float, units: tuple[str, ...], step: float) -> str:
    for unit in units[:-1]:
        if abs(value) < 999.5:
            return f"{_three(value)} {unit}"
        value /= step
    return f"{_three(value)} {units[-1]}"


def _three(value: float) -> str:
    if value == 0 or abs(value) >= 99.95:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 9.995 else f"{value:.2f}"


def size(value: float | None) -> str:
    return NONE if value is None else _scaled(value, ("B", "kB", "MB", "GB", "TB"), 1000)


def rate(value: float | None) -> str:
    return NONE if value is None else f"{size(value)}/s"


def duration(seconds: float | None) -> str:
    """Of latencies, so never more than minutes."""
    if seconds is None:
        return NONE
    return f"{_three(seconds)} s" if seconds >= 0.9995 else _scaled(seconds * 1e6, ("µs", "ms"), 1000)


def number(value: float | None) -> str:
    if value is None:
        return NONE
    return f"{value:,.0f}" if value == int(value) else _three(value)


def share(value: float | None) -> str:
    """A part of one, in per cent."""
    return NONE if value is None else f"{_three(value * 100)} %"


def change(before: float | None, after: float | None) -> str:
    """How much more or less, in per cent of before."""
    if before is None or after is None or before == 0:
        return NONE
    percent = round((after / before - 1) * 100, 1)
    return f"{percent:+,.1f} %".replace("-", MINUS) if percent else "0.0 %"


def moment(at: datetime | None) -> str:
    return NONE if at is None else at.strftime("%Y-%m-%d %H:%M:%S UTC")


def shortened(name: str, most: int) -> str:
    return name if len(name) <= most else name[: most - 1] + "…"
