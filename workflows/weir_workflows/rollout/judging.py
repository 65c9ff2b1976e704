"""Figures of both windows from Prometheus, the verdict on them, and the evidence that is stored of figures and
verdict.

All queries are for many computes at once. Statistics run in a thread of their own."""

import asyncio
import dataclasses
import math
from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import numpy as np
from sqlalchemy import func, or_, select

from weir.clients.prometheus import Series
from weir.computes import metrics
from weir.endpoints.models import Endpoint, EndpointState
from weir.kit.clock import now
from weir.projects.models import Project
from weir.rollouts.evidence.collect import EvidenceSubject, collect_controls, measure
from weir.rollouts.evidence.store import keep_measurement
from weir.rollouts.intent import Strategy
from weir.rollouts.models import IN_PROGRESS, RolloutEvidence, RolloutMember
from weir_workflows.common.resources import Resources
from weir_workflows.rollout.changes import Changes
from weir_workflows.rollout.changes.protocol import Figures
from weir_workflows.rollout.members import Member
from weir_workflows.rollout.verdict import (
    DEFAULT_POLICY,
    BoundResult,
    ComputeWindows,
    Histograms,
    Look,
    Observed,
    Policy,
    Subject,
    Tail,
    Window,
    check_bounds,
    compare_tails,
    judge_compute,
    rng_for,
)
from weir_workflows.rollout.verdict.controls import choose_controls

HISTOGRAMS = {"commit": "weir_compute_commit_quorum_seconds", "storage_read": "weir_compute_page_read_seconds"}
TRANSACTIONS = f"weir_compute_transactions_total{{{metrics.COMMITTED}}}"
# Candidates that controls are chosen from, and intervals a long window is cut into.
CANDIDATES = 24
MOST_INTERVALS = 400
_NEEDED = ("transactions_per_second", "wal_bytes_per_second", "wal_image_bytes_per_second")


@dataclasses.dataclass(frozen=True)
class Judged:
    """pass | inconclusive | regress, with all that led to it."""

    verdict: str
    reason: str
    before: Figures
    after: Figures
    bounds: tuple[BoundResult, ...]
    analysis: dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Spans:
    """Both windows of a compute."""

    baseline_start: datetime
    baseline_end: datetime
    after_start: datetime
    after_end: datetime

    @classmethod
    def of(cls, member: RolloutMember, until: datetime | None = None) -> "Spans | None":
        end = until or member.after_end
        ends = (member.baseline_start, member.baseline_end, member.after_start, end)
        if any(at is None for at in ends):
            return None
        return cls(*ends)  # type: ignore[arg-type]


