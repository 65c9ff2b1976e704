"""What Prometheus adds up over all computes as it scrapes them (recording rules), so that a chart of a fleet of ten
thousand reads a handful of series instead of hundreds of thousands. Only for readers who see every compute."""

import json
from collections.abc import Callable

from weir.computes.metrics import CHARTED as CHARTED_OF_COMPUTES
from weir.computes.metrics import COMMITTED, Figure, rate_window_seconds

# Charts of the last minutes have steps of 5 s.
SHORTEST_INTERVAL_SECONDS = 5

_WAL = "weir:wal_bytes:rate"
_TRANSACTIONS = "weir:transactions:rate"
_HISTOGRAMS = {
    "weir:commit_quorum_seconds_bucket:rate": "weir_compute_commit_quorum_seconds_bucket",
    "weir:page_read_seconds_bucket:rate": "weir_compute_page_read_seconds_bucket",
    "weir:page_chain_length_bucket:rate": "weir_compute_page_chain_length_bucket",
}


def rules(scrape_interval_seconds: int) -> str:
    """A rule file: sums of rates by region."""
    window = f"{rate_window_seconds(scrape_interval_seconds)}s"

    def summed(by: str, series: str) -> str:
        return f"sum by (region_id{by}) (rate({series}[{window}]))"

    recorded = {
        _WAL: summed(", part", 'weir_compute_wal_bytes_total{part=~"image|rest"}'),
        _TRANSACTIONS: summed("", f"weir_compute_transactions_total{{{COMMITTED}}}"),
        **{name: summed(", le", series) for name, series in _HISTOGRAMS.items()},
    }
    group = {
        "name": "fleet",
        "interval": f"{max(SHORTEST_INTERVAL_SECONDS, scrape_interval_seconds)}s",
        "rules": [{"record": name, "expr": expression} for name, expression in recorded.items()],
    }
    return json.dumps({"groups": [group]}, indent=2)


def _sum(series: str, matcher: str = "") -> Callable[[str, str], str]:
    def query(selector: str, _window: str) -> str:
        return f"sum({series}{{{','.join(part for part in (selector, matcher) if part)}}})"

    return query


def _quantile(series: str, quantile: float) -> Callable[[str, str], str]:
    def query(selector: str, _window: str) -> str:
        return f"histogram_quantile({quantile}, sum by (le) ({series}{{{selector}}}))"

    return query


_COMMIT, _READ, _CHAIN = _HISTOGRAMS
_QUERIES = {
    "wal_image_bytes_per_second": _sum(_WAL, 'part="image"'),
    "wal_rest_bytes_per_second": _sum(_WAL, 'part="rest"'),
    "transactions_per_second": _sum(_TRANSACTIONS),
    "commit_p50_seconds": _quantile(_COMMIT, 0.5),
    "commit_p99_seconds": _quantile(_COMMIT, 0.99),
    "storage_read_p50_seconds": _quantile(_READ, 0.5),
    "storage_read_p99_seconds": _quantile(_READ, 0.99),
    "chain_length_p99": _quantile(_CHAIN, 0.99),
}
CHARTED = tuple(Figure(figure.name, figure.unit, _QUERIES[figure.name]) for figure in CHARTED_OF_COMPUTES)
WAL = CHARTED[:2]


def of_region(region_id: str) -> str:
    return f"region_id={json.dumps(region_id)}"
