"""Connects rollouts to the application: what rollouts register with packages that do not import rollouts."""

from uuid import UUID

from fastapi import APIRouter
from sqlalchemy import Select, literal, select

from weir.endpoints import policies
from weir.identity import owned
from weir.rollouts.control.router import router as control
from weir.rollouts.evidence.router import router as evidence
from weir.rollouts.models import Rollout
from weir.rollouts.plan.new_computes import starts_without_page_images
from weir.rollouts.plan.router import router as plan
from weir.rollouts.report.router import router as report
from weir.rollouts.run.router import router as run

ROUTERS: tuple[APIRouter, ...] = (plan, run, control, evidence, report)


def register() -> None:
    """Called before the first request. Calling it again changes nothing."""
    owned.register("rollout", _names)
    policies.register_without_page_images("rollouts", starts_without_page_images)


def _names(account_id: UUID) -> Select[str]:
    return select(literal("rollout/") + Rollout.id).where(Rollout.account_id == account_id)
