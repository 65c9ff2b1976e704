from typing import Annotated

from fastapi import APIRouter, Query
from fastapi import status as http
from temporalio.client import Client

from weir.authz.access import Access, ProjectAccess
from weir.clients.dependencies import PrometheusClient, TemporalClient
from weir.errors import (
    BadRequestError,
    ConflictError,
    NotFoundError,
    UnauthorizedError,
    UnavailableError,
    responses,
)
from weir.identity.repository import IdentityRepository
from weir.identity.router import audit_view
from weir.identity.schemas import AuditEntries
from weir.kit.pagination import Page, Pagination, encode_cursor, small, text
from weir.kit.schemas import Id, PathId, Timestamp
from weir.projects.models import Project
from weir.rollouts.control import delivery as control
from weir.rollouts.intent import ApproveRequest, RollbackRequest, RolloutCreateRequest, SkipRequest
from weir.rollouts.models import MemberState
from weir.rollouts.plan import service
from weir.rollouts.run import views
from weir.rollouts.run.repository import MemberFilter, RolloutRepository
from weir.rollouts.run.schemas import (
    AlertsPage,
    ExclusionsPage,
    Grid,
    PlanDiff,
    PlanResponse,
    RolloutComputeResponse,
    RolloutComputesPage,
    RolloutResponse,
    RolloutsPage,
)

router = APIRouter(prefix="/rollouts", tags=["rollouts"], responses=responses(UnauthorizedError, BadRequestError))
_CONTROL = responses(NotFoundError, BadRequestError, ConflictError, UnavailableError)
PLAN_ENTRIES = 200


@router.post("/plan", responses=responses(NotFoundError, BadRequestError))
async def plan_rollout(
    body: RolloutCreateRequest,
    access: Access,
    prometheus: PrometheusClient,
    limit: Annotated[int, Query(ge=0, le=20_000, description="Entries listed of each kind")] = PLAN_ENTRIES,
) -> PlanResponse:
    """The dry run: the plan a rollout would have now. Changes nothing."""
    return PlanResponse(plan=(await service.plan(access, prometheus, body)).view(limit))


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
    rollout = await access.rollout(rollout_id)
    return RolloutResponse(rollout=await views.view(RolloutRepository(access.session), rollout))


@router.get("/{rollout_id}/computes", responses=responses(NotFoundError))
async def list_rollout_computes(
    rollout_id: PathId,
    access: Access,
    page: Page,
    wave: Annotated[int | None, Query(ge=0)] = None,
    state: MemberState | None = None,
    cell: Annotated[str | None, Query(max_length=63)] = None,
    q: Annotated[str | None, Query(max_length=120, description="Part of a compute's id or project's name")] = None,
) -> RolloutComputesPage:
    """The frozen list of targets in the order of waves, each with how far it is and its newest evidence."""
    await access.rollout(rollout_id)
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
    await access.rollout(rollout_id)
    repository = RolloutRepository(access.session)
    member = await repository.member(rollout_id, compute_id)
    if member is None:
        raise NotFoundError.of(f"rollout {rollout_id}: compute", compute_id)
    project = await access.session.get_one(Project, member.project_id)
    (shown,) = await views.computes(access, rollout_id, [(member, project.name)])
    return RolloutComputeResponse(compute=shown)


@router.get("/{rollout_id}/exclusions", responses=responses(NotFoundError))
async def list_rollout_exclusions(
    rollout_id: PathId,
    access: Access,
    page: Page,
    code: Annotated[str | None, Query(max_length=40)] = None,
) -> ExclusionsPage:
    """Who was selected and left out when the plan was frozen, and why; by compute."""
    await access.rollout(rollout_id)
    after = page.after(text)
    rows, total = await RolloutRepository(access.session).exclusions(
        rollout_id, code, None if after is None else after[0], page.limit
    )
    shown = rows[: page.limit]
    more = len(rows) > page.limit
    return ExclusionsPage(
        excluded=[views.exclusion_view(row, name) for row, name in shown],
        total=total,
        pagination=Pagination(cursor=encode_cursor(shown[-1][0].endpoint_id) if more else None),
    )


@router.get("/{rollout_id}/grid", responses=responses(NotFoundError))
async def get_rollout_grid(
    rollout_id: PathId,
    access: Access,
    since: Annotated[Timestamp | None, Query(description="The `at` of an earlier answer")] = None,
) -> Grid:
    """Every compute's wave, cell and state in columns, and the counts by cell and state."""
    rollout = await access.rollout(rollout_id)
    return await views.grid(RolloutRepository(access.session), rollout, since)


