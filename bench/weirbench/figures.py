"""The figures of one window: of one compute, and of several together.

Each figure has one source. WAL bytes, commit, storage-read and chain-length figures are the compute agents' own
metrics, read from Prometheus at the window's edges; transactions and their latency are pgbench's log; new orders
are counted in the database. Together means summed, and percentiles of summed histograms, never averages of
percentiles.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from .prom import Prometheus, merge, quantile
from .sampler import Sample, Sampler
from .tproc import Transaction, percentile

HISTOGRAMS = {
    "commit": "weir_compute_commit_quorum_seconds",
    "read": "weir_compute_page_read_seconds",
    "chain": "weir_compute_page_chain_length",
}


@dataclass
class Window:
    """Everything counted in one window; adding windows adds the counts."""

    seconds: float = 0.0
    image_bytes: float = 0.0
    rest_bytes: float = 0.0
    latencies_ms: list[float] = field(default_factory=list[float])
    failed: int = 0
    new_orders: float = 0.0
    own_wal_bytes: float = 0.0
    page_images: float = 0.0
    checkpoints: int = 0
    histograms: dict[str, dict[str, float]] = field(default_factory=dict[str, dict[str, float]])

    @property
    def transactions(self) -> int:
        return len(self.latencies_ms)

    @property
    def wal_bytes(self) -> float:
        return self.image_bytes + self.rest_bytes

    @property
    def image_share(self) -> float | None:
        return self.image_bytes / self.wal_bytes if self.wal_bytes else None

    @property
    def wal_bytes_per_second(self) -> float:
        return self.wal_bytes / self.seconds

    @property
    def wal_bytes_per_transaction(self) -> float | None:
        return self.wal_bytes / self.transactions if self.transactions else None

    @property
    def image_bytes_per_transaction(self) -> float | None:
        return self.image_bytes / self.transactions if self.transactions else None

    @property
    def rest_bytes_per_transaction(self) -> float | None:
        return self.rest_bytes / self.transactions if self.transactions else None

    @property
    def transactions_per_second(self) -> float:
        return self.transactions / self.seconds

    @property
    def nopm(self) -> float:
        return self.new_orders * 60 / self.seconds

    def latency_ms(self, share: float) -> float | None:
        return percentile(self.latencies_ms, share)

    def quantile(self, name: str, share: float, scale: float = 1.0) -> float | None:
        value = quantile(self.histograms.get(name, {}), share)
        return None if value is None else value * scale


def measure(
    prometheus: Prometheus,
    compute_id: str,
    start: float,
    end: float,
    transactions: Sequence[Transaction],
    sampler: Sampler,
) -> Window:
    selector = f'{{compute_id="{compute_id}"}}'
    wal = prometheus.increase(f"weir_compute_wal_bytes_total{selector}", "part", start, end)
    inside = [row for row in transactions if start <= row.ended < end]
    own = sampler.between(start, end) or Sample(0, 0, 0, 0, 0)
    return Window(
        seconds=end - start,
        image_bytes=wal.get("image", 0.0),
        rest_bytes=wal.get("rest", 0.0),
        latencies_ms=[row.latency_ms for row in inside if not row.failed],
        failed=sum(row.failed for row in inside),
        new_orders=own.new_orders,
        own_wal_bytes=own.wal_bytes,
        page_images=own.page_images,
        checkpoints=int(own.checkpoints),
        histograms={
            name: prometheus.increase(f"{metric}_bucket{selector}", "le", start, end)
            for name, metric in HISTOGRAMS.items()
        },
    )


def together(windows: Iterable[Window]) -> Window:
    """Counts of several computes as one. Their windows are equally long, so that rates add up."""
    chosen = list(windows)
    return Window(
        seconds=max(window.seconds for window in chosen),
        image_bytes=sum(window.image_bytes for window in chosen),
        rest_bytes=sum(window.rest_bytes for window in chosen),
        latencies_ms=[latency for window in chosen for latency in window.latencies_ms],
        failed=sum(window.failed for window in chosen),
        new_orders=sum(window.new_orders for window in chosen),
        own_wal_bytes=sum(window.own_wal_bytes for window in chosen),
        page_images=sum(window.page_images for window in chosen),
        checkpoints=min(window.checkpoints for window in chosen),
        histograms={name: merge(window.histograms.get(name, {}) for window in chosen) for name in HISTOGRAMS},
    )
