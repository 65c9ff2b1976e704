"""What a verdict says and why: bounds before statistics, no promotion on doubt, and every doubt names its remedy."""

import json
from dataclasses import asdict, replace

import numpy as np
import pytest
from verdict_data import fleet

from weir_workflows.rollout.verdict import (
    DEFAULT_POLICY,
    BoundResult,
    ComputeVerdict,
    ComputeWindows,
    Figures,
    HardBounds,
    Histograms,
    Look,
    Observed,
    Tail,
    WavePair,
    Window,
    check_bounds,
    choose_controls,
    compare_tails,
    judge_compute,
    judge_wave,
    rng_for,
)

POLICY = replace(DEFAULT_POLICY, draws=200)
GOOD: Figures = {
    "wal_bytes_per_second": 50_000.0,
    "wal_image_bytes_per_second": 0.0,
    "chain_length_p99": 12.0,
}


def tail(was: float | None, now: float, share: float = 0.99) -> Tail:
    return Tail(share, was, now, 0.0 if was is None else 5_000.0, 5_000.0)


TAILS = {"commit": tail(0.05, 0.05), "storage_read": tail(0.001, 0.001)}


def judged(windows: ComputeWindows, look: Look | None = None, bounds: tuple[BoundResult, ...] = ()) -> ComputeVerdict:
    return judge_compute(windows, look or Look(), bounds, rng_for("test"), POLICY)


def quiet(seed: int, ratio: float = 1.0, **changes: float) -> ComputeWindows:
    return fleet(np.random.default_rng(seed), ratio, deviation=0.02, **changes)  # type: ignore[arg-type]


# One compute.


def test_an_unchanged_compute_passes_and_the_reason_has_figures_and_interval() -> None:
    verdict = judged(quiet(1))
    assert verdict.verdict == "pass"
    assert verdict.settle is None
    assert "commit p99 went from" in verdict.reason
    assert "against 6 concurrent controls (between" in verdict.reason
    p99 = next(figure for figure in verdict.figures if figure.name == "commit_p99")
    assert p99.low is not None
    assert p99.ratio is not None
    assert p99.high is not None
    assert p99.low < p99.ratio < p99.high < 1.25


def test_a_compute_half_as_slow_again_regresses_and_says_by_how_much() -> None:
    verdict = judged(quiet(2, 1.6))
    assert verdict.verdict == "regress"
    assert "worse by more than the 5% that is let be" in verdict.reason
    assert verdict.alpha_spent == pytest.approx(POLICY.alpha)


def test_a_shock_that_meets_everyone_is_no_regression() -> None:
    windows = quiet(3)
    later = fleet(np.random.default_rng(3), 1.0, deviation=0.02)
    everyone = [windows.switched, *windows.controls]
    shocked = [
        replace(subject, after=replace(subject.after, latencies={"commit": _slower(subject.after)}))
        for subject in everyone
    ]
    assert later.switched.compute_id == shocked[0].compute_id
    assert judged(ComputeWindows(shocked[0], tuple(shocked[1:]))).verdict == "pass"
    assert judged(ComputeWindows(shocked[0], windows.controls)).verdict == "regress"


def _slower(window: Window) -> Histograms:
    """Every latency three buckets longer: almost doubled."""
    commit = window.latencies["commit"]
    return replace(commit, counts=np.roll(commit.counts, 3, axis=1))


def test_more_transactions_are_no_regression_and_far_fewer_are() -> None:
    windows = quiet(4)
    half = {"transactions": windows.switched.after.rates["transactions"] / 6}
    fewer = replace(windows.switched, after=replace(windows.switched.after, rates=half))
    verdict = judged(replace(windows, switched=fewer))
    assert verdict.verdict == "regress"
    assert "transactions a second went from" in verdict.reason
    assert "-83%" in verdict.reason
    more = {"transactions": windows.switched.after.rates["transactions"] * 6}
    busier = replace(windows.switched, after=replace(windows.switched.after, rates=more))
    assert judged(replace(windows, switched=busier)).verdict == "pass"


def test_a_broken_bound_beats_the_best_statistics() -> None:
    windows = quiet(1)
    assert judged(windows).verdict == "pass"
    broken = BoundResult("no restarts", ok=False, detail="the compute restarted 2 times")
    for look in (Look(0.5), Look()):
        verdict = judged(windows, look, (broken,))
        assert verdict.verdict == "regress"
        assert verdict.reason.startswith("the compute restarted 2 times")


def test_an_early_look_never_passes_and_catches_what_is_plain() -> None:
    unchanged = judged(quiet(5), Look(0.5))
    assert unchanged.verdict == "inconclusive"
    assert unchanged.settle is not None
    assert unchanged.settle.seconds == pytest.approx(120)
    assert judged(quiet(5, 3.0), Look(0.5)).verdict == "regress"


