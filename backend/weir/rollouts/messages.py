"""Messages between the API and the workflows of a rollout, with the names and ids of those workflows.

Names and fields stand in the recorded histories of workflows that are still open: a name never changes, and a field
is only ever added, with a default."""

from dataclasses import dataclass

ROLLOUT_WORKFLOW = "fleet_rollout"
ROLLBACK_WORKFLOW = "fleet_rollback"
ROLLOUT_CONTROL_UPDATE = "control"


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
