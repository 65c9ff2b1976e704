"""Restarts that rollouts of `postgres_minor` do, and the minors of Postgres that they still need."""

from datetime import timedelta

from sqlalchemy import and_, or_, select
from sqlalchemy.ext.asyncio import AsyncSession

from weir.endpoints.models import Endpoint
from weir.kit.clock import now
from weir.rollouts.models import CLOSED, MemberState, Rollout, RolloutMember

# A restart that a rollout began longer ago was cut off.
RESTART_SECONDS = 180


async def restarting(session: AsyncSession, endpoint_id: str) -> bool:
    """Whether a rollout is restarting this compute now, onto another minor or back: that it does not run then is no
    fault."""
    since = now() - timedelta(seconds=RESTART_SECONDS)
    statement = (
        select(RolloutMember.endpoint_id)
        .join(Rollout, Rollout.id == RolloutMember.rollout_id)
        .where(
            RolloutMember.endpoint_id == endpoint_id,
            Rollout.feature == "postgres_minor",
            or_(
                and_(RolloutMember.state == MemberState.SWITCHING, RolloutMember.updated_at > since),
                and_(RolloutMember.rolled_back_at > since, RolloutMember.rollback_lsn.is_(None)),
            ),
        )
        .limit(1)
    )
    return await session.scalar(statement) is not None


async def minors_needed(session: AsyncSession) -> set[str]:
    """Minors of Postgres that a rollout may still need: those of open ones, and of ended ones what their computes
    would go back onto."""
    statement = (
        select(RolloutMember.previous_version, RolloutMember.target_version)
        .join(Rollout, Rollout.id == RolloutMember.rollout_id)
        .join(Endpoint, Endpoint.id == RolloutMember.endpoint_id)
        .where(
            RolloutMember.target_version.is_not(None),
            Endpoint.deleted_at.is_(None),
            or_(
                Rollout.status.not_in(CLOSED),
                and_(
                    RolloutMember.switched_at.is_not(None),
                    RolloutMember.rolled_back_at.is_(None),
                    Endpoint.postgres_version == RolloutMember.target_version,
                ),
            ),
        )
        .distinct()
    )
    return {version for row in (await session.execute(statement)).all() for version in row if version is not None}
