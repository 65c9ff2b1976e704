"""What a verdict asks for: which figures, how sure, and what is too little to matter or too much to bear.

`drift` is how far apart two computes move between two windows with nothing done to either, as the standard deviation
of a log ratio, beyond what resampling within the windows can see; `drift_alone` is the same for one compute against
its own past. Both were chosen on recorded traces: see `bench/verdict` and docs/adr/0012-verdicts.md.
"""

import math
from dataclasses import dataclass
from typing import Literal

Kind = Literal["latency", "rate"]


@dataclass(frozen=True)
class Figure:
    """One figure of a compute that a verdict looks at.

    `series` names the histogram or the rate in a `Window`. A latency gets worse by growing, a rate by falling.
    `negligible` and `tolerated` are ratios of "worse", both above 1: worse by less than the first is never called a
    regression; worse by the second must be ruled out for a pass. A `required` figure must have been measured for
    a pass; any other decides only where it was. A figure that is only `guarded` can regress but is never waited for.
    `alpha_share` is its part of the policy's error; the parts of all figures sum to one.
    """

    name: str
    words: str
    series: str
    kind: Kind
    share: float = 0.5
    alpha_share: float = 0.1
    negligible: float = 1.05
    tolerated: float = 1.25
    drift: float = 0.03
    drift_alone: float = 0.7
    required: bool = False
    guarded: bool = False

    @property
    def sign(self) -> int:
        """What a log ratio is multiplied by so that positive is worse."""
        return 1 if self.kind == "latency" else -1


FIGURES = (
    Figure("commit_p50", "commit p50", "commit", "latency", 0.5, required=True),
    Figure("commit_p99", "commit p99", "commit", "latency", 0.99, alpha_share=0.4, required=True),
    Figure("storage_read_p50", "storage read p50", "storage_read", "latency", 0.5),
    Figure("storage_read_p99", "storage read p99", "storage_read", "latency", 0.99, alpha_share=0.3),
    Figure(
        "transactions_per_second",
        "transactions a second",
        "transactions",
        "rate",
        negligible=1.25,
        tolerated=2.0,
        drift=0.25,
        drift_alone=0.35,
        guarded=True,
    ),
)


@dataclass(frozen=True)
class Policy:
    """`alpha`: how often, at most, a compute that is no worse may be called worse, over all its figures and looks.
    `pass_alpha`: how often, at most, a compute that is worse by `tolerated` may pass."""

    alpha: float = 0.01
    pass_alpha: float = 0.05
    figures: tuple[Figure, ...] = FIGURES
    interval_seconds: float = 2.0
    min_controls: int = 2
    min_intervals: int = 12
    min_tail_events: float = 5.0
    draws: int = 600

    def __post_init__(self) -> None:
        if not math.isclose(sum(figure.alpha_share for figure in self.figures), 1.0):
            raise ValueError("the figures' shares of alpha must sum to one")

    def events_needed(self, figure: Figure) -> float:
        """Below so many events in a window, its quantile is a matter of single events."""
        return math.ceil(self.min_tail_events / min(figure.share, 1 - figure.share))


DEFAULT_POLICY = Policy()
