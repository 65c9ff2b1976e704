"""Makes response bodies of rows."""

from collections import Counter
from datetime import datetime
from typing import Any

from weir.authz.access import ProjectAccess
from weir.kit.clock import now
from weir.rollouts.intent import Strategy
from weir.rollouts.models import (
    MemberState,
    Rollout,
    RolloutEvidence,
    RolloutMember,
    RolloutWave,
)
from weir.rollouts.plan.schemas import PlanSummary
from weir.rollouts.run.repository import RolloutRepository
from weir.rollouts.run.schemas import (
    Alert,
    BeforeAfter,
    Bound,
    Evidence,
    Grid,
    GridCell,
    GridComputes,
    RolloutCompute,
    RolloutSummary,
    RolloutView,
    Wave,
    Window,
)
from weir.rollouts.visibility import analyses_for_reader

ALERTS_SHOWN = 20
# States that speak for themselves; the others come with their reason.
_PLAIN = {MemberState.PENDING, MemberState.PASSED}


async def view(repository: RolloutRepository, rollout: Rollout) -> RolloutView:
    counted = await repository.state_counts(rollout.id)
    counts: Counter[MemberState] = Counter()
    by_wave: dict[int, Counter[MemberState]] = {}
    for wave, _, _, state, number in counted:
        counts[state] += number
        by_wave.setdefault(wave, Counter())[state] += number
    alerts = await repository.alerts(rollout.id, only_open=True)
    return RolloutView(
        id=rollout.id,
        name=rollout.name,
        owner_id=str(rollout.account_id),
        whole_fleet=rollout.whole_fleet,
        feature=rollout.feature,
        status=rollout.status,
        status_reason=rollout.status_reason,
        gate=rollout.gate,
        selector=rollout.selector,
        strategy=Strategy.model_validate(rollout.strategy),
        created_by=rollout.created_by,
        created_at=rollout.created_at,
        started_at=rollout.started_at,
        finished_at=rollout.finished_at,
        current_wave=rollout.current_wave,
        plan=PlanSummary.model_validate(rollout.plan),
        waves=[_wave(row, by_wave.get(row.index, Counter())) for row in await repository.waves(rollout.id)],
        computes_total=counts.total(),
        counts=dict(counts),
        switched_total=await repository.switched_count(rollout.id),
        alerts=[alert_view(row) for row in alerts[:ALERTS_SHOWN]],
        alerts_total=len(alerts),
    )


async def summaries(repository: RolloutRepository, rollouts: list[Rollout]) -> list[RolloutSummary]:
    ids = [row.id for row in rollouts]
    counts = await repository.counts(ids)
    waves = await repository.wave_counts(ids)
    alerts = await repository.alert_counts(ids)
    return [
        RolloutSummary(
            id=row.id,
            name=row.name,
            owner_id=str(row.account_id),
            whole_fleet=row.whole_fleet,
            feature=row.feature,
            status=row.status,
            status_reason=row.status_reason,
            created_by=row.created_by,
            created_at=row.created_at,
            started_at=row.started_at,
            finished_at=row.finished_at,
            current_wave=row.current_wave,
            waves_total=waves.get(row.id, 0),
            computes_total=counts.get(row.id, (0, 0))[0],
            computes_passed=counts.get(row.id, (0, 0))[1],
            alerts_total=alerts.get(row.id, 0),
        )
        for row in rollouts
    ]


async def computes(
    access: ProjectAccess, rollout_id: str, rows: list[tuple[RolloutMember, str]]
) -> list[RolloutCompute]:
    repository = RolloutRepository(access.session)
    kept = await repository.evidence(rollout_id, [member.endpoint_id for member, _ in rows])
    analyses = await analyses_for_reader(
        access.session, access.principal.fleet, [row.analysis or {} for row in kept.values()]
    )
    evidence = {
        ident: evidence_view(row, analysis) for (ident, row), analysis in zip(kept.items(), analyses, strict=True)
    }
    return [member_view(member, name, evidence.get(member.endpoint_id)) for member, name in rows]


async def grid(repository: RolloutRepository, rollout: Rollout, since: datetime | None) -> Grid:
    at = now()
    cells: dict[tuple[str, str], Counter[MemberState]] = {}
    for _, region, cell, state, number in await repository.state_counts(rollout.id):
        cells.setdefault((region, cell), Counter())[state] += number
    names = sorted(cells)
    states = list(MemberState)
    cell_index = {name: index for index, name in enumerate(names)}
    state_index = {state: index for index, state in enumerate(states)}
    columns: dict[str, list[Any]] = {name: [] for name in GridComputes.model_fields}
    reason_index: dict[str, int] = {}
    for compute_id, project, cell, region, wave, state, reason in await repository.grid(rollout.id, since):
        columns["compute_id"].append(compute_id)
        columns["project_name"].append(project)
        columns["cell"].append(cell_index[region, cell])
        columns["wave"].append(wave)
        columns["state"].append(state_index[state])
        shown = bool(reason) and state not in _PLAIN
        columns["reason"].append(reason_index.setdefault(reason, len(reason_index)) if shown else None)
    return Grid(
        at=at,
        cells=[
            GridCell(region_id=region, cell=cell, computes_total=cells[region, cell].total(),
                     counts=dict(cells[region, cell]))
            for region, cell in names
        ],
        states=states,
        computes=GridComputes(**columns),
        reasons=list(reason_index),
    )  # fmt: skip


def alert_view(row: Any) -> Alert:
    return Alert(
        id=row.id,
        kind=row.kind,
        message=row.message,
        compute_id=row.endpoint_id,
        wave=row.wave,
        raised_at=row.raised_at,
        cleared_at=row.cleared_at,
    )


def member_view(row: RolloutMember, project_name: str, evidence: Evidence | None) -> RolloutCompute:
    return RolloutCompute(
        compute_id=row.endpoint_id,
        project_name=project_name,
        baseline=_window(row.baseline_start, row.baseline_end),
        after=_window(row.after_start, row.after_end),
        evidence=evidence,
        **{name: getattr(row, name) for name in _SAME},
    )


# Fields of a member that the API calls as the table does.
_SAME = tuple(
    name
    for name in RolloutCompute.model_fields
    if name not in {"compute_id", "project_name", "baseline", "after", "evidence"}
)


def evidence_view(row: RolloutEvidence, analysis: dict[str, Any]) -> Evidence:
    names = sorted({*row.before, *row.after})
    return Evidence(
        verdict=row.verdict,  # type: ignore[arg-type]
        reason=row.reason,
        metrics={name: BeforeAfter(before=row.before.get(name), after=row.after.get(name)) for name in names},
        bounds=[Bound.model_validate(bound) for bound in row.bounds.get("items", [])],
        analysis=analysis,
        created_at=row.created_at,
    )


def _wave(row: RolloutWave, counts: Counter[MemberState]) -> Wave:
    return Wave(
        index=row.index,
        name=row.name,
        state=row.state,
        reason=row.reason,
        soak_seconds=row.soak_seconds,
        started_at=row.started_at,
        soak_until=row.soak_until,
        finished_at=row.finished_at,
        computes_total=counts.total(),
        counts=dict(counts),
    )


def _window(start: datetime | None, end: datetime | None) -> Window | None:
    return None if start is None else Window(from_=start, to=end)