DOUBTS = {
    "too short": quiet(6, intervals=6),
    "no traffic": quiet(6, per_interval=0.0),
    "little traffic": quiet(6, per_interval=3.0),
    "noise": fleet(np.random.default_rng(6), 1.12, deviation=0.3, intervals=30),
    "no controls": replace(quiet(6), controls=()),
    "one control": replace(quiet(6), controls=quiet(6).controls[:1]),
}


@pytest.mark.parametrize("name", DOUBTS)
@pytest.mark.parametrize("look", [Look(0.5), Look(1.0, (0.5,))])
def test_every_doubt_holds_and_names_what_would_settle_it(name: str, look: Look) -> None:
    verdict = judged(DOUBTS[name], look)
    assert verdict.verdict == "inconclusive"
    assert verdict.settle is not None
    assert verdict.settle.text
    assert verdict.settle.text in verdict.reason
    assert "settle" in verdict.reason


def test_low_traffic_says_how_many_more_seconds() -> None:
    verdict = judged(DOUBTS["little traffic"])
    assert verdict.settle is not None
    assert verdict.settle.seconds is not None
    # 180 transactions in 120 s where 500 are needed: about 213 s more.
    assert 150 < verdict.settle.seconds < 300
    assert "500 events are needed" in verdict.reason


def test_windows_as_long_as_asked_for_do_settle_most_doubts() -> None:
    """The promise behind `settle`: its figure is an estimate, so of many doubts most are gone, not all."""
    settled: list[bool] = []
    for seed in range(16):
        short = judged(fleet(np.random.default_rng(seed), deviation=0.2, intervals=24))
        if short.settle is None:
            continue
        each = short.settle.each_seconds or 48 + (short.settle.seconds or 0)
        longer = min(500, int(each / 2) + 12)
        again = judged(fleet(np.random.default_rng(seed), deviation=0.2, intervals=longer))
        settled.append(again.verdict == "pass")
    assert len(settled) >= 6
    assert sum(settled) >= 0.6 * len(settled), settled


def test_without_controls_bounds_are_wider_and_the_reason_says_so() -> None:
    windows = quiet(7)
    with_controls, alone = judged(windows), judged(replace(windows, controls=()))
    assert "against its own baseline alone" in alone.reason
    errors = [
        next(figure.standard_error for figure in verdict.figures if figure.name == "commit_p99")
        for verdict in (with_controls, alone)
    ]
    assert errors[0] is not None
    assert errors[1] is not None
    assert errors[1] > 2 * errors[0]


def test_a_verdict_is_json() -> None:
    for windows in (quiet(8), quiet(8, 2.0), *DOUBTS.values()):
        text = json.dumps(asdict(judged(windows)), allow_nan=False)
        assert json.loads(text)["compute_id"] == "switched"


def test_windows_of_another_time_are_refused_as_controls() -> None:
    windows = quiet(9)
    other = quiet(9, intervals=30).controls[0]
    with pytest.raises(ValueError, match="not those of the switched compute"):
        replace(windows, controls=(other,))
    with pytest.raises(ValueError, match="its own control"):
        replace(windows, controls=(windows.switched,))


# Controls.


def test_controls_are_the_most_alike_by_the_baseline_and_not_shared_while_there_are_others() -> None:
    windows = quiet(10, controls=8)
    every = windows.controls
    strange = [replace(c, before=replace(c.before, latencies={"commit": _slower(c.before)})) for c in every]
    candidates = [*strange[:4], *every[4:]]
    alike = {"control-4", "control-5", "control-6", "control-7"}
    assert {c.compute_id for c in choose_controls(windows.switched, candidates, 4)} == alike
    others = choose_controls(windows.switched, candidates, 4, taken=("control-4", "control-5"))
    assert {c.compute_id for c in others} & {"control-4", "control-5"} == set()
    assert len(choose_controls(windows.switched, candidates, 20)) == 8


def test_what_happened_after_the_switch_does_not_choose_controls() -> None:
    windows = quiet(11, controls=8)
    changed = [replace(c, after=replace(c.after, latencies={"commit": _slower(c.after)})) for c in windows.controls]
    before = [c.compute_id for c in choose_controls(windows.switched, windows.controls, 3)]
    assert [c.compute_id for c in choose_controls(windows.switched, changed, 3)] == before


# Bounds.


@pytest.mark.parametrize(
    ("observed", "words"),
    [
        (Observed(GOOD, restarts=1), "restarted 1 times"),
        (Observed(GOOD, faults=("the pageserver has it stopped",)), "stopped"),
        (Observed(GOOD | {"wal_image_bytes_per_second": 2_000.0}), "page images in the WAL: 4.00%"),
        (Observed(GOOD, tails={"commit": tail(0.05, 0.31)}), "commit p99 went from 50.00 ms to 310.00 ms"),
        (Observed(GOOD, tails={"commit": tail(0.05, 0.31, 0.9)}), "commit p90 went from 50.00 ms to 310.00 ms"),
        (Observed(GOOD, tails={"storage_read": tail(None, 1.5)}), "storage read p99 is 1500.00 ms"),
        (Observed(GOOD, failed_share=0.2), "transactions that failed: 20.00%"),
        (Observed(GOOD | {"chain_length_p99": 200.0}), "chain length p99: 200"),
        (Observed(GOOD, l0_layers=80), "layers that wait for compaction: 80"),
    ],
)
def test_each_bound_breaks_on_its_own_and_is_named(observed: Observed, words: str) -> None:
    bounds = HardBounds(p99_ceiling_seconds=1.0, max_chain_length=64, max_l0_layers=40)
    broken = [bound for bound in check_bounds(observed, bounds) if not bound.ok]
    assert [words in bound.detail for bound in broken] == [True]


