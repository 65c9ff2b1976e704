"""Planning, freezing and comparing rollouts. Orders to a running rollout are in `control`."""

from weir.authz.access import ProjectAccess
from weir.clients.prometheus import Prometheus
from weir.db import release
from weir.kit.clock import now
from weir.rollouts.features import feature_of
from weir.rollouts.intent import RolloutCreateRequest, Selector, Strategy
from weir.rollouts.models import MemberState, Rollout, RolloutExclusion, RolloutMember
from weir.rollouts.plan import candidates
from weir.rollouts.plan.planner import Planned, make_plan
from weir.rollouts.plan.repository import PlanRepository
from weir.rollouts.plan.schemas import Excluded, PlanChange, PlanDiff

CHANGES_SHOWN = 1_000


async def measure(access: ProjectAccess, prometheus: Prometheus) -> candidates.Measured:
    """Ends the request's transaction."""
    await release(access.session)
    return await candidates.measure(prometheus)


async def plan(access: ProjectAccess, measured: candidates.Measured, body: RolloutCreateRequest) -> Planned:
    found = await candidates.load(access, measured, body.selector)
    return make_plan(found, resolved(body).strategy, now(), body.selector, body.feature)


def resolved(body: RolloutCreateRequest) -> RolloutCreateRequest:
    """With what a frozen plan does not leave open."""
    return body.model_copy(update={"strategy": feature_of(body.feature).resolved(body.strategy)})


async def diff(access: ProjectAccess, prometheus: Prometheus, rollout: Rollout) -> PlanDiff:
    """What a plan made now would have otherwise, for members that wait their turn and for computes outside. Ends the
    transaction in which the rollout was read."""
    selector = Selector.model_validate(rollout.selector)
    strategy = Strategy.model_validate(rollout.strategy)
    measured = await measure(access, prometheus)
    found = await candidates.load(access, measured, selector, apart_from=rollout.id)
    fresh = make_plan(found, strategy, now(), selector, rollout.feature)
    members = {row.endpoint_id: row for row in await PlanRepository(access.session).members(rollout.id)}
    names = {item.row.endpoint.id: item.row.project.name for item in found}
    now_in = {item.compute_id: item for item in fresh.computes}
    reasons = {item.compute_id: item.reason for item in fresh.excluded}
    changes = [
        _change(row, names.get(row.endpoint_id, row.project_id), "would_leave",
                reasons.get(row.endpoint_id, "is deleted, or the selector does not choose it any more"))
        for row in members.values()
        if row.state == MemberState.PENDING and row.endpoint_id not in now_in
    ]  # fmt: skip
    changes += [
        _change(row, names[row.endpoint_id], "would_change_mode", f"{row.mode} when planned, {mode} now")
        for row in members.values()
        if row.state == MemberState.PENDING
        and row.endpoint_id in now_in
        and (mode := now_in[row.endpoint_id].mode) != row.mode
    ]
    changes += [
        PlanChange(compute_id=item.compute_id, project_id=item.project_id, project_name=item.project_name,
                   cell=item.cell, wave=None, change="would_join", reason="was not there, or left out, when planned")
        for item in fresh.computes
        if item.compute_id not in members
    ]  # fmt: skip
    return PlanDiff(
        frozen_at=rollout.created_at,
        compared_at=fresh.created_at,
        computes_frozen=len(members),
        computes_now=len(now_in),
        expected_wal_saved_bytes_per_second_frozen=rollout.plan.get("expected_wal_saved_bytes_per_second"),
        expected_wal_saved_bytes_per_second_now=fresh.summary().expected_wal_saved_bytes_per_second,
        changes_total=len(changes),
        changes=changes[:CHANGES_SHOWN],
    )


def _change(row: RolloutMember, project_name: str, change: str, reason: str) -> PlanChange:
    return PlanChange(
        compute_id=row.endpoint_id,
        project_id=row.project_id,
        project_name=project_name,
        cell=row.cell,
        wave=row.wave,
        change=change,  # type: ignore[arg-type]
        reason=reason,
    )


def exclusion_view(row: RolloutExclusion, project_name: str) -> Excluded:
    return Excluded(
        compute_id=row.endpoint_id,
        project_id=row.project_id,
        project_name=project_name,
        region_id=row.region_id,
        cell=row.cell,
        code=row.code,  # type: ignore[arg-type]
        reason=row.reason,
    )
