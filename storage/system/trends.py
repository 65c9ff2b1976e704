"""Whether a figure rises by a line that its noise hides: what leaks a little with each cycle."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence

#: What leaks is there at each of so many looks; what comes and goes is not.
TOGETHER = 15
#: Lowest values that are compared at most, each with each.
MOST = 400


def rise(values: Sequence[float]) -> float:
    """What a figure gains from one value to the next, by the lowest of each `TOGETHER` of them: the least of the
    gains in the first half, in the second one, and in both together. A table that doubles once, a cache that comes to
    its limit, is a step in one half, and what goes up and down can rise in each half by itself; a leak is one line in
    all three. Raises ValueError for fewer values than make four lowest ones."""
    size = max(TOGETHER, -(-len(values) // MOST))
    lowest = [min(values[at : at + size]) for at in range(0, len(values) - size + 1, size)]
    if len(lowest) < 4:
        raise ValueError(f"{len(values)} values are too few for two lines; {4 * size} are enough")
    half = len(lowest) // 2
    return min(line(lowest[:half]), line(lowest[-half:]), line(lowest)) / size


def line(values: Sequence[float]) -> float:
    """What is gained from one value to the next: the median, over all pairs of values, of their difference by their
    distance (Theil and Sen). One value in four may be anything at all. Raises ValueError for fewer than two."""
    if len(values) < 2:
        raise ValueError(f"{len(values)} values have no line")
    pairs = itertools.combinations(enumerate(values), 2)
    return statistics.median((later - earlier) / (at - before) for (before, earlier), (at, later) in pairs)
