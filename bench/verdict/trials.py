"""Trials: slices of traces judged as a rollout would judge them, one by one and as the first two waves of a fleet."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from weir_workflows.rollout.verdict import (
    ComputeVerdict,
    ComputeWindows,
    Look,
    Policy,
    WavePair,
    choose_controls,
    judge_compute,
    judge_wave,
    rng_for,
)

from .slices import Planted, Slice, span, starts
from .traces import Trace

LOOKS = (0.5, 1.0)
CANARIES = 1
SECOND_WAVE = 10


@dataclass(frozen=True)
class Share:
    """So many of so many, with Wilson's interval at 95 %."""

    count: int
    of: int

    @property
    def rate(self) -> float:
        return self.count / self.of if self.of else math.nan

    def wilson(self, of: int | None = None) -> tuple[float, float]:
        """For `of` independent trials at this rate, where the trials themselves overlap."""
        n = of or self.of
        interval = stats.binomtest(round(self.rate * n), n).proportion_ci(method="wilson")
        return float(interval.low), float(interval.high)


@dataclass(frozen=True)
class Group:
    """Computes of one trace switched at the same moment: the slices, whose controls are among the others."""

    slices: tuple[Slice, ...]

    @property
    def trace(self) -> Trace:
        return self.slices[0].trace

    @property
    def key(self) -> tuple[str, int]:
        return self.trace.name, self.slices[0].start


def groups(
    found: Sequence[Trace], intervals: int, size: int, step: int, repeats: int, rng: np.random.Generator
) -> list[Group]:
    """At every start, `repeats` draws of `size` computes as switched; the rest are candidates for their controls."""
    made: list[Group] = []
    for trace in found:
        for start in starts(trace, intervals, step):
            for _ in range(repeats):
                order = [int(i) for i in rng.permutation(trace.computes)]
                switched, rest = order[:size], tuple(order[size:])
                made.append(Group(tuple(Slice(trace, compute, rest, start, intervals) for compute in switched)))
    return made


def disjoint(found: Sequence[Trace], intervals: int) -> int:
    """How many slices share no compute's interval with another: the trials that are truly separate."""
    return sum(trace.computes * (trace.intervals // span(intervals)) for trace in found)


def judge(slice_: Slice, planted: Planted, policy: Policy, *, alone: bool = False) -> ComputeVerdict:
    """As a rollout does: controls chosen by the baseline, a look at half of the bake, and at its end."""
    verdict: ComputeVerdict | None = None
    chosen: list[str] | None = [] if alone else None
    for index, fraction in enumerate(LOOKS):
        windows = slice_.windows(planted, fraction)
        if chosen is None:
            chosen = [c.compute_id for c in choose_controls(windows.switched, windows.controls)]
        controls = tuple(control for control in windows.controls if control.compute_id in chosen)
        look = Look(fraction, LOOKS[:index])
        rng = rng_for(slice_.name, planted.shape, planted.ratio, fraction)
        verdict = judge_compute(ComputeWindows(windows.switched, controls), look, (), rng, policy)
        if verdict.verdict == "regress":
            break
    assert verdict is not None  # noqa: S101  there is at least one look
    return verdict


@dataclass(frozen=True)
class Outcome:
    """What is kept of a verdict: enough for the counts and for the wave's test."""

    verdict: str
    pair: WavePair


@dataclass(frozen=True)
class Judged:
    """A group's outcomes, and the trace and moment it was of."""

    key: tuple[str, int]
    outcomes: tuple[Outcome, ...]


def judge_group(group: Group, planted: Planted, policy: Policy, *, alone: bool) -> Judged:
    verdicts = [judge(one, planted, policy, alone=alone) for one in group.slices]
    return Judged(group.key, tuple(Outcome(verdict.verdict, WavePair.of(verdict)) for verdict in verdicts))


@dataclass(frozen=True)
class Fleet:
    """How the first two waves of one rollout ended. `by_compute` and `by_wave`: what called a regression."""

    by_compute: bool
    by_wave: bool
    wave_answer: str
    passed_alone: int

    @property
    def stopped(self) -> bool:
        return self.by_compute or self.by_wave

    @property
    def held(self) -> bool:
        return not self.stopped and self.wave_answer == "inconclusive"


def fleet(judged: Sequence[Judged], rng: np.random.Generator, policy: Policy) -> Fleet:
    """A canary from one group; then the second wave, from as many others at other moments or of other traces as it
    takes, as a fleet of several cells has. No compute of a trace is in it twice."""
    order = [judged[int(i)] for i in rng.permutation(len(judged))]
    canary, rest = order[0], order[1:]
    members = list(canary.outcomes[:CANARIES])
    used = {member.pair.compute_id for member in members}
    moments = {canary.key}
    for one in rest:
        if one.key in moments:
            continue
        fresh = [outcome for outcome in one.outcomes if outcome.pair.compute_id not in used]
        taken = fresh[: CANARIES + SECOND_WAVE - len(members)]
        if taken:
            moments.add(one.key)
            members += taken
            used |= {member.pair.compute_id for member in taken}
        if len(members) == CANARIES + SECOND_WAVE:
            break
    else:
        raise ValueError(f"{len(judged)} groups are too few for a wave of {SECOND_WAVE}")
    wave = judge_wave([member.pair for member in members], Look(), policy)
    return Fleet(
        by_compute=any(member.verdict == "regress" for member in members),
        by_wave=wave.verdict == "regress",
        wave_answer=wave.verdict,
        passed_alone=sum(member.verdict == "pass" for member in members),
    )
