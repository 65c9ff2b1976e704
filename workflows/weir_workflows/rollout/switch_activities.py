"""Taking computes up and switching them, many at a time.

Every step reads the state of each compute from the database and continues from that state, so that another process
can repeat a step at any moment: a switch is stored in the database as desired first, sent second, and stored as
confirmed last.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession
from temporalio import activity

from weir.clients.http import RemoteError
from weir.endpoints.models import EndpointState
from weir.kit.clock import now
from weir.kit.windows import WeeklyWindow, frozen_until, opens_at
from weir.rollouts.intent import Strategy
from weir.rollouts.models import MemberState, Rollout, RolloutStatus
from weir_workflows.common.heartbeat import all_of, heartbeats
from weir_workflows.common.resources import Resources
from weir_workflows.rollout import members
from weir_workflows.rollout.changes import Changes
from weir_workflows.rollout.changes.protocol import ChangeError, Record
from weir_workflows.rollout.limits import CHUNKS_AT_ONCE, PREFLIGHTS_AT_ONCE
from weir_workflows.rollout.members import Member, Outcome
from weir_workflows.rollout.messages import BatchInput, Begun, Members, Switched
from weir_workflows.rollout.probes import Probes
from weir_workflows.rollout.rollback_activities import Rollback, rollback_unconfirmed

# Until this a switch, once its wish is stored, is not late.
SWITCH_SECONDS = 30.0
POLL_SECONDS = 2.0
LONGEST_WAIT_SECONDS = 3600.0
STOPPING = (RolloutStatus.ABORTING, RolloutStatus.ROLLING_BACK, RolloutStatus.ABORTED, RolloutStatus.ROLLED_BACK)
_UNSWITCHED = (MemberState.PREFLIGHT, MemberState.BASELINE)


@dataclass(frozen=True)
class _Permission:
    """Whether a switch may begin. `wishes`: the members that a person has asked to leave out, each with that
    person."""

    held: bool
    stopped: bool
    wishes: dict[str, str]


class SwitchActivities:
    def __init__(self, resources: Resources, probes: Probes, rollback: Rollback) -> None:
        self._r = resources
        self._probes = probes
        self._changes = Changes(resources, probes)
        self._rollback = rollback
        self._chunks = asyncio.Semaphore(CHUNKS_AT_ONCE)
        self._preflights = asyncio.Semaphore(PREFLIGHTS_AT_ONCE)

    def all(self) -> list[Callable[..., Any]]:
        return [self.begin_batch, self.switch_batch]

    # Preflight and the beginning of the baseline.

    @activity.defn
    async def begin_batch(self, message: BatchInput) -> Begun:
        """Preflight and the start of the baseline. Nothing begins in a rollout that is being stopped, so that its
        end does not wait for a baseline."""
        async with heartbeats(), self._preflights:
            return await self._begin(message)

    async def _begin(self, message: BatchInput) -> Begun:
        async with self._r.database.transaction() as session:
            rollout, strategy = await members.load_rollout(session, message.rollout_id)
            if rollout.status in STOPPING:
                return Begun(0, 0, 0.0)
            found = await members.load(session, message.rollout_id, message.batch.compute_ids)
            busy = await members.busy(session, found)
        fresh = [item for item in found if _unswitched(item)]
        restarts: dict[str, int] = {}
        answers = await asyncio.gather(*(self._preflight(item, busy, restarts) for item in fresh))
        outcomes = {item.id: answer for item, answer in zip(fresh, answers, strict=True) if answer is not None}
        rest = [item for item in fresh if item.id not in outcomes]
        deferred = [item for item in rest if _starts_later(item)]
        measuring = [item for item in rest if not _starts_later(item)]
        await members.record_outcomes(self._r.database, message.rollout_id, outcomes, *members.UNSWITCHED)
        await self._defer(message.rollout_id, deferred, strategy)
        return await self._measure(message, measuring, strategy, restarts)

    async def _measure(
        self, message: BatchInput, measuring: list[Member], strategy: Strategy, restarts: dict[str, int]
    ) -> Begun:
        """Baselines that an earlier attempt began are kept: their windows are still being scraped."""
        at, seconds = now(), message.batch.baseline_seconds
        begun = [item.member.baseline_start or at for item in measuring]
        new = [item.id for item in measuring if item.member.baseline_start is None]
        ids = [item.id for item in measuring]
        async with self._r.database.transaction() as session:
            limit = members.deadline(strategy, seconds)
            await members.write(session, message.rollout_id, new, *members.UNSWITCHED, baseline_start=at)
            known = {ident: {"restarts_before": restarts[ident]} for ident in new}
            await members.write_each(session, message.rollout_id, known, *members.UNSWITCHED)
            state = MemberState.BASELINE
            await members.write(session, message.rollout_id, ids, *members.UNSWITCHED, state=state, deadline_at=limit)
            everyone = await members.load(session, message.rollout_id, message.batch.compute_ids)
        past = [item for item in everyone if item.member.switched_at is not None and _under_way(item)]
        wait = max(((start - at).total_seconds() + seconds for start in begun), default=0.0)
        return Begun(len(measuring), len(past), max(0.0, wait))

    async def _preflight(self, item: Member, busy: dict[str, str], restarts: dict[str, int]) -> Outcome | None:
        """Whether the compute can be switched, looked at where it runs and in storage; None: it can."""
        endpoint = item.row.endpoint
        if endpoint.deleted_at is not None or endpoint.delete_requested_at is not None:
            return MemberState.SKIPPED, "the endpoint is deleted"
        change = self._changes.of(item.feature)
        moot = change.moot(item)
        if moot is not None:
            return MemberState.SKIPPED, moot
        if item.id in busy:
            return MemberState.PENDING, f"it is busy with {busy[item.id]}; tried again"
        if _starts_later(item):
            return None
        fault, status = await self._probes.lasting_fault(item.row)
        if fault is not None or status is None:
            return MemberState.FAILED, f"preflight: {fault}"
        unready = change.unready(item, status)
        if unready is None:
            restarts[item.id] = status.restarts
        return unready

    async def _defer(self, rollout_id: str, deferred: list[Member], strategy: Strategy) -> None:
        """Suspended computes: storage is armed and the switch stored, and the next start carries the switch out. A
        member that may not be switched now waits for another batch or is left out."""
        if not deferred:
            return
        outcomes: dict[str, Outcome] = {}
        armed = await self._arm(rollout_id, deferred, strategy, outcomes)
        async with self._r.database.transaction() as session:
            ids = [item.id for item in armed]
            unswitched = await members.lock_unless_rolled_back(session, rollout_id, ids, *members.UNSWITCHED)
            permission = await self._permission(session, rollout_id, ids)
            outcomes |= {ident: (MemberState.SKIPPED, f"skipped by {by}") for ident, by in permission.wishes.items()}
            rest = [ident for ident in ids if ident in unswitched and ident not in permission.wishes]
            if permission.stopped:
                stopped = "the rollout was stopped before this compute was switched"
                outcomes |= dict.fromkeys(rest, (MemberState.SKIPPED, stopped))
            elif permission.held:
                outcomes |= dict.fromkeys(rest, (MemberState.PENDING, "nothing may begin now; tried again"))
            else:
                await self._set_desired(session, rollout_id, [item for item in armed if item.id in rest])
                reason = "suspended; it switches when it starts next"
                state = MemberState.DEFERRED
                await members.write(
                    session, rollout_id, rest, state=state, reason=reason, switched_at=now(), deadline_at=None
                )
        await members.record_outcomes(self._r.database, rollout_id, outcomes, *members.UNSWITCHED)

    async def _set_desired(self, session: AsyncSession, rollout_id: str, items: list[Member]) -> None:
        for feature, alike in members.by_feature(items):
            await self._changes.of(feature).set_desired(session, rollout_id, alike)

    async def _permission(self, session: AsyncSession, rollout_id: str, ids: list[str]) -> "_Permission":
        """Reads, in the transaction that stores a switch, whether the switch may begin: once a pause, a stop or a
        skip has been answered, no new switch is stored."""
        rollout, strategy = await members.load_rollout(session, rollout_id)
        held, _ = _paused_or_frozen(rollout, strategy)
        return _Permission(held, rollout.status in STOPPING, await members.wishes(session, rollout_id, ids))

    # The switch.

    @activity.defn
    async def switch_batch(self, message: Members) -> Switched:
        """Switches the members in chunks. A pause, a freeze, a stop or a wish takes effect before the next chunk's
        switch is stored."""

        async def one(ids: list[str]) -> Switched:
            async with self._chunks:
                return await self._chunk(Members(message.rollout_id, ids))

        ids = message.compute_ids
        async with self._r.database.transaction() as session:
            rollout, _ = await members.load_rollout(session, message.rollout_id)
        size = self._changes.of(rollout.feature).chunk_size
        async with heartbeats():
            done = await all_of(one(ids[at : at + size]) for at in range(0, len(ids), size))
        return Switched(
            confirmed=sum(chunk.confirmed for chunk in done),
            waiting=sum(chunk.waiting for chunk in done),
            stopped=any(chunk.stopped for chunk in done),
            retry_seconds=max((chunk.retry_seconds for chunk in done), default=POLL_SECONDS),
            paused=any(chunk.paused for chunk in done),
        )

    async def _chunk(self, message: Members) -> Switched:
        rollout_id = message.rollout_id
        async with self._r.database.transaction() as session:
            rollout, strategy = await members.load_rollout(session, rollout_id)
            everyone = await members.load(session, rollout_id, message.compute_ids)
        await self._rollback.finish(rollout_id, [item.id for item in everyone if rollback_unconfirmed(item)])
        found = [item for item in everyone if _to_switch(item)]
        fresh = [item for item in found if item.member.switched_at is None]
        held, retry = _paused_or_frozen(rollout, strategy)
        stopped, waiting = rollout.status in STOPPING, 0
        if stopped:
            fresh = []
        elif held:
            waiting = len(fresh)
            await self._extend_deadlines(rollout_id, fresh, strategy)
            fresh = []
        else:
            fresh = await self._leave_out(rollout_id, fresh, strategy)
        # Those whose wish is stored already are finished whatever is asked meanwhile.
        begun = [item for item in found if item.member.switched_at is not None]
        resting = [item for item in begun if item.row.endpoint.desired_state != EndpointState.ACTIVE]
        later: Outcome = (MemberState.DEFERRED, "was suspended; it switches when it starts next")
        deferred: dict[str, Outcome] = {item.id: later for item in resting}
        await members.record_outcomes(self._r.database, rollout_id, deferred, *members.UNCONFIRMED)
        await self._rollback.carry_out_wishes(rollout_id, [item.id for item in resting])
        begun = [item for item in begun if item not in resting]
        confirmed, late = await self._switch_chunk(rollout_id, [*begun, *fresh], strategy)
        return Switched(confirmed, waiting + late, stopped, retry, rollout.status == RolloutStatus.PAUSED)

    async def _extend_deadlines(self, rollout_id: str, fresh: list[Member], strategy: Strategy) -> None:
        """Moves the deadlines of members that wait for the end of a freeze, so that no alert is raised about
        them."""
        frozen = frozen_until(strategy.freeze_windows, now())
        if frozen is None or not fresh:
            return
        limit = frozen[0] + timedelta(seconds=strategy.step_deadline_seconds)
        async with self._r.database.transaction() as session:
            ids = [item.id for item in fresh]
            await members.write(session, rollout_id, ids, *members.UNSWITCHED, deadline_at=limit)

    async def _leave_out(self, rollout_id: str, fresh: list[Member], strategy: Strategy) -> list[Member]:
        """Without those that a person has asked to leave alone, or whose maintenance window is over."""
        outcomes: dict[str, Outcome] = {}
        at = now()
        for item in fresh:
            window = item.row.project.settings.get("maintenance_window")
            if item.member.wish is not None:
                outcomes[item.id] = (MemberState.SKIPPED, f"skipped by {item.member.wish_by}")
            elif item.row.endpoint.desired_state != EndpointState.ACTIVE:
                outcomes[item.id] = (MemberState.PENDING, "was suspended during its baseline")
            elif (
                window
                and strategy.respect_maintenance_windows
                and opens_at(WeeklyWindow.model_validate(window), at) > at
            ):
                outcomes[item.id] = (MemberState.PENDING, "its maintenance window ended before it was switched")
        await members.record_outcomes(self._r.database, rollout_id, outcomes, *members.UNSWITCHED)
        return [item for item in fresh if item.id not in outcomes]

    async def _switch_chunk(self, rollout_id: str, chunk: list[Member], strategy: Strategy) -> tuple[int, int]:
        """(members confirmed, members that may not be switched now). A member that fails is rolled back at once."""
        if not chunk:
            return 0, 0
        failures: dict[str, Outcome] = {}
        armed = await self._arm(rollout_id, chunk, strategy, failures)
        async with self._r.database.transaction() as session:
            ready = await self._store_desired(session, rollout_id, armed, strategy)
        ids = [item.id for item in ready]
        answers = await asyncio.gather(*(self._send(item, failures) for item in ready))
        sent = [(item, answer) for item, answer in zip(ready, answers, strict=True) if item.id not in failures]
        async with self._r.database.transaction() as session:
            records = {item.id: answer | {"state": MemberState.CONFIRMING} for item, answer in sent}
            await members.write_each(session, rollout_id, records, *members.UNCONFIRMED)
        seen = await asyncio.gather(*(self._confirm(item, answer, failures) for item, answer in sent))
        done = {item.id: extra for (item, _), extra in zip(sent, seen, strict=True) if item.id not in failures}
        async with self._r.database.transaction() as session:
            at = {"confirmed_at": now(), "state": MemberState.CONFIRMING}
            changes = {ident: extra | at for ident, extra in done.items()}
            await members.write_each(session, rollout_id, changes, *members.UNCONFIRMED)
        # Whose wish an earlier attempt has stored must go back too, although storage could not be armed again.
        desired = {*ids, *(item.id for item in chunk if item.member.switched_at is not None)}
        unarmed = {ident: out for ident, out in failures.items() if ident not in desired}
        await members.record_outcomes(self._r.database, rollout_id, unarmed, *members.UNSWITCHED)
        failed = {ident: out for ident, out in failures.items() if ident in desired}
        await self._rollback.start(rollout_id, failed, *members.UNCONFIRMED)
        return len(done), len(armed) - len(ready)

    async def _store_desired(
        self, session: AsyncSession, rollout_id: str, armed: list[Member], strategy: Strategy
    ) -> list[Member]:
        """Stores the switch of the members that may be switched, and answers with those to switch. The other
        members stay as they are for a later attempt. A member whose switch was stored by an earlier attempt is left
        out if it has been rolled back or confirmed since."""
        # All are locked at once, in one order; those below are some of them.
        forward = await members.lock_unless_rolled_back(
            session, rollout_id, [i.id for i in armed], *members.UNCONFIRMED
        )
        unswitched = [item.id for item in armed if item.member.switched_at is None]
        fresh = await members.lock_unless_rolled_back(session, rollout_id, unswitched, *members.UNSWITCHED)
        permission = await self._permission(session, rollout_id, sorted(fresh))
        none = permission.held or permission.stopped
        blocked = await self._changes.of(armed[0].feature).blocked(session, armed) if armed else set[str]()
        first = {ident for ident in fresh if not none and ident not in permission.wishes and ident not in blocked}
        ready = [item for item in armed if item.id in forward]
        ready = [item for item in ready if item.id in first or item.member.switched_at is not None]
        ids, at = [item.id for item in ready], now()
        await self._set_desired(session, rollout_id, ready)
        await members.write(session, rollout_id, first, switched_at=at, baseline_end=at)
        # What was measured last before the switch is the baseline, however long the switch had to wait.
        spans = {
            item.id: {"baseline_start": at - timedelta(seconds=item.member.baseline_seconds)}
            for item in ready
            if item.id in first and item.member.baseline_seconds
        }
        await members.write_each(session, rollout_id, spans)
        limit = members.deadline(strategy, SWITCH_SECONDS)
        await members.write(
            session, rollout_id, ids, *members.UNCONFIRMED, state=MemberState.SWITCHING, deadline_at=limit
        )
        return ready

    async def _arm(
        self, rollout_id: str, chunk: list[Member], strategy: Strategy, failures: dict[str, Outcome]
    ) -> list[Member]:
        """Those that the switch has been made ready for."""
        return await self._changes.of(chunk[0].feature).arm(rollout_id, chunk, strategy, failures)

    async def _send(self, item: Member, failures: dict[str, Outcome]) -> Record:
        change = self._changes.of(item.feature)
        async with change.slot():
            try:
                return await change.send(item)
            except (RemoteError, ChangeError) as error:
                failures[item.id] = (MemberState.FAILED, str(error))
                return {}

    async def _confirm(self, item: Member, sent: Record, failures: dict[str, Outcome]) -> Record:
        change = self._changes.of(item.feature)
        async with change.slot():
            try:
                return await change.confirm(item, sent)
            except TimeoutError as error:
                failures[item.id] = (MemberState.FAILED, str(error))
                return {}


def _starts_later(item: Member) -> bool:
    """Suspended when the plan was made, or since."""
    return item.row.endpoint.desired_state != EndpointState.ACTIVE and item.member.switched_at is None


def _unswitched(item: Member) -> bool:
    """Storage may have been armed already by an attempt that was cut off; nothing is wished before that is done."""
    arming = item.member.state == MemberState.ARMING and item.member.switched_at is None
    return item.member.state in _UNSWITCHED or arming


def _under_way(item: Member) -> bool:
    return item.member.state in {
        MemberState.ARMING,
        MemberState.SWITCHING,
        MemberState.CONFIRMING,
        MemberState.BAKING,
    }


def _to_switch(item: Member) -> bool:
    states = (*_UNSWITCHED[1:], MemberState.ARMING, MemberState.SWITCHING, MemberState.CONFIRMING)
    return item.member.state in states and item.member.confirmed_at is None


def _paused_or_frozen(rollout: Rollout, strategy: Strategy) -> tuple[bool, float]:
    """Whether nothing may be switched now, and when to look again."""
    if rollout.status == RolloutStatus.PAUSED:
        # The batch hears of the end of a pause by signal; this is for the moment before it has heard of the pause.
        return True, POLL_SECONDS
    at = now()
    frozen = frozen_until(strategy.freeze_windows, at)
    if frozen is None:
        return False, POLL_SECONDS
    wait = min(frozen[0] - at, timedelta(seconds=LONGEST_WAIT_SECONDS))
    return True, wait.total_seconds()
