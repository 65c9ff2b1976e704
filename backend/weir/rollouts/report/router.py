"""The route of the report."""

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Response

from weir.authz.access import Access
from weir.errors import BadRequestError, NotFoundError, UnauthorizedError, responses
from weir.kit.schemas import PathId
from weir.rollouts.report import content as report
from weir.rollouts.visibility import rollout_of

router = APIRouter(prefix="/rollouts", tags=["rollouts"], responses=responses(UnauthorizedError, BadRequestError))


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
    content = await report.make(access.session, await rollout_of(access, rollout_id))
    if format == "json":
        return Response(content.model_dump_json(by_alias=True), media_type="application/json")
    return Response(
        report.render(content),
        media_type="text/html; charset=utf-8",
        headers={"content-security-policy": report.SECURITY_POLICY, "x-content-type-options": "nosniff"},
    )
