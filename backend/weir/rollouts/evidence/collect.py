"""What one compute did in one window, counted by the agents and the storage, in a form that can be kept and summed.

A window is kept as *counts*: bytes, transactions, histogram buckets, never as rates or percentiles, because only
counts of several computes add up to those of a wave, a cell or the fleet (`weir.rollouts.evidence.figures` makes
figures of them). Counters are read at the window's two edges, as scraped: nothing is extrapolated, so that the parts
of a window and windows that meet add up. Plain JSON in and out; nothing here knows Temporal or the database.

Shape of a window (`WindowCounts`): `from`, `to` RFC 3339; `seconds`; `wal` {rmgr: {"image", "rest"}} bytes;
`transactions` {"commit", "abort"}; `checkpoints`; `wal_paced_seconds`, the time that WAL waited for its turn under
the project's limit (absent from windows that were kept before it was counted); `histograms` {"commit" s,
"storage_read" s, "chain" deltas}, each [[lower, upper, count], ...] with `upper` null for the last, open bucket;
`storage` {"images", "image_bytes", "images_pending_max", "image_lag_bytes_max"}. What was not scraped at both edges
is null, never 0.
"""

import asyncio
import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from weir.clients.prometheus import Prometheus, Sample
from weir.computes import metrics

HISTOGRAMS = {
    "commit": "weir_compute_commit_quorum_seconds_bucket",
    "storage_read": "weir_compute_page_read_seconds_bucket",
    "chain": "weir_compute_page_chain_length_bucket",
}
_WAL = "weir_compute_wal_bytes_total"
_TRANSACTIONS = "weir_compute_transactions_total"
_CHECKPOINTS = "weir_compute_checkpoints_total"
_PACED = "weir_compute_wal_paced_seconds_total"
_IMAGES = "weir_pageserver_images_made_total"
_IMAGE_BYTES = "weir_pageserver_image_bytes_total"
_PENDING = "weir_pageserver_images_pending"
_LAG = "weir_pageserver_image_lag_bytes"
_COMPUTE_COUNTERS = (_WAL, _TRANSACTIONS, _CHECKPOINTS, _PACED, *HISTOGRAMS.values())
# Points of a kept series: enough to draw both windows and the switch between them.
SERIES_POINTS = 120

WindowCounts = dict[str, Any]
Owner = TypeVar("Owner", str, tuple[str, str])


@dataclass(frozen=True)
class EvidenceSubject:
    """A compute, and where storage keeps its branch."""

    compute_id: str
    tenant_id: str
    timeline_id: str


async def collect_evidence(
    prometheus: Prometheus, subject: EvidenceSubject, start: datetime, end: datetime
) -> WindowCounts:
    """The counts of one compute over [start, end]. Raises RemoteError when Prometheus does not answer."""
    return (await collect_evidence_batch(prometheus, [subject], start, end))[subject.compute_id]


async def collect_evidence_batch(
    prometheus: Prometheus, subjects: list[EvidenceSubject], start: datetime, end: datetime
) -> dict[str, WindowCounts]:
    """The counts of computes that share a window, in six queries however many they are."""
    if end <= start:
        raise ValueError(f"a window must end after it starts: {start} to {end}")
    computes = _one_of("compute_id", (subject.compute_id for subject in subjects))
    timelines = _one_of("timeline_id", (subject.timeline_id for subject in subjects))
    span = f"{max(1, round((end - start).total_seconds()))}s"
    counters = f'{{__name__=~"{"|".join(_COMPUTE_COUNTERS)}",{computes}}}'
    # A branch that never needed an image has no such counter; that it is watched shows in the others.
    stored = f'{{__name__=~"{_IMAGES}|{_IMAGE_BYTES}|{_PENDING}",{timelines}}}'
    first, last, stored_first, stored_last, pending, lag = await asyncio.gather(
        prometheus.instant(counters, start),
        prometheus.instant(counters, end),
        prometheus.instant(stored, start),
        prometheus.instant(stored, end),
        prometheus.instant(f"max_over_time({_PENDING}{{{timelines}}}[{span}])", end),
        prometheus.instant(f"max_over_time({_LAG}{{{timelines}}}[{span}])", end),
    )
    counted = _increases(first, last, lambda labels: labels.get("compute_id", ""))
    made = _increases(stored_first, stored_last, _branch)
    waiting, behind = _largest(pending), _largest(lag)
    return {
        subject.compute_id: {
            "from": start.isoformat(),
            "to": end.isoformat(),
            "seconds": (end - start).total_seconds(),
            **_of_compute(counted.get(subject.compute_id)),
            "storage": _of_storage(made, waiting, behind, (subject.tenant_id, subject.timeline_id)),
        }
        for subject in subjects
    }


async def collect_series(
    prometheus: Prometheus, compute_ids: Sequence[str], start: datetime, end: datetime
) -> dict[str, Any]:
    """The charted figures of computes together over [start, end], coarse enough to keep: for charts that are read
    when Prometheus has forgotten. Raises RemoteError when Prometheus does not answer."""
    step = max(1.0, math.ceil((end - start).total_seconds() / SERIES_POINTS))
    window = max(metrics.RATE_WINDOW_SECONDS, round(step))
    chart = await metrics.chart(prometheus, metrics.of_computes(list(compute_ids)), start, end, step, window)
    return {
        "step_seconds": step,
        "window_seconds": window,
        "times": [round(at, 3) for at in chart.times],
        **{name: [_short(value) for value in values] for name, values in chart.series.items()},
    }


