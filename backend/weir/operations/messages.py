"""What the API hands to Temporal. Both sides import these, so that they cannot disagree.

Inputs name things and carry no wishes: a workflow reads what is wanted from the database.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class OperationInput:
    operation_id: str
    project_id: str
    branch_id: str | None
    endpoint_id: str | None
    origin: str


def operation_workflow_id(operation_id: object) -> str:
    return f"operation/{operation_id}"


def rollout_workflow_id(rollout_id: str) -> str:
    return f"rollout/{rollout_id}"


def batch_workflow_id(rollout_id: str, batch: int) -> str:
    """The computes of a rollout that are taken through its steps together."""
    return f"rollout/{rollout_id}/batch/{batch}"


def rollback_workflow_id(rollout_id: str, wave: int | None = None, compute_id: str | None = None) -> str:
    """Going back after the rollout's own workflow has ended: all of it, one wave, or one compute."""
    part = "" if wave is None else f"/wave/{wave}"
    part += "" if compute_id is None else f"/{compute_id}"
    return f"rollout/{rollout_id}/rollback{part}"


ROLLOUT_WORKFLOW = "fleet_rollout"
ROLLBACK_WORKFLOW = "fleet_rollback"
ROLLOUT_CONTROL_UPDATE = "control"
RECONCILER_WORKFLOW = "reconciler"
RECONCILER_WORKFLOW_ID = "reconciler"


@dataclass(frozen=True)
class RolloutProgress:
    """What a rollout's workflow takes along when it goes on as new; everything else stands in the database."""

    paused: bool
    paused_by: str
    next_batch: int
    plan_approved: bool
    approved_wave: int | None = None


@dataclass(frozen=True)
class RolloutInput:
    rollout_id: str
    progress: RolloutProgress | None = None


@dataclass(frozen=True)
class RollbackInput:
    rollout_id: str
    actor: str = ""
    wave: int | None = None
    compute_id: str | None = None


@dataclass(frozen=True)
class RolloutControl:
    """pause | resume | approve | skip | abort | rollback; `skip` is of a wave or a compute, and `rollback` may be.
    `gate` is the one that an approval means. `actor` and `request_id` are who asked and by which request."""

    action: str
    actor: str
    request_id: str
    wave: int | None = None
    compute_id: str | None = None
    gate: str | None = None


@dataclass(frozen=True)
class RolloutControlResult:
    """`applied` is false when the rollout was already so, or is past the point where it matters; `refused` when what
    was asked for is not what it would do."""

    applied: bool
    status: str
    message: str
    refused: bool = False