class Judging:
    def __init__(self, resources: Resources, changes: Changes) -> None:
        self._r = resources
        self._changes = changes

    async def judge(
        self,
        found: Sequence[Member],
        strategy: Strategy,
        look: Look,
        at: datetime | None,
        faults: dict[str, list[str]],
    ) -> dict[str, Judged]:
        """The verdict on each compute; `at` is the end of the windows after the switch for a look before the last.
        Raises RemoteError when Prometheus does not answer."""
        groups: dict[Spans, list[Member]] = defaultdict(list)
        for item in found:
            spans = Spans.of(item.member, at)
            if spans is not None:
                groups[spans].append(item)
        judged: dict[str, Judged] = {}
        for spans, items in groups.items():
            judged |= await self._judge_group(spans, items, strategy, look, faults)
        return judged

    async def _judge_group(
        self, spans: Spans, items: list[Member], strategy: Strategy, look: Look, faults: dict[str, list[str]]
    ) -> dict[str, Judged]:
        ids = [item.id for item in items]
        before, after, tails = await asyncio.gather(
            self._figures(ids, spans.baseline_start, spans.baseline_end),
            self._figures(ids, spans.after_start, spans.after_end),
            self._tails(ids, spans),
        )
        # Members of one rollout, and so of one feature.
        change = self._changes.of(items[0].feature)
        limits = change.bounds(strategy)
        for item in items:
            after[item.id] |= change.measured(item)
        bounds = {
            ident: check_bounds(Observed(after[ident], faults=faults.get(ident, []), tails=tails[ident]), limits)
            for ident in ids
        }
        if strategy.judge_by == "bounds":
            return {
                item.id: _by_bounds(
                    before[item.id],
                    after[item.id],
                    bounds[item.id],
                    look,
                    change.passes(item, before[item.id], after[item.id]),
                )
                for item in items
            }
        subjects, candidates = await self._subjects(items, spans)
        rollout_id = items[0].member.rollout_id
        policy = _policy(strategy)
        verdicts = await asyncio.to_thread(_compare, rollout_id, subjects, candidates, bounds, look, policy)
        return {
            ident: Judged(
                verdict.verdict, verdict.reason, before[ident], after[ident], bounds[ident], _plain(verdict)
            )
            for ident, verdict in verdicts.items()
        }

    async def _figures(self, ids: list[str], start: datetime, end: datetime) -> dict[str, Figures]:
        window = f"{max(1, round((end - start).total_seconds()))}s"
        selector = metrics.of_computes(ids)
        answers = await asyncio.gather(
            *(self._r.prometheus.instant(_by_compute(f.query(selector, window)), end) for f in metrics.EVIDENCE)
        )
        found: dict[str, Figures] = {ident: dict.fromkeys(f.name for f in metrics.EVIDENCE) for ident in ids}
        for figure, answer in zip(metrics.EVIDENCE, answers, strict=True):
            for labels, value in answer:
                if labels.get("compute_id") in found:
                    found[labels["compute_id"]][figure.name] = value
        return found

    async def _tails(self, ids: list[str], spans: Spans) -> dict[str, dict[str, Tail]]:
        befores, afters = await asyncio.gather(
            self._whole(ids, spans.baseline_start, spans.baseline_end),
            self._whole(ids, spans.after_start, spans.after_end),
        )
        return {
            ident: {name: compare_tails(befores[name].get(ident), afters[name].get(ident)) for name in HISTOGRAMS}
            for ident in ids
        }

    async def _whole(self, ids: list[str], start: datetime, end: datetime) -> dict[str, dict[str, Histograms]]:
        """Each latency over the whole window, by what it is of and by compute."""
        window = f"{max(1, round((end - start).total_seconds()))}s"
        chosen = metrics.of_computes(ids)
        queries = [
            f"sum by (compute_id, le) (increase({it}_bucket{{{chosen}}}[{window}]))" for it in HISTOGRAMS.values()
        ]
        answers = await asyncio.gather(*(self._r.prometheus.instant(query, end) for query in queries))
        found: dict[str, dict[str, Histograms]] = {}
        for name, answer in zip(HISTOGRAMS, answers, strict=True):
            by_le: dict[str, dict[str, float]] = defaultdict(dict)
            for labels, value in answer:
                by_le[labels.get("compute_id", "")][labels.get("le", "")] = value
            found[name] = {ident: Histograms.of_window(counts) for ident, counts in by_le.items()}
        return found

    # Comparison with computes that were not switched.

    async def _subjects(self, items: list[Member], spans: Spans) -> tuple[dict[str, Subject], list[Subject]]:
        controls = await self._control_ids(items, spans)
        everyone = [*(item.id for item in items), *controls]
        before, after = await asyncio.gather(
            self._windows(everyone, spans.baseline_start, spans.baseline_end),
            self._windows(everyone, spans.after_start, spans.after_end),
        )
        made = {ident: Subject(ident, before[ident], after[ident]) for ident in everyone}
        return {item.id: made[item.id] for item in items}, [made[ident] for ident in controls]

    async def _control_ids(self, items: list[Member], spans: Spans) -> list[str]:
        """Computes that ran on unchanged all the while, of the same cell first; a stable choice."""
        cell = items[0].member.cell
        moved = select(RolloutMember.endpoint_id).where(
            or_(
                RolloutMember.switched_at >= spans.baseline_start,
                RolloutMember.rolled_back_at >= spans.baseline_start,
            )
        )
        switching = select(RolloutMember.endpoint_id).where(
            RolloutMember.state.in_(IN_PROGRESS), RolloutMember.switched_at.is_not(None)
        )
        statement = (
            select(Endpoint.id)
            .join(Project, Project.id == Endpoint.project_id)
            .where(
                Endpoint.deleted_at.is_(None),
                Endpoint.desired_state == EndpointState.ACTIVE,
                *self._changes.of(items[0].feature).controls(items[0]),
                Endpoint.started_at < spans.baseline_start,
                Endpoint.id.not_in(moved),
                Endpoint.id.not_in(switching),
                Endpoint.id.not_in([item.id for item in items]),
            )
            .order_by((Project.cell == cell).desc(), func.md5(Endpoint.id))
            .limit(CANDIDATES)
        )
        async with self._r.database.transaction() as session:
            return list((await session.scalars(statement)).all())

    async def _windows(self, ids: list[str], start: datetime, end: datetime) -> dict[str, Window]:
        length = (end - start).total_seconds()
        step = max(DEFAULT_POLICY.interval_seconds, self._r.settings.scrape_interval_seconds, length / MOST_INTERVALS)
        intervals = max(1, math.floor(length / step))
        last = start + timedelta(seconds=intervals * step)
        chosen = metrics.of_computes(ids)
        transactions = TRANSACTIONS.replace("{", f"{{{chosen},", 1)
        queries = [
            f"sum by (compute_id) ({transactions})",
            *(f"sum by (compute_id, le) ({name}_bucket{{{chosen}}})" for name in HISTOGRAMS.values()),
        ]
        committed, *histograms = await asyncio.gather(
            *(self._r.prometheus.range(query, start, last, step) for query in queries)
        )
        return windows_of(
            ids, committed, dict(zip(HISTOGRAMS, histograms, strict=True)), Grid(start, step, intervals)
        )

    # Evidence.

    async def keep(self, found: Sequence[Member], judged: dict[str, Judged]) -> None:
        """Stores figures, verdicts and the windows' counts, for when Prometheus has forgotten."""
        beside: dict[tuple[Spans, tuple[str, ...]], dict[str, Any]] = {}
        for item in found:
            spans = Spans.of(item.member)
            if item.id not in judged or spans is None:
                continue
            subject = EvidenceSubject(item.id, item.row.project.tenant_id, item.row.branch.timeline_id)
            measured = await measure(self._r.prometheus, subject, *dataclasses.astuple(spans))
            controls = tuple(judged[item.id].analysis.get("controls", ()))
            if controls:
                # Members of a batch share windows, and often controls.
                if (spans, controls) not in beside:
                    span = (spans.baseline_start, spans.after_end)
                    beside[spans, controls] = await collect_controls(self._r.prometheus, controls, *span)
                measured["series"]["controls"] = beside[spans, controls]
            async with self._r.database.transaction() as session:
                await keep_measurement(session, item.member.rollout_id, item.id, measured)
        async with self._r.database.transaction() as session:
            session.add_all(
                RolloutEvidence(
                    rollout_id=item.member.rollout_id,
                    endpoint_id=item.id,
                    verdict=judged[item.id].verdict,
                    reason=judged[item.id].reason,
                    before=judged[item.id].before,
                    after=judged[item.id].after,
                    bounds={"items": [dataclasses.asdict(bound) for bound in judged[item.id].bounds]},
                    analysis=judged[item.id].analysis,
                    created_at=now(),
                )
                for item in found
                if item.id in judged
            )


