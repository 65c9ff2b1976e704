"""Reading counters and histograms from Prometheus at the edges of a window."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import httpx

Labels = Mapping[str, str]


class Prometheus:
    def __init__(self, client: httpx.Client) -> None:
        """`client`: of the whole server (`weirbench.parts.client`)."""
        self._client = client

    def at(self, query: str, when: float) -> list[tuple[Labels, float]]:
        """An instant query: the newest samples at that time."""
        answer = self._client.get("/api/v1/query", params={"query": query, "time": f"{when:.3f}"})
        answer.raise_for_status()
        return [(series["metric"], float(series["value"][1])) for series in answer.json()["data"]["result"]]

    def increase(self, series: str, by: str, start: float, end: float) -> dict[str, float]:
        """How much counters grew between two moments, summed by a label: the difference, nothing extrapolated.

        A series that appears within the window started from zero. A counter that fell means that its process was
        restarted, which no window of a measurement may contain, so it is an error rather than a guess.
        """
        before = {_key(labels): value for labels, value in self.at(series, start)}
        grown: dict[str, float] = {}
        for labels, value in self.at(series, end):
            difference = value - before.get(_key(labels), 0.0)
            if difference < 0:
                raise ValueError(f"{series} fell from {value - difference} to {value}: its process was restarted")
            name = labels.get(by, "")
            grown[name] = grown.get(name, 0.0) + difference
        return grown


def _key(labels: Labels) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(labels.items()))


def merge(histograms: Iterable[Mapping[str, float]]) -> dict[str, float]:
    total: dict[str, float] = {}
    for histogram in histograms:
        for bound, count in histogram.items():
            total[bound] = total.get(bound, 0.0) + count
    return total


def quantile(buckets: Mapping[str, float], share: float) -> float | None:
    """A quantile of a cumulative histogram by its `le` bounds, linear within a bucket; None when it is empty."""
    ordered = sorted((math.inf if bound == "+Inf" else float(bound), count) for bound, count in buckets.items())
    if not ordered or ordered[-1][1] <= 0:
        return None
    rank = share * ordered[-1][1]
    lower, below = 0.0, 0.0
    for upper, cumulative in ordered:
        if cumulative >= rank:
            if math.isinf(upper):
                return lower
            inside = cumulative - below
            return upper if inside <= 0 else lower + (upper - lower) * (rank - below) / inside
        lower, below = upper, cumulative
    return lower
