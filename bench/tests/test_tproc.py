"""The figures of the benchmark come from pgbench's logs: reading them wrongly would be reporting wrongly."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from weirbench.tproc import Transaction, parse_log, percentile


def test_a_log_line_gives_the_latency_without_the_wait_for_its_turn():
    (row,) = parse_log(["0 199 2241 2 1175850568 995598 241"])
    assert row == Transaction(ended=1175850568.995598, latency_ms=2.0, script=2, failed=False)


def test_a_failed_transaction_is_counted_as_failed_and_has_no_latency():
    (row,) = parse_log(["3 5 failed 0 1175850570 52142 12"])
    assert row.failed
    assert row.latency_ms == 0


def test_the_line_being_written_is_left_out():
    assert not list(parse_log(["0 199 2241 0 11758"]))


@pytest.mark.parametrize(("share", "expected"), [(0.5, 50), (0.99, 99), (1.0, 100), (0.0, 1)])
def test_percentiles_are_the_nearest_rank(share: float, expected: float):
    assert percentile([float(n) for n in range(100, 0, -1)], share) == expected


def test_nothing_has_no_percentile():
    assert percentile([], 0.5) is None
