"""What would settle an inconclusive verdict: how much longer a bake, or how many more controls, in figures."""

import math
from dataclasses import dataclass

from weir_workflows.rollout.verdict.difference import Effect, Unmeasured
from weir_workflows.rollout.verdict.policy import Figure, Policy
from weir_workflows.rollout.verdict.windows import Window

# Beyond a week no estimate made from minutes is worth a number.
FARTHEST_SECONDS = 7 * 86400.0


@dataclass(frozen=True)
class Settle:
    """`seconds` more of bake, or a baseline and a bake of `each_seconds`, or `controls` more would do it if all else
    stays as it is; None where that alone would not. `text` says it in words and is never empty."""

    text: str
    seconds: float | None = None
    each_seconds: float | None = None
    controls: int | None = None


def duration(seconds: float) -> str:
    if seconds < 120:
        return f"{math.ceil(seconds)} s"
    if seconds < 7200:
        return f"{math.ceil(seconds / 60)} min"
    return f"{math.ceil(seconds / 3600)} h"


def for_traffic(figure: Figure, lacking: Unmeasured) -> Settle:
    which = "baseline" if lacking.window == "before" else "bake"
    more = lacking.seconds_more
    if more is None:
        return Settle(
            f"{figure.words} needs traffic: {lacking.needed:.0f} events in the {which}, and there were none"
        )
    return Settle(
        f"about {duration(more)} more of {which} at this traffic ({lacking.needed:.0f} events are needed for "
        f"{figure.words}, there were {lacking.events:.0f})",
        seconds=more,
    )


def for_length(window: Window, policy: Policy, name: str) -> Settle:
    more = (policy.min_intervals - window.intervals) * window.seconds_per_interval
    return Settle(f"{duration(more)} more of {name}", seconds=more)


def for_rest_of_bake(seconds: float) -> Settle:
    return Settle(f"the remaining {duration(seconds)} of the bake", seconds=seconds)


def for_doubt(figure: Figure, effect: Effect, seconds: float, regress_level: float, policy: Policy) -> Settle:
    """The standard error that would decide, if the estimate stays, against the parts of today's."""
    wanted = _wanted_variance(figure, effect, regress_level, policy)
    half_fixed = effect.variance_before + effect.drift_variance
    if wanted > half_fixed:
        more = seconds * (effect.variance_after / (wanted - half_fixed) - 1)
        # Degrees of freedom grow with the bake too, so the figure may come out at nothing: one interval at least.
        more = max(policy.interval_seconds, more)
        if more <= FARTHEST_SECONDS:
            return Settle(f"about {duration(more)} more of bake", seconds=more)
    # Drift that the controls showed in short windows is mostly chance that few blocks did not: it shrinks with them.
    fixed = (
        effect.drift_variance * (figure.drift / effect.drift) ** 2 if effect.drift_found else effect.drift_variance
    )
    if wanted > fixed:
        each = seconds * (effect.standard_error**2 - fixed) / (wanted - fixed)
        if each <= FARTHEST_SECONDS:
            return Settle(f"a baseline and a bake of about {duration(each)} each", each_seconds=each)
    more_controls = _controls_more(effect, wanted, policy)
    if more_controls is not None:
        return Settle(f"{more_controls} more controls that run beside it, unchanged", controls=more_controls)
    return Settle(
        f"not time alone, since computes drift apart by {math.expm1(effect.drift):.0%} on their own here: "
        "the pairs of its wave together, or a person's decision"
    )


def _wanted_variance(figure: Figure, effect: Effect, regress_level: float, policy: Policy) -> float:
    """The larger variance of the two at which either answer would be sure: one is always within reach."""
    error = effect.standard_error
    to_pass = math.log(figure.tolerated) - effect.log
    to_regress = effect.log - math.log(figure.negligible)
    enough = [
        distance / (effect.margin(level) / error)
        for distance, level in ((to_pass, policy.pass_alpha), (to_regress, regress_level))
        if distance > 0
    ]
    return max(enough) ** 2


def _controls_more(effect: Effect, wanted: float, policy: Policy) -> int | None:
    left = wanted - effect.variance_before - effect.variance_after - effect.drift**2
    have = len(effect.controls)
    if have < policy.min_controls:
        return policy.min_controls - have + 2
    if left <= 0:
        return None
    more = math.ceil(effect.drift**2 / left) - have
    return more if 0 < more <= 50 else None
