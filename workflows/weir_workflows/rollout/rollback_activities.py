"""Rollbacks: members returned to what they were before their switch.

A rollback is stored together with the member's outcome before anything is sent to the compute. A compute that does
not answer now is therefore rolled back later, by the reconciler."""

import asyncio
from collections.abc import Callable
from typing import Any

from sqlalchemy import ColumnElement, select
from temporalio import activity

from weir.clients.http import RemoteError
from weir.kit.clock import now
from weir.rollouts.models import IN_PROGRESS, MemberState, RolloutMember, Wish
from weir_workflows.common.heartbeat import heartbeats
from weir_workflows.common.resources import Resources
from weir_workflows.rollout import members
from weir_workflows.rollout.changes import Changes
from weir_workflows.rollout.changes.protocol import ChangeError
from weir_workflows.rollout.limits import CHUNK_SIZE
from weir_workflows.rollout.members import Member, Outcome
from weir_workflows.rollout.messages import BackInput
from weir_workflows.rollout.probes import Probes

_NOT_YET = "; going back is not confirmed: "


def rollback_unconfirmed(item: Member) -> bool:
    """Whether the member is to be rolled back and its rollback has not been confirmed."""
    return (
        item.member.rolled_back_at is not None
        and item.member.rollback_lsn is None
        and item.row.endpoint.deleted_at is None
    )


def reason_with_rollback(item: Member, is_back: str, error: str | None) -> str:
    """The member's reason, followed by how its rollback went; repeating the rollback does not lengthen the
    reason."""
    back = f"; {is_back}"
    reason = (item.member.reason or str(item.member.state)).split(_NOT_YET)[0].removesuffix(back)
    if error is not None:
        return f"{reason}{_NOT_YET}{error}"
    return reason + back if item.member.state in {MemberState.REGRESSED, MemberState.FAILED} else reason


class Rollback:
    def __init__(self, resources: Resources, probes: Probes) -> None:
        self._r = resources
        self._changes = Changes(resources, probes)

    async def start(
        self, rollout_id: str, outcomes: dict[str, Outcome], *only: ColumnElement[bool]
    ) -> dict[str, str]:
        """Rolls back those of the members for which `only` still holds, and gives each its outcome. Answers with
        the error of each rollback that could not be confirmed, by compute. A member that was rolled back before
        keeps its first outcome, since a repeated step may call this late."""
        if not outcomes:
            return {}
        ids = sorted(outcomes)
        async with self._r.database.transaction() as session:
            # Members before endpoints, as every step locks them.
            forward = await members.lock_unless_rolled_back(session, rollout_id, ids, *only)
            found = [item for item in await members.load(session, rollout_id, ids) if item.id in forward]
            switched = [item.id for item in found if item.member.switched_at is not None]
            for feature, items in members.by_feature(i for i in found if i.member.switched_at is not None):
                await self._changes.of(feature).restore_desired(session, rollout_id, items)
            at = now()
            await members.write(
                session,
                rollout_id,
                switched,
                back=True,
                rolled_back_at=at,
                rollback_lsn=None,
                wish=None,
                deadline_at=None,
            )
            ends = {
                ident: {"state": state, "reason": reason}
                for ident, (state, reason) in outcomes.items()
                if ident in forward
            }
            await members.write_each(session, rollout_id, ends, back=True)
        return await self.finish(rollout_id, ids)

    async def finish(self, rollout_id: str, ids: list[str]) -> dict[str, str]:
        """Sends and confirms the rollbacks that `start` has stored, for the members whose rollback is not confirmed
        yet."""
        left = await self._matching(
            rollout_id, ids, RolloutMember.rolled_back_at.is_not(None), RolloutMember.rollback_lsn.is_(None)
        )
        if not left:
            return {}
        async with self._r.database.transaction() as session:
            found = [item for item in await members.load(session, rollout_id, left) if rollback_unconfirmed(item)]
        answers = await asyncio.gather(*(self._send_back(item) for item in found))
        lsns = {item.id: lsn for item, (lsn, _) in zip(found, answers, strict=True)}
        errors = {item.id: error for item, (_, error) in zip(found, answers, strict=True) if error is not None}
        for feature, items in members.by_feature(item for item in found if item.id not in errors):
            errors |= await self._changes.of(feature).disarm(items, patient=True)
        # Without a confirmation there is no LSN: the reconciler goes on with it.
        changes = {
            item.id: {
                "rollback_lsn": None if item.id in errors else lsns[item.id],
                "reason": reason_with_rollback(item, self._changes.of(item.feature).is_back, errors.get(item.id)),
            }
            for item in found
        }
        async with self._r.database.transaction() as session:
            await members.write_each(session, rollout_id, changes, back=True)
        return errors

    async def carry_out_wishes(self, rollout_id: str, ids: list[str]) -> None:
        """Rolls back the members for which a person has asked that. A step calls this after it has written where
        its members stand; a wish that is stored later finds them there itself."""
        asked = await self._matching(
            rollout_id,
            ids,
            RolloutMember.wish == Wish.BACK,
            RolloutMember.switched_at.is_not(None),
            RolloutMember.rolled_back_at.is_(None),
        )
        ends = {ident: (MemberState.ROLLED_BACK, f"rolled back by {by}") for ident, by in asked.items()}
        await self.start(rollout_id, dict[str, Outcome](ends))

    async def _matching(self, rollout_id: str, ids: list[str], *conditions: ColumnElement[bool]) -> dict[str, str]:
        """The members for which the conditions hold, each with the person who asked for it."""
        if not ids:
            return {}
        async with self._r.database.transaction() as session:
            rows = await session.execute(
                select(RolloutMember.endpoint_id, RolloutMember.wish_by).where(
                    RolloutMember.rollout_id == rollout_id, members.among(RolloutMember.endpoint_id, ids), *conditions
                )
            )
        return {ident: by or "" for ident, by in rows.all()}

    async def _send_back(self, item: Member) -> tuple[str | None, str | None]:
        """(LSN from which on the compute is as it was, what went wrong)."""
        change = self._changes.of(item.feature)
        async with change.slot():
            try:
                return await change.send_back(item), None
            except (RemoteError, ChangeError, TimeoutError) as error:
                return None, str(error)


