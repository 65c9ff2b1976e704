"""The course of one compute's figures across its switch, beside the course that its controls would have it take.

The figures come from Prometheus as long as Prometheus has them, and later from the counts that the verdict stored
(`weir.rollouts.evidence.collect`)."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from weir.clients.http import RemoteError
from weir.clients.prometheus import Prometheus
from weir.computes import metrics
from weir.computes.schemas import MetricSeries
from weir.db import release
from weir.kit.clock import now
from weir.rollouts.evidence.schemas import Course, ExpectedSeries
from weir.rollouts.evidence.store import kept_series, newest_verdict
from weir.rollouts.models import CLOSED, Rollout, RolloutMember

MARGIN = timedelta(seconds=20)
# Without windows the charts show this much on both sides of the switch.
AROUND = timedelta(minutes=2)
# A rollback belongs to the picture while it follows the bake this soon.
SOON = timedelta(minutes=15)
STEP_SECONDS = 5.0
POINTS = 400
WAL = "wal_bytes_per_second"
# What controls foretell: all WAL together, since its parts are what the switch changes, and the other figures.
EXPECTED = (WAL, *(figure.name for figure in metrics.CHARTED if figure not in metrics.WAL_PARTS))

Values = Sequence[float | None]


async def of_member(session: AsyncSession, prometheus: Prometheus, rollout: Rollout, member: RolloutMember) -> Course:
    """Empty, rather than an error, when nobody knows of the compute any more. Ends the session's transaction."""
    verdict = await newest_verdict(session, rollout.id, member.endpoint_id)
    controls: list[str] = [] if verdict is None else verdict.analysis.get("controls", [])
    await release(session)
    live = await _live(prometheus, rollout, member, controls)
    if live is not None:
        return live
    kept = await kept_series(session, rollout.id, member.endpoint_id)
    if not kept:
        return Course(
            source="kept",
            times=[],
            step_seconds=STEP_SECONDS,
            window_seconds=metrics.RATE_WINDOW_SECONDS,
            series=_series({figure.name: [] for figure in metrics.CHARTED}),
            controls=0,
            expected=None,
        )
    beside = kept.get("controls")
    return Course(
        source="kept",
        times=kept["times"],
        step_seconds=kept["step_seconds"],
        window_seconds=kept["window_seconds"],
        series=_series(kept),
        controls=beside["computes"] if beside else 0,
        expected=_foretold(kept["times"], kept, beside, member, kept["window_seconds"]),
    )


async def _live(
    prometheus: Prometheus, rollout: Rollout, member: RolloutMember, controls: list[str]
) -> Course | None:
    start, end = span(rollout, member)
    step = max(STEP_SECONDS, (end - start).total_seconds() / POINTS)
    window = max(metrics.RATE_WINDOW_SECONDS, round(step))
    try:
        own = await metrics.chart(prometheus, metrics.of_compute(member.endpoint_id), start, end, step, window)
        beside = (
            await metrics.chart(prometheus, metrics.of_computes(controls), start, end, step, window)
            if controls
            else None
        )
    except RemoteError:
        return None
    if all(value is None for values in own.series.values() for value in values):
        return None
    return Course(
        source="prometheus",
        times=own.times,
        step_seconds=step,
        window_seconds=window,
        series=_series(own.series),
        controls=len(controls),
        expected=_foretold(own.times, own.series, None if beside is None else beside.series, member, window),
    )


def span(rollout: Rollout, member: RolloutMember) -> tuple[datetime, datetime]:
    """What charts of a member show: both windows and a margin, up to now while something is still measured."""
    at = now()
    begun = rollout.started_at or rollout.created_at
    start = member.baseline_start or max(begun, (member.switched_at or begun) - AROUND)
    ended = member.after_end or (rollout.finished_at if rollout.status in CLOSED else None)
    if member.after_end is None and member.baseline_start is None and member.switched_at is not None:
        ended = member.switched_at + AROUND
    back = member.rolled_back_at
    if back is not None and (ended is None or ended < back < ended + SOON):
        ended = back
    end = at if ended is None else min(at, ended + MARGIN)
    return start - MARGIN, max(end, start)


def _foretold(
    times: Sequence[float],
    own: Mapping[str, Values],
    controls: Mapping[str, Values] | None,
    member: RolloutMember,
    window_seconds: float,
) -> ExpectedSeries | None:
    """None without controls or without a baseline."""
    if not controls or member.baseline_start is None or member.baseline_end is None:
        return None
    baseline = (member.baseline_start.timestamp(), member.baseline_end.timestamp())
    return expected(times, own, controls, baseline, window_seconds)


def expected(
    times: Sequence[float],
    own: Mapping[str, Values],
    controls: Mapping[str, Values],
    baseline: tuple[float, float],
    window_seconds: float,
) -> ExpectedSeries:
    """How the compute would have gone on had it changed as its controls did: their figures, times what makes both
    alike over the baseline. This is what the verdict compares with. Times are seconds since the epoch."""
    start, end = baseline
    # A point covers the window before it; where the baseline has room, only whole ones of it count.
    start = start + window_seconds if end - start > window_seconds else start
    inside = [index for index, at in enumerate(times) if start <= at <= end]
    return ExpectedSeries(**{name: _scaled(_figure(own, name), _figure(controls, name), inside) for name in EXPECTED})


def _figure(series: Mapping[str, Values], name: str) -> Values:
    if name != WAL:
        return series[name]
    image, rest = (series[figure.name] for figure in metrics.WAL_PARTS)
    return [None if a is None or b is None else a + b for a, b in zip(image, rest, strict=True)]


def _scaled(own: Values, controls: Values, inside: Sequence[int]) -> list[float | None]:
    """The controls' values by the ratio of both means over `inside`; nothing where either is not measured or none."""
    pairs = [
        (a, b) for a, b in ((own[index], controls[index]) for index in inside) if a is not None and b is not None
    ]
    was, theirs = sum(a for a, _ in pairs), sum(b for _, b in pairs)
    if was <= 0 or theirs <= 0:
        return [None] * len(controls)
    return [None if value is None else float(f"{value * was / theirs:.5g}") for value in controls]


def _series(found: Mapping[str, Any]) -> MetricSeries:
    return MetricSeries(**{figure.name: found[figure.name] for figure in metrics.CHARTED})
