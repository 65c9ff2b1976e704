"""Activities of a restore: what `weir.branches.restore` wrote down, carried out. Each may run twice."""

from dataclasses import dataclass
from uuid import UUID

from temporalio import activity

from weir.branches import restore
from weir.branches.models import Branch
from weir.endpoints.repository import EndpointRepository
from weir.operations.models import Operation
from weir_workflows.common.errors import missing
from weir_workflows.common.resources import Resources


@dataclass(frozen=True)
class Restore:
    """`restored` is the branch that holds the state wanted until the exchange, and the state replaced after it."""

    endpoints: list[str]
    restored: str
    exchanged: bool


class RestoreActivities:
    def __init__(self, resources: Resources) -> None:
        self._r = resources

    @activity.defn
    async def look_at_restore(self, operation_id: str) -> Restore:
        async with self._r.database.transaction() as session:
            operation = await session.get(Operation, UUID(operation_id))
            if operation is None or operation.branch_id is None:
                raise missing("operation", operation_id)
            branch = await session.get_one(Branch, operation.branch_id)
            endpoints = await EndpointRepository(session).of_branch(operation.branch_id)
        return Restore(
            [endpoint.id for endpoint in endpoints],
            operation.payload["restored"],
            branch.timeline_id != operation.payload["replaced_timeline"],
        )

    @activity.defn
    async def exchange_timelines(self, operation_id: str) -> None:
        async with self._r.database.transaction() as session:
            await restore.exchange(session, await session.get_one(Operation, UUID(operation_id)))
