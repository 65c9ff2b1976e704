"""The difference in differences of one figure: how much more the switched compute changed than its controls did.

For subject s, y_s = log(figure after) - log(figure before), turned so that positive is worse. The effect is y of the
switched compute less the weighted mean of y over the controls. A shock that meets all of them (a busy host, a slow
disk, the hour of the day) cancels.

Two things make the effect uncertain, and both are in its standard error:

- Chance within the windows: a block bootstrap that draws the same blocks of clock time for all subjects, so that
  shocks they share stay shared. See `bootstrap`.
- Drift between the windows, which no resampling within them can see: two computes move apart with nothing done to
  either. Its variance is estimated from how far the controls move apart beyond what chance explains (the moment
  estimator of a random-effects model, DerSimonian and Laird, 1986), and is never taken below the policy's own,
  since few controls estimate it badly. Without controls, the policy's drift against a compute's own past is used.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from weir_workflows.rollout.verdict.bootstrap import block_length, block_weights
from weir_workflows.rollout.verdict.policy import Figure, Policy
from weir_workflows.rollout.verdict.quantiles import quantile
from weir_workflows.rollout.verdict.windows import ComputeWindows, Subject, Window

Array = NDArray[np.float64]
USABLE_DRAWS = 0.9


@dataclass(frozen=True)
class Effect:
    """`log`: the effect, positive is worse. Variances are of the effect's two halves, by resampling; `drift` is the
    standard deviation of what lies between windows, `drift_found` whether the controls showed it or the policy gave
    it. `before` and `after` are the switched compute's own figure."""

    before: float
    after: float
    log: float
    variance_before: float
    variance_after: float
    drift: float
    drift_found: bool
    controls: tuple[str, ...]
    blocks: float
    block_intervals: int

    @property
    def drift_variance(self) -> float:
        return self.drift**2 * (1 + (1 / len(self.controls) if self.controls else 0.0))

    @property
    def standard_error(self) -> float:
        return math.sqrt(self.variance_before + self.variance_after + self.drift_variance)

    def exceeds(self, log: float) -> float:
        """One-sided p-value of "the effect is no larger than this"."""
        return float(stats.t.sf((self.log - log) / self.standard_error, self._freedom))

    def margin(self, level: float) -> float:
        """How far a one-sided bound at this level of error lies from the estimate."""
        return float(stats.t.isf(level, self._freedom)) * self.standard_error

    @property
    def _freedom(self) -> float:
        """Welch and Satterthwaite's: of the blocks for chance, and of the controls for drift they were asked for. A
        drift that the policy gives is taken as known."""
        chance = self.variance_before + self.variance_after
        terms = chance**2 / max(1.0, self.blocks - 2)
        if self.drift_found:
            terms += self.drift_variance**2 / (len(self.controls) - 1)
        return (chance + self.drift_variance) ** 2 / terms if terms > 0 else math.inf


@dataclass(frozen=True)
class Unmeasured:
    """Too little to estimate anything: `events` were there and `needed` are, in `window` ("before" | "after")."""

    window: str
    events: float
    needed: float
    seconds: float

    @property
    def seconds_more(self) -> float | None:
        """How much longer at this rate; None when nothing happened at all."""
        if self.events <= 0:
            return None
        return max(0.0, self.seconds * (self.needed / self.events - 1))


def estimate(
    windows: ComputeWindows, figure: Figure, policy: Policy, rng: np.random.Generator
) -> Effect | Unmeasured:
    lacking = _lacking(windows.switched, figure, policy)
    if lacking is not None:
        return lacking
    controls = [c for c in windows.controls if _lacking(c, figure, policy) is None]
    if len(controls) < policy.min_controls:
        controls = []
    subjects = [windows.switched, *controls]
    length = max(
        _block_length([s.before for s in subjects], figure), _block_length([s.after for s in subjects], figure)
    )
    before, drawn_before = _levels([s.before for s in subjects], figure, length, policy, rng)
    after, drawn_after = _levels([s.after for s in subjects], figure, length, policy, rng)
    usable = np.isfinite(drawn_before).all(axis=1) & np.isfinite(drawn_after).all(axis=1)
    if usable.mean() < USABLE_DRAWS:
        return _fewest(windows.switched, figure, policy)
    drawn_before, drawn_after = drawn_before[usable], drawn_after[usable]
    change, drawn = after - before, drawn_after - drawn_before
    # A bootstrap of few blocks is too sure of itself, by about one block in all of them.
    blocks = min(windows.switched.before.intervals, windows.switched.after.intervals) / length
    shrink = blocks / max(1.0, blocks - 1)
    drift = _drift(change[1:], drawn[:, 1:], shrink, figure)
    contrast = np.concatenate([[1.0], -_weights(drawn[:, 1:], figure)])
    return Effect(
        before=math.exp(figure.sign * before[0]),
        after=math.exp(figure.sign * after[0]),
        log=float(contrast @ change),
        variance_before=float((drawn_before @ contrast).var()) * shrink,
        variance_after=float((drawn_after @ contrast).var()) * shrink,
        drift=drift,
        drift_found=bool(controls) and drift > figure.drift,
        controls=tuple(control.compute_id for control in controls),
        blocks=2 * blocks,
        block_intervals=length,
    )