def test_good_figures_and_missing_ones_break_no_bound() -> None:
    for observed in (Observed(GOOD, tails=TAILS), Observed({})):
        assert all(bound.ok for bound in check_bounds(observed, HardBounds()))


def test_what_was_not_measured_is_not_said_to_be_judged() -> None:
    judged = {bound.name for bound in check_bounds(Observed(GOOD, tails=TAILS), HardBounds()) if bound.judged}
    assert judged == {"no faults", "no restarts", "images", "commit_p99_seconds", "storage_read_p99_seconds"}
    assert {b.name for b in check_bounds(Observed({}), HardBounds()) if b.judged} == {"no faults", "no restarts"}


def commits(fast: int, slow: int) -> Histograms:
    """Fast ones take up to 10 ms, slow ones up to a second."""
    return Histograms.of_window({"0.01": fast, "1": fast + slow, "+Inf": fast + slow})


def latency_bound(before: Histograms, after: Histograms) -> BoundResult:
    observed = Observed(GOOD, tails={"commit": compare_tails(before, after)})
    return next(bound for bound in check_bounds(observed, HardBounds()) if bound.name == "commit_p99_seconds")


def test_one_slow_commit_of_few_breaks_no_bound_and_many_do() -> None:
    """A compute that commits twice a second is not sent back because a checkpoint met one of its commits."""
    few = commits(40, 0)
    assert latency_bound(few, commits(39, 1)).ok
    assert latency_bound(few, commits(36, 4)).ok
    broken = latency_bound(few, commits(30, 10))
    assert not broken.ok
    assert "commit p87.5 went from" in broken.detail
    # With enough of them it is the p99 that counts.
    many = commits(4_000, 0)
    assert latency_bound(many, commits(3_970, 30)).ok
    broken = latency_bound(many, commits(3_900, 100))
    assert not broken.ok
    assert "commit p99 went from" in broken.detail


def test_the_window_with_fewer_commits_decides_what_can_be_told() -> None:
    tails = compare_tails(commits(25, 0), commits(10_000, 0))
    assert tails.share == pytest.approx(0.8)
    # None before: whatever is there is all there is to say.
    assert compare_tails(commits(0, 0), commits(10_000, 0)).share == pytest.approx(0.99)
    for before, after in ((9, 9), (9, 10_000), (0, 9)):
        bound = latency_bound(commits(before, 0), commits(0, after))
        assert bound.ok
        assert not bound.judged
        assert f"too few to tell, {before} before the switch, {after} after it" in bound.detail
    nothing = latency_bound(commits(5_000, 0), commits(0, 0))
    assert "was not measured after the switch" in nothing.detail
    assert compare_tails(None, None).share is None


# A wave.


def pairs(*effects: float) -> list[WavePair]:
    return [WavePair(f"ep-{n}", {"commit_p50": 0.0001 * n, "commit_p99": e}) for n, e in enumerate(effects)]


NOISE = (0.05, -0.07, 0.02, -0.03, 0.08, -0.05, 0.01, -0.02, 0.04, -0.06, 0.03)


def test_a_wave_sees_what_no_compute_of_it_could() -> None:
    wave = judge_wave(pairs(*(0.22 + n for n in NOISE)), Look())
    assert wave.verdict == "regress"
    assert "over 11 pairs commit p99 changed by +25%" in wave.reason


def test_a_wave_without_effect_passes_and_one_of_a_few_holds() -> None:
    assert judge_wave(pairs(*NOISE), Look()).verdict == "pass"
    few = judge_wave(pairs(*NOISE[:3]), Look())
    assert few.verdict == "inconclusive"
    assert few.settle is not None
    assert few.settle.text == "2 more computes with both windows measured"
    assert few.settle.text in few.reason


def test_a_wave_that_is_not_over_does_not_pass() -> None:
    wave = judge_wave(pairs(*NOISE), Look(0.5))
    assert wave.verdict == "inconclusive"
    assert "not judged yet" in wave.reason


def test_a_wave_of_wild_pairs_holds() -> None:
    wave = judge_wave(pairs(*(8 * n + 0.1 for n in NOISE)), Look())
    assert wave.verdict == "inconclusive"
    assert wave.settle is not None


def test_pairs_come_from_verdicts() -> None:
    pair = WavePair.of(judged(quiet(12)))
    assert set(pair.effects) == {"commit_p50", "commit_p99", "transactions_per_second"}
