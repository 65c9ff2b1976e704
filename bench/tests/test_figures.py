"""Figures must come from counts by arithmetic that is right at the edges: windows, buckets, totals, ratios."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from weirbench import report
from weirbench.figures import Window, together
from weirbench.prom import Labels, Prometheus, merge, quantile
from weirbench.sampler import Sample, Sampler


class Recorded(Prometheus):
    """Answers with samples recorded for two moments."""

    def __init__(self, samples: dict[float, list[tuple[Labels, float]]]) -> None:
        self._samples = samples

    def at(self, query: str, when: float) -> list[tuple[Labels, float]]:
        return self._samples[when]


def test_an_increase_is_the_difference_and_a_new_series_starts_at_zero():
    samples: dict[float, list[tuple[Labels, float]]] = {
        10: [({"part": "image", "rmgr": "heap"}, 100.0), ({"part": "rest", "rmgr": "heap"}, 7.0)],
        20: [
            ({"part": "image", "rmgr": "heap"}, 150.0),
            ({"part": "image", "rmgr": "btree"}, 5.0),
            ({"part": "rest", "rmgr": "heap"}, 7.0),
        ],
    }
    assert Recorded(samples).increase("x", "part", 10, 20) == {"image": 55.0, "rest": 0.0}


def test_a_restarted_process_within_a_window_is_an_error_not_a_figure():
    samples: dict[float, list[tuple[Labels, float]]] = {
        10: [({"part": "rest"}, 100.0)],
        20: [({"part": "rest"}, 3.0)],
    }
    with pytest.raises(ValueError, match="restarted"):
        Recorded(samples).increase("x", "part", 10, 20)


def test_quantiles_are_linear_within_a_bucket_and_never_beyond_the_last_bound():
    buckets = {"0.1": 50.0, "0.2": 100.0, "+Inf": 100.0}
    assert quantile(buckets, 0.5) == pytest.approx(0.1)
    assert quantile(buckets, 0.75) == pytest.approx(0.15)
    assert quantile({"0.1": 0.0, "+Inf": 10.0}, 0.99) == pytest.approx(0.1)
    assert quantile({"0.1": 0.0, "+Inf": 0.0}, 0.5) is None
    assert quantile(merge([buckets, buckets]), 0.75) == pytest.approx(0.15)


def test_a_total_adds_counts_and_takes_percentiles_of_all_transactions():
    one = Window(seconds=10, image_bytes=0, rest_bytes=100, latencies_ms=[1.0] * 99, new_orders=5, checkpoints=2)
    two = Window(seconds=10, image_bytes=300, rest_bytes=100, latencies_ms=[9.0], new_orders=1, checkpoints=3)
    total = together([one, two])
    assert total.wal_bytes_per_second == 50
    assert total.wal_bytes_per_transaction == 5
    assert total.image_share == 0.6
    assert total.nopm == 36
    assert total.latency_ms(0.99) == 1.0
    assert total.latency_ms(1.0) == 9.0
    assert total.checkpoints == 2


def test_counts_between_two_moments_are_read_between_samples():
    sampler = Sampler("postgresql://nobody@127.0.0.1:1/none")
    sampler.samples = [Sample(float(t), 10.0 * t, 100.0 * t, 0.0, float(t // 30)) for t in range(100, 200)]
    grown = sampler.between(110.5, 170.5)
    assert grown is not None
    assert grown.new_orders == pytest.approx(600)
    assert grown.checkpoints == 2
    assert sampler.between(110, 500) is None


@pytest.mark.parametrize(
    ("before", "after", "expected"), [(100, 5, "x0.050"), (100, 50, "x0.50"), (0, 5, "-"), (None, 5, "-")]
)
def test_a_ratio_without_a_base_is_no_number(before: float | None, after: float | None, expected: str):
    assert report.ratio(before, after) == expected


def test_the_document_has_every_promised_key_in_its_promised_form():
    window = Window(seconds=60, image_bytes=10, rest_bytes=10, latencies_ms=[1.0])
    line = report.Line("a", "ep-a", "canary", window, window, "0/1", 16, "pass", 0, 0)
    document = report.document(line)
    for key in (
        *("wal_bytes_per_transaction", "wal_bytes_per_second", "transactions_per_second", "nopm"),
        *("commit_ms", "storage_read_us"),
    ):
        assert set(document[key]) == {"before", "after"}, key
    assert set(document["commit_ms"]["before"]) == {"p50", "p99"}
    for key in (
        *("image_share", "chain_length_p99", "image_threshold", "fpw_change_lsn"),
        *("failed_transactions", "broken_connections"),
    ):
        assert key in document
    assert "a" in report.tables([line])
