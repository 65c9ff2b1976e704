"""Which operations can be cancelled, and why the others cannot. Pure."""

from weir.operations.models import Operation, OperationKind, OperationStatus

_BEFORE_ITS_END = (OperationStatus.SCHEDULING, OperationStatus.RUNNING)
_STOPS = "stopping a compute takes seconds, and is not broken off; start the endpoint again afterwards"
_DELETES = "what is being deleted may be gone in part"
_STORED = "the change is stored already, and would be taken up later in any case; change it back instead"
# Those that are not here can be cancelled: their workflows undo what they have done.
_REASONS = {
    OperationKind.CREATE_PROJECT: "delete the project instead, when this has finished",
    OperationKind.SUSPEND_COMPUTE: _STOPS,
    OperationKind.RESTART_COMPUTE: _STOPS,
    OperationKind.DELETE_COMPUTE: _DELETES,
    OperationKind.APPLY_CONFIG: _STORED,
    OperationKind.DELETE_BRANCH: _DELETES,
    OperationKind.DELETE_PROJECT: _DELETES,
    OperationKind.APPLY_STORAGE_CONFIG: _STORED,
    OperationKind.RESTORE_BRANCH: (
        "the branch is exchanged in a moment; while the state for it is still being made, cancel the operation that "
        "makes it, and afterwards restore the branch to what it was"
    ),
}


def why_not(operation: Operation) -> str | None:
    """None of one that can be cancelled now."""
    if operation.status not in _BEFORE_ITS_END:
        return f"it is {operation.status} already"
    return _REASONS.get(operation.kind)
