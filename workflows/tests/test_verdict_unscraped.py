"""A compute that Prometheus did not scrape keeps nobody from being judged.

Its machine is down, or its port was taken: it is active in the database all the same, and so a candidate for a
control; or it is one of the computes that were switched.
"""

import math
from datetime import UTC, datetime

import numpy as np

from weir.clients.prometheus import Series
from weir_workflows.rollout.judging import HISTOGRAMS, Grid, windows_of
from weir_workflows.rollout.verdict import ComputeWindows, Look, Subject, Window, judge_compute, rng_for
from weir_workflows.rollout.verdict.controls import choose_controls

BEFORE = Grid(datetime(2031, 1, 1, tzinfo=UTC), 2.0, 30)
AFTER = Grid(datetime(2031, 1, 1, 0, 2, tzinfo=UTC), 2.0, 30)
SCRAPED = ("switched", "control-1", "control-2", "control-3")


def _counter(grid: Grid, each: float, labels: dict[str, str]) -> Series:
    edges = range(grid.count + 1)
    return labels, [(grid.start.timestamp() + index * grid.step, index * each) for index in edges]


def _measured(*scraped: str, ids: tuple[str, ...], grid: Grid) -> dict[str, Window]:
    """Of each scraped compute 20 transactions an interval; none of the others."""
    committed = [_counter(grid, 20.0, {"compute_id": ident}) for ident in scraped]
    shares = {"0.001": 10.0, "0.01": 19.0, "+Inf": 20.0}
    buckets = [_counter(grid, n, {"compute_id": ident, "le": le}) for ident in scraped for le, n in shares.items()]
    return windows_of(ids, committed, dict.fromkeys(HISTOGRAMS, buckets), grid)


def _subjects(*ids: str, before: tuple[str, ...] = SCRAPED, after: tuple[str, ...] = SCRAPED) -> list[Subject]:
    was, became = _measured(*before, ids=ids, grid=BEFORE), _measured(*after, ids=ids, grid=AFTER)
    return [Subject(ident, was[ident], became[ident]) for ident in ids]


def test_a_window_nobody_scraped_is_as_long_as_the_others_and_has_no_events() -> None:
    switched, silent = _subjects("switched", "silent")
    assert (silent.before.intervals, silent.after.intervals) == (switched.before.intervals, switched.after.intervals)
    assert np.isnan(silent.before.rates["transactions"]).all()
    assert math.isclose(float(np.nansum(switched.before.rates["transactions"])), 600)


def test_a_candidate_without_a_baseline_is_no_control() -> None:
    switched, *candidates = _subjects(*SCRAPED, "silent")
    assert [one.compute_id for one in choose_controls(switched, candidates)] == list(SCRAPED[1:])


def test_a_control_that_was_lost_after_the_switch_does_not_count_and_the_others_do() -> None:
    switched, *candidates = _subjects(*SCRAPED, "lost", before=(*SCRAPED, "lost"))
    controls = choose_controls(switched, candidates)
    assert "lost" in [control.compute_id for control in controls]
    verdict = judge_compute(ComputeWindows(switched, controls), Look(1.0), (), rng_for("lost"))
    assert verdict.verdict == "pass", verdict.reason
    assert {name for figure in verdict.figures for name in figure.controls} == set(SCRAPED[1:])


def test_a_switched_compute_that_was_not_scraped_is_inconclusive_beside_controls_that_were() -> None:
    switched, *candidates = _subjects("silent", *SCRAPED[1:])
    verdict = judge_compute(
        ComputeWindows(switched, choose_controls(switched, candidates)), Look(1.0), (), rng_for("silent")
    )
    assert (verdict.verdict, "cannot be judged on 0 events" in verdict.reason) == ("inconclusive", True)
