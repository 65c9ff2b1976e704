"""The verdict over a wave's computes together."""

import asyncio
from collections.abc import Callable
from typing import Any

from sqlalchemy import select
from temporalio import activity

from weir.rollouts.models import RolloutEvidence, RolloutMember
from weir_workflows.common.heartbeat import heartbeats
from weir_workflows.common.resources import Resources
from weir_workflows.rollout import members
from weir_workflows.rollout.messages import WaveJudged, WaveRef
from weir_workflows.rollout.verdict import Look, WavePair, judge_wave


class WaveActivities:
    def __init__(self, resources: Resources) -> None:
        self._r = resources

    def all(self) -> list[Callable[..., Any]]:
        return [self.judge_wave]

    @activity.defn
    async def judge_wave(self, message: WaveRef) -> WaveJudged:
        """Over the pairs of this wave and those before. Too few pairs are no reason to hold: the computes' own
        verdicts count."""
        async with heartbeats():
            return await self._judge_wave(message)

    async def _judge_wave(self, message: WaveRef) -> WaveJudged:
        async with self._r.database.transaction() as session:
            _, strategy = await members.load_rollout(session, message.rollout_id)
            rows = await session.execute(
                select(RolloutEvidence.endpoint_id, RolloutEvidence.analysis)
                .join(
                    RolloutMember,
                    (RolloutMember.rollout_id == RolloutEvidence.rollout_id)
                    & (RolloutMember.endpoint_id == RolloutEvidence.endpoint_id),
                )
                .where(RolloutEvidence.rollout_id == message.rollout_id, RolloutMember.wave <= message.index)
                .order_by(RolloutEvidence.id)
            )
            newest = {ident: analysis for ident, analysis in rows.all() if analysis}
        if strategy.judge_by == "bounds" or not newest:
            return WaveJudged("inconclusive", "")
        pairs = [_pair(ident, analysis) for ident, analysis in sorted(newest.items())]
        verdict = await asyncio.to_thread(judge_wave, pairs, Look(1.0))
        return WaveJudged(verdict.verdict, verdict.reason if verdict.verdict != "inconclusive" else "")


def _pair(compute_id: str, analysis: dict[str, Any]) -> WavePair:
    effects = {item["name"]: item["effect"] for item in analysis.get("figures", []) if item["effect"] is not None}
    return WavePair(compute_id, effects)
