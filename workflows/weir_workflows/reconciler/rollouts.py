"""What rollouts leave to the reconciler: suspended computes that switch when they start, and steps past their
deadline. Works from stored state and from what agents say, and from nothing else."""

from collections import Counter
from datetime import datetime, timedelta

import structlog
from prometheus_client import Gauge
from sqlalchemy import ColumnElement, DateTime, and_, func, literal, or_, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from weir.clients.compute import ComputeStatus
from weir.computes.repository import ComputeRow
from weir.endpoints.models import Endpoint, EndpointState
from weir.identity import audit
from weir.kit.clock import now
from weir.rollouts.intent import Strategy
from weir.rollouts.models import IN_PROGRESS, MemberState, Rollout, RolloutAlert, RolloutMember, RolloutStatus
from weir_workflows.common.resources import Resources
from weir_workflows.rollout import members
from weir_workflows.rollout.changes import Changes
from weir_workflows.rollout.changes.protocol import Record
from weir_workflows.rollout.members import Member, among
from weir_workflows.rollout.probes import Probes

log = structlog.get_logger()

ORIGIN = "reconciler"
STEP_OVERDUE = "step_overdue"
HELD = "held"
BACK_OVERDUE = "back_overdue"
# While a rollout is paused nobody expects its steps to end.
_EXPECTED = (RolloutStatus.RUNNING, RolloutStatus.ABORTING, RolloutStatus.ROLLING_BACK)
# Of each kind; the next round goes on.
ALERTS_A_ROUND = 1_000
OPEN_ALERTS = Gauge("weir_rollout_alerts", "Alerts of rollouts that nobody has seen to yet", ["kind"])


async def confirm_deferred(
    resources: Resources, rows: list[ComputeRow], seen: dict[str, ComputeStatus | str]
) -> list[str]:
    """Members that were suspended when their turn came, and now run switched, in storage's eyes too."""
    running = {
        row.endpoint.id: status
        for row in rows
        if isinstance(status := seen.get(row.endpoint.id), ComputeStatus) and status.state == "running"
    }
    if not running:
        return []
    async with resources.database.transaction() as session:
        deferred = await members.load_chosen(
            session, RolloutMember.state == MemberState.DEFERRED, among(RolloutMember.endpoint_id, running)
        )
    changes = Changes(resources, Probes(resources))
    confirmed: list[str] = []
    for item in deferred:
        change = changes.of(item.feature)
        record = change.started_switched(item, running[item.id])
        if record is not None and await change.in_storage(item, switched=True):
            async with resources.database.transaction() as session:
                await _confirm(session, item, record)
            confirmed.append(item.id)
    return confirmed


async def _confirm(session: AsyncSession, item: Member, record: Record) -> None:
    rollout_id = item.member.rollout_id
    await session.execute(
        update(RolloutMember)
        .where(
            RolloutMember.rollout_id == rollout_id,
            RolloutMember.endpoint_id == item.id,
            RolloutMember.state == MemberState.DEFERRED,
        )
        .values(
            state=MemberState.PASSED,
            reason="switched when it started; not judged, since there was no baseline",
            confirmed_at=now(),
            updated_at=now(),
            **record,
        )
    )
    audit.record_system(
        session,
        ORIGIN,
        "rollout.confirmed_at_start",
        f"rollout/{rollout_id}",
        item.row.project.id,
        compute_id=item.id,
    )


async def watch_deadlines(resources: Resources) -> list[str]:
    """Raises alerts for what is overdue and clears those that are over. Answers with the messages of new ones."""
    changes = Changes(resources, Probes(resources))
    async with resources.database.transaction() as session:
        at = now()
        await _clear(session, at, changes)
        raised = [
            *await _overdue_steps(session, at),
            *await _overdue_rollbacks(session, at, changes),
            *await _held_too_long(session, at),
        ]
        fresh: list[str] = []
        for alert in raised:
            done = await session.execute(
                insert(RolloutAlert).values(**alert).on_conflict_do_nothing().returning(RolloutAlert.id)
            )
            if done.first() is not None:
                fresh.append(str(alert["message"]))
                log.error("rollout_alert", **{name: str(value) for name, value in alert.items()})
        kinds = await session.scalars(select(RolloutAlert.kind).where(RolloutAlert.cleared_at.is_(None)))
        counts = Counter(kinds.all())
    for kind in (STEP_OVERDUE, BACK_OVERDUE, HELD):
        OPEN_ALERTS.labels(kind).set(counts[kind])
    return fresh


def _not_alerted(kind: str) -> ColumnElement[bool]:
    """Of members nobody is told of yet; those that are would take up the room of others."""
    alerted = select(RolloutAlert.id).where(
        RolloutAlert.rollout_id == RolloutMember.rollout_id,
        RolloutAlert.endpoint_id == RolloutMember.endpoint_id,
        RolloutAlert.kind == kind,
        RolloutAlert.cleared_at.is_(None),
    )
    return ~alerted.exists()


