"""One workflow per kind of operation.

Each reads what is wanted when it runs, undoes what it made when it fails, and always reports: an operation ends as
finished, perhaps with a warning, or failed, with the reason, or cancelled, and the operations that wait for it go on
or are skipped.
"""

from temporalio import workflow
from temporalio.exceptions import ActivityError

with workflow.unsafe.imports_passed_through():
    from weir.operations.messages import OperationInput
    from weir_workflows.common import policies
    from weir_workflows.common.errors import reason_of
    from weir_workflows.computes.activities import ComputeActivities
    from weir_workflows.operations.carrying import Cancellable, carry_out
    from weir_workflows.storage.activities import BranchReadyInput, SafekeeperTimelineInput, StorageActivities
    from weir_workflows.storage.detach import DetachActivities
    from weir_workflows.storage.replace import ReplaceActivities
    from weir_workflows.storage.restore import RestoreActivities

# Of restores begun before, the replay goes the way they went.
RESTORED_ONCE_EXCHANGED = "restored-once-exchanged"
# Of a log's members; nine replaced by nine others in place take 36.
MOST_CHANGES = 100


def _branch_of(operation: OperationInput) -> str:
    assert operation.branch_id is not None  # noqa: S101  the intent was written with one
    return operation.branch_id


def _endpoint_of(operation: OperationInput) -> str:
    assert operation.endpoint_id is not None  # noqa: S101
    return operation.endpoint_id


@workflow.defn(name="create_project")
class CreateProject:
    """Tenant and main timeline. On failure both go, and the project with them."""

    @workflow.run
    async def run(self, operation: OperationInput) -> None:
        async def do() -> None:
            await workflow.execute_activity_method(
                StorageActivities.create_tenant, operation.project_id, **policies.STORAGE
            )
            branch_id = _branch_of(operation)
            facts = await workflow.execute_activity_method(
                StorageActivities.create_timeline, branch_id, **policies.STORAGE
            )
            await workflow.execute_activity_method(
                StorageActivities.create_on_safekeepers, SafekeeperTimelineInput(branch_id, facts), **policies.STORAGE
            )
            await workflow.execute_activity_method(
                StorageActivities.mark_branch_ready,
                BranchReadyInput(branch_id, facts.ancestor_lsn),
                **policies.RECORD,
            )

        async def undo() -> None:
            await workflow.execute_activity_method(
                StorageActivities.delete_tenant, operation.project_id, **policies.UNDO
            )
            await workflow.execute_activity_method(
                StorageActivities.forget_project, operation.project_id, **policies.RECORD
            )

        await carry_out(operation, do, undo)


@workflow.defn(name="create_branch")
class CreateBranch(Cancellable):
    @workflow.run
    async def run(self, operation: OperationInput) -> None:
        branch_id = _branch_of(operation)

        async def do() -> None:
            await self.step(StorageActivities.resolve_branch_point, branch_id, policies.STORAGE)
            facts = await self.step(StorageActivities.create_timeline, branch_id, policies.STORAGE)
            founded = SafekeeperTimelineInput(branch_id, facts)
            await self.step(StorageActivities.create_on_safekeepers, founded, policies.STORAGE)
            ready = BranchReadyInput(branch_id, facts.ancestor_lsn)
            await self.step(StorageActivities.mark_branch_ready, ready, policies.RECORD)

        async def undo() -> None:
            await workflow.execute_activity_method(StorageActivities.delete_timeline, branch_id, **policies.UNDO)
            await workflow.execute_activity_method(StorageActivities.forget_branch, branch_id, **policies.RECORD)

        async def give_up() -> bool:
            await undo()
            return True

        await self.carry_out(operation, do, undo, give_up)


@workflow.defn(name="start_compute")
class StartCompute(Cancellable):
    """A start somebody asked for is given up when it fails; one the reconciler asked for stays wanted, since
    whatever is down will come back. One that is cancelled is wanted by nobody any more."""

    @workflow.run
    async def run(self, operation: OperationInput) -> None:
        endpoint_id = _endpoint_of(operation)

        async def do() -> None:
            await self.step(ComputeActivities.start_compute, endpoint_id, policies.COMPUTE)

        async def undo() -> None:
            await workflow.execute_activity_method(ComputeActivities.abandon_compute, endpoint_id, **policies.UNDO)

        async def give_up() -> bool:
            await undo()
            return True

        await self.carry_out(operation, do, undo if operation.origin == "request" else None, give_up)


@workflow.defn(name="suspend_compute")
class SuspendCompute:
    @workflow.run
    async def run(self, operation: OperationInput) -> None:
        async def do() -> None:
            await workflow.execute_activity_method(
                ComputeActivities.stop_compute, _endpoint_of(operation), **policies.COMPUTE
            )

        await carry_out(operation, do)


@workflow.defn(name="restart_compute")
class RestartCompute:
    @workflow.run
    async def run(self, operation: OperationInput) -> None:
        endpoint_id = _endpoint_of(operation)

        async def do() -> None:
            await workflow.execute_activity_method(ComputeActivities.stop_compute, endpoint_id, **policies.COMPUTE)
            await workflow.execute_activity_method(ComputeActivities.start_compute, endpoint_id, **policies.COMPUTE)

        await carry_out(operation, do)


@workflow.defn(name="delete_compute")
class DeleteCompute:
    @workflow.run
    async def run(self, operation: OperationInput) -> None:
        endpoint_id = _endpoint_of(operation)

        async def do() -> None:
            await workflow.execute_activity_method(ComputeActivities.stop_compute, endpoint_id, **policies.COMPUTE)
            await workflow.execute_activity_method(ComputeActivities.forget_endpoint, endpoint_id, **policies.UNDO)

        await carry_out(operation, do)


