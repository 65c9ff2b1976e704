"""Verdicts on a switch: pure statistics over recorded windows, no I/O, no clock, randomness passed in.

`check_bounds` needs no statistics; `judge_compute` compares one compute with concurrent controls; `judge_wave` tests
the pairs of a wave together. How often they are wrong, on recorded traces: `make bench-verdict`.
"""

from weir_workflows.rollout.verdict.bounds import BoundResult, Figures, HardBounds, Observed, check_bounds
from weir_workflows.rollout.verdict.compute import Answer, ComputeVerdict, FigureResult, judge_compute, rng_for
from weir_workflows.rollout.verdict.controls import choose_controls
from weir_workflows.rollout.verdict.policy import DEFAULT_POLICY, Figure, Policy
from weir_workflows.rollout.verdict.settle import Settle
from weir_workflows.rollout.verdict.spending import Look, allowance, spent
from weir_workflows.rollout.verdict.tails import Tail, compare_tails
from weir_workflows.rollout.verdict.wave import WaveFigure, WavePair, WaveVerdict, judge_wave
from weir_workflows.rollout.verdict.windows import ComputeWindows, Histograms, Subject, Window

__all__ = [
    "DEFAULT_POLICY",
    "Answer",
    "BoundResult",
    "ComputeVerdict",
    "ComputeWindows",
    "Figure",
    "FigureResult",
    "Figures",
    "HardBounds",
    "Histograms",
    "Look",
    "Observed",
    "Policy",
    "Settle",
    "Subject",
    "Tail",
    "WaveFigure",
    "WavePair",
    "WaveVerdict",
    "Window",
    "allowance",
    "check_bounds",
    "choose_controls",
    "compare_tails",
    "judge_compute",
    "judge_wave",
    "rng_for",
    "spent",
]
