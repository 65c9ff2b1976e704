"""The figures Weir shows and judges by, as PromQL. One list, used by charts, plans and evidence alike."""

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from weir.clients.prometheus import Prometheus
from weir.config import get_settings

Kind = Literal["rate", "ratio", "quantile"]


def rate_window_seconds(scrape_interval_seconds: int) -> int:
    """A rate needs some samples: four at least, however seldom Prometheus scrapes."""
    return max(15, 4 * scrape_interval_seconds)


RATE_WINDOW_SECONDS = rate_window_seconds(get_settings().scrape_interval_seconds)
MAX_POINTS = 2_000


@dataclass(frozen=True)
class Figure:
    """`query(selector, window)` is PromQL for the figure over the window that ends at the evaluation time."""

    name: str
    unit: str
    query: Callable[[str, str], str]


def _wal(part: str | None) -> Callable[[str, str], str]:
    matcher = f'part="{part}"' if part else 'part=~"image|rest"'

    def query(selector: str, window: str) -> str:
        return f"sum(rate(weir_compute_wal_bytes_total{{{_join(selector, matcher)}}}[{window}]))"

    return query


def _transactions(selector: str, window: str) -> str:
    return f"sum(rate(weir_compute_transactions_total{{{_join(selector, COMMITTED)}}}[{window}]))"


def _per_transaction(part: str | None) -> Callable[[str, str], str]:
    def query(selector: str, window: str) -> str:
        # `> 0` leaves the figure out, rather than infinite, where nothing was committed.
        return f"{_wal(part)(selector, window)} / ({_transactions(selector, window)} > 0)"

    return query


def _quantile(metric: str, quantile: float) -> Callable[[str, str], str]:
    def query(selector: str, window: str) -> str:
        return f"histogram_quantile({quantile}, sum by (le) (rate({metric}_bucket{{{selector}}}[{window}])))"

    return query


def _join(*matchers: str) -> str:
    return ",".join(matcher for matcher in matchers if matcher)


COMMITTED = 'result=~"commit.*"'

CHARTED = (
    Figure("wal_image_bytes_per_second", "bytes/s", _wal("image")),
    Figure("wal_rest_bytes_per_second", "bytes/s", _wal("rest")),
    Figure("transactions_per_second", "1/s", _transactions),
    Figure("commit_p50_seconds", "s", _quantile("weir_compute_commit_quorum_seconds", 0.5)),
    Figure("commit_p99_seconds", "s", _quantile("weir_compute_commit_quorum_seconds", 0.99)),
    Figure("storage_read_p50_seconds", "s", _quantile("weir_compute_page_read_seconds", 0.5)),
    Figure("storage_read_p99_seconds", "s", _quantile("weir_compute_page_read_seconds", 0.99)),
    Figure("chain_length_p99", "deltas", _quantile("weir_compute_page_chain_length", 0.99)),
)

# Of CHARTED: page images and the rest.
WAL_PARTS = CHARTED[:2]

EVIDENCE = (
    Figure("wal_bytes_per_second", "bytes/s", _wal(None)),
    *CHARTED,
    Figure("wal_bytes_per_transaction", "bytes", _per_transaction(None)),
    Figure("wal_image_bytes_per_transaction", "bytes", _per_transaction("image")),
)


def of_compute(compute_id: str) -> str:
    return f'compute_id="{compute_id}"'


def of_computes(compute_ids: list[str]) -> str:
    return f'compute_id=~"{"|".join(compute_ids)}"'


async def window_figures(
    prometheus: Prometheus, selector: str, start: datetime, end: datetime
) -> dict[str, float | None]:
    """Every evidence figure over [start, end]; None where there was nothing to measure."""
    window = f"{max(1, round((end - start).total_seconds()))}s"
    values = await asyncio.gather(*(prometheus.value(figure.query(selector, window), end) for figure in EVIDENCE))
    return {figure.name: value for figure, value in zip(EVIDENCE, values, strict=True)}


@dataclass(frozen=True)
class Chart:
    times: list[float]
    series: dict[str, list[float | None]]


async def chart(
    prometheus: Prometheus,
    selector: str,
    start: datetime,
    end: datetime,
    step_seconds: float,
    window: int,
    figures: tuple[Figure, ...] = CHARTED,
) -> Chart:
    """Figures on one time axis; gaps stay gaps."""
    count = int((end - start).total_seconds() // step_seconds) + 1
    times = [start.timestamp() + index * step_seconds for index in range(count)]
    answers = await asyncio.gather(
        *(prometheus.range(figure.query(selector, f"{window}s"), start, end, step_seconds) for figure in figures)
    )
    series: dict[str, list[float | None]] = {}
    for figure, answer in zip(figures, answers, strict=True):
        points = dict(answer[0][1]) if answer else {}
        by_index = {
            round((at - start.timestamp()) / step_seconds): value
            for at, value in points.items()
            if math.isfinite(value)
        }
        series[figure.name] = [by_index.get(index) for index in range(count)]
    return Chart(times, series)


@dataclass
class Rates:
    wal_image_bytes_per_second: float = 0
    wal_rest_bytes_per_second: float = 0
    transactions_per_second: float = 0


async def wal_rates(
    prometheus: Prometheus, selector: str, figures: tuple[Figure, ...] = WAL_PARTS
) -> tuple[float, float]:
    """Bytes a second of images and of the rest that the selected computes write together, now."""
    window = f"{RATE_WINDOW_SECONDS}s"
    image, rest = await asyncio.gather(*(prometheus.value(figure.query(selector, window)) for figure in figures))
    return image or 0.0, rest or 0.0


async def rates(
    prometheus: Prometheus, window: int = RATE_WINDOW_SECONDS, compute_ids: list[str] | None = None
) -> dict[str, Rates]:
    """Current rates of every compute that reports, or of these, in two queries however many there are."""
    chosen = "" if compute_ids is None else of_computes(compute_ids)
    committed = _join(chosen, COMMITTED)
    found, transactions = await asyncio.gather(
        rates_of_wal(prometheus, window, chosen),
        prometheus.instant(f"sum by (compute_id) (rate(weir_compute_transactions_total{{{committed}}}[{window}s]))"),
    )
    for labels, value in transactions:
        found.setdefault(labels.get("compute_id", ""), Rates()).transactions_per_second = value
    return found


async def rates_of_wal(prometheus: Prometheus, window: int, selector: str = "") -> dict[str, Rates]:
    """Of every compute that reports, or that the selector chooses, without transactions: one query for a fleet."""
    wal = await prometheus.instant(
        f"sum by (compute_id, part) (rate(weir_compute_wal_bytes_total{{{selector}}}[{window}s]))"
    )
    found: dict[str, Rates] = {}
    for labels, value in wal:
        entry = found.setdefault(labels.get("compute_id", ""), Rates())
        if labels.get("part") == "image":
            entry.wal_image_bytes_per_second += value
        else:
            entry.wal_rest_bytes_per_second += value
    return found