async def collect_controls(
    prometheus: Prometheus, compute_ids: Sequence[str], start: datetime, end: datetime
) -> dict[str, Any]:
    """`collect_series` of a verdict's controls, with how many they are, as it is kept beside a member's own under
    `controls`: on the same times, since the span is the same."""
    found = await collect_series(prometheus, compute_ids, start, end)
    return {"computes": len(compute_ids), **{figure.name: found[figure.name] for figure in metrics.CHARTED}}


async def measure(
    prometheus: Prometheus,
    subject: EvidenceSubject,
    baseline_start: datetime,
    baseline_end: datetime,
    after_start: datetime,
    after_end: datetime,
) -> dict[str, Any]:
    """Everything that is kept of one member: both windows and the series across them. Raises RemoteError when
    Prometheus does not answer."""
    before, after, series = await asyncio.gather(
        collect_evidence(prometheus, subject, baseline_start, baseline_end),
        collect_evidence(prometheus, subject, after_start, after_end),
        collect_series(prometheus, [subject.compute_id], baseline_start, after_end),
    )
    return {"before": before, "after": after, "series": series}


def _one_of(label: str, values: Iterable[str]) -> str:
    return f'{label}=~"{"|".join(sorted(re.escape(value) for value in values))}"'.replace("\\-", "-")


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.5g}")


def _branch(labels: dict[str, str]) -> tuple[str, str]:
    return labels.get("tenant_id", ""), labels.get("timeline_id", "")


def _increases(
    first: list[Sample], last: list[Sample], owner: Callable[[dict[str, str]], Owner]
) -> dict[Owner, list[Sample]]:
    """How much each counter grew, by its owner. An owner without any sample at the first edge was not watched then
    and is left out; one series more of a watched owner began at zero. A counter that shrank began again in
    between: what it has now is what is known."""
    before = {frozenset(labels.items()): value for labels, value in first}
    watched = {owner(labels) for labels, _ in first}
    grown: defaultdict[Owner, list[Sample]] = defaultdict(list)
    for labels, value in last:
        if owner(labels) in watched:
            was = before.get(frozenset(labels.items()), 0.0)
            grown[owner(labels)].append((labels, value - was if value >= was else value))
    return grown


def _of_compute(increases: list[Sample] | None) -> dict[str, Any]:
    if increases is None:
        return {
            **dict.fromkeys(("wal", "transactions", "checkpoints", "wal_paced_seconds")),
            "histograms": dict.fromkeys(HISTOGRAMS),
        }
    wal: dict[str, dict[str, float]] = {}
    transactions = {"commit": 0.0, "abort": 0.0}
    checkpoints: float | None = None
    paced: float | None = None
    buckets: dict[str, dict[float, float]] = {name: defaultdict(float) for name in HISTOGRAMS}
    named = {metric: name for name, metric in HISTOGRAMS.items()}
    for labels, value in increases:
        metric = labels.get("__name__", "")
        if metric == _WAL:
            parts = wal.setdefault(labels.get("rmgr", ""), {"image": 0.0, "rest": 0.0})
            parts[labels.get("part", "")] = parts.get(labels.get("part", ""), 0.0) + value
        elif metric == _TRANSACTIONS:
            result = "abort" if labels.get("result", "").startswith("abort") else "commit"
            transactions[result] += value
        elif metric == _CHECKPOINTS:
            checkpoints = (checkpoints or 0.0) + value
        elif metric == _PACED:
            paced = (paced or 0.0) + value
        elif metric in named:
            buckets[named[metric]][float(labels["le"])] += value
    return {
        "wal": {rmgr: parts for rmgr, parts in wal.items() if any(parts.values())},
        "transactions": transactions,
        "checkpoints": checkpoints,
        "wal_paced_seconds": paced,
        "histograms": {name: _separate(cumulative) for name, cumulative in buckets.items()},
    }


def _separate(cumulative: dict[float, float]) -> list[list[float | None]] | None:
    """Prometheus's cumulative buckets as separate ones, the empty ones left out."""
    if not cumulative:
        return None
    separate: list[list[float | None]] = []
    lower, below = 0.0, 0.0
    for upper, upto in sorted(cumulative.items()):
        if upto > below:
            separate.append([lower, None if math.isinf(upper) else upper, upto - below])
        lower, below = upper, max(below, upto)
    return separate


def _largest(samples: list[Sample]) -> dict[tuple[str, str], float]:
    found: dict[tuple[str, str], float] = {}
    for labels, value in samples:
        found[_branch(labels)] = max(value, found.get(_branch(labels), value))
    return found


def _of_storage(
    made: dict[tuple[str, str], list[Sample]],
    pending: dict[tuple[str, str], float],
    lag: dict[tuple[str, str], float],
    branch: tuple[str, str],
) -> dict[str, Any]:
    increases = made.get(branch)

    def total(metric: str) -> float | None:
        if increases is None:
            return None
        return sum(value for labels, value in increases if labels.get("__name__") == metric)

    return {
        "images": total(_IMAGES),
        "image_bytes": total(_IMAGE_BYTES),
        "images_pending_max": pending.get(branch),
        "image_lag_bytes_max": lag.get(branch),
    }
