"""Resampling a time series without pretending that its samples are independent.

A window's intervals follow each other: a checkpoint, a burst or a full disk queue lasts several of them. Drawing
single intervals would make every figure look far surer than it is. The circular block bootstrap (Politis and Romano,
1992) draws runs of consecutive intervals instead, wrapping at the end so that each interval is drawn equally often.
"""

import math

import numpy as np
from numpy.typing import NDArray

Draws = NDArray[np.float64]

MIN_BLOCKS = 4
_BAND = 2.0  # autocorrelations within 2 sqrt(log10(n) / n) of zero count as zero, as the authors recommend


def block_length(series: NDArray[np.float64]) -> int:
    """How many consecutive intervals to draw at once, from the series' own autocorrelation.

    Politis and White, "Automatic block-length selection for the dependent bootstrap" (2004), for the circular
    bootstrap, with the correction of Patton, Politis and White (2009). Never so long that fewer than `MIN_BLOCKS`
    blocks fit the window.
    """
    n = series.shape[0]
    longest = max(1, n // MIN_BLOCKS)
    centred = series - series.mean()
    if n < 2 * MIN_BLOCKS or not bool(np.any(np.abs(centred) > 1e-12)):
        return 1
    most = min(n - 1, math.ceil(math.sqrt(n)) + max(5, math.ceil(math.sqrt(math.log10(n)))))
    covariance = np.array([centred[: n - lag] @ centred[lag:] for lag in range(most + 1)]) / n
    reach = min(2 * _first_quiet_lag(covariance / covariance[0], n), most)
    lags = np.arange(-reach, reach + 1)
    window = np.clip(2 * (1 - np.abs(lags) / max(1, reach)), 0, 1)
    weighted = window * covariance[np.abs(lags)]
    slope, spectrum = float((np.abs(lags) * weighted).sum()), float(weighted.sum())
    if spectrum <= 0:
        return longest
    best = (2 * slope**2 / (4 / 3 * spectrum**2)) ** (1 / 3) * n ** (1 / 3)
    return int(min(max(1, math.ceil(best)), longest))


def _first_quiet_lag(correlation: NDArray[np.float64], n: int) -> int:
    """The smallest lag after which several correlations in a row are indistinguishable from zero."""
    run = max(5, math.ceil(math.sqrt(math.log10(n))))
    loud = np.abs(correlation[1:]) >= _BAND * math.sqrt(math.log10(n) / n)
    for lag in range(len(loud)):
        if not loud[lag : lag + run].any():
            return max(1, lag)
    return max(1, int(np.flatnonzero(loud)[-1]) + 1)


def block_weights(intervals: int, length: int, draws: int, rng: np.random.Generator) -> Draws:
    """(draws, intervals): how often each interval is in each draw; every row sums to `intervals`.

    Blocks are drawn with wrap-around; where `length` does not divide `intervals`, the last block is cut.
    """
    blocks = math.ceil(intervals / length)
    starts = rng.integers(0, intervals, size=(draws, blocks))
    indices = (starts[:, :, None] + np.arange(length)) % intervals
    indices = indices.reshape(draws, -1)[:, :intervals]
    flat = (np.arange(draws)[:, None] * intervals + indices).ravel()
    return np.bincount(flat, minlength=draws * intervals).reshape(draws, intervals).astype(float)
