"""The fleet's metrics in Prometheus's text format: of one compute as its agent would show it, or of all at once.

Names and labels are those of the real programs (docs/interfaces.md), with fewer histogram bounds and one resource
manager, so that ten thousand computes stay some three hundred and sixty thousand series.
"""

from collections.abc import Callable, Iterator

from weir_workflows.simulated.compute import Compute, Histogram

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
COMPUTES_PER_CHUNK = 500


def _histogram(name: str, labels: str, histogram: Histogram) -> str:
    counts = histogram.counts
    buckets = "".join(
        f'{name}_bucket{{{labels},le="{bound:g}"}} {count:.0f}\n'
        for bound, count in zip(histogram.bounds, counts, strict=False)
    )
    return (
        f'{buckets}{name}_bucket{{{labels},le="+Inf"}} {counts[-1]:.0f}\n'
        f"{name}_sum{{{labels}}} {histogram.total:.6f}\n{name}_count{{{labels}}} {counts[-1]:.0f}\n"
    )


def _wal(compute: Compute, _now: float) -> str:
    return (
        f'weir_compute_wal_bytes_total{{{compute.labels},part="image",rmgr="heap"}} {compute.image_bytes:.0f}\n'
        f'weir_compute_wal_bytes_total{{{compute.labels},part="rest",rmgr="heap"}} {compute.rest_bytes:.0f}\n'
    )


def _transactions(compute: Compute, _now: float) -> str:
    return f'weir_compute_transactions_total{{{compute.labels},result="commit"}} {compute.transactions:.0f}\n'


def _commits(compute: Compute, _now: float) -> str:
    return _histogram("weir_compute_commit_quorum_seconds", compute.labels, compute.commits)


def _reads(compute: Compute, _now: float) -> str:
    return _histogram("weir_compute_page_read_seconds", f'{compute.labels},purpose="audit"', compute.reads)


def _chains(compute: Compute, _now: float) -> str:
    return _histogram("weir_compute_page_chain_length", f'{compute.labels},purpose="audit"', compute.chains)


def _full_page_writes(compute: Compute, _now: float) -> str:
    return f"weir_compute_full_page_writes{{{compute.labels}}} {int(compute.full_page_writes)}\n"


def _commit_lsn(compute: Compute, _now: float) -> str:
    return f"weir_compute_commit_lsn_bytes{{{compute.labels}}} {compute.lsn:.0f}\n"


def _ingest_lag(compute: Compute, now: float) -> str:
    return f"weir_compute_ingest_lag_bytes{{{compute.labels}}} {compute.ingest_lag_bytes(now)}\n"


def _up(compute: Compute, _now: float) -> str:
    return f"weir_compute_up{{{compute.labels}}} 1\n"


def _layer_bytes(compute: Compute, _now: float) -> str:
    """What the pageserver would say of the timeline: by it rollouts know how large a branch is."""
    labels = f'tenant_id="{compute.tenant_id}",timeline_id="{compute.timeline_id}"'
    return f'weir_pageserver_layer_bytes{{{labels},kind="image"}} {compute.profile.size_bytes}\n'


_AGENT: tuple[tuple[str, str, Callable[[Compute, float], str]], ...] = (
    ("weir_compute_wal_bytes_total", "counter", _wal),
    ("weir_compute_transactions_total", "counter", _transactions),
    ("weir_compute_commit_quorum_seconds", "histogram", _commits),
    ("weir_compute_page_read_seconds", "histogram", _reads),
    ("weir_compute_page_chain_length", "histogram", _chains),
    ("weir_compute_full_page_writes", "gauge", _full_page_writes),
    ("weir_compute_commit_lsn_bytes", "gauge", _commit_lsn),
    ("weir_compute_ingest_lag_bytes", "gauge", _ingest_lag),
    ("weir_compute_up", "gauge", _up),
)
_FLEET = (*_AGENT, ("weir_pageserver_layer_bytes", "gauge", _layer_bytes))


def of_compute(compute: Compute, now: float) -> str:
    """Advances the compute to now and shows it."""
    compute.advance(now)
    return "".join(f"# TYPE {name} {kind}\n{render(compute, now)}" for name, kind, render in _AGENT)


def of_fleet(computes: list[Compute], now: float) -> Iterator[str]:
    """Family by family, as the format wants it, in chunks, so that a server can answer other requests between them.
    Silent computes are missing, as they would be in a scrape."""
    chunks = [computes[first : first + COMPUTES_PER_CHUNK] for first in range(0, len(computes), COMPUTES_PER_CHUNK)]
    for chunk in chunks:
        for compute in chunk:
            compute.advance(now)
        yield ""
    for name, kind, render in _FLEET:
        yield f"# TYPE {name} {kind}\n"
        for chunk in chunks:
            yield "".join(render(compute, now) for compute in chunk if not compute.plant.silent)
