from typing import Annotated

from fastapi import APIRouter, Query
from fastapi import status as http

from weir.authz.access import Access
from weir.clients.dependencies import PrometheusClient
from weir.errors import (
    BadRequestError,
    NotFoundError,
    UnauthorizedError,
    responses,
)
from weir.identity.repository import IdentityRepository
from weir.identity.router import audit_view
from weir.identity.schemas import AuditEntries
from weir.kit.pagination import Page, Pagination, encode_cursor, small, text
from weir.kit.schemas import MOST_INTEGER, PathId, Timestamp
from weir.projects.models import Project
from weir.rollouts.intent import RolloutCreateRequest
from weir.rollouts.models import MemberState
from weir.rollouts.run import service, views
from weir.rollouts.run.repository import MemberFilter, RolloutRepository
from weir.rollouts.run.schemas import (
    AlertsPage,
    Grid,
    RolloutComputeResponse,
    RolloutComputesPage,
    RolloutResponse,
    RolloutsPage,
)
from weir.rollouts.visibility import rollout_of

router = APIRouter(prefix="/rollouts", tags=["rollouts"], responses=responses(UnauthorizedError, BadRequestError))


@router.post("", status_code=http.HTTP_201_CREATED, responses=responses(NotFoundError, BadRequestError))
async def create_rollout(body: RolloutCreateRequest, access: Access, prometheus: PrometheusClient) -> RolloutResponse:
    """Computes the plan, freezes it and starts the rollout; with `plan_approval_required` it waits for `approve`
    before it touches anything."""
    rollout = await service.create(access, prometheus, body)
    await access.session.flush()
    return RolloutResponse(rollout=await views.view(RolloutRepository(access.session), rollout))


@router.get("")
async def list_rollouts(access: Access, page: Page) -> RolloutsPage:
    """Newest first: the account's own, or every account's for an operator."""
    repository = RolloutRepository(access.session)
    rows, pagination = page.split(await repository.page(access.principal.fleet, page))
    return RolloutsPage(rollouts=await views.summaries(repository, rows), pagination=pagination)


@router.get("/{rollout_id}", responses=responses(NotFoundError))
async def get_rollout(rollout_id: PathId, access: Access) -> RolloutResponse:
    """The rollout, its waves and how far they are, in counts; its computes are at `/computes` and `/grid`."""
    rollout = await rollout_of(access, rollout_id)
    return RolloutResponse(rollout=await views.view(RolloutRepository(access.session), rollout))


@router.get("/{rollout_id}/computes", responses=responses(NotFoundError))
async def list_rollout_computes(
    rollout_id: PathId,
    access: Access,
    page: Page,
    wave: Annotated[int | None, Query(ge=0, le=MOST_INTEGER)] = None,
    state: MemberState | None = None,
    cell: Annotated[str | None, Query(max_length=63)] = None,
    q: Annotated[str | None, Query(max_length=120, description="Part of a compute's id or project's name")] = None,
) -> RolloutComputesPage:
    """The frozen list of targets in the order of waves, each with how far it is and its newest evidence."""
    await rollout_of(access, rollout_id)
    repository = RolloutRepository(access.session)
    rows, total = await repository.member_page(
        rollout_id,
        MemberFilter(wave, state, cell, q),
        page.after(small, text),
        page.limit,
    )
    shown = rows[: page.limit]
    more = len(rows) > page.limit
    return RolloutComputesPage(
        computes=await views.computes(access, rollout_id, shown),
        total=total,
        pagination=Pagination(cursor=encode_cursor(shown[-1][0].wave, shown[-1][0].endpoint_id) if more else None),
    )


@router.get("/{rollout_id}/computes/{compute_id}", responses=responses(NotFoundError))
async def get_rollout_compute(rollout_id: PathId, compute_id: PathId, access: Access) -> RolloutComputeResponse:
    await rollout_of(access, rollout_id)
    repository = RolloutRepository(access.session)
    member = await repository.member(rollout_id, compute_id)
    if member is None:
        raise NotFoundError.of(f"rollout {rollout_id}: compute", compute_id)
    project = await access.session.get_one(Project, member.project_id)
    (shown,) = await views.computes(access, rollout_id, [(member, project.name)])
    return RolloutComputeResponse(compute=shown)


@router.get("/{rollout_id}/grid", responses=responses(NotFoundError))
async def get_rollout_grid(
    rollout_id: PathId,
    access: Access,
    since: Annotated[Timestamp | None, Query(description="The `at` of an earlier answer")] = None,
) -> Grid:
    """Every compute's wave, cell and state in columns, and the counts by cell and state."""
    rollout = await rollout_of(access, rollout_id)
    return await views.grid(RolloutRepository(access.session), rollout, since)


@router.get("/{rollout_id}/alerts", responses=responses(NotFoundError))
async def list_rollout_alerts(
    rollout_id: PathId,
    access: Access,
    open_: Annotated[bool, Query(alias="open", description="Leave out those that are cleared")] = False,
) -> AlertsPage:
    """Steps that took or take longer than their deadline; oldest first."""
    await rollout_of(access, rollout_id)
    rows = await RolloutRepository(access.session).alerts(rollout_id, only_open=open_)
    return AlertsPage(alerts=[views.alert_view(row) for row in rows])


@router.get("/{rollout_id}/audit", responses=responses(NotFoundError))
async def list_rollout_audit(rollout_id: PathId, access: Access, page: Page) -> AuditEntries:
    """Everything done to the rollout, by its owner, by operators and by itself; newest first."""
    await rollout_of(access, rollout_id)
    rows = await IdentityRepository(access.session).audit_of(f"rollout/{rollout_id}", page)
    return audit_view(rows, page)
