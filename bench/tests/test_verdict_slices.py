"""Traces keep what was recorded, and a planted regression is as large as it says and where it says."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from verdict import traces
from verdict.slices import AGENT_BOUNDS, SETTLE_INTERVALS, Planted, Shape, Slice, as_agent, plant, span, starts
from verdict.trials import Share, disjoint, groups

from weir_workflows.rollout.verdict.quantiles import quantile

FINE = np.append(traces.fine_bounds()[:-1], np.inf)


def trace(intervals: int = 40, computes: int = 4) -> traces.Trace:
    rng = np.random.default_rng(7)
    counts = [
        traces.histograms(
            rng.uniform(0, intervals * traces.SECONDS, 20_000), np.exp(rng.normal(-6, 0.6, 20_000)), intervals
        )
        for _ in range(computes)
    ]
    return traces.Trace("made", {"computes": computes}, np.stack(counts))


def whole(counts: np.ndarray, share: float) -> float:
    return float(quantile(FINE, counts.sum(axis=0, keepdims=True).astype(float), share)[0])


def test_a_saved_trace_is_read_back_exactly(tmp_path: Path) -> None:
    made = trace()
    traces.save(tmp_path / "made.npz", made.meta, made.counts)
    (read,) = traces.load_all(tmp_path)
    assert (read.name, read.meta) == ("made", made.meta)
    assert (read.counts == made.counts).all()


def test_latencies_fall_into_the_bucket_that_holds_them() -> None:
    bounds = traces.fine_bounds()
    assert traces.encode(np.array([1e-9, bounds[10], bounds[10] * 1.0001, 1e9])).tolist() == [0, 10, 11, 255]


@pytest.mark.parametrize("ratio", [1.1, 1.25, 1.5])
@pytest.mark.parametrize(("shape", "p50"), [("whole", True), ("tail", False)])
def test_a_planted_regression_moves_p99_by_its_ratio_and_p50_only_when_whole(
    shape: Shape, p50: bool, ratio: float
) -> None:
    before = trace().counts[0]
    after = plant(before, Planted(shape, ratio))
    assert after.sum() == pytest.approx(before.sum())
    assert after.sum(axis=1) == pytest.approx(before.sum(axis=1))
    assert whole(after, 0.99) / whole(before, 0.99) == pytest.approx(ratio, rel=0.03)
    assert whole(after, 0.5) / whole(before, 0.5) == pytest.approx(ratio if p50 else 1.0, rel=0.03)


def test_the_agents_buckets_hold_the_same_transactions() -> None:
    made = trace()
    agent = as_agent(made)
    assert agent.shape == (4, 40, AGENT_BOUNDS.size)
    assert (agent.sum(axis=2) == made.counts.sum(axis=2)).all()
    coarse = quantile(AGENT_BOUNDS, agent[0].sum(axis=0, keepdims=True), 0.99)[0]
    assert coarse == pytest.approx(whole(made.counts[0], 0.99), rel=0.1)


def test_a_slice_takes_two_windows_apart_and_plants_only_in_the_second_of_the_switched_one() -> None:
    made = trace()
    slice_ = Slice(made, 1, (0, 2), start=3, intervals=10)
    plain, planted = slice_.windows(), slice_.windows(Planted("whole", 1.25))
    half = slice_.windows(Planted("whole", 1.25), fraction=0.5)
    agent = as_agent(made)
    after = 3 + 10 + SETTLE_INTERVALS
    assert (plain.switched.before.latencies["commit"].counts == agent[1, 3:13]).all()
    assert (plain.switched.after.latencies["commit"].counts == agent[1, after : after + 10]).all()
    assert [control.compute_id for control in plain.controls] == ["made/0", "made/2"]
    assert (planted.switched.before.latencies["commit"].counts == agent[1, 3:13]).all()
    assert (planted.controls[0].after.latencies["commit"].counts == agent[0, after : after + 10]).all()
    moved = planted.switched.after.latencies["commit"].counts
    assert (moved != agent[1, after : after + 10]).any()
    assert half.switched.after.latencies["commit"].counts == pytest.approx(moved[:5])


def test_groups_never_use_a_switched_compute_as_a_control() -> None:
    made = trace()
    found = groups([made], intervals=10, size=2, step=5, repeats=3, rng=np.random.default_rng(1))
    assert len(found) == 3 * len(starts(made, 10, 5))
    for group in found:
        switched = {one.compute for one in group.slices}
        assert len(switched) == 2
        assert all(switched & set(one.controls) == set() for one in group.slices)
        assert all(one.start + span(10) <= made.intervals for one in group.slices)
    assert disjoint([made], 10) == 4 * (40 // span(10))


def test_wilsons_interval_is_wider_for_fewer_separate_trials() -> None:
    share = Share(0, 400)
    assert share.wilson()[1] == pytest.approx(0.0095, abs=0.0002)
    assert share.wilson(40)[1] > 0.08
