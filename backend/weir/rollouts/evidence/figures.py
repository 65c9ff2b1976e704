"""Figures made of stored counts (`weir.rollouts.evidence.collect`): of one compute, and of many together.

Figures of many computes are sums: rates of windows that are equally long add up to a rate, percentiles are those of
summed histograms and never averages of percentiles. Pure.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import Field

from weir.kit.schemas import View

WindowCounts = dict[str, Any]
Bucket = tuple[float, float | None]


class RmgrWal(View):
    """WAL of one of Postgres's resource managers, as page images and as the rest."""

    rmgr: str
    image_bytes_per_second: float
    rest_bytes_per_second: float
    image_bytes_per_transaction: float | None
    rest_bytes_per_transaction: float | None


class WindowFigures(View):
    """One window of one compute, or of several together. Null is what was not measured; of several, a figure is that
    of those that were measured. Reads and chain length are of pages read from storage, audit reads included;
    transactions are committed ones. `wal_paced_share` is the part of the time in which WAL waited at its limit; of
    several computes, their mean."""

    from_: str | None = Field(default=None, serialization_alias="from")
    to: str | None = None
    seconds: float | None = None
    wal_bytes_per_second: float | None = None
    wal_image_bytes_per_second: float | None = None
    wal_rest_bytes_per_second: float | None = None
    wal_bytes_per_transaction: float | None = None
    wal_image_bytes_per_transaction: float | None = None
    wal_rest_bytes_per_transaction: float | None = None
    transactions_per_second: float | None = None
    by_rmgr: list[RmgrWal] = Field(default_factory=list[RmgrWal])
    commit_p50_seconds: float | None = None
    commit_p99_seconds: float | None = None
    storage_read_p50_seconds: float | None = None
    storage_read_p99_seconds: float | None = None
    chain_length_p50: float | None = None
    chain_length_p99: float | None = None
    checkpoints: float | None = None
    wal_paced_share: float | None = None
    storage_images_per_second: float | None = None
    storage_image_bytes_per_second: float | None = None
    storage_images_pending: float | None = None
    storage_image_lag_bytes: float | None = None


class WindowSum:
    """Adds windows up one by one, so that those of thousands of computes need not be in memory together. They may
    differ in length: each adds what it had a second."""

    def __init__(self) -> None:
        self.computes = 0
        self._seconds = 0.0
        self._rates: dict[str, float] = {}
        self._sums: dict[str, float] = {}
        self._lag: float | None = None
        self._paced_computes = 0
        self._rmgrs: defaultdict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
        self._histograms: defaultdict[str, defaultdict[Bucket, float]] = defaultdict(lambda: defaultdict(float))

    def add(self, window: WindowCounts) -> None:
        self.computes += 1
        seconds = window["seconds"]
        self._seconds = max(self._seconds, seconds)
        wal, storage = window["wal"], window["storage"]
        if wal is not None:
            for rmgr, parts in wal.items():
                self._rmgrs[rmgr][0] += parts["image"] / seconds
                self._rmgrs[rmgr][1] += parts["rest"] / seconds
            self._rate("image", sum(parts["image"] for parts in wal.values()), seconds)
            self._rate("rest", sum(parts["rest"] for parts in wal.values()), seconds)
        counted = window["transactions"]
        self._rate("transactions", None if counted is None else counted["commit"], seconds)
        paced = window.get("wal_paced_seconds")
        self._rate("paced", paced, seconds)
        self._paced_computes += paced is not None
        self._rate("images", storage["images"], seconds)
        self._rate("image_bytes", storage["image_bytes"], seconds)
        for name, value in (("checkpoints", window["checkpoints"]), ("pending", storage["images_pending_max"])):
            if value is not None:
                self._sums[name] = self._sums.get(name, 0.0) + value
        lag = storage["image_lag_bytes_max"]
        if lag is not None:
            self._lag = max(lag, self._lag or 0.0)
        for name, buckets in window["histograms"].items():
            for lower, upper, count in buckets or []:
                self._histograms[name][lower, upper] += count

    def _rate(self, name: str, count: float | None, seconds: float) -> None:
        if count is not None:
            self._rates[name] = self._rates.get(name, 0.0) + count / seconds

    def figures(self) -> WindowFigures:
        if self.computes == 0:
            return WindowFigures()
        image, rest = self._rates.get("image"), self._rates.get("rest")
        total = None if image is None or rest is None else image + rest
        transactions = self._rates.get("transactions")
        return WindowFigures(
            seconds=self._seconds,
            wal_bytes_per_second=total,
            wal_image_bytes_per_second=image,
            wal_rest_bytes_per_second=rest,
            wal_bytes_per_transaction=_each(total, transactions),
            wal_image_bytes_per_transaction=_each(image, transactions),
            wal_rest_bytes_per_transaction=_each(rest, transactions),
            transactions_per_second=transactions,
            by_rmgr=self._by_rmgr(transactions),
            commit_p50_seconds=quantile(self._histograms["commit"], 0.5),
            commit_p99_seconds=quantile(self._histograms["commit"], 0.99),
            storage_read_p50_seconds=quantile(self._histograms["storage_read"], 0.5),
            storage_read_p99_seconds=quantile(self._histograms["storage_read"], 0.99),
            chain_length_p50=quantile(self._histograms["chain"], 0.5),
            chain_length_p99=quantile(self._histograms["chain"], 0.99),
            checkpoints=self._sums.get("checkpoints"),
            wal_paced_share=self._paced_share(),
            storage_images_per_second=self._rates.get("images"),
            storage_image_bytes_per_second=self._rates.get("image_bytes"),
            storage_images_pending=self._sums.get("pending"),
            storage_image_lag_bytes=self._lag,
        )

    def _paced_share(self) -> float | None:
        paced = self._rates.get("paced")
        return None if paced is None else min(1.0, paced / self._paced_computes)

    def _by_rmgr(self, transactions: float | None) -> list[RmgrWal]:
        return [
            RmgrWal(
                rmgr=rmgr,
                image_bytes_per_second=image,
                rest_bytes_per_second=rest,
                image_bytes_per_transaction=_each(image, transactions),
                rest_bytes_per_transaction=_each(rest, transactions),
            )
            for rmgr, (image, rest) in sorted(self._rmgrs.items(), key=lambda item: (-sum(item[1]), item[0]))
        ]


def figures(window: WindowCounts) -> WindowFigures:
    """Of one compute's window."""
    return together([window]).model_copy(update={"from_": window["from"], "to": window["to"]})


def together(windows: Iterable[WindowCounts]) -> WindowFigures:
    """Of several computes' windows."""
    total = WindowSum()
    for window in windows:
        total.add(window)
    return total.figures()


def quantile(buckets: Mapping[Bucket, float], share: float) -> float | None:
    """As Prometheus's `histogram_quantile`: linear within a bucket; in the open one, where that begins. None for a
    histogram without an observation."""
    total = sum(buckets.values())
    if total <= 0:
        return None
    rank, below = share * total, 0.0
    lower = 0.0
    for (lower, upper), count in sorted(buckets.items(), key=lambda item: item[0][0]):
        if below + count >= rank:
            return lower if upper is None else lower + (upper - lower) * (rank - below) / count
        below += count
    return lower


def _each(per_second: float | None, transactions_per_second: float | None) -> float | None:
    """None, rather than infinite, where nothing was committed."""
    return per_second / transactions_per_second if per_second is not None and transactions_per_second else None
