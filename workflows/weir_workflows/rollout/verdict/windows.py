"""What a verdict is made from: counts per interval, of the switched compute and of computes that did not change,
over the same clock time before and after the switch."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Histograms:
    """A latency histogram for each interval of a window.

    `bounds`: (buckets,) upper bounds in seconds, ascending, the last one infinite.
    `counts`: (intervals, buckets) events in each bucket, not cumulative.
    """

    bounds: Counts
    counts: Counts

    def __post_init__(self) -> None:
        if self.counts.ndim != 2 or self.counts.shape[1] != self.bounds.shape[0]:
            raise ValueError(f"counts of shape {self.counts.shape} do not fit {self.bounds.shape[0]} buckets")
        if self.bounds.size < 2 or not math.isinf(self.bounds[-1]) or not bool(np.all(np.diff(self.bounds) > 0)):
            raise ValueError("bucket bounds must ascend and end in infinity")

    @property
    def intervals(self) -> int:
        return self.counts.shape[0]

    @classmethod
    def of_window(cls, by_le: Mapping[str, float]) -> "Histograms":
        """One interval: by `le`, how many events of a whole window took no longer."""
        return cls.from_cumulative({le: (0.0, count) for le, count in by_le.items()})

    @classmethod
    def from_cumulative(cls, edges: Mapping[str, Sequence[float]]) -> "Histograms":
        """From Prometheus: by `le`, the counter at the n + 1 edges of n intervals.

        Each value counts every event since the process began that took no longer than `le`. A counter that fell was
        restarted, and one that is NaN was not scraped: the interval has no events then, rather than invented ones.
        """
        by_bound = sorted((math.inf if le in {"+Inf", "Inf", "inf"} else float(le), le) for le in edges)
        cumulative = np.array([edges[le] for _, le in by_bound], dtype=float).T
        below = np.diff(cumulative, axis=1, prepend=0.0)
        grown = np.diff(below, axis=0)
        whole = np.isfinite(grown).all(axis=1) & (np.diff(cumulative[:, -1]) >= 0)
        counts = np.where(whole[:, None], np.clip(np.nan_to_num(grown), 0.0, None), 0.0)
        return cls(np.array([bound for bound, _ in by_bound]), counts)


@dataclass(frozen=True, eq=False)
class Window:
    """One compute over one window. `rates`: events in each interval, NaN where nothing was scraped."""

    seconds_per_interval: float
    latencies: Mapping[str, Histograms] = field(default_factory=dict[str, Histograms])
    rates: Mapping[str, Counts] = field(default_factory=dict[str, Counts])

    def __post_init__(self) -> None:
        if len(self._lengths()) > 1:
            raise ValueError(f"the series of a window differ in length: {sorted(self._lengths())} intervals")

    def _lengths(self) -> set[int]:
        return {h.intervals for h in self.latencies.values()} | {int(r.shape[0]) for r in self.rates.values()}

    @property
    def intervals(self) -> int:
        return next(iter(self._lengths()), 0)

    @property
    def seconds(self) -> float:
        return self.intervals * self.seconds_per_interval


@dataclass(frozen=True, eq=False)
class Subject:
    """One compute before and after the moment of the switch, whether or not it was the one switched."""

    compute_id: str
    before: Window
    after: Window


@dataclass(frozen=True, eq=False)
class ComputeWindows:
    """The switched compute and its controls: computes to which nothing was done from the start of the baseline to the
    end of the bake. Best are those never switched; ones that were switched well before, and have settled, do too."""

    switched: Subject
    controls: tuple[Subject, ...] = ()

    def __post_init__(self) -> None:
        for control in self.controls:
            if control.compute_id == self.switched.compute_id:
                raise ValueError(f"{control.compute_id} cannot be its own control")
            if (control.before.intervals, control.after.intervals) != (
                self.switched.before.intervals,
                self.switched.after.intervals,
            ):
                raise ValueError(f"the windows of control {control.compute_id} are not those of the switched compute")
