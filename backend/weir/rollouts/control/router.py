"""Routes by which a person controls a rollout."""

from fastapi import APIRouter
from temporalio.client import Client

from weir.authz.access import Access, ProjectAccess
from weir.clients.dependencies import TemporalClient
from weir.errors import (
    BadRequestError,
    ConflictError,
    NotFoundError,
    UnauthorizedError,
    UnavailableError,
    responses,
)
from weir.kit.schemas import Id, PathId
from weir.rollouts.control import delivery
from weir.rollouts.intent import ApproveRequest, RollbackRequest, SkipRequest
from weir.rollouts.run import views
from weir.rollouts.run.repository import RolloutRepository
from weir.rollouts.run.schemas import RolloutResponse
from weir.rollouts.visibility import rollout_of

router = APIRouter(prefix="/rollouts", tags=["rollouts"], responses=responses(UnauthorizedError, BadRequestError))
_CONTROL = responses(NotFoundError, BadRequestError, ConflictError, UnavailableError)


async def _control(
    access: ProjectAccess,
    temporal: Client,
    rollout_id: str,
    action: str,
    wave: int | None = None,
    compute_id: Id | None = None,
    gate: str | None = None,
) -> RolloutResponse:
    rollout = await rollout_of(access, rollout_id)
    await delivery.control(access, temporal, rollout, action, wave=wave, compute_id=compute_id, gate=gate)
    await access.session.flush()
    rollout = await rollout_of(access, rollout_id)
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