@router.get("/{rollout_id}/plan/diff", responses=responses(NotFoundError))
async def diff_rollout_plan(rollout_id: PathId, access: Access, prometheus: PrometheusClient) -> PlanDiff:
    rollout = await access.rollout(rollout_id)
    return await service.diff(access, prometheus, rollout)


@router.get("/{rollout_id}/alerts", responses=responses(NotFoundError))
async def list_rollout_alerts(
    rollout_id: PathId,
    access: Access,
    open_: Annotated[bool, Query(alias="open", description="Leave out those that are cleared")] = False,
) -> AlertsPage:
    """Steps that took or take longer than their deadline; oldest first."""
    await access.rollout(rollout_id)
    rows = await RolloutRepository(access.session).alerts(rollout_id, only_open=open_)
    return AlertsPage(alerts=[views.alert_view(row) for row in rows])


@router.get("/{rollout_id}/audit", responses=responses(NotFoundError))
async def list_rollout_audit(rollout_id: PathId, access: Access, page: Page) -> AuditEntries:
    await access.rollout(rollout_id)
    """Everything done to the rollout, by its owner, by operators and by itself; newest first."""
    rows = await IdentityRepository(access.session).audit_of(f"rollout/{rollout_id}", page)
    return audit_view(rows, page)


async def _control(
    access: ProjectAccess,
    temporal: Client,
    rollout_id: str,
    action: str,
    wave: int | None = None,
    compute_id: Id | None = None,
    gate: str | None = None,
) -> RolloutResponse:
    rollout = await access.rollout(rollout_id)
    await control.control(access, temporal, rollout, action, wave=wave, compute_id=compute_id, gate=gate)
    await access.session.flush()
    rollout = await access.rollout(rollout_id)
    return RolloutResponse(rollout=await views.view(RolloutRepository(access.session), rollout))


@router.post("/{rollout_id}/pause", responses=_CONTROL)
async def pause_rollout(rollout_id: PathId, access: Access, temporal: TemporalClient) -> RolloutResponse:
    """Nothing new is switched; computes that have been switched bake on and are judged."""
    return await _control(access, temporal, rollout_id, "pause")


@router.post("/{rollout_id}/resume", responses=_CONTROL)
async def resume_rollout(rollout_id: PathId, access: Access, temporal: TemporalClient) -> RolloutResponse:
    return await _control(access, temporal, rollout_id, "resume")


@router.post("/{rollout_id}/approve", responses=_CONTROL)
async def approve_rollout(
    rollout_id: PathId, access: Access, temporal: TemporalClient, body: ApproveRequest | None = None
) -> RolloutResponse:
    """Opens the gate the rollout is held at: the next wave begins, in spite of an inconclusive one too. Name the
    `gate` that was decided on: should the rollout be held at another by then, that one stays closed (409)."""
    return await _control(access, temporal, rollout_id, "approve", gate=body.gate if body else None)


@router.post("/{rollout_id}/skip", responses=_CONTROL)
async def skip_in_rollout(
    rollout_id: PathId, body: SkipRequest, access: Access, temporal: TemporalClient
) -> RolloutResponse:
    """Leaves out one compute, or what is left of one wave. What has been switched stays: roll it back instead."""
    return await _control(access, temporal, rollout_id, "skip", body.wave, body.compute_id)


@router.post("/{rollout_id}/abort", responses=_CONTROL)
async def abort_rollout(rollout_id: PathId, access: Access, temporal: TemporalClient) -> RolloutResponse:
    """Stops: switched computes without a passed verdict go back, passed ones stay switched."""
    return await _control(access, temporal, rollout_id, "abort")


@router.post("/{rollout_id}/rollback", responses=_CONTROL)
async def rollback_rollout(
    rollout_id: PathId,
    access: Access,
    temporal: TemporalClient,
    body: RollbackRequest | None = None,
) -> RolloutResponse:
    """Switches computes back, also after the rollout has completed: all of them, which stops the rollout; one wave;
    or one compute, and the rollout goes on."""
    wanted = body or RollbackRequest()
    return await _control(access, temporal, rollout_id, "rollback", wanted.wave, wanted.compute_id)
