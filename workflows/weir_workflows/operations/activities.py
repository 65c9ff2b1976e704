from dataclasses import dataclass
from uuid import UUID

from temporalio import activity

from weir.operations import ended, service
from weir_workflows.common.resources import Resources


@dataclass(frozen=True)
class OperationDone:
    operation_id: str
    error: str | None
    warning: str | None = None
    cancelled: bool = False


class OperationActivities:
    def __init__(self, resources: Resources) -> None:
        self._r = resources

    @activity.defn
    async def report_operation(self, message: OperationDone) -> None:
        async with self._r.database.transaction() as session:
            row = await service.mark_done(
                session, UUID(message.operation_id), message.error, message.warning, cancelled=message.cancelled
            )
        ended.count(row)
