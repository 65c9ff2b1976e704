"""Hard bounds: what is plainly broken needs no statistics, may be checked at any moment, and overrides them.

A bound whose figure was not measured holds, and says so: a missing figure is no evidence of harm, and the statistics
ask for the figures they need.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from weir_workflows.rollout.verdict.tails import Tail

Figures = dict[str, float | None]

# What is held against a p99, with the words for it.
LATENCIES = {"commit": "commit", "storage_read": "storage read"}


@dataclass(frozen=True)
class BoundResult:
    name: str
    ok: bool
    detail: str
    # False where there was nothing to hold against a limit: it is `ok`, and proves nothing.
    judged: bool = True


@dataclass(frozen=True)
class HardBounds:
    """Where a compute is broken. None switches a bound off.

    - `max_image_share`: of WAL bytes after the switch; index builds write images on purpose, hence not zero.
    - `max_p99_ratio` and `p99_slack_seconds`: a p99 may be above its baseline by the ratio or by the slack. Where a
      window has too few events for a p99, the same is asked of the highest quantile it can tell (`tails`).
    - `p99_ceiling_seconds`: whatever it was before.
    - `max_failed_share`: of transactions that ended in the window.
    - `max_chain_length`: deltas that 99 % of storage reads stay below.
    - `max_l0_layers`: layers of the branch in storage that wait for compaction.
    - `left_out`: bounds, by name, that say nothing about the feature that is rolled out.
    """

    max_image_share: float | None = 0.02
    max_p99_ratio: float | None = 3.0
    p99_slack_seconds: float = 0.25
    p99_ceiling_seconds: float | None = None
    max_failed_share: float | None = 0.05
    max_chain_length: float | None = None
    max_l0_layers: int | None = None
    left_out: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Observed:
    """What was seen. `after` are window figures by the names of `weir.computes.metrics.EVIDENCE`; `tails` are by what
    they are of ("commit"), and those of `LATENCIES` that are missing were not measured."""

    after: Figures
    restarts: int = 0
    faults: Sequence[str] = ()
    failed_share: float | None = None
    l0_layers: int | None = None
    tails: Mapping[str, Tail] = field(default_factory=dict[str, Tail])


def check_bounds(observed: Observed, bounds: HardBounds) -> tuple[BoundResult, ...]:
    every = (
        _faults(observed.faults),
        _restarts(observed.restarts),
        _below("images", _image_share(observed.after), bounds.max_image_share, "page images in the WAL", _percent),
        _below("failures", observed.failed_share, bounds.max_failed_share, "transactions that failed", _percent),
        *(_latency(name, words, observed.tails.get(name), bounds) for name, words in LATENCIES.items()),
        _below(
            "chain length",
            observed.after.get("chain_length_p99"),
            bounds.max_chain_length,
            "chain length p99",
            _count,
        ),
        _below("storage L0", observed.l0_layers, bounds.max_l0_layers, "layers that wait for compaction", _count),
    )
    return tuple(bound for bound in every if bound.name not in bounds.left_out)


def _faults(faults: Sequence[str]) -> BoundResult:
    return BoundResult("no faults", not faults, "; ".join(faults) or "storage and compute are healthy")


def _restarts(restarts: int) -> BoundResult:
    detail = "no restart since the baseline" if restarts <= 0 else f"the compute restarted {restarts} times"
    return BoundResult("no restarts", restarts <= 0, detail)


def _image_share(after: Figures) -> float | None:
    images, total = after.get("wal_image_bytes_per_second"), after.get("wal_bytes_per_second")
    return images / total if images is not None and total else None


def _percent(value: float) -> str:
    return f"{value:.2%}"


def _count(value: float) -> str:
    return f"{value:.0f}"


def _below(
    name: str, value: float | None, limit: float | None, words: str, show: Callable[[float], str]
) -> BoundResult:
    if value is None or limit is None:
        missing = "was not measured" if value is None else "has no limit"
        return BoundResult(name, True, f"{words}: {missing}", judged=False)
    return BoundResult(name, value <= limit, f"{words}: {show(value)} after the switch (limit {show(limit)})")


def _latency(name: str, words: str, tail: Tail | None, bounds: HardBounds) -> BoundResult:
    name = f"{name}_p99_seconds"
    if tail is None or tail.events_after <= 0:
        return BoundResult(name, True, f"{words} p99 was not measured after the switch", judged=False)
    if tail.share is None or tail.after is None:
        few = f"{tail.events_before:.0f} before the switch, {tail.events_after:.0f} after it"
        return BoundResult(name, True, f"{words} p99: too few to tell, {few}", judged=False)
    words = f"{words} {tail.words}"
    now, was = _milliseconds(tail.after), tail.before
    if bounds.p99_ceiling_seconds is not None and tail.after > bounds.p99_ceiling_seconds:
        return BoundResult(name, False, f"{words} is {now} (ceiling {_milliseconds(bounds.p99_ceiling_seconds)})")
    if was is None or bounds.max_p99_ratio is None:
        judged = bounds.p99_ceiling_seconds is not None
        return BoundResult(name, True, f"{words} is {now}, with nothing to compare it with", judged)
    ceiling = max(was * bounds.max_p99_ratio, was + bounds.p99_slack_seconds)
    detail = f"{words} went from {_milliseconds(was)} to {now} (ceiling {_milliseconds(ceiling)})"
    return BoundResult(name, tail.after <= ceiling, detail)


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.2f} ms"