def _events(window: Window, figure: Figure) -> float:
    if figure.kind == "rate":
        series = window.rates.get(figure.series)
        return 0.0 if series is None else float(np.nansum(series))
    histograms = window.latencies.get(figure.series)
    return 0.0 if histograms is None else float(histograms.counts.sum())


def _lacking(subject: Subject, figure: Figure, policy: Policy) -> Unmeasured | None:
    needed = policy.events_needed(figure)
    for name, window in (("before", subject.before), ("after", subject.after)):
        events = _events(window, figure)
        if events < needed:
            return Unmeasured(name, events, needed, window.seconds)
    return None


def _fewest(subject: Subject, figure: Figure, policy: Policy) -> Unmeasured:
    """So unevenly spread that redraws of the window come out empty: as if a tenth of the events were there."""
    events, name, window = min(
        (_events(window, figure), name, window)
        for name, window in (("before", subject.before), ("after", subject.after))
    )
    return Unmeasured(name, events, max(10 * policy.events_needed(figure), 2 * events), window.seconds)


def _levels(
    windows: list[Window], figure: Figure, length: int, policy: Policy, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Log figures, positive is worse, of the windows as they are (subjects,) and redrawn (draws, subjects)."""
    intervals = windows[0].intervals
    weights = np.vstack([np.ones(intervals), block_weights(intervals, length, policy.draws, rng)])
    values = np.stack([_values(window, figure, weights) for window in windows], axis=1)
    logs = figure.sign * np.log(values, where=values > 0, out=np.full_like(values, np.nan))
    return logs[0], logs[1:]


def _values(window: Window, figure: Figure, weights: Array) -> Array:
    """The figure of each row of interval weights: seconds for a latency, events a second for a rate."""
    if figure.kind == "latency":
        histograms = window.latencies[figure.series]
        occupied = np.flatnonzero(histograms.counts.any(axis=0))
        # Empty buckets cost as much as others; one below the lowest stays, for its bound.
        used = slice(max(0, int(occupied[0]) - 1), int(occupied[-1]) + 1)
        return quantile(histograms.bounds[used], weights @ histograms.counts[:, used], figure.share)
    series = window.rates[figure.series]
    seconds = weights @ np.isfinite(series).astype(float) * window.seconds_per_interval
    return np.divide(weights @ np.nan_to_num(series), seconds, out=np.full(len(weights), np.nan), where=seconds > 0)


def _block_length(windows: list[Window], figure: Figure) -> int:
    """From what moves the effect: the switched compute's influence in each interval less that of its controls."""
    influence = [_influence(window, figure) for window in windows]
    series = influence[0] - (np.mean(influence[1:], axis=0) if len(influence) > 1 else 0.0)
    return block_length(series)


def _influence(window: Window, figure: Figure) -> Array:
    """Up to a constant, how much each interval moves the figure: for a quantile, its events beyond it less those
    expected there; for a rate, its events less the mean."""
    if figure.kind == "rate":
        series = window.rates[figure.series]
        mean = float(np.nanmean(series))
        return (np.nan_to_num(series, nan=mean) - mean) / mean
    histograms = window.latencies[figure.series]
    counts = histograms.counts
    level = quantile(histograms.bounds, counts.sum(axis=0, keepdims=True), figure.share)[0]
    beyond = counts[:, histograms.bounds > level].sum(axis=1)
    expected = counts.sum(axis=1) * beyond.sum() / counts.sum()
    return (beyond - expected) / max(1.0, float(beyond.sum()) / window.intervals)


def _weights(drawn: Array, figure: Figure) -> Array:
    """How much each control counts: less the noisier it is, by the inverse of its variance. Sums to one."""
    if drawn.shape[1] == 0:
        return np.zeros(0)
    precision = 1 / (drawn.var(axis=0) + figure.drift**2)
    return precision / precision.sum()


def _drift(change: Array, drawn: Array, shrink: float, figure: Figure) -> float:
    count = change.shape[0]
    if count == 0:
        return figure.drift_alone
    if count < 3:
        return figure.drift
    others = (np.ones((count, count)) - np.eye(count)) / (count - 1)
    residual = change - others @ change
    chance = (drawn - drawn @ others.T).var(axis=0) * shrink
    found = float(np.mean(residual**2 - chance)) / (1 + 1 / (count - 1))
    return max(figure.drift, math.sqrt(max(0.0, found)))