@workflow.defn(name="apply_config")
class ApplyConfig:
    @workflow.run
    async def run(self, operation: OperationInput) -> None:
        async def do() -> str | None:
            return await workflow.execute_activity_method(
                ComputeActivities.configure_compute, _endpoint_of(operation), **policies.COMPUTE
            )

        await carry_out(operation, do)


@workflow.defn(name="delete_branch")
class DeleteBranch:
    @workflow.run
    async def run(self, operation: OperationInput) -> None:
        branch_id = _branch_of(operation)

        async def do() -> None:
            await workflow.execute_activity_method(StorageActivities.delete_timeline, branch_id, **policies.UNDO)
            await workflow.execute_activity_method(StorageActivities.forget_branch, branch_id, **policies.RECORD)

        await carry_out(operation, do)


async def _start(endpoints: list[str]) -> None:
    # Only those that are wanted running: the activity looks.
    for endpoint in endpoints:
        await workflow.execute_activity_method(ComputeActivities.start_compute, endpoint, **policies.COMPUTE)


async def _start_each(endpoints: list[str]) -> str | None:
    """Starts what can be started, and says what could not."""
    failures: list[str] = []
    for endpoint in endpoints:
        try:
            await _start([endpoint])
        except ActivityError as failure:
            failures.append(f"compute {endpoint} has not started: {reason_of(failure)}")
    return f"{'; '.join(failures)}. It is started again and again; look at its log" if failures else None


@workflow.defn(name="restore_branch")
class RestoreBranch:
    """Computes stop, the branch gets its restored state, computes start. What fails before the exchange leaves the
    branch as it was, its computes running before anything else is put back. After it the branch is restored: computes
    that do not start are a warning, and the reconciler's."""

    @workflow.run
    async def run(self, operation: OperationInput) -> None:
        ident = operation.operation_id

        async def do() -> str | None:
            found = await workflow.execute_activity_method(
                RestoreActivities.look_at_restore, ident, **policies.RECORD
            )
            for endpoint in found.endpoints:
                await workflow.execute_activity_method(ComputeActivities.stop_compute, endpoint, **policies.COMPUTE)
            await workflow.execute_activity_method(RestoreActivities.exchange_timelines, ident, **policies.RECORD)
            if not workflow.patched(RESTORED_ONCE_EXCHANGED):
                await _start(found.endpoints)
                return None
            silent = await _start_each(found.endpoints)
            return f"the branch is restored, but {silent}" if silent else None

        async def undo() -> str | None:
            found = await workflow.execute_activity_method(
                RestoreActivities.look_at_restore, ident, **policies.RECORD
            )
            if found.exchanged:
                return None
            # Clients wait for the computes; for storage, which may be away for minutes, nobody does.
            computes_first = workflow.patched(RESTORED_ONCE_EXCHANGED)
            silent = await _start_each(found.endpoints) if computes_first else None
            if found.kept:
                return silent
            await workflow.execute_activity_method(StorageActivities.delete_timeline, found.restored, **policies.UNDO)
            await workflow.execute_activity_method(StorageActivities.forget_branch, found.restored, **policies.RECORD)
            if not computes_first:
                await _start(found.endpoints)
            return silent

        await carry_out(operation, do, undo)


@workflow.defn(name="detach_branch")
class DetachBranch(Cancellable):
    """There is nothing to undo: a branch is detached when storage says so, and until then as it was. Where storage is
    told to stop too late, the branch is detached."""

    @workflow.run
    async def run(self, operation: OperationInput) -> None:
        branch_id = _branch_of(operation)

        async def do() -> None:
            await self.step(DetachActivities.detach_timeline, branch_id, policies.COPY)
            await self.step(DetachActivities.forget_parent, branch_id, policies.RECORD)

        async def give_up() -> bool:
            if await workflow.execute_activity_method(DetachActivities.give_up_detaching, branch_id, **policies.UNDO):
                return True
            await workflow.execute_activity_method(DetachActivities.forget_parent, branch_id, **policies.RECORD)
            return False

        await self.carry_out(operation, do, give_up=give_up)


@workflow.defn(name="replace_safekeeper")
class ReplaceSafekeeper(Cancellable):
    """Changes of a log's members, one after the other, until they are as wanted. There is nothing to undo: after
    each of them the log has members that work, and asking for the same again goes on."""

    @workflow.run
    async def run(self, operation: OperationInput) -> None:
        async def do() -> str | None:
            for _ in range(MOST_CHANGES):
                done = await self.step(ReplaceActivities.change_one, operation.operation_id, policies.MEMBERS)
                if done is None:
                    return None
            return "something else changes the members of this log too; look at them before asking again"

        await self.carry_out(operation, do)


@workflow.defn(name="apply_storage_config")
class ApplyStorageConfig:
    @workflow.run
    async def run(self, operation: OperationInput) -> None:
        async def do() -> None:
            await workflow.execute_activity_method(
                StorageActivities.configure_tenant, operation.project_id, **policies.STORAGE
            )

        await carry_out(operation, do)


@workflow.defn(name="delete_project")
class DeleteProject:
    @workflow.run
    async def run(self, operation: OperationInput) -> None:
        async def do() -> None:
            await workflow.execute_activity_method(
                StorageActivities.delete_tenant, operation.project_id, **policies.UNDO
            )
            await workflow.execute_activity_method(
                StorageActivities.forget_project, operation.project_id, **policies.RECORD
            )

        await carry_out(operation, do)


WORKFLOWS: list[type] = [
    CreateProject,
    CreateBranch,
    StartCompute,
    SuspendCompute,
    RestartCompute,
    DeleteCompute,
    ApplyConfig,
    DeleteBranch,
    RestoreBranch,
    DetachBranch,
    ReplaceSafekeeper,
    ApplyStorageConfig,
    DeleteProject,
]
