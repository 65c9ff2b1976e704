"""Rollbacks of many computes, by the rollout's workflow and after that workflow has ended."""

import asyncio

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from weir.rollouts.messages import ROLLBACK_WORKFLOW, RollbackInput
    from weir_workflows.common import policies
    from weir_workflows.rollout import limits
    from weir_workflows.rollout.messages import BackInput, RolloutReport, ScopeInput, WaveReport
    from weir_workflows.rollout.progress_activities import ProgressActivities
    from weir_workflows.rollout.report_activities import ReportActivities
    from weir_workflows.rollout.rollback_activities import RollbackActivities
    from weir_workflows.rollout.scope_activities import ScopeActivities


async def roll_back(rollout_id: str, ids: list[str], reason: str) -> list[str]:
    """Rolls computes back, some batches at a time. Answers with a few of the rollbacks that could not be confirmed,
    by name; each rollback is stored all the same, and the reconciler goes on with it."""
    slots = asyncio.Semaphore(limits.BACK_AT_ONCE)

    async def batch(chosen: list[str]) -> dict[str, str]:
        async with slots:
            return await workflow.execute_activity_method(
                RollbackActivities.take_back, BackInput(rollout_id, chosen, "rolled_back", reason), **policies.BACK
            )

    size = limits.BATCH_SIZE
    answers = await asyncio.gather(*(batch(ids[at : at + size]) for at in range(0, len(ids), size)))
    errors = {ident: error for answer in answers for ident, error in answer.items()}
    shown = [f"{ident}: {error}" for ident, error in sorted(errors.items())[: limits.EXAMPLES]]
    more = len(errors) - len(shown)
    return [*shown, f"and {more} more that are not confirmed"] if more > 0 else shown


@workflow.defn(name=ROLLBACK_WORKFLOW)
class RollbackWorkflow:
    """The rollback of all of a rollout, of a wave or of a compute, after the rollout's own workflow has ended."""

    @workflow.run
    async def run(self, message: RollbackInput) -> str:
        ident, whole = message.rollout_id, message.wave is None and message.compute_id is None
        who = f" by {message.actor}" if message.actor else ""
        reason = f"rolled back{who} after the rollout had ended"
        ids = await workflow.execute_activity_method(
            ScopeActivities.switched_computes,
            ScopeInput(ident, message.wave, message.compute_id),
            **policies.RECORD,
        )
        failed = await roll_back(ident, ids, reason)
        at = workflow.now().isoformat()
        resumed = await workflow.execute_activity_method(ProgressActivities.resume_rollout, ident, **policies.RECORD)
        for wave in resumed.waves:
            if whole or wave.index == message.wave:
                report = WaveReport(ident, wave.index, "rolled_back", reason, at)
                await workflow.execute_activity_method(ReportActivities.report_wave, report, **policies.RECORD)
        if whole:
            await workflow.execute_activity_method(
                ReportActivities.report_rollout,
                RolloutReport(ident, "rolled_back", "; ".join([reason, *failed]), None, at),
                **policies.RECORD,
            )
        return "rolled_back"
