"""Creating a rollout: its plan frozen and its row handed to the dispatcher."""

from sqlalchemy import text

from weir.authz.access import ProjectAccess
from weir.clients.prometheus import Prometheus
from weir.errors import BadRequestError
from weir.identity import audit
from weir.kit.ids import rollout_id
from weir.operations.repository import OperationRepository
from weir.operations.service import trace_context
from weir.rollouts.intent import RolloutCreateRequest
from weir.rollouts.models import Rollout, RolloutStatus
from weir.rollouts.plan.repository import PlanRepository
from weir.rollouts.plan.service import measure, plan, resolved

_PLAN_LOCK = 0x77656972_02


async def create(access: ProjectAccess, prometheus: Prometheus, body: RolloutCreateRequest) -> Rollout:
    """Freezes the plan and hands it to the dispatcher, in one transaction."""
    session = access.session
    measured = await measure(access, prometheus)
    # Two rollouts planned at once must not both take a compute.
    await session.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _PLAN_LOCK})
    body = resolved(body)
    frozen = await plan(access, measured, body)
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
    await PlanRepository(session).freeze(ident, frozen)
    audit.record(
        session, access.principal, "rollout.create", f"rollout/{ident}",
        feature=body.feature, whole_fleet=rollout.whole_fleet, computes=len(frozen.computes), waves=len(frozen.waves),
        excluded=len(frozen.excluded),
    )  # fmt: skip
    await OperationRepository(session).wake_dispatchers()
    return rollout
