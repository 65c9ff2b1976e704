"""What commands print: the API's JSON for programs, tables and fields for people."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

from weir.cli.output import span, table

_COLOURS = {
    **dict.fromkeys(("ready", "active", "finished", "passed", "completed", "in_force"), "green"),
    **dict.fromkeys(("idle", "init", "running", "scheduling", "starting", "suspending", "paused", "held"), "yellow"),
    **dict.fromkeys(("failed", "fenced", "error", "regressed", "regress", "aborted"), "red"),
}
Row = Mapping[str, Any]
# A column's heading and what it shows of a row.
Column = tuple[str, Callable[[Row], object]]


def text(value: object) -> str:
    """One cell: `-` for nothing, yes and no, states in their colour. Control characters of names are made visible, so
    that a name cannot act on the terminal."""
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    plain = "".join(c if c.isprintable() else repr(c)[1:-1] for c in str(value))
    colour = _COLOURS.get(plain)
    return click.style(plain, fg=colour) if colour else plain


def listed(columns: Sequence[Column], rows: Sequence[Row], nothing: str) -> str:
    """A table, or the sentence for an empty list."""
    if not rows:
        return nothing
    return table([name for name, _ in columns], [[text(of(row)) for _, of in columns] for row in rows])


def fields(pairs: Sequence[tuple[str, object]]) -> str:
    """Names and values of one thing, a line each."""
    width = max(len(name) for name, _ in pairs)
    return "\n".join(f"{name + ':':<{width + 1}}  {text(value)}" for name, value in pairs)


def as_json(document: object) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False)


def moment(value: str | None) -> str | None:
    """To the second, as the API wrote it, in UTC."""
    return value[:19].replace("T", " ") if value else None


def size(value: float | None) -> str | None:
    """Bytes in the unit that leaves one to three digits before the point."""
    if value is None:
        return None
    for unit in ("B", "kB", "MB", "GB"):
        if abs(value) < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


def length(seconds: float | None) -> str | None:
    return None if seconds is None else span(seconds)
