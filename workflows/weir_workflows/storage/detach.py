"""Activities that make a branch independent of its parent. Each may run twice."""

import asyncio

from temporalio import activity

from weir.branches.models import Branch
from weir.clients.http import RemoteError
from weir.kit.clock import now
from weir.projects.models import Project
from weir_workflows.common.errors import from_remote, missing
from weir_workflows.common.heartbeat import heartbeats
from weir_workflows.common.resources import Resources

LOOK_SECONDS = 0.5


class DetachActivities:
    def __init__(self, resources: Resources) -> None:
        self._r = resources

    async def _ids(self, branch_id: str) -> tuple[str, str]:
        """Tenant and timeline."""
        async with self._r.database.transaction() as session:
            branch = await session.get(Branch, branch_id)
            project = None if branch is None else await session.get(Project, branch.project_id)
        if branch is None or project is None:
            raise missing("branch", branch_id)
        return project.tenant_id, branch.timeline_id

    @activity.defn
    async def detach_timeline(self, branch_id: str) -> None:
        """Has storage copy what the branch reads of its ancestors, and waits until it has. After a restart of the
        pageserver it is asked for again; a repetition of this activity goes on where it is."""
        tenant, timeline = await self._ids(branch_id)
        async with heartbeats():
            try:
                found = await self._r.pageserver.detach_timeline(tenant, timeline)
                while found.state == "running":
                    await asyncio.sleep(LOOK_SECONDS)
                    found = await self._r.pageserver.detaching(tenant, timeline)
            except RemoteError as error:
                raise from_remote(error) from error
        if found.state != "detached":
            why = found.reason or f"the pageserver stopped at {found.layers_copied} of {found.layers} layers"
            raise RuntimeError(f"branch {branch_id} is not detached: {why}")

    @activity.defn
    async def give_up_detaching(self, branch_id: str) -> bool:
        """Has storage stop copying, and waits until it has. False when the branch was detached before that."""
        tenant, timeline = await self._ids(branch_id)
        async with heartbeats():
            try:
                found = await self._r.pageserver.give_up_detaching(tenant, timeline)
                while found.state == "running":
                    await asyncio.sleep(LOOK_SECONDS)
                    found = await self._r.pageserver.detaching(tenant, timeline)
            except RemoteError as error:
                raise from_remote(error) from error
        return found.state != "detached"

    @activity.defn
    async def forget_parent(self, branch_id: str) -> None:
        async with self._r.database.transaction() as session:
            branch = await session.get(Branch, branch_id, with_for_update=True)
            if branch is None or branch.parent_id is None:
                return
            branch.parent_id = branch.parent_lsn = branch.parent_timestamp = None
            branch.updated_at = now()
