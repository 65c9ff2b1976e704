"""The parts that verdicts are made of keep what they promise: resampling, quantiles, spending, ranks."""

import math
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from scipy import stats
from verdict_data import BOUNDS, autocorrelated, fleet

from weir_workflows.rollout.verdict import DEFAULT_POLICY, Histograms, Look, allowance, rng_for, spent
from weir_workflows.rollout.verdict.bootstrap import MIN_BLOCKS, block_length, block_weights
from weir_workflows.rollout.verdict.difference import Effect, estimate
from weir_workflows.rollout.verdict.quantiles import quantile
from weir_workflows.rollout.verdict.wave import fewest_pairs, hodges_lehmann, signed_rank

P99 = next(figure for figure in DEFAULT_POLICY.figures if figure.name == "commit_p99")


# Resampling.


@settings(deadline=None)
@given(intervals=some.integers(1, 80), length=some.integers(1, 20), seed=some.integers(0, 2**32))
def test_every_draw_is_as_long_as_the_window_and_draws_runs(intervals: int, length: int, seed: int) -> None:
    weights = block_weights(intervals, length, 20, np.random.default_rng(seed))
    assert weights.shape == (20, intervals)
    assert (weights >= 0).all()
    assert weights.sum(axis=1) == pytest.approx(intervals)


def test_wrapping_draws_each_interval_equally_often() -> None:
    weights = block_weights(50, 7, 20_000, np.random.default_rng(1))
    assert weights.mean(axis=0) == pytest.approx(1.0, abs=0.05)


def test_blocks_grow_with_autocorrelation_and_leave_enough_of_them() -> None:
    rng = np.random.default_rng(2)
    mean = {
        correlation: np.mean([block_length(autocorrelated(200, correlation, 1.0, rng)) for _ in range(60)])
        for correlation in (0.0, 0.5, 0.9)
    }
    assert mean[0.0] < mean[0.5] < mean[0.9] <= 200 / MIN_BLOCKS
    assert mean[0.0] < 6


@pytest.mark.parametrize("series", [np.zeros(40), np.ones(3), np.array([1.0])])
def test_a_series_that_says_nothing_has_blocks_of_one(series: np.ndarray) -> None:
    assert block_length(series) == 1


def test_the_bootstrap_knows_how_unsure_the_mean_of_a_dependent_series_is() -> None:
    """Its variance is near the true one, (1 + r) / (1 - r) times that of independent samples, which blocks of one
    miss by that factor."""
    rng = np.random.default_rng(3)
    correlation, length = 0.6, 150
    means, by_blocks, by_samples = [], [], []
    for _ in range(150):
        series = autocorrelated(length, correlation, 1.0, rng)
        means.append(series.mean())
        blocks = block_weights(length, block_length(series), 300, rng)
        by_blocks.append((blocks @ series / length).var())
        by_samples.append((block_weights(length, 1, 300, rng) @ series / length).var())
    true = (1 + correlation) / (1 - correlation) / length
    assert np.mean(by_blocks) == pytest.approx(true, rel=0.35)
    assert np.mean(by_samples) < 0.4 * true


# Intervals of the effect.


@pytest.mark.parametrize("correlation", [0.0, 0.6])
def test_one_sided_bounds_cover_the_true_effect_as_often_as_they_say(correlation: float) -> None:
    """With the drift between windows known to be nothing, so that only the resampling is on trial."""
    figure = replace(P99, drift=1e-6)
    policy = replace(DEFAULT_POLICY, draws=150)
    rng = np.random.default_rng(4)
    trials, below, above = 100, 0, 0
    for number in range(trials):
        windows = fleet(rng, ratio=1.25, correlation=correlation, controls=4)
        effect = estimate(windows, figure, policy, rng_for("coverage", number))
        assert isinstance(effect, Effect)
        below += effect.log - effect.margin(0.05) > math.log(1.25)
        above += effect.log + effect.margin(0.05) < math.log(1.25)
    # Were the true error 5 %, more than 12 of 100 would be seen once in a thousand times.
    assert max(below, above) <= 12


def test_controls_take_a_shared_shock_out_of_the_estimate() -> None:
    policy = replace(DEFAULT_POLICY, draws=100)
    with_controls, alone = [], []
    for number in range(25):
        windows = fleet(np.random.default_rng(number), correlation=0.9)
        for found, chosen in ((with_controls, windows), (alone, replace(windows, controls=()))):
            effect = estimate(chosen, P99, policy, rng_for(number))
            assert isinstance(effect, Effect)
            found.append(effect.log)
    assert np.std(with_controls) < 0.7 * np.std(alone)


def test_controls_that_drift_apart_widen_the_interval() -> None:
    calm = fleet(np.random.default_rng(5))
    apart = [
        replace(fleet(np.random.default_rng(50 + number), ratio, controls=0).switched, compute_id=f"apart-{number}")
        for number, ratio in enumerate((0.5, 1.0, 2.0, 4.0))
    ]
    narrow = estimate(calm, P99, DEFAULT_POLICY, rng_for(5))
    wide = estimate(replace(calm, controls=tuple(apart)), P99, DEFAULT_POLICY, rng_for(5))
    assert isinstance(narrow, Effect)
    assert isinstance(wide, Effect)
    assert wide.drift_found
    assert wide.standard_error > 3 * narrow.standard_error