async def _overdue_steps(session: AsyncSession, at: datetime) -> list[dict[str, object]]:
    rows = await session.execute(
        select(RolloutMember, Rollout.name)
        .join(Rollout, Rollout.id == RolloutMember.rollout_id)
        .where(
            Rollout.status.in_(_EXPECTED),
            RolloutMember.state.in_(IN_PROGRESS),
            RolloutMember.deadline_at < at,
            _not_alerted(STEP_OVERDUE),
        )
        .limit(ALERTS_A_ROUND)
    )
    return [
        {
            "rollout_id": member.rollout_id,
            "endpoint_id": member.endpoint_id,
            "wave": member.wave,
            "kind": STEP_OVERDUE,
            "message": f"compute {member.endpoint_id} of rollout {name!r} is still {member.state}; this step should "
            f"have ended by {member.deadline_at:%H:%M:%S} UTC. Look at its log and the worker's, or skip "
            "or roll back the compute",
            "raised_at": at,
        }
        for member, name in rows.all()
    ]


def _rollback_overdue(at: datetime, changes: Changes) -> tuple[ColumnElement[bool], ...]:
    """Of running computes: those that are idle go back when they start, and have their time from then on."""
    begun = func.greatest(RolloutMember.rolled_back_at, Endpoint.started_at, type_=DateTime(timezone=True))
    patience = Rollout.strategy["step_deadline_seconds"].as_integer() * literal(timedelta(seconds=1))
    return (
        begun + patience < at,
        RolloutMember.rolled_back_at.is_not(None),
        RolloutMember.rollback_lsn.is_(None),
        Endpoint.desired_state == EndpointState.ACTIVE,
        or_(*(and_(Rollout.feature == change.feature, change.has_desired_back()) for change in changes.all())),
        Endpoint.deleted_at.is_(None),
    )


async def _overdue_rollbacks(session: AsyncSession, at: datetime, changes: Changes) -> list[dict[str, object]]:
    """Whatever has become of the rollout: who was taken back and is not known to be there is the reconciler's."""
    rows = await session.execute(
        select(RolloutMember, Rollout.name, Rollout.feature)
        .join(Rollout, Rollout.id == RolloutMember.rollout_id)
        .join(Endpoint, Endpoint.id == RolloutMember.endpoint_id)
        .where(*_rollback_overdue(at, changes), _not_alerted(BACK_OVERDUE))
        .limit(ALERTS_A_ROUND)
    )
    return [
        {
            "rollout_id": member.rollout_id,
            "endpoint_id": member.endpoint_id,
            "wave": member.wave,
            "kind": BACK_OVERDUE,
            "message": f"compute {member.endpoint_id} of rollout {name!r} was taken back at "
            f"{member.rolled_back_at:%Y-%m-%d %H:%M:%S} UTC and {changes.of(feature).not_back}; it is tried "
            f"on and on. Look at its log and at storage: {member.reason}",
            "raised_at": at,
        }
        for member, name, feature in rows.all()
    ]


async def _held_too_long(session: AsyncSession, at: datetime) -> list[dict[str, object]]:
    rollouts = await session.scalars(select(Rollout).where(Rollout.status == RolloutStatus.HELD))
    alerts: list[dict[str, object]] = []
    for rollout in rollouts.all():
        patience = timedelta(seconds=Strategy.model_validate(rollout.strategy).step_deadline_seconds)
        if rollout.updated_at < at - patience:
            alerts.append(
                {
                    "rollout_id": rollout.id,
                    "wave": rollout.current_wave,
                    "kind": HELD,
                    "message": f"rollout {rollout.name!r} waits for a person since "
                    f"{rollout.updated_at:%Y-%m-%d %H:%M:%S} UTC: {rollout.status_reason}",
                    "raised_at": at,
                }
            )
    return alerts


async def _clear(session: AsyncSession, at: datetime, changes: Changes) -> None:
    overdue = (
        select(RolloutMember.endpoint_id)
        .join(Rollout, Rollout.id == RolloutMember.rollout_id)
        .where(
            RolloutMember.rollout_id == RolloutAlert.rollout_id,
            RolloutMember.endpoint_id == RolloutAlert.endpoint_id,
            Rollout.status.in_((*_EXPECTED, RolloutStatus.PAUSED)),
            RolloutMember.state.in_(IN_PROGRESS),
            RolloutMember.deadline_at < at,
        )
        .exists()
    )
    back = (
        select(RolloutMember.endpoint_id)
        .join(Rollout, Rollout.id == RolloutMember.rollout_id)
        .join(Endpoint, Endpoint.id == RolloutMember.endpoint_id)
        .where(
            RolloutMember.rollout_id == RolloutAlert.rollout_id,
            RolloutMember.endpoint_id == RolloutAlert.endpoint_id,
            *_rollback_overdue(at, changes),
        )
        .exists()
    )
    held = (
        select(Rollout.id).where(Rollout.id == RolloutAlert.rollout_id, Rollout.status == RolloutStatus.HELD).exists()
    )
    await session.execute(
        update(RolloutAlert)
        .where(
            RolloutAlert.cleared_at.is_(None),
            or_(
                and_(RolloutAlert.kind == STEP_OVERDUE, ~overdue),
                and_(RolloutAlert.kind == BACK_OVERDUE, ~back),
                and_(RolloutAlert.kind == HELD, ~held),
            ),
        )
        .values(cleared_at=at)
        .execution_options(synchronize_session=False)
    )
