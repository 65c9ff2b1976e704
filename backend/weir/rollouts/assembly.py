"""Connects rollouts to the application: what rollouts register with packages that do not import rollouts."""

from uuid import UUID

from fastapi import APIRouter
from sqlalchemy import Select, literal, select
from sqlalchemy.ext.asyncio import AsyncSession

from weir.endpoints import policies
from weir.endpoints.models import Endpoint
from weir.identity import owned
from weir.projects.models import Project
from weir.rollouts.control.router import router as control
from weir.rollouts.evidence.router import router as evidence
from weir.rollouts.models import CLOSED, Rollout, RolloutMember
from weir.rollouts.plan.new_computes import starts_without_page_images
from weir.rollouts.plan.router import router as plan
from weir.rollouts.report.router import router as report
from weir.rollouts.run.router import router as run
from weir.transfers import blocks

ROUTERS: tuple[APIRouter, ...] = (plan, run, control, evidence, report)


def register() -> None:
    """Called before the first request. Calling it again changes nothing."""
    owned.register("rollout", _names)
    policies.register_without_page_images("rollouts", starts_without_page_images)
    blocks.register("rollouts", _under_way)


def _names(account_id: UUID) -> Select[str]:
    return select(literal("rollout/") + Rollout.id).where(Rollout.account_id == account_id)


async def _under_way(session: AsyncSession, project: Project) -> str | None:
    """A rollout of the organisation's own would work on computes that are another's. One of operators goes on."""
    statement = (
        select(Rollout.id)
        .join(RolloutMember, RolloutMember.rollout_id == Rollout.id)
        .join(Endpoint, Endpoint.id == RolloutMember.endpoint_id)
        .where(
            Endpoint.project_id == project.id,
            Rollout.account_id == project.account_id,
            Rollout.whole_fleet.is_(False),
            Rollout.status.not_in(CLOSED),
        )
        .limit(1)
    )
    ident = await session.scalar(statement)
    if ident is None:
        return None
    return f"project {project.id} has computes in rollout {ident}, which is under way; let it end, or abort it first"