def test_the_same_evidence_and_names_give_the_same_estimate() -> None:
    windows = fleet(np.random.default_rng(6))
    one, two = (estimate(windows, P99, DEFAULT_POLICY, rng_for("rollout", "compute", 1.0)) for _ in range(2))
    assert one == two
    assert one != estimate(windows, P99, DEFAULT_POLICY, rng_for("rollout", "other compute", 1.0))


# Quantiles.


@given(
    counts=some.lists(some.integers(0, 50), min_size=len(BOUNDS), max_size=len(BOUNDS)), share=some.floats(0.01, 0.99)
)
@settings(max_examples=50, deadline=None)
def test_a_quantile_lies_in_the_bucket_that_holds_its_rank(counts: list[int], share: float) -> None:
    row = np.array([counts], dtype=float)
    value = quantile(BOUNDS, row, share)[0]
    total = sum(counts)
    if total == 0:
        assert math.isnan(value)
        return
    bucket = next(b for b in range(len(counts)) if sum(counts[: b + 1]) >= share * total)
    lower = BOUNDS[bucket - 1] if bucket else 0.0
    assert lower <= value <= (lower if math.isinf(BOUNDS[bucket]) else BOUNDS[bucket])


def test_cumulative_counters_become_counts_and_a_restart_or_a_gap_becomes_nothing() -> None:
    nan = math.nan
    found = Histograms.from_cumulative(
        {"0.1": [5, 7, 7, 1, nan, 4], "+Inf": [9, 12, 13, 2, nan, 6], "0.2": [6, 9, 10, 1, nan, 5]}
    )
    assert found.bounds.tolist() == [0.1, 0.2, math.inf]
    assert found.counts.tolist() == [[2, 1, 0], [0, 1, 0], [0, 0, 0], [0, 0, 0], [0, 0, 0]]


# Spending.


@settings(deadline=None)
@given(
    alpha=some.floats(0.001, 0.2),
    fractions=some.lists(some.floats(0.05, 0.999), min_size=0, max_size=8, unique=True),
)
def test_the_looks_together_spend_exactly_alpha(alpha: float, fractions: list[float]) -> None:
    looks = [*sorted(fractions), 1.0]
    parts = [allowance(alpha, Look(look, tuple(looks[:index]))) for index, look in enumerate(looks)]
    assert all(part >= 0 for part in parts)
    assert sum(parts) == pytest.approx(alpha)


def test_spending_is_of_the_o_brien_fleming_type() -> None:
    assert spent(0.05, 0.5) == pytest.approx(2 * stats.norm.sf(stats.norm.isf(0.025) / math.sqrt(0.5)))
    assert spent(0.05, 0.25) < 0.001 < spent(0.05, 0.5) < 0.01
    assert spent(0.01, 1.7) == 0.01


@pytest.mark.parametrize(("fraction", "previous"), [(0.5, (0.5,)), (0.5, (0.75,)), (0.0, ()), (1.0, (0.5, 0.2))])
def test_looks_out_of_order_are_refused(fraction: float, previous: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="ascending"):
        Look(fraction, previous)


# Ranks.


@pytest.mark.parametrize("count", [5, 8, 11, 40])
@pytest.mark.parametrize("alternative", ["greater", "less"])
def test_the_signed_rank_is_scipys_about_the_point(count: int, alternative: str) -> None:
    effects = np.random.default_rng(count).normal(0.1, 0.2, count)
    expected: Any = stats.wilcoxon(effects - 0.05, alternative=alternative)
    assert signed_rank(effects.tolist(), 0.05, alternative) == pytest.approx(float(expected.pvalue))


@given(effects=some.lists(some.integers(1, 1000), min_size=3, max_size=8, unique=True), data=some.data())
@settings(max_examples=25, deadline=None)
def test_the_signed_rank_is_exact_for_few_pairs(effects: list[int], data: some.DataObject) -> None:
    """Against all 2^n ways in which the signs could have fallen."""
    signs = data.draw(some.lists(some.sampled_from((-1, 1)), min_size=len(effects), max_size=len(effects)))
    ranks = stats.rankdata(effects)
    seen = sum(rank for rank, sign in zip(ranks, signs, strict=True) if sign > 0)
    ways = [
        sum(rank for rank, up in zip(ranks, ups, strict=True) if up) for ups in product((0, 1), repeat=len(ranks))
    ]
    expected = sum(way >= seen for way in ways) / len(ways)
    signed = [0.001 * size * sign for size, sign in zip(effects, signs, strict=True)]
    assert signed_rank(signed, 0.0, "greater") == pytest.approx(expected)


def test_pairs_that_all_agree_reach_two_to_the_minus_n() -> None:
    for count in range(3, 12):
        assert signed_rank([0.1 * (n + 1) for n in range(count)], 0.0, "greater") == pytest.approx(2.0**-count)
        assert fewest_pairs(2.0**-count) == count
    assert signed_rank([0.3, 0.3, 0.3], 0.3, "greater") == 1.0


def test_the_estimate_of_a_wave_is_hardly_moved_by_one_wild_pair() -> None:
    calm = [0.01, -0.02, 0.03, 0.0, -0.01, 0.02, 0.01]
    assert hodges_lehmann([*calm, 5.0]) == pytest.approx(hodges_lehmann(calm), abs=0.02)
