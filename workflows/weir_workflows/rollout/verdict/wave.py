"""The verdict over a wave: what its pairs say together that no single compute could say surely.

Each compute with its controls is one pair, and the effect of a figure the pair's difference. Wilcoxon's signed-rank
test asks whether these differences lie on one side of a point more than chance allows, without assuming anything
about their distribution but symmetry: one compute with a wild effect moves it no more than its rank.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from weir_workflows.rollout.verdict.compute import Answer, ComputeVerdict
from weir_workflows.rollout.verdict.policy import DEFAULT_POLICY, Figure, Policy
from weir_workflows.rollout.verdict.settle import Settle
from weir_workflows.rollout.verdict.spending import Look, allowance, spent

# Effects whose pairs are all looked at: two million means, 16 MB.
MOST_PAIRED = 2000
METHOD = (
    "one-sided Wilcoxon signed-rank over the pairs (switched compute, its controls) of this wave and those before; "
    "Hodges-Lehmann estimate; alpha shared among figures; Lan-DeMets spending of the O'Brien-Fleming type over looks"
)


@dataclass(frozen=True)
class WavePair:
    """One judged compute: its log effects by figure, positive is worse, as its `ComputeVerdict` has them."""

    compute_id: str
    effects: Mapping[str, float]

    @classmethod
    def of(cls, verdict: ComputeVerdict) -> "WavePair":
        return cls(verdict.compute_id, {f.name: f.effect for f in verdict.figures if f.effect is not None})


@dataclass(frozen=True)
class WaveFigure:
    """`ratio`: the Hodges-Lehmann estimate of the pairs' effect, above 1 is worse. The p-values are of "no worse than
    negligible" and of "worse by the tolerated or more"."""

    name: str
    answer: Answer
    says: str
    pairs: int
    ratio: float | None = None
    p_worse: float | None = None
    p_tolerable: float | None = None


@dataclass(frozen=True)
class WaveVerdict:
    verdict: Answer
    reason: str
    figures: tuple[WaveFigure, ...]
    alpha: float
    alpha_spent: float
    settle: Settle | None = None
    method: str = METHOD


def judge_wave(pairs: Sequence[WavePair], look: Look, policy: Policy = DEFAULT_POLICY) -> WaveVerdict:
    """Over all pairs so far, `look` being how much of this wave has been judged. Each wave may spend `policy.alpha`.

    Guarded figures are not tested across a wave. A figure that fewer computes have than a test needs is
    inconclusive if it is required, and says how many more it takes; the computes' own verdicts still count.
    """
    tested = [figure for figure in policy.figures if not figure.guarded]
    share = allowance(policy.alpha, look) / sum(figure.alpha_share for figure in tested)
    results = [_judge_figure(pairs, figure, look, share * figure.alpha_share, policy) for figure in tested]
    worse = [result.says for result, _ in results if result.answer == "regress"]
    doubts = [(result.says, what) for result, what in results if what is not None]
    answer: Answer
    settle: Settle | None = None
    if worse:
        answer, reason = "regress", "; ".join(worse)
    elif doubts:
        answer, settle = "inconclusive", doubts[0][1]
        reason = "; ".join(f"{says}; what would settle it: {what.text}" for says, what in doubts)
    else:
        answer, reason = "pass", "; ".join(result.says for result, _ in results)
    return WaveVerdict(
        verdict=answer,
        reason=reason,
        figures=tuple(result for result, _ in results),
        alpha=policy.alpha,
        alpha_spent=spent(policy.alpha, look.fraction),
        settle=settle,
    )


def fewest_pairs(level: float) -> int:
    """With n pairs that all agree, the signed-rank test gives 2^-n: fewer can never reach the level."""
    return math.ceil(-math.log2(level))


def hodges_lehmann(effects: Sequence[float]) -> float:
    """The median of all pairwise means, each effect with itself included: the estimate that goes with the test. Of
    more effects than can be paired in little memory, every n-th in their order stands for all."""
    values = np.sort(np.asarray(effects, dtype=float))
    if values.size > MOST_PAIRED:
        values = values[np.linspace(0, values.size - 1, MOST_PAIRED).round().astype(int)]
    first, second = np.triu_indices(values.size)
    return float(np.median((values[first] + values[second]) / 2))


def signed_rank(effects: Sequence[float], point: float, alternative: str) -> float:
    """One-sided p-value that the effects lie "greater" or "less" than the point; exact where pairs are few."""
    shifted = np.asarray(effects, dtype=float) - point
    if not shifted.any():
        return 1.0
    result: Any = stats.wilcoxon(shifted, alternative=alternative)
    return float(result.pvalue)


def _judge_figure(
    pairs: Sequence[WavePair], figure: Figure, look: Look, level: float, policy: Policy
) -> tuple[WaveFigure, Settle | None]:
    effects = [pair.effects[figure.name] for pair in pairs if figure.name in pair.effects]
    needed = fewest_pairs(policy.pass_alpha)
    if len(effects) < needed:
        says = f"{figure.words} was measured on {len(effects)} pairs, and a wave's test needs {needed}"
        what = Settle(f"{needed - len(effects)} more computes with both windows measured")
        if figure.required:
            return WaveFigure(figure.name, "inconclusive", says, len(effects)), what
        return WaveFigure(figure.name, "pass", says + ", so it does not decide", len(effects)), None
    centre = hodges_lehmann(effects)
    p_worse = signed_rank(effects, math.log(figure.negligible), "greater")
    p_tolerable = signed_rank(effects, math.log(figure.tolerated), "less")
    says = f"over {len(effects)} pairs {figure.words} changed by {math.expm1(centre):+.0%}"
    answer: Answer = "inconclusive"
    what: Settle | None = None
    if p_worse <= level:
        answer = "regress"
        says += f", surely by more than {figure.negligible - 1:+.0%} (p = {p_worse:.2g})"
    elif not look.final:
        what = Settle("the computes of this wave that are not judged yet")
        says += ", and the wave is not over"
    elif p_tolerable <= policy.pass_alpha:
        answer = "pass"
        says += f", surely by less than {figure.tolerated - 1:+.0%} (p = {p_tolerable:.2g})"
    else:
        what = Settle(f"a wave of more computes than these {len(effects)}, or longer bakes")
        says += f", and {figure.tolerated - 1:+.0%} is not ruled out (p = {p_tolerable:.2g})"
    return WaveFigure(figure.name, answer, says, len(effects), math.exp(centre), p_worse, p_tolerable), what
