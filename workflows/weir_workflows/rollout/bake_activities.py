"""Watching switched computes for the length of their bake, and judging them at its end."""

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import structlog
from temporalio import activity

from weir.clients.http import RemoteError
from weir.endpoints.models import EndpointState
from weir.kit.clock import now
from weir.rollouts.intent import Strategy
from weir.rollouts.models import MemberState, Wish
from weir_workflows.common.heartbeat import heartbeats
from weir_workflows.common.resources import Resources
from weir_workflows.rollout import members
from weir_workflows.rollout.changes import Changes
from weir_workflows.rollout.judging import Judging
from weir_workflows.rollout.members import Member, Outcome
from weir_workflows.rollout.messages import Baked, BakeInput, Members
from weir_workflows.rollout.probes import Probes
from weir_workflows.rollout.rollback_activities import Rollback
from weir_workflows.rollout.switch_activities import STOPPING
from weir_workflows.rollout.verdict import Look

log = structlog.get_logger()

POLL_SECONDS = 2.0
HEALTH_SECONDS = 15.0
# Shares of the bake after which a regression that is plain already ends it. Error rates are measured with these looks
# (bench/verdict).
EARLY_LOOKS = (0.5,)
SHORTEST_LOOK_SECONDS = 30.0


class BakeActivities:
    def __init__(self, resources: Resources, probes: Probes, rollback: Rollback) -> None:
        self._r = resources
        self._probes = probes
        self._changes = Changes(resources, probes)
        self._rollback = rollback
        self._judging = Judging(resources, self._changes)

    def all(self) -> list[Callable[..., Any]]:
        return [self.bake_batch, self.judge_batch]

    @activity.defn
    async def bake_batch(self, message: BakeInput) -> Baked:
        """Until the bake is over or the rollout is stopped. What is plainly broken goes back at once. The window's
        beginning is stored, so a repeated call goes on with the same one."""
        async with heartbeats():
            await self._rollback.finish(message.rollout_id, message.compute_ids)
            baking = await self._begin(message)
            if not baking:
                await self._rollback.carry_out_wishes(message.rollout_id, message.compute_ids)
                return Baked(0, stopped=False)
            if not message.bake_seconds:
                reason = "the switch is confirmed; nothing was judged, since the bake is 0 s"
                ends: dict[str, Outcome] = dict.fromkeys(baking, (MemberState.PASSED, reason))
                await members.record_outcomes(self._r.database, message.rollout_id, ends, *members.UNBAKED)
                await self._rollback.carry_out_wishes(message.rollout_id, message.compute_ids)
                return Baked(0, stopped=False)
            return await self._watch(message, baking)

    async def _begin(self, message: BakeInput) -> dict[str, datetime]:
        """When the windows after the switch began, by compute."""
        async with self._r.database.transaction() as session:
            _, strategy = await members.load_rollout(session, message.rollout_id)
            found = [
                item
                for item in await members.load(session, message.rollout_id, message.compute_ids)
                if item.member.state in {MemberState.CONFIRMING, MemberState.BAKING}
                and item.member.confirmed_at is not None
                and item.member.rolled_back_at is None
            ]
            at = now()
            new = [item.id for item in found if item.member.after_start is None]
            limit = members.deadline(strategy, message.bake_seconds)
            await members.write(session, message.rollout_id, new, *members.UNBAKED, after_start=at, deadline_at=limit)
            ids = [item.id for item in found]
            await members.write(session, message.rollout_id, ids, *members.UNBAKED, state=MemberState.BAKING)
        return {item.id: item.member.after_start or at for item in found}

    async def _watch(self, message: BakeInput, baking: dict[str, datetime]) -> Baked:
        end = max(baking.values()) + timedelta(seconds=message.bake_seconds)
        start = end - timedelta(seconds=message.bake_seconds)
        next_health, looks = now(), list(EARLY_LOOKS)
        while True:
            found, strategy, stopped = await self._still_baking(message.rollout_id, list(baking))
            if stopped:
                return Baked(0, stopped=True)
            at = now()
            if at >= end or not found:
                break
            if at >= next_health:
                next_health = at + timedelta(seconds=HEALTH_SECONDS)
                await self._end_the_broken(message.rollout_id, found)
            elapsed = (at - start).total_seconds()
            while looks and elapsed >= looks[0] * message.bake_seconds:
                share = looks.pop(0)
                if not looks or elapsed < looks[0] * message.bake_seconds:
                    await self._early_look(message, strategy, found, share, at)
            await asyncio.sleep(min(POLL_SECONDS, max(0.05, (end - now()).total_seconds())))
        async with self._r.database.transaction() as session:
            left = [item.id for item in found if item.member.after_end is None]
            await members.write(session, message.rollout_id, left, *members.UNBAKED, after_end=end)
        return Baked(len(found), stopped=False)

    async def _still_baking(self, rollout_id: str, ids: list[str]) -> tuple[list[Member], Strategy, bool]:
        """Without those that a person asks back: these go back now."""
        async with self._r.database.transaction() as session:
            rollout, strategy = await members.load_rollout(session, rollout_id)
            found = [
                item
                for item in await members.load(session, rollout_id, ids)
                if item.member.state == MemberState.BAKING and item.member.rolled_back_at is None
            ]
        if rollout.status in STOPPING:
            return [], strategy, True
        asked = [item.id for item in found if item.member.wish == Wish.BACK]
        if asked:
            await self._rollback.carry_out_wishes(rollout_id, asked)
        return [item for item in found if item.member.wish != Wish.BACK], strategy, False

    async def _end_the_broken(self, rollout_id: str, found: list[Member]) -> None:
        ends: dict[str, Outcome] = {
            ident: (MemberState.REGRESSED, "; ".join(faults))
            for ident, faults in (await self._faults(found)).items()
            if faults
        }
        if ends:
            await self._rollback.start(rollout_id, ends, *members.UNBAKED)

    async def _faults(self, found: list[Member]) -> dict[str, list[str]]:
        async def one(item: Member) -> list[str]:
            if item.row.endpoint.desired_state != EndpointState.ACTIVE:
                return []
            fault, status = await self._probes.lasting_fault(item.row)
            before = item.member.restarts_before
            if fault is not None:
                return [fault]
            if status is not None and before is not None and status.restarts > before:
                return [f"the compute restarted {status.restarts - before} times"]
            return [] if status is None else await self._changes.of(item.feature).faults(item, status)

        answers = await asyncio.gather(*(one(item) for item in found))
        return {item.id: faults for item, faults in zip(found, answers, strict=True)}

    async def _early_look(
        self, message: BakeInput, strategy: Strategy, found: list[Member], share: float, at: datetime
    ) -> None:
        """Only a regression counts before the bake is over. That Prometheus is silent now does not matter yet."""
        if share * message.bake_seconds < SHORTEST_LOOK_SECONDS:
            return
        look = Look(share, tuple(early for early in EARLY_LOOKS if early < share))
        try:
            judged = await self._judging.judge(found, strategy, look, at, {})
        except RemoteError as error:
            log.warning("look_postponed", rollout_id=message.rollout_id, error=str(error))
            return
        bad = {ident: result for ident, result in judged.items() if result.verdict == "regress"}
        if bad:
            async with self._r.database.transaction() as session:
                await members.write(session, message.rollout_id, list(bad), *members.UNBAKED, after_end=at)
                ended = await members.load(session, message.rollout_id, list(bad))
            await self._judging.keep(ended, bad)
            ends: dict[str, Outcome] = {i: (MemberState.REGRESSED, result.reason) for i, result in bad.items()}
            await self._rollback.start(message.rollout_id, ends, *members.UNBAKED)

    @activity.defn
    async def judge_batch(self, message: Members) -> None:
        """Takes the figures of both windows, judges them, keeps them as evidence; who regressed goes back."""
        async with heartbeats():
            await self._rollback.finish(message.rollout_id, message.compute_ids)
            async with self._r.database.transaction() as session:
                _, strategy = await members.load_rollout(session, message.rollout_id)
                found = [
                    item
                    for item in await members.load(session, message.rollout_id, message.compute_ids)
                    if item.member.state == MemberState.BAKING
                    and item.member.after_end is not None
                    and item.member.rolled_back_at is None
                ]
            faults = await self._faults(found)
            bake = max((item.member.bake_seconds for item in found), default=0)
            early = tuple(share for share in EARLY_LOOKS if share * bake >= SHORTEST_LOOK_SECONDS)
            judged = await self._judging.judge(found, strategy, Look(1.0, early), None, faults)
            await self._judging.keep(found, judged)
            ends: dict[str, Outcome] = {}
            for item in found:
                result = judged.get(item.id)
                if result is None:
                    ends[item.id] = (MemberState.INCONCLUSIVE, "one of its windows is missing")
                elif result.verdict == "pass":
                    ends[item.id] = (MemberState.PASSED, result.reason)
                elif result.verdict == "inconclusive":
                    ends[item.id] = (MemberState.INCONCLUSIVE, result.reason)
            await members.record_outcomes(self._r.database, message.rollout_id, ends, *members.UNBAKED)
            bad: dict[str, Outcome] = {
                ident: (MemberState.REGRESSED, result.reason)
                for ident, result in judged.items()
                if result.verdict == "regress"
            }
            await self._rollback.start(message.rollout_id, bad, *members.UNBAKED)
            await self._rollback.carry_out_wishes(message.rollout_id, message.compute_ids)
