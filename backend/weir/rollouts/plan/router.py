"""Routes of plans: the dry run, the exclusions of a frozen plan, and what a plan made now would change."""

from typing import Annotated

from fastapi import APIRouter, Query

from weir.authz.access import Access
from weir.clients.dependencies import PrometheusClient
from weir.errors import BadRequestError, NotFoundError, UnauthorizedError, responses
from weir.kit.pagination import Page, Pagination, encode_cursor, text
from weir.kit.schemas import PathId
from weir.rollouts.intent import RolloutCreateRequest
from weir.rollouts.plan import service
from weir.rollouts.plan.repository import PlanRepository
from weir.rollouts.plan.schemas import ExclusionsPage, PlanDiff, PlanResponse
from weir.rollouts.visibility import rollout_of

router = APIRouter(prefix="/rollouts", tags=["rollouts"], responses=responses(UnauthorizedError, BadRequestError))
PLAN_ENTRIES = 200


@router.post("/plan", responses=responses(NotFoundError, BadRequestError))
async def plan_rollout(
    body: RolloutCreateRequest,
    access: Access,
    prometheus: PrometheusClient,
    limit: Annotated[int, Query(ge=0, le=20_000, description="Entries listed of each kind")] = PLAN_ENTRIES,
) -> PlanResponse:
    """The dry run: the plan a rollout would have now. Changes nothing."""
    measured = await service.measure(access, prometheus)
    return PlanResponse(plan=(await service.plan(access, measured, body)).view(limit))


@router.get("/{rollout_id}/exclusions", responses=responses(NotFoundError))
async def list_rollout_exclusions(
    rollout_id: PathId,
    access: Access,
    page: Page,
    code: Annotated[str | None, Query(max_length=40)] = None,
) -> ExclusionsPage:
    """Who was selected and left out when the plan was frozen, and why; by compute."""
    await rollout_of(access, rollout_id)
    after = page.after(text)
    rows, total = await PlanRepository(access.session).exclusions(
        rollout_id, code, None if after is None else after[0], page.limit
    )
    shown = rows[: page.limit]
    more = len(rows) > page.limit
    return ExclusionsPage(
        excluded=[service.exclusion_view(row, name) for row, name in shown],
        total=total,
        pagination=Pagination(cursor=encode_cursor(shown[-1][0].endpoint_id) if more else None),
    )


@router.get("/{rollout_id}/plan/diff", responses=responses(NotFoundError))
async def diff_rollout_plan(rollout_id: PathId, access: Access, prometheus: PrometheusClient) -> PlanDiff:
    rollout = await rollout_of(access, rollout_id)
    return await service.diff(access, prometheus, rollout)
