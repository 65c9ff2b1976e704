"""What is left of going back when a rollout's step could not end it: a compute that did not answer, or a storage that
was away. Works from stored state and from what agents say, and from nothing else."""

import asyncio

from sqlalchemy import update

from weir.clients.compute import ComputeStatus
from weir.computes.repository import ComputeRow
from weir.rollouts.models import MemberState, RolloutMember
from weir_workflows.common.resources import Resources
from weir_workflows.rollout import members, thresholds
from weir_workflows.rollout.changes import Changes
from weir_workflows.rollout.members import Member
from weir_workflows.rollout.probes import Probes
from weir_workflows.rollout.rollback_activities import reason_with_rollback

# Of each kind in one round: the next round goes on.
AT_ONCE = 100
_LEFT_OUT = (MemberState.SKIPPED, MemberState.FAILED)


async def finish_rollbacks(
    resources: Resources, rows: list[ComputeRow], seen: dict[str, ComputeStatus | str]
) -> list[str]:
    """Members that were to go back, were not confirmed, and are as they were by now, in storage's eyes too: what was
    made ready for their switch is undone, and the member gets the LSN from which on it is as it was."""
    running = {
        row.endpoint.id: status
        for row in rows
        if isinstance(status := seen.get(row.endpoint.id), ComputeStatus) and status.state == "running"
    }
    async with resources.database.transaction() as session:
        found = await members.load_chosen(
            session,
            members.among(RolloutMember.endpoint_id, running),
            RolloutMember.rolled_back_at.is_not(None),
            RolloutMember.rollback_lsn.is_(None),
        )
    probes = Probes(resources)
    changes = Changes(resources, probes)
    lsns = {
        (item.member.rollout_id, item.id): lsn
        for item in found
        if (lsn := changes.of(item.feature).back_at(item, running[item.id])) is not None
    }
    there = [item for item in found if (item.member.rollout_id, item.id) in lsns][:AT_ONCE]
    back = await _seen_again(changes, probes, there)
    errors: dict[str, str] = {}
    for feature, items in members.by_feature(back):
        errors |= await changes.of(feature).disarm(items, patient=False)
    restored = [item for item in back if item.id not in errors]
    for item in restored:
        async with resources.database.transaction() as session:
            await members.write(
                session,
                item.member.rollout_id,
                [item.id],
                back=True,
                rollback_lsn=lsns[item.member.rollout_id, item.id],
                reason=reason_with_rollback(item, changes.of(item.feature).is_back, None),
            )
    return [item.id for item in restored]


async def restore_thresholds(resources: Resources) -> list[str]:
    """Members for which storage was armed, and which then were left out before their switch."""
    async with resources.database.transaction() as session:
        found = await members.load_chosen(
            session,
            RolloutMember.state.in_(_LEFT_OUT),
            RolloutMember.switched_at.is_(None),
            RolloutMember.previous_threshold.is_not(None),
            limit=AT_ONCE,
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


async def _seen_again(changes: Changes, probes: Probes, found: list[Member]) -> list[Member]:
    """Those whom storage has seen as they were."""

    async def one(item: Member) -> bool:
        async with probes.slot():
            return await changes.of(item.feature).in_storage(item, switched=False)

    good = await asyncio.gather(*(one(item) for item in found))
    return [item for item, fine in zip(found, good, strict=True) if fine]
