"""Orders of people to a rollout: each is delivered to the rollout's workflow, answered once the workflow has
accepted it, and written to the audit log."""

from dataclasses import asdict

from sqlalchemy.ext.asyncio import AsyncSession
from temporalio.client import Client, WorkflowUpdateFailedError, WorkflowUpdateRPCTimeoutOrCancelledError
from temporalio.common import WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from weir.authz.access import ProjectAccess
from weir.config import get_settings
from weir.db import release
from weir.errors import BadRequestError, ConflictError, NotFoundError, UnavailableError
from weir.identity import audit
from weir.kit.transactions import refuse_requests
from weir.operations.starter import RPC_TIMEOUT
from weir.rollouts.messages import (
    ROLLBACK_WORKFLOW,
    ROLLOUT_CONTROL_UPDATE,
    RollbackInput,
    RolloutControl,
    RolloutControlResult,
    rollback_workflow_id,
    rollout_workflow_id,
)
from weir.rollouts.models import CLOSED, Rollout, RolloutStatus
from weir.rollouts.run.repository import RolloutRepository

_ENDED = {RPCStatusCode.NOT_FOUND, RPCStatusCode.FAILED_PRECONDITION}


async def control(
    access: ProjectAccess,
    temporal: Client,
    rollout: Rollout,
    action: str,
    *,
    wave: int | None = None,
    compute_id: str | None = None,
    gate: str | None = None,
) -> RolloutControlResult:
    """Delivers pause, resume, approve, skip, abort or rollback and waits until the workflow took it.

    Idempotent: repeating one that is in force answers as the first did. An approval of another `gate` than it is held
    at is a conflict."""
    session, principal = access.session, access.principal
    await _check_target(session, rollout, wave, compute_id)
    message = RolloutControl(action, principal.name, principal.request_id, wave, compute_id, gate)
    if rollout.status in CLOSED:
        result = await _control_closed(session, temporal, rollout, message)
    else:
        result = await _control_open(session, temporal, rollout, message)
    if result.refused:
        raise ConflictError(f"rollout {rollout.id}: {result.message}; read the rollout and decide on that gate")
    named = {"wave": wave, "compute_id": compute_id, "gate": gate}
    target = {name: value for name, value in named.items() if value is not None}
    audit.record(session, principal, f"rollout.{action}", f"rollout/{rollout.id}", **target, **asdict(result))
    return result


async def _check_target(session: AsyncSession, rollout: Rollout, wave: int | None, compute_id: str | None) -> None:
    repository = RolloutRepository(session)
    if compute_id is not None and await repository.member(rollout.id, compute_id) is None:
        raise NotFoundError.of(f"rollout {rollout.id}: compute", compute_id)
    if wave is not None and wave >= len(await repository.waves(rollout.id)):
        raise NotFoundError.of(f"rollout {rollout.id}: wave", str(wave))


async def _control_open(
    session: AsyncSession, temporal: Client, rollout: Rollout, message: RolloutControl
) -> RolloutControlResult:
    """Ends the session's transaction: a worker that is away lets this wait for a quarter of a minute."""
    await release(session)
    refuse_requests("the workflow engine", message.action)
    handle = temporal.get_workflow_handle(rollout_workflow_id(rollout.id))
    try:
        return await handle.execute_update(
            ROLLOUT_CONTROL_UPDATE,
            message,
            # A client may send one request id with several controls.
            id=f"{message.request_id}/{message.action}/{message.wave}/{message.compute_id}/{message.gate}",
            result_type=RolloutControlResult,
            rpc_timeout=RPC_TIMEOUT * 3,
        )
    except WorkflowUpdateFailedError as error:
        raise BadRequestError(f"rollout {rollout.id}: {error.cause}") from error
    except WorkflowUpdateRPCTimeoutOrCancelledError as error:
        raise UnavailableError(
            f"{message.action} was sent to rollout {rollout.id}, but no worker has taken it in time; read the "
            "rollout and repeat the request: what has been applied is not applied twice"
        ) from error
    except RPCError as error:
        if error.status in _ENDED:
            raise ConflictError(
                f"rollout {rollout.id} is starting or has just ended; read it and repeat the request"
            ) from error
        raise _temporal_down(rollout, message, error) from error


async def _control_closed(
    session: AsyncSession, temporal: Client, rollout: Rollout, message: RolloutControl
) -> RolloutControlResult:
    """Of a rollout that has ended only one thing can still be asked: that its computes go back."""
    if message.action != "rollback":
        if message.action == "abort" and rollout.status == RolloutStatus.ABORTED:
            return RolloutControlResult(False, rollout.status, "the rollout is aborted already")
        raise ConflictError(f"rollout {rollout.id} is {rollout.status}; {message.action} has nothing to act on")
    # Held until this request is committed: the workflow's own report of the end must come after it.
    await session.refresh(rollout, with_for_update=True)
    if rollout.status == RolloutStatus.ROLLED_BACK:
        return RolloutControlResult(False, rollout.status, "the rollout is rolled back already")
    whole = message.wave is None and message.compute_id is None
    try:
        await temporal.start_workflow(
            ROLLBACK_WORKFLOW,
            RollbackInput(rollout.id, message.actor, message.wave, message.compute_id),
            id=rollback_workflow_id(rollout.id, message.wave, message.compute_id),
            task_queue=get_settings().task_queue,
            id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
            rpc_timeout=RPC_TIMEOUT,
        )
    except WorkflowAlreadyStartedError:
        return RolloutControlResult(False, rollout.status, "that is being rolled back already")
    except RPCError as error:
        raise _temporal_down(rollout, message, error) from error
    if not whole:
        return RolloutControlResult(True, rollout.status, "what was switched of it goes back")
    rollout.status = RolloutStatus.ROLLING_BACK
    rollout.status_reason, rollout.asked_by = f"rolled back by {message.actor}", message.actor
    return RolloutControlResult(True, rollout.status, "every switched compute goes back")


def _temporal_down(rollout: Rollout, message: RolloutControl, error: RPCError) -> UnavailableError:
    return UnavailableError(
        f"{message.action} could not be delivered to rollout {rollout.id}: the workflow engine does not answer "
        f"({error.message}); repeat the request"
    )
