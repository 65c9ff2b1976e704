"""Quantiles of histograms, as Prometheus computes them, for many histograms at once."""

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]


def quantile(bounds: Values, counts: Values, share: float) -> Values:
    """The quantile of each row of `counts` (rows, buckets); NaN where a row has no events.

    Linear within a bucket, the first one beginning at zero; a quantile in the last bucket, which has no upper end,
    is the bound before it. So it is the same number as `histogram_quantile` shows on a chart.
    """
    cumulative = np.cumsum(counts, axis=1)
    total = cumulative[:, -1]
    rank = share * total
    bucket = np.argmax(cumulative >= rank[:, None], axis=1)
    rows = np.arange(counts.shape[0])
    upper = bounds[bucket]
    lower = np.where(bucket > 0, bounds[bucket - 1], 0.0)
    inside = counts[rows, bucket]
    below = cumulative[rows, bucket] - inside
    within = np.divide(rank - below, inside, out=np.ones_like(rank), where=inside > 0)
    value = np.where(np.isinf(upper), lower, lower + (np.where(np.isinf(upper), lower, upper) - lower) * within)
    return np.where(total > 0, value, np.nan)
