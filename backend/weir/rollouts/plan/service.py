"""Planning, freezing and comparing rollouts. What people do to a running one is in `control`."""

from sqlalchemy import text

from weir.authz.access import ProjectAccess
from weir.clients.prometheus import Prometheus
from weir.errors import BadRequestError
from weir.identity import audit
from weir.kit.clock import now
from weir.kit.ids import rollout_id
from weir.operations.repository import OperationRepository
from weir.operations.service import trace_context
from weir.rollouts.features import feature_of
from weir.rollouts.intent import RolloutCreateRequest, Selector, Strategy
from weir.rollouts.models import MemberState, Rollout, RolloutMember, RolloutStatus
from weir.rollouts.plan import candidates
from weir.rollouts.plan.planner import Planned, make_plan
from weir.rollouts.run.repository import RolloutRepository
from weir.rollouts.run.schemas import PlanChange, PlanDiff

_PLAN_LOCK = 0x77656972_02
CHANGES_SHOWN = 1_000


async def plan(access: ProjectAccess, prometheus: Prometheus, body: RolloutCreateRequest) -> Planned:
    found = await candidates.load(access, prometheus, body.selector)
    return make_plan(found, settled(body).strategy, now(), body.selector, body.feature)


def settled(body: RolloutCreateRequest) -> RolloutCreateRequest:
    """With what a frozen plan does not leave open."""
    return body.model_copy(update={"strategy": feature_of(body.feature).settled(body.strategy)})


async def create(access: ProjectAccess, prometheus: Prometheus, body: RolloutCreateRequest) -> Rollout:
    """Freezes the plan and hands it to the dispatcher, in one transaction."""
    session = access.session
    # Two rollouts planned at once must not both take a compute.
    await session.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _PLAN_LOCK})
    body = settled(body)
    frozen = await plan(access, prometheus, body)
    if not frozen.computes:
        reasons = "; ".join(f"{item.compute_id}: {item.reason}" for item in frozen.excluded[:5])
        raise BadRequestError(f"no compute would take part in this rollout ({reasons or 'none was selected'})")
    ident = rollout_id()
    summary = frozen.summary()
    rollout = Rollout(
        id=ident,
        name=body.name or ident,
        account_id=access.principal.account_id,
        whole_fleet=access.principal.operator,
        feature=body.feature,
        selector=body.selector.model_dump(mode="json", exclude_none=True),
        strategy=body.strategy.model_dump(mode="json", by_alias=True),
        plan=summary.model_dump(mode="json"),
        status=RolloutStatus.PLANNED,
        created_by=access.principal.name,
        trace_context=trace_context(),
        created_at=frozen.created_at,
        updated_at=frozen.created_at,
    )
    session.add(rollout)
    await session.flush()
    await RolloutRepository(session).freeze(ident, frozen)
    audit.record(
        session, access.principal, "rollout.create", f"rollout/{ident}",
        feature=body.feature, whole_fleet=rollout.whole_fleet, computes=len(frozen.computes), waves=len(frozen.waves),
        excluded=len(frozen.excluded),
    )  # fmt: skip
    await OperationRepository(session).wake_dispatchers()
    return rollout


async def diff(access: ProjectAccess, prometheus: Prometheus, rollout: Rollout) -> PlanDiff:
    """What a plan made now would have otherwise, for members that wait their turn and for computes outside."""
    selector = Selector.model_validate(rollout.selector)
    strategy = Strategy.model_validate(rollout.strategy)
    found = await candidates.load(access, prometheus, selector, apart_from=rollout.id)
    fresh = make_plan(found, strategy, now(), selector, rollout.feature)
    members = {row.endpoint_id: row for row in await RolloutRepository(access.session).members(rollout.id)}
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
