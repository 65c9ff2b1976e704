"""Which features a new compute starts with, according to the completed rollouts."""

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from weir.projects.models import Project
from weir.rollouts.intent import Selector, Strategy
from weir.rollouts.models import Rollout, RolloutStatus
from weir.rollouts.plan.planner import covers, held_out


async def starts_without_page_images(session: AsyncSession, project: Project, compute_id: str) -> bool:
    """Whether a completed rollout, of the project's owner or over the whole fleet, that reaches everyone its selector
    covers covers this one. Ranges of size and of
    write rate say nothing about a compute that has neither yet; a rollout with one does not speak for new ones."""
    rollouts = await session.scalars(
        select(Rollout)
        .where(
            Rollout.feature == "image_pushdown",
            Rollout.status == RolloutStatus.COMPLETED,
            Rollout.whole_fleet | (Rollout.account_id == project.account_id),
        )
        .order_by(Rollout.created_at.desc())
        .limit(100)
    )
    for rollout in rollouts.all():
        selector, strategy = Selector.model_validate(rollout.selector), Strategy.model_validate(rollout.strategy)
        ranged = selector.size_bytes is not None or selector.wal_bytes_per_second is not None
        whole = strategy.waves[-1].percent == 100
        if (
            strategy.new_computes
            and whole
            and not ranged
            and covers(selector, project)
            and not held_out(rollout.feature, compute_id, strategy.holdout_percent)
        ):
            return True
    return False