def _policy(strategy: Strategy) -> Policy:
    figures = tuple(
        dataclasses.replace(figure, tolerated=strategy.tolerated_ratio) if figure.kind == "latency" else figure
        for figure in DEFAULT_POLICY.figures
    )
    return dataclasses.replace(DEFAULT_POLICY, figures=figures)


def _by_bounds(before: Figures, after: Figures, bounds: tuple[BoundResult, ...], look: Look, passes: str) -> Judged:
    broken = [bound.detail for bound in bounds if not bound.ok]
    lacking = _lacking(before, after)
    if broken:
        verdict, reason = "regress", "; ".join(broken)
    elif lacking is not None:
        verdict, reason = "inconclusive", lacking
    elif not look.final:
        verdict, reason = "inconclusive", "the bake is not over"
    else:
        verdict, reason = "pass", passes
    return Judged(verdict, reason, before, after, bounds, {})


def _lacking(before: Figures, after: Figures) -> str | None:
    for label, figures in (("baseline", before), ("after", after)):
        absent = [name for name in _NEEDED if figures.get(name) is None]
        if absent:
            return f"the {label} window lacks {', '.join(absent)}; a longer one while it is scraped would settle it"
        if not figures["transactions_per_second"]:
            return f"nothing was committed in the {label} window; a window with traffic would settle it"
    return None


