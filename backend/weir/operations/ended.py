"""How operations end, counted by the process that stored it: the worker, or the API where a workflow was lost."""

from prometheus_client import Counter

from weir.operations.models import Operation, OperationKind, OperationStatus

ENDED = Counter("weir_operations_ended_total", "Operations that have ended, by how", ["kind", "status"])
# A series that begins with its first event loses that event to `rate()`.
for _kind in OperationKind:
    for _status in (OperationStatus.FINISHED, OperationStatus.FAILED, OperationStatus.CANCELLED):
        ENDED.labels(_kind.value, _status.value)


def count(ended: Operation | None) -> None:
    """Call after the commit, with what `mark_done` answered; None is a repetition and counts nothing."""
    if ended is not None:
        ENDED.labels(ended.kind.value, ended.status.value).inc()
