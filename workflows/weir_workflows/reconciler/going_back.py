"""What is left of going back when a rollout's step could not end it: a compute that did not answer, or a storage that
was away. Works from stored state and from what agents say, and from nothing else."""

import asyncio

from sqlalchemy import Select, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from weir.clients.compute import ComputeStatus
from weir.clients.http import RemoteError
from weir.computes.repository import ComputeRow
from weir.endpoints.models import Endpoint
from weir.rollouts.models import MemberState, RolloutMember
from weir_workflows.common.resources import Resources
from weir_workflows.rollout import members, thresholds
from weir_workflows.rollout.going_back import why
from weir_workflows.rollout.members import Member
from weir_workflows.rollout.probes import Probes

# Of each kind in one round: the next round goes on.
AT_ONCE = 100
_LEFT_OUT = (MemberState.SKIPPED, MemberState.FAILED)


async def finish_going_back(
    resources: Resources, rows: list[ComputeRow], seen: dict[str, ComputeStatus | str]
) -> list[str]:
    """Members that were to go back, were not confirmed, and write images again by now, in storage's eyes too: storage
    gets its old threshold, and the member the LSN from which on images are written."""
    lsns = {
        row.endpoint.id: status.full_page_writes_lsn or status.start_lsn
        for row in rows
        if row.endpoint.full_page_writes
        and isinstance(status := seen.get(row.endpoint.id), ComputeStatus)
        and status.state == "running"
        and status.full_page_writes
    }
    async with resources.database.transaction() as session:
        found = await _load(
            session,
            select(RolloutMember.rollout_id, RolloutMember.endpoint_id).where(
                members.among(RolloutMember.endpoint_id, lsns),
                RolloutMember.rolled_back_at.is_not(None),
                RolloutMember.rollback_lsn.is_(None),
            ),
        )
    probes = Probes(resources)
    back = await _seen_again(resources, probes, [item for item in found if lsns[item.id] is not None])
    errors = await thresholds.disarm(resources, probes, back, patience=0)
    restored = [item for item in back if item.id not in errors]
    for item in restored:
        async with resources.database.transaction() as session:
            await members.write(
                session,
                item.member.rollout_id,
                [item.id],
                back=True,
                rollback_lsn=lsns[item.id],
                reason=why(item, None),
            )
    return [item.id for item in restored]


async def restore_thresholds(resources: Resources) -> list[str]:
    """Members for which storage was armed, and which then were left out before their switch."""
    async with resources.database.transaction() as session:
        found = await _load(
            session,
            select(RolloutMember.rollout_id, RolloutMember.endpoint_id)
            .join(Endpoint, Endpoint.id == RolloutMember.endpoint_id)
            .where(
                RolloutMember.state.in_(_LEFT_OUT),
                RolloutMember.switched_at.is_(None),
                RolloutMember.previous_threshold.is_not(None),
            ),
        )
    errors = await thresholds.disarm(resources, Probes(resources), found, patience=0)
    restored = [item for item in found if item.id not in errors]
    for item in restored:
        async with resources.database.transaction() as session:
            await session.execute(
                update(RolloutMember)
                .where(RolloutMember.rollout_id == item.member.rollout_id, RolloutMember.endpoint_id == item.id)
                .values(previous_threshold=None)
            )
    return [item.id for item in restored]


async def _load(session: AsyncSession, statement: Select[str, str]) -> list[Member]:
    by_rollout: dict[str, list[str]] = {}
    for rollout_id, ident in (await session.execute(statement.limit(AT_ONCE))).all():
        by_rollout.setdefault(rollout_id, []).append(ident)
    return [item for rollout_id, ids in by_rollout.items() for item in await members.load(session, rollout_id, ids)]


async def _seen_again(resources: Resources, probes: Probes, found: list[Member]) -> list[Member]:
    """Those of whom storage has seen images come again."""

    async def one(item: Member) -> bool:
        async with probes.slot():
            try:
                timeline = await resources.pageserver.timeline(
                    item.row.project.tenant_id, item.row.branch.timeline_id
                )
            except RemoteError:
                return False
        return timeline is not None and timeline.full_page_writes

    good = await asyncio.gather(*(one(item) for item in found))
    return [item for item, fine in zip(found, good, strict=True) if fine]
