"""The verdict over one compute."""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from weir_workflows.rollout.verdict import settle as settling
from weir_workflows.rollout.verdict.bounds import BoundResult
from weir_workflows.rollout.verdict.difference import Effect, Unmeasured, estimate
from weir_workflows.rollout.verdict.policy import DEFAULT_POLICY, Figure, Policy
from weir_workflows.rollout.verdict.settle import Settle
from weir_workflows.rollout.verdict.spending import Look, allowance, spent
from weir_workflows.rollout.verdict.windows import ComputeWindows

Answer = Literal["pass", "inconclusive", "regress"]
METHOD = (
    "difference in differences of log figures against concurrent controls; circular block bootstrap over "
    "shared clock time, block length by Politis-White; drift between windows by a random-effects variance; "
    "one-sided t bounds; alpha shared among figures; Lan-DeMets spending of the O'Brien-Fleming type over looks"
)


@dataclass(frozen=True)
class FigureResult:
    """One figure. Ratios are of the effect, above 1 is worse: `low` at the error this look may spend on a regression,
    `high` at the error allowed for a pass. `before` and `after` are the switched compute's own, in seconds or events
    a second. All None for a figure that could not be measured; `says` is a sentence either way."""

    name: str
    answer: Answer
    says: str
    before: float | None = None
    after: float | None = None
    effect: float | None = None
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    p_value: float | None = None
    standard_error: float | None = None
    drift: float | None = None
    block_intervals: int | None = None
    controls: tuple[str, ...] = ()


@dataclass(frozen=True)
class ComputeVerdict:
    """`alpha_spent` of `alpha`: the error spent on calling a regression up to this look, over all figures."""

    compute_id: str
    verdict: Answer
    reason: str
    bounds: tuple[BoundResult, ...]
    figures: tuple[FigureResult, ...]
    controls: tuple[str, ...]
    alpha: float
    alpha_spent: float
    settle: Settle | None = None
    method: str = METHOD


def rng_for(*names: object) -> np.random.Generator:
    """The same generator for the same names, in any process: a verdict can be worked out again from its evidence."""
    digest = hashlib.sha256("\0".join(str(name) for name in names).encode()).digest()
    return np.random.default_rng(int.from_bytes(digest[:8], "big"))


def judge_compute(
    windows: ComputeWindows,
    look: Look,
    bounds: Sequence[BoundResult],
    rng: np.random.Generator,
    policy: Policy = DEFAULT_POLICY,
) -> ComputeVerdict:
    """A broken bound regresses whatever the statistics say. Otherwise any figure that is surely worse by more than
    the negligible regresses; a pass, which only the last look gives, needs every measured figure to be surely not
    worse by the tolerated; anything else is inconclusive and says what would settle it."""
    level = allowance(policy.alpha, look)
    short = _too_short(windows, policy)
    results = (
        () if short else tuple(_judge_figure(windows, figure, look, level, policy, rng) for figure in policy.figures)
    )
    figures = tuple(result for result, _ in results)
    broken = [bound.detail for bound in bounds if not bound.ok]
    worse = [result.says for result in figures if result.answer == "regress"]
    doubts = [(result.says, what) for result, what in results if what is not None]
    answer: Answer
    settle: Settle | None = None
    if broken or worse:
        answer, reason = "regress", "; ".join([*broken, *worse])
    elif short is not None:
        answer, settle = "inconclusive", short
        reason = f"the windows are too short to judge; {short.text} would settle it"
    elif doubts:
        answer, settle = "inconclusive", _longest([what for _, what in doubts])
        reason = "; ".join(f"{says}; what would settle it: {what.text}" for says, what in doubts)
    else:
        answer, reason = "pass", "; ".join(result.says for result in figures)
    return ComputeVerdict(
        compute_id=windows.switched.compute_id,
        verdict=answer,
        reason=reason,
        bounds=tuple(bounds),
        figures=figures,
        controls=tuple(control.compute_id for control in windows.controls),
        alpha=policy.alpha,
        alpha_spent=spent(policy.alpha, look.fraction),
        settle=settle,
    )


def _too_short(windows: ComputeWindows, policy: Policy) -> Settle | None:
    for window, name in ((windows.switched.before, "baseline"), (windows.switched.after, "bake")):
        if window.intervals < policy.min_intervals:
            return settling.for_length(window, policy, name)
    return None


def _longest(settles: list[Settle]) -> Settle:
    """Of several doubts, the one that takes most; one that time alone does not settle takes most of all."""
    return max(settles, key=lambda one: math.inf if one.seconds is None else one.seconds)


def _judge_figure(
    windows: ComputeWindows, figure: Figure, look: Look, level: float, policy: Policy, rng: np.random.Generator
) -> tuple[FigureResult, Settle | None]:
    level *= figure.alpha_share
    effect = estimate(windows, figure, policy, rng)
    if isinstance(effect, Unmeasured):
        return _unmeasured(figure, effect)
    p_value = effect.exceeds(math.log(figure.negligible))
    low = effect.log - effect.margin(level) if level > 0 else -math.inf
    high = effect.log + effect.margin(policy.pass_alpha)
    says = _sentence(figure, effect, low, high, policy)
    what: Settle | None = None
    answer: Answer = "inconclusive"
    if p_value <= level:
        answer = "regress"
        says += f", worse by more than the {figure.negligible - 1:.0%} that is let be"
    elif not look.final:
        seconds = windows.switched.after.seconds
        what = settling.for_rest_of_bake(seconds * (1 / look.fraction - 1))
    elif high < math.log(figure.tolerated) or figure.guarded:
        answer = "pass"
    else:
        what = settling.for_doubt(figure, effect, windows.switched.after.seconds, level, policy)
        says += f", and {figure.tolerated - 1:.0%} worse is not ruled out"
    result = FigureResult(
        name=figure.name,
        answer=answer,
        says=says,
        before=effect.before,
        after=effect.after,
        effect=effect.log,
        ratio=math.exp(effect.log),
        low=math.exp(low),
        high=math.exp(high),
        p_value=p_value,
        standard_error=effect.standard_error,
        drift=effect.drift,
        block_intervals=effect.block_intervals,
        controls=effect.controls,
    )
    return result, what


def _unmeasured(figure: Figure, lacking: Unmeasured) -> tuple[FigureResult, Settle | None]:
    which = "baseline" if lacking.window == "before" else "bake"
    says = f"{figure.words} cannot be judged on {lacking.events:.0f} events in the {which}"
    if figure.required:
        return FigureResult(figure.name, "inconclusive", says), settling.for_traffic(figure, lacking)
    return FigureResult(figure.name, "pass", says + ", so it does not decide"), None


def _sentence(figure: Figure, effect: Effect, low: float, high: float, policy: Policy) -> str:
    """Signs are those a person sees on a chart: a rate that fell is negative although it is worse."""
    sign = figure.sign
    ends = sorted((math.expm1(sign * low), math.expm1(sign * high)))
    if effect.controls:
        against = f"against {len(effect.controls)} concurrent controls"
    else:
        against = "against its own baseline alone (too few controls ran beside it, so wider bounds apply)"
    return (
        f"{figure.words} went from {_show(figure, effect.before)} to {_show(figure, effect.after)}, "
        f"{math.expm1(sign * effect.log):+.0%} {against} (between {ends[0]:+.0%} and {ends[1]:+.0%})"
    )


def _show(figure: Figure, value: float) -> str:
    return f"{value * 1000:.3g} ms" if figure.kind == "latency" else f"{value:.3g}/s"
