"""Tables and progress on a terminal."""

from collections.abc import Sequence

import click


def table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as their widest cell; the last one is not padded."""
    everything = [headers, *rows]
    widths = [max(len(click.unstyle(row[column])) for row in everything) for column in range(len(headers))]
    lines: list[str] = []
    for row in everything:
        cells = [cell + " " * (width - len(click.unstyle(cell))) for cell, width in zip(row, widths, strict=True)]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def span(seconds: float) -> str:
    """How long, in the two largest units."""
    total = int(seconds)
    if total < 60:
        return f"{total}s"
    if total < 3600:
        return f"{total // 60}m{total % 60:02d}s"
    if total < 86400:
        return f"{total // 3600}h{total % 3600 // 60:02d}m"
    return f"{total // 86400}d{total % 86400 // 3600:02d}h"


def note(text: str) -> None:
    click.echo(f"  {text}")
