"""What a figure was over all rounds: median, least and most."""

from __future__ import annotations

import statistics
from collections.abc import Sequence


def spread(values: Sequence[float], digits: int | None = None) -> dict[str, float]:
    """Rounded to so many digits, if any."""
    found = {"median": float(statistics.median(values)), "min": min(values), "max": max(values)}
    return found if digits is None else {name: round(value, digits) for name, value in found.items()}