class RollbackActivities:
    def __init__(self, resources: Resources, rollback: Rollback) -> None:
        self._r = resources
        self._rollback = rollback

    def all(self) -> list[Callable[..., Any]]:
        return [self.take_back, self.give_up]

    @activity.defn
    async def take_back(self, message: BackInput) -> dict[str, str]:
        """Rolls members back. Answers with the errors of rollbacks that could not be confirmed, by compute; the
        reconciler goes on with those."""
        errors: dict[str, str] = {}
        outcome: Outcome = (MemberState(message.state), message.reason)
        async with heartbeats():
            for start in range(0, len(message.compute_ids), CHUNK_SIZE):
                ids = message.compute_ids[start : start + CHUNK_SIZE]
                async with self._r.database.transaction() as session:
                    found = await members.load(session, message.rollout_id, ids)
                waiting = [item.id for item in found if item.member.rolled_back_at is None]
                errors |= await self._rollback.start(message.rollout_id, dict.fromkeys(waiting, outcome))
                done = [item.id for item in found if item.member.rolled_back_at is not None]
                errors |= await self._rollback.finish(message.rollout_id, done)
        return errors

    @activity.defn
    async def give_up(self, message: BackInput) -> None:
        """Ends the members of a batch whose step cannot be done: an unswitched member fails, a switched member
        without a confirmation fails and is rolled back, and a confirmed member is inconclusive, which holds the
        rollout."""
        async with heartbeats():
            await self._give_up(message)

    async def _give_up(self, message: BackInput) -> None:
        async with self._r.database.transaction() as session:
            found = [
                item
                for item in await members.load(session, message.rollout_id, message.compute_ids)
                if item.member.state in IN_PROGRESS
            ]
        failed, unclear = (MemberState.FAILED, message.reason), (MemberState.INCONCLUSIVE, message.reason)
        unswitched: dict[str, Outcome] = {i.id: failed for i in found if i.member.switched_at is None}
        unconfirmed: dict[str, Outcome] = {
            i.id: failed for i in found if i.member.switched_at is not None and i.member.confirmed_at is None
        }
        unjudged: dict[str, Outcome] = {i.id: unclear for i in found if i.member.confirmed_at is not None}
        await members.record_outcomes(self._r.database, message.rollout_id, unswitched, *members.UNSWITCHED)
        await members.record_outcomes(self._r.database, message.rollout_id, unjudged, *members.UNENDED)
        await self._rollback.start(message.rollout_id, unconfirmed, *members.UNCONFIRMED)
        await self._rollback.carry_out_wishes(message.rollout_id, message.compute_ids)
