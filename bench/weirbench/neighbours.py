"""What windows with and without a storm say of a neighbour: their order, ratios, and whether the promise holds.
Pure."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .spread import spread

ALONE = "alone"
STORMS = {
    "load": "bulk load by COPY",
    "sort": "sorts that spill to temporary files",
    "connect": "connections opened and closed",
    "wal": "WAL by updates and logical messages",
    "api": "requests to the API with a key of its own",
}
ALL = "all"
NAMES = (*STORMS, ALL)
# The neighbour's 99th percentile of a commit beside a storm, over that without one.
MOST = 2.0


@dataclass(frozen=True)
class Window:
    """One stretch of the neighbour's commits. Milliseconds. `late`: how long after its time the 99th of 100 commits
    was begun, which the generator itself adds. `achieved`: by storm, what the other tenant did a second."""

    round: int
    name: str
    commits: int
    failed: int
    p50: float
    p99: float
    longest: float
    late: float
    achieved: Mapping[str, Mapping[str, Any]]


def order(number: int, names: Sequence[str]) -> list[str]:
    """The windows of a round: each storm once, in an order that turns with the rounds, and the neighbour alone at the
    beginning and in the middle, so that what drifts meets both alike."""
    by = number % len(names) if names else 0
    turned = [*names[by:], *names[:by]]
    middle = (len(turned) + 1) // 2
    second = [ALONE, *turned[middle:]] if middle < len(turned) else []
    return [ALONE, *turned[:middle], *second]


def ratios(windows: Sequence[Window], name: str) -> list[float]:
    """Of each round in which both were measured: the window's p99 over the median p99 of the neighbour alone. Raises
    ValueError where a round has none alone."""
    found: list[float] = []
    for window in windows:
        if window.name == name:
            alone = [other.p99 for other in windows if other.name == ALONE and other.round == window.round]
            if not alone:
                raise ValueError(f"round {window.round + 1} has no window of the neighbour alone to compare with")
            found.append(window.p99 / statistics.median(alone))
    return found


def figures(windows: Sequence[Window], name: str) -> dict[str, Any]:
    """Of all windows of one name: each figure's median, least and most."""
    chosen = [window for window in windows if window.name == name]
    return {
        "commits": sum(window.commits for window in chosen),
        "failed": sum(window.failed for window in chosen),
        "p50_ms": spread([window.p50 for window in chosen], 2),
        "p99_ms": spread([window.p99 for window in chosen], 2),
        "longest_ms": round(max(window.longest for window in chosen), 2),
        "sent_late_p99_ms": spread([window.late for window in chosen], 2),
    }


def rates(windows: Sequence[Window], name: str) -> dict[str, dict[str, Any]]:
    """What each storm of the windows of this name did: figures of a second over the rounds, by storm and figure. What
    a round has no figure of counts as nothing of it."""
    chosen = [window.achieved for window in windows if window.name == name]
    storms = sorted({storm for achieved in chosen for storm in achieved})
    found: dict[str, dict[str, Any]] = {}
    for storm in storms:
        seen = [achieved.get(storm, {}) for achieved in chosen]
        wanted = sorted({figure for of in seen for figure in of})
        found[storm] = {figure: spread([float(of.get(figure, 0)) for of in seen], 1) for figure in wanted}
    return found


def report(windows: Sequence[Window], most: float = MOST) -> dict[str, Any]:
    """The figures of all windows, and what does not hold of the promise, in words. A commit that failed breaks it,
    and so does a storm that did nothing: then nothing was measured."""
    names = [name for name in NAMES if any(window.name == name for window in windows)]
    storms: dict[str, Any] = {}
    missed: list[str] = []
    for name in names:
        ratio = spread(ratios(windows, name), 2)
        idle = [storm for storm in storms_of(name) if not _did_something(windows, name, storm)]
        reasons: list[str] = []
        if ratio["median"] > most:
            reasons.append(
                f"p99 is {ratio['median']:.2f} times that of the neighbour alone, and may be {most:g} times"
            )
        found = figures(windows, name)
        if found["failed"]:
            reasons.append(f"{found['failed']} of {found['commits']} commits failed")
        reasons += [f"the storm {storm} did nothing" for storm in idle]
        missed += [f"{name}: {reason}" for reason in reasons]
        storms[name] = {**found, "ratio": ratio, "kept": not reasons, "per_second": rates(windows, name)}
    return {"alone": figures(windows, ALONE), "storms": storms, "kept": not missed, "missed": missed}


def storms_of(name: str) -> list[str]:
    """The storms that make the one of this name: all of them, or itself."""
    return list(STORMS) if name == ALL else [name]


def _did_something(windows: Sequence[Window], name: str, storm: str) -> bool:
    chosen = [window.achieved.get(storm, {}) for window in windows if window.name == name]
    return all(float(of.get("done", 0)) > 0 for of in chosen)
