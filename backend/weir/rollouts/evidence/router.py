from typing import Annotated, Literal

from fastapi import APIRouter, Query, Response

from weir.authz.access import Access
from weir.clients.dependencies import PrometheusClient
from weir.errors import BadRequestError, NotFoundError, UnauthorizedError, responses
from weir.kit.pagination import Page
from weir.kit.schemas import PathId
from weir.rollouts.evidence import course
from weir.rollouts.evidence import summary as evidence
from weir.rollouts.evidence.schemas import CourseResponse, MemberEvidenceResponse, RolloutEvidenceView
from weir.rollouts.report import content as report
from weir.rollouts.run.repository import RolloutRepository

router = APIRouter(prefix="/rollouts", tags=["rollouts"], responses=responses(UnauthorizedError, BadRequestError))


@router.get("/{rollout_id}/evidence", responses=responses(NotFoundError))
async def get_rollout_evidence(
    rollout_id: PathId,
    access: Access,
    page: Page,
    wave: Annotated[int | None, Query(ge=0, description="Members of this wave only")] = None,
) -> RolloutEvidenceView:
    """What was measured before and after the switch: of the fleet, of each wave and cell, and of members by page.
    From the database, so that it stays when the metrics are gone."""
    return await evidence.view(access.session, await access.rollout(rollout_id), wave, page)


@router.get("/{rollout_id}/evidence/{compute_id}", responses=responses(NotFoundError))
async def get_rollout_compute_evidence(
    rollout_id: PathId, compute_id: PathId, access: Access
) -> MemberEvidenceResponse:
    """One compute's evidence, with the course of its figures across the switch."""
    await access.rollout(rollout_id)
    return MemberEvidenceResponse(evidence=await evidence.detail(access, rollout_id, compute_id))


@router.get("/{rollout_id}/computes/{compute_id}/course", responses=responses(NotFoundError))
async def get_rollout_compute_course(
    rollout_id: PathId, compute_id: PathId, access: Access, prometheus: PrometheusClient
) -> CourseResponse:
    """A compute's figures from its baseline to the end of its bake, and what its controls would have foretold."""
    rollout = await access.rollout(rollout_id)
    member = await RolloutRepository(access.session).member(rollout_id, compute_id)
    if member is None:
        raise NotFoundError.of(f"rollout {rollout_id}: compute", compute_id)
    return CourseResponse(course=await course.of_member(access.session, prometheus, rollout, member))


@router.get(
    "/{rollout_id}/report",
    response_model=report.Report,
    responses={
        200: {"description": "The report", "content": {"text/html": {"schema": {"type": "string"}}}},
        **responses(NotFoundError),
    },
)
async def get_rollout_report(
    rollout_id: PathId,
    access: Access,
    format: Annotated[Literal["html", "json"], Query()] = "html",  # noqa: A002  its name in the query
) -> Response:
    """A report to hand on: one page of HTML that needs nothing else and prints, or the same as JSON."""
    content = await report.make(access.session, await access.rollout(rollout_id))
    if format == "json":
        return Response(content.model_dump_json(by_alias=True), media_type="application/json")
    return Response(
        report.render(content),
        media_type="text/html; charset=utf-8",
        headers={"content-security-policy": report.SECURITY_POLICY, "x-content-type-options": "nosniff"},
    )
