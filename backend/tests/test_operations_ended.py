"""Promise: how operations end is counted, each once, by kind: an alert rests on it."""

from prometheus_client import REGISTRY
from weir_testing.at_once import make
from weir_testing.fixtures import Weir

from weir.operations import ended
from weir.operations.models import Operation, OperationKind, OperationStatus
from weir_workflows.operations.activities import OperationActivities, OperationDone


def counted(kind: OperationKind, status: OperationStatus) -> float:
    value = REGISTRY.get_sample_value("weir_operations_ended_total", {"kind": kind.value, "status": status.value})
    assert value is not None, "a series that begins with its first event loses it to rate()"
    return value


def test_each_kind_and_end_has_a_series_from_the_start() -> None:
    for kind in OperationKind:
        for status in (OperationStatus.FINISHED, OperationStatus.FAILED, OperationStatus.CANCELLED):
            before = counted(kind, status)
            ended.count(Operation(kind=kind, status=status))
            assert counted(kind, status) == before + 1
    before = counted(OperationKind.START_COMPUTE, OperationStatus.FAILED)
    ended.count(None)
    assert counted(OperationKind.START_COMPUTE, OperationStatus.FAILED) == before


async def test_the_worker_counts_what_it_stored_once(weir: Weir) -> None:
    project = await make(weir, "counted")
    before = counted(OperationKind.DETACH_BRANCH, OperationStatus.FAILED)
    ident = await project.slow_detach()
    weir.storage.fail("pageserver", "DELETE", "/detach", 405)
    assert (await project.cancel(ident))["status"] == "failed"

    async def seen() -> bool:
        return counted(OperationKind.DETACH_BRANCH, OperationStatus.FAILED) == before + 1

    await weir.wait(seen)
    await OperationActivities(weir.resources).report_operation(OperationDone(ident, "reported again"))
    assert counted(OperationKind.DETACH_BRANCH, OperationStatus.FAILED) == before + 1