def _compare(
    rollout_id: str,
    subjects: dict[str, Subject],
    candidates: list[Subject],
    bounds: dict[str, tuple[BoundResult, ...]],
    look: Look,
    policy: Policy,
) -> dict[str, Any]:
    taken: list[str] = []
    verdicts: dict[str, Any] = {}
    for ident, subject in sorted(subjects.items()):
        controls = choose_controls(subject, candidates, taken=taken, policy=policy)
        taken += [control.compute_id for control in controls]
        windows = ComputeWindows(subject, controls)
        verdicts[ident] = judge_compute(windows, look, bounds[ident], rng_for(rollout_id, ident, look), policy)
    return verdicts


def _plain(value: Any) -> Any:
    """As JSON can hold it: a number that is none becomes null."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = dataclasses.asdict(value)
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float | np.floating):
        return float(value) if math.isfinite(value) else None
    return value


def _by_compute(query: str) -> str:
    """The query of one figure, answered for each compute by itself."""
    return query.replace("sum(", "sum by (compute_id) (").replace("sum by (le)", "sum by (compute_id, le)")


@dataclasses.dataclass(frozen=True)
class Grid:
    """A window's intervals: `count` of them, each `step` seconds long, from `start` on."""

    start: datetime
    step: float
    count: int


def windows_of(
    ids: Sequence[str], committed: list[Series], histograms: dict[str, list[Series]], grid: Grid
) -> dict[str, Window]:
    """The window of each compute, from what Prometheus has of all of them. The window of a compute that was not
    scraped is as long as the others', without events, so that the others can be judged."""
    rates = {labels.get("compute_id", ""): np.diff(_edges(points, grid)) for labels, points in committed}
    latencies: dict[str, dict[str, Histograms]] = defaultdict(dict)
    for name, series in histograms.items():
        for ident, edges in _by_le(series, grid).items():
            latencies[ident][name] = Histograms.from_cumulative(edges)
    unscraped = np.full(grid.count, math.nan)
    return {
        ident: Window(
            seconds_per_interval=grid.step,
            latencies=latencies.get(ident, {}),
            rates={"transactions": rates.get(ident, unscraped)},
        )
        for ident in ids
    }


def _edges(points: list[tuple[float, float]], grid: Grid) -> np.ndarray:
    """A counter at the edges of the intervals; NaN where it was not scraped."""
    edges = np.full(grid.count + 1, math.nan)
    for at, value in points:
        index = round((at - grid.start.timestamp()) / grid.step)
        if 0 <= index <= grid.count:
            edges[index] = value
    return edges


def _by_le(series: list[Series], grid: Grid) -> dict[str, dict[str, list[float]]]:
    found: dict[str, dict[str, list[float]]] = defaultdict(dict)
    for labels, points in series:
        edges = _edges(points, grid)
        found[labels.get("compute_id", "")][labels.get("le", "")] = edges.tolist()
    return found
