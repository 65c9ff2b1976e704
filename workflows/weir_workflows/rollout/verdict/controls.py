"""Choosing controls: the unswitched computes most like the switched one, judged by the baseline alone.

A shared shock does not move everyone alike: a slow disk hurts a compute that commits small transactions more than one
that reads. Like computes are moved alike, so their change is the better forecast of what the switched one would have
done. Only the baseline is looked at: a choice that saw the outcome would choose the answer.
"""

import math
from collections.abc import Sequence

import numpy as np

from weir_workflows.rollout.verdict.policy import DEFAULT_POLICY, Figure, Policy
from weir_workflows.rollout.verdict.quantiles import quantile
from weir_workflows.rollout.verdict.windows import Subject, Window

DEFAULT_CONTROLS = 6
# Latencies say how a compute meets a shock; how busy it is says it less surely.
_LATENCY_WEIGHT, _RATE_WEIGHT = 1.0, 0.25


def choose_controls(
    switched: Subject,
    candidates: Sequence[Subject],
    count: int = DEFAULT_CONTROLS,
    taken: Sequence[str] = (),
    policy: Policy = DEFAULT_POLICY,
) -> tuple[Subject, ...]:
    """The `count` candidates nearest to the switched compute; all of them where there are no more. A candidate of
    whose baseline nothing was measured is none: it was not scraped, or did nothing.

    `taken` are controls of other computes of the wave. They come last, since computes that share controls share
    their accidents too, and a wave's test takes its pairs for independent.
    """
    used = set(taken)
    own = profile(switched.before, policy)
    profiles = {one.compute_id: profile(one.before, policy) for one in candidates}
    others = [one for one in candidates if one.compute_id != switched.compute_id and profiles[one.compute_id]]
    ranked = sorted(
        others,
        key=lambda one: (one.compute_id in used, _distance(own, profiles[one.compute_id]), one.compute_id),
    )
    return tuple(ranked[:count])


def profile(window: Window, policy: Policy) -> dict[str, tuple[float, float]]:
    """By figure: the log of its value over the window, and how much it weighs."""
    found: dict[str, tuple[float, float]] = {}
    for figure in policy.figures:
        value = _value(window, figure)
        if math.isfinite(value) and value > 0:
            found[figure.name] = (math.log(value), _LATENCY_WEIGHT if figure.kind == "latency" else _RATE_WEIGHT)
    return found


def _value(window: Window, figure: Figure) -> float:
    if figure.kind == "rate":
        series = window.rates.get(figure.series)
        return math.nan if series is None else float(np.nansum(series))
    histograms = window.latencies.get(figure.series)
    if histograms is None:
        return math.nan
    return float(quantile(histograms.bounds, histograms.counts.sum(axis=0, keepdims=True), figure.share)[0])


def _distance(one: dict[str, tuple[float, float]], other: dict[str, tuple[float, float]]) -> float:
    """Weighted absolute difference over the figures both have; nobody is like a compute without any."""
    shared = one.keys() & other.keys()
    if not shared:
        return math.inf
    total = sum(one[name][1] for name in shared)
    return sum(one[name][1] * abs(one[name][0] - other[name][0]) for name in shared) / total
