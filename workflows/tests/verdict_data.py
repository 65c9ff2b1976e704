"""Synthetic computes whose true effect is known: latencies around a level that moves as real ones do, in runs."""

import numpy as np
from numpy.typing import NDArray

from weir_workflows.rollout.verdict import ComputeWindows, Histograms, Subject, Window

SECONDS = 2.0
BOUNDS = np.append(0.000_02 * 1.25 ** np.arange(68), np.inf)


def autocorrelated(count: int, correlation: float, deviation: float, rng: np.random.Generator) -> NDArray[np.float64]:
    """An AR(1) series with this standard deviation, in its stationary state."""
    noise = rng.normal(0, deviation * np.sqrt(1 - correlation**2), count)
    series = np.empty(count)
    series[0] = rng.normal(0, deviation)
    for index in range(1, count):
        series[index] = correlation * series[index - 1] + noise[index]
    return series


def histograms(level: NDArray[np.float64], per_interval: float, rng: np.random.Generator) -> Histograms:
    """Lognormal latencies around exp(level) milliseconds in each interval."""
    numbers = rng.poisson(per_interval, level.size)
    latencies = np.exp(np.repeat(level, numbers) + rng.normal(0, 0.5, numbers.sum())) / 1000
    cells = np.repeat(np.arange(level.size), numbers) * BOUNDS.size + np.searchsorted(BOUNDS, latencies)
    counts = np.bincount(cells, minlength=level.size * BOUNDS.size).reshape(level.size, BOUNDS.size)
    return Histograms(BOUNDS, counts.astype(float))


def window(level: NDArray[np.float64], rng: np.random.Generator, per_interval: float = 100.0) -> Window:
    commit = histograms(level, per_interval, rng)
    return Window(SECONDS, {"commit": commit}, {"transactions": commit.counts.sum(axis=1)})


def fleet(
    rng: np.random.Generator,
    ratio: float = 1.0,
    controls: int = 6,
    intervals: int = 60,
    correlation: float = 0.6,
    deviation: float = 0.1,
    per_interval: float = 100.0,
) -> ComputeWindows:
    """A switched compute that is worse by `ratio` and controls that are not; some shocks are shared, some its own."""
    shared = [autocorrelated(intervals, correlation, 3 * deviation, rng) for _ in range(2)]

    def subject(name: str, worse: float) -> Subject:
        own = [autocorrelated(intervals, correlation, deviation, rng) for _ in range(2)]
        return Subject(
            name,
            window(1.0 + shared[0] + own[0], rng, per_interval),
            window(1.0 + shared[1] + own[1] + np.log(worse), rng, per_interval),
        )

    return ComputeWindows(subject("switched", ratio), tuple(subject(f"control-{n}", 1.0) for n in range(controls)))
