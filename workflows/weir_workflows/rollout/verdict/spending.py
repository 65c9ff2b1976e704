"""Looking several times at the same data without being wrong more often than promised.

A bake is looked at while it runs, so that a bad switch goes back early. Each look that may call a regression spends
a part of the error it is allowed in all. Lan and DeMets (1983) spend it by a function of how much of the data is in;
theirs of the O'Brien-Fleming type spends next to nothing early and nearly all at the end.
"""

import math
from dataclasses import dataclass

from scipy import stats


@dataclass(frozen=True)
class Look:
    """Which look this is. `fraction`: of the planned data, how much is in; `previous`: the same for earlier looks.

    The last look has fraction 1 (more counts as 1: a bake that was prolonged has spent its error by then, so the
    looks of a prolonged bake must be planned as fractions of the prolonged one).
    """

    fraction: float = 1.0
    previous: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        fractions = (*self.previous, self.fraction)
        if any(fraction <= 0 for fraction in fractions) or list(fractions) != sorted(set(fractions)):
            raise ValueError(f"looks must be at ascending fractions above zero, not {fractions}")

    @property
    def final(self) -> bool:
        return self.fraction >= 1


def spent(alpha: float, fraction: float) -> float:
    """One-sided error spent once `fraction` of the data is in: 2 - 2 Phi(z(1 - alpha/2) / sqrt(fraction))."""
    if fraction <= 0:
        return 0.0
    if fraction >= 1:
        return alpha
    return float(2 * stats.norm.sf(stats.norm.isf(alpha / 2) / math.sqrt(fraction)))


def allowance(alpha: float, look: Look) -> float:
    """What this look may spend: it calls a regression when its p-value is no larger.

    The increments over all looks sum to alpha, and by the union bound so does the chance of any false alarm,
    whatever the dependence between looks. Exact boundaries would assume that the statistic moves like a Brownian
    motion, which a quantile of bursty latencies does not.
    """
    return spent(alpha, look.fraction) - (spent(alpha, look.previous[-1]) if look.previous else 0.0)
