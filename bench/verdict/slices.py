"""Cutting traces into what a verdict takes, and planting regressions in them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from weir_workflows.rollout.verdict import ComputeWindows, Histograms, Subject, Window

from .traces import CODES, FIRST_BOUND_SECONDS, RATIO, SECONDS, SPLIT, Trace

Shape = Literal["none", "whole", "tail"]
# What a rollout waits between the switch and the second window.
SETTLE_INTERVALS = 3
AGENT_BUCKETS = 68
AGENT_BOUNDS = np.append(FIRST_BOUND_SECONDS * RATIO ** np.arange(AGENT_BUCKETS), np.inf)
# (stored buckets, agent's buckets): which of the agent's buckets each stored one lies in.
_TO_AGENT = (np.ceil(np.arange(CODES)[:, None] / SPLIT) == np.arange(AGENT_BOUNDS.size)).astype(float)


@dataclass(frozen=True)
class Planted:
    """A regression by `ratio`. `whole`: every latency is longer by it. `tail`: those beyond the window's p90 are, so
    that p99 grows by it and p50 not at all. Nothing else about the transactions changes."""

    shape: Shape = "none"
    ratio: float = 1.0


NOTHING = Planted()


@dataclass(frozen=True)
class Slice:
    """One compute of a trace taken as switched at a moment, with others of the same trace as controls."""

    trace: Trace
    compute: int
    controls: tuple[int, ...]
    start: int
    intervals: int

    @property
    def name(self) -> str:
        return f"{self.trace.name}/{self.compute}@{self.start}+{self.intervals}"

    def windows(self, planted: Planted = NOTHING, fraction: float = 1.0) -> ComputeWindows:
        """With the bake so far as a look at `fraction` of it sees it."""
        return ComputeWindows(
            self._subject(self.compute, planted, fraction),
            tuple(self._subject(control, NOTHING, fraction) for control in self.controls),
        )

    def _subject(self, compute: int, planted: Planted, fraction: float) -> Subject:
        after = self.start + self.intervals + SETTLE_INTERVALS
        seen = after + max(1, round(self.intervals * fraction))
        seen_by_agent = as_agent(self.trace)[compute]
        counts = seen_by_agent[after:seen]
        if planted.shape != "none":
            whole = plant(self.trace.counts[compute, after : after + self.intervals], planted)
            counts = whole[: seen - after] @ _TO_AGENT
        return Subject(
            f"{self.trace.name}/{compute}",
            _window(seen_by_agent[self.start : self.start + self.intervals]),
            _window(counts),
        )


@cache
def as_agent(trace: Trace) -> NDArray[np.float64]:
    """(computes, intervals, buckets): the trace as the compute agents would have reported it."""
    return trace.counts @ _TO_AGENT


def plant(counts: NDArray[np.int64], planted: Planted) -> NDArray[np.float64]:
    """Moves counts (intervals, stored buckets) to the buckets their longer latencies fall into.

    A ratio that is not a whole number of stored buckets moves each bucket's counts to the two nearest, in proportion.
    """
    moved = counts.astype(float)
    if planted.shape == "none":
        return moved
    first = 0
    if planted.shape == "tail":
        total = np.cumsum(counts.sum(axis=0))
        first = int(np.searchsorted(total, 0.9 * total[-1], side="right")) + 1
    steps = SPLIT * math.log(planted.ratio) / math.log(RATIO)
    whole = math.floor(steps + 1e-9)
    further = max(0.0, steps - whole)
    tail = moved[:, first:].copy()
    moved[:, first:] = 0.0
    for shift, part in ((whole, 1 - further), (whole + 1, further)):
        targets = np.minimum(np.arange(first, CODES) + shift, CODES - 1)
        moved += part * tail @ (targets[:, None] == np.arange(CODES))
    return moved


def _window(agent: NDArray[np.float64]) -> Window:
    return Window(
        SECONDS,
        latencies={"commit": Histograms(AGENT_BOUNDS, agent)},
        rates={"transactions": agent.sum(axis=1)},
    )


def span(intervals: int) -> int:
    """Intervals of trace that a slice takes: both windows and the settling between them."""
    return 2 * intervals + SETTLE_INTERVALS


def starts(trace: Trace, intervals: int, step: int) -> list[int]:
    return list(range(0, trace.intervals - span(intervals) + 1, step))
