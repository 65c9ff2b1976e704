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
    """`restored` is the branch that holds the state wanted until the exchange, and the state replaced after it; with
    `kept` it stays when the restore fails. `endpoints` are those of both branches."""

    endpoints: list[str]
    restored: str
    exchanged: bool
    kept: bool = False


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
            restored: str = operation.payload["restored"]
            repository = EndpointRepository(session)
            endpoints = [
                endpoint
                for ident in (operation.branch_id, restored)
                for endpoint in await repository.of_branch(ident)
            ]
        return Restore(
            [endpoint.id for endpoint in endpoints],
            restored,
            branch.timeline_id != operation.payload["replaced_timeline"],
            kept="preserve_under" in operation.payload,
        )

    @activity.defn
    async def exchange_timelines(self, operation_id: str) -> None:
        async with self._r.database.transaction() as session:
            await restore.exchange(session, await session.get_one(Operation, UUID(operation_id)))
