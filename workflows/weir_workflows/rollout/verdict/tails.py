"""How slow the slow ones are, before and after, at a quantile that both windows can tell.

The p99 of forty commits is the slowest of them, whatever it was: a checkpoint, or a neighbour's backup. So the
quantile is the highest, up to the p99, that has several events above it in both windows. Where a compute does little
that is a p90 or a p80, and it says so.
"""

import math
from dataclasses import dataclass

import numpy as np

from weir_workflows.rollout.verdict.policy import DEFAULT_POLICY
from weir_workflows.rollout.verdict.quantiles import quantile
from weir_workflows.rollout.verdict.windows import Histograms

SHARE = 0.99
# Fewer events than twice those that must lie above say nothing about a tail: it would be most of them.
LEAST_SHARE = 0.5


@dataclass(frozen=True)
class Tail:
    """Seconds at the `share` quantile, and how many events each window has. `share` and the figures are None where
    there are too few events for any; `before` alone is where the baseline has none at all."""

    share: float | None
    before: float | None
    after: float | None
    events_before: float
    events_after: float

    @property
    def words(self) -> str:
        """The quantile as people name it: p99, p90, p97.5."""
        return "p99" if self.share is None else f"p{math.floor(self.share * 1000 + 1e-6) / 10:g}"


def compare_tails(
    before: Histograms | None, after: Histograms | None, tail_events: float = DEFAULT_POLICY.min_tail_events
) -> Tail:
    """At the highest quantile that has `tail_events` above it in each window that has any event."""
    were, are = _events(before), _events(after)
    fewest = min((events for events in (were, are) if events > 0), default=0.0)
    share = min(SHARE, 1 - tail_events / fewest) if fewest > 0 else 0.0
    if are <= 0 or share < LEAST_SHARE:
        return Tail(None, None, None, were, are)
    return Tail(share, _quantile(before, share), _quantile(after, share), were, are)


def _events(histograms: Histograms | None) -> float:
    return 0.0 if histograms is None else float(histograms.counts.sum())


def _quantile(histograms: Histograms | None, share: float) -> float | None:
    if histograms is None:
        return None
    value = float(quantile(histograms.bounds, np.sum(histograms.counts, axis=0, keepdims=True), share)[0])
    return value if math.isfinite(value) else None
