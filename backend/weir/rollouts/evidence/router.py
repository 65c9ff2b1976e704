"""Routes of evidence: what was measured of a rollout, of one compute, and the course of its figures."""

from typing import Annotated

from fastapi import APIRouter, Query

from weir.authz.access import Access
from weir.clients.dependencies import PrometheusClient
from weir.errors import BadRequestError, NotFoundError, UnauthorizedError, responses
from weir.kit.pagination import Page
from weir.kit.schemas import MOST_INTEGER, PathId
from weir.rollouts.evidence import course, summary
from weir.rollouts.evidence.schemas import CourseResponse, MemberEvidenceResponse, RolloutEvidenceView
from weir.rollouts.run.repository import RolloutRepository
from weir.rollouts.visibility import rollout_of

router = APIRouter(prefix="/rollouts", tags=["rollouts"], responses=responses(UnauthorizedError, BadRequestError))


@router.get("/{rollout_id}/evidence", responses=responses(NotFoundError))
async def get_rollout_evidence(
    rollout_id: PathId,
    access: Access,
    page: Page,
    wave: Annotated[int | None, Query(ge=0, le=MOST_INTEGER, description="Members of this wave only")] = None,
) -> RolloutEvidenceView:
    """What was measured before and after the switch: of the fleet, of each wave and cell, and of members by page.
    From the database, so that it stays when the metrics are gone."""
    return await summary.view(access.session, await rollout_of(access, rollout_id), wave, page)


@router.get("/{rollout_id}/evidence/{compute_id}", responses=responses(NotFoundError))
async def get_rollout_compute_evidence(
    rollout_id: PathId, compute_id: PathId, access: Access
) -> MemberEvidenceResponse:
    """One compute's evidence, with the course of its figures across the switch."""
    await rollout_of(access, rollout_id)
    return MemberEvidenceResponse(evidence=await summary.detail(access, rollout_id, compute_id))


@router.get("/{rollout_id}/computes/{compute_id}/course", responses=responses(NotFoundError))
async def get_rollout_compute_course(
    rollout_id: PathId, compute_id: PathId, access: Access, prometheus: PrometheusClient
) -> CourseResponse:
    """A compute's figures from its baseline to the end of its bake, and what its controls would have foretold."""
    rollout = await rollout_of(access, rollout_id)
    member = await RolloutRepository(access.session).member(rollout_id, compute_id)
    if member is None:
        raise NotFoundError.of(f"rollout {rollout_id}: compute", compute_id)
    return CourseResponse(course=await course.of_member(access.session, prometheus, rollout, member))
