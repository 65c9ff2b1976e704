"""Activities on timelines. Each may run twice: storage answers a repeated create as it did the first."""

from dataclasses import dataclass

from sqlalchemy import select
from temporalio import activity

from weir.branches.log_members import is_there, majority, members_of_log, probe, seen_of
from weir.branches.members import members_of
from weir.branches.models import Branch, BranchState
from weir.branches.repository import BranchRepository
from weir.clients.compute import ComputeStatus
from weir.clients.http import RemoteError
from weir.clients.safekeeper import Safekeeper
from weir.endpoints.models import EndpointState
from weir.endpoints.repository import EndpointRepository
from weir.kit.clock import now
from weir.kit.ids import format_lsn, parse_lsn
from weir.projects.models import Project
from weir_workflows.common.errors import from_remote, missing
from weir_workflows.common.heartbeat import heartbeats, until
from weir_workflows.common.resources import Resources
from weir_workflows.storage.describing import ensure_described
from weir_workflows.storage.founding import LogFacts, found, founders

INGEST_PATIENCE_SECONDS = 60


@dataclass(frozen=True)
class TimelineFacts:
    """What a safekeeper must know of a timeline before it takes WAL for it."""

    start_lsn: str
    system_identifier: str
    pg_version: int
    ancestor_lsn: str | None


@dataclass(frozen=True)
class SafekeeperTimelineInput:
    branch_id: str
    facts: TimelineFacts


@dataclass(frozen=True)
class BranchReadyInput:
    branch_id: str
    parent_lsn: str | None


class StorageActivities:
    def __init__(self, resources: Resources) -> None:
        self._r = resources

    async def _branch(self, branch_id: str) -> tuple[Branch, Project]:
        async with self._r.database.transaction() as session:
            row = (
                await session.execute(
                    select(Branch, Project)
                    .join(Project, Project.id == Branch.project_id)
                    .where(Branch.id == branch_id)
                )
            ).one_or_none()
        if row is None:
            raise missing("branch", branch_id)
        return row[0], row[1]

    async def _project(self, project_id: str) -> Project:
        async with self._r.database.transaction() as session:
            project = await session.get(Project, project_id)
        if project is None:
            raise missing("project", project_id)
        return project

    @activity.defn
    async def create_tenant(self, project_id: str) -> None:
        project = await self._project(project_id)
        try:
            await self._r.pageserver.put_tenant(project.tenant_id)
            await self._r.pageserver.configure_tenant(project.tenant_id, project.storage_config())
            await ensure_described(self._r, project_id)
        except RemoteError as error:
            raise from_remote(error) from error

    @activity.defn
    async def configure_tenant(self, project_id: str) -> None:
        project = await self._project(project_id)
        try:
            await self._r.pageserver.configure_tenant(project.tenant_id, project.storage_config())
        except RemoteError as error:
            raise from_remote(error) from error

    @activity.defn
    async def resolve_branch_point(self, branch_id: str) -> None:
        """Fixes where a branch of the head leaves its parent, before anything is made, so that a repeated
        create asks for the same. Everything acknowledged by now is on the branch."""
        branch, project = await self._branch(branch_id)
        if branch.parent_id is None or branch.parent_lsn is not None:
            return
        parent, _ = await self._branch(branch.parent_id)
        async with heartbeats():
            lsn = await self._committed(project.tenant_id, parent)
        async with self._r.database.transaction() as session:
            row = await session.get(Branch, branch_id, with_for_update=True)
            if row is not None and row.parent_lsn is None:
                row.parent_lsn = format_lsn(lsn)

    async def _committed(self, tenant: str, parent: Branch) -> int:
        """The newest LSN a majority has. A safekeeper may not have heard yet that it is committed, the running
        compute, which told its clients, has."""
        async with self._r.database.transaction() as session:
            stored = await members_of(session, parent.timeline_id, len(self._r.safekeepers))
            writer = await EndpointRepository(session).writer_of(parent.id)
        answers = await probe(self._r.safekeepers, tenant, parent.timeline_id)
        members = members_of_log(answers, stored)
        if members is None or members.doubt is not None:
            why = "no safekeeper shows it" if members is None else members.doubt
            raise RuntimeError(f"the log of branch {parent.id} cannot be read: {why}")
        logs = [one.log for number in members.voters if is_there(members, one := seen_of(answers, number))]
        seen = [parse_lsn(log.commit_lsn) for log in logs if log is not None and log.commit_lsn is not None]
        if len(seen) < majority(len(members.voters)):
            raise RuntimeError(
                f"only {len(seen)} of {len(members.voters)} safekeepers have a usable log of branch {parent.id}"
            )
        if writer is not None and writer.state == EndpointState.ACTIVE:
            status = await self._status_or_none(writer.id)
            if status is not None and status.commit_lsn is not None:
                seen.append(parse_lsn(status.commit_lsn))
        return max(seen)

    async def _status_or_none(self, endpoint_id: str) -> ComputeStatus | None:
        async with self._r.database.transaction() as session:
            row = await EndpointRepository(session).get(endpoint_id)
        if row is None:
            return None
        try:
            return await self._r.agent(row).status()
        except RemoteError:
            return None

    async def _keepers(self, branch: Branch) -> list[Safekeeper]:
        """Those that hold the branch's log, or are to."""
        async with self._r.database.transaction() as session:
            return self._r.numbered(await members_of(session, branch.timeline_id, len(self._r.safekeepers)))

    @activity.defn
    async def create_timeline(self, branch_id: str) -> TimelineFacts:
        branch, project = await self._branch(branch_id)
        ancestor: Branch | None = None
        if branch.parent_id is not None:
            ancestor, _ = await self._branch(branch.parent_id)
        try:
            # First: no timeline is ever without a name.
            await ensure_described(self._r, project.id)
            keepers = await self._keepers(branch)
            async with heartbeats():
                if ancestor is not None and branch.parent_lsn is not None:
                    await self._wait_ingested(project.tenant_id, ancestor, branch.parent_lsn)
                status = await self._r.pageserver.create_timeline(
                    project.tenant_id,
                    branch.timeline_id,
                    project.pg_version,
                    self._r.wal_addresses(keeper.number for keeper in keepers),
                    ancestor=ancestor.timeline_id if ancestor else None,
                    ancestor_lsn=branch.parent_lsn if ancestor else None,
                )
        except RemoteError as error:
            raise from_remote(error) from error
        return TimelineFacts(status.start_lsn, status.system_identifier, status.pg_version, status.ancestor_lsn)

    async def _wait_ingested(self, tenant: str, ancestor: Branch, lsn: str) -> None:
        async def check() -> str | None:
            timeline = await self._r.pageserver.timeline(tenant, ancestor.timeline_id)
            if timeline is None:
                return f"the pageserver has no timeline of branch {ancestor.id}"
            if timeline.state != "active":
                return f"the pageserver has branch {ancestor.id} {timeline.state}: {timeline.reason}"
            if parse_lsn(timeline.last_record_lsn) < parse_lsn(lsn):
                return f"the pageserver has branch {ancestor.id} to {timeline.last_record_lsn}, not yet to {lsn}"
            return None

        await until(check, INGEST_PATIENCE_SECONDS)

    @activity.defn
    async def create_on_safekeepers(self, message: SafekeeperTimelineInput) -> int:
        """A majority is enough to go on; one that was down is given the timeline by the reconciler. Once the branch
        is ready its log may hold commits: a repetition that comes late founds nothing."""
        branch, project = await self._branch(message.branch_id)
        keepers = await self._keepers(branch)
        if branch.state == BranchState.READY:
            return len(keepers)
        facts = LogFacts(message.facts.start_lsn, message.facts.system_identifier, message.facts.pg_version)
        disks = await founders(keepers)
        answers = await found(self._r.database, project.tenant_id, branch.timeline_id, facts, keepers, disks)
        errors = [answer for answer in answers if answer is not None]
        for error in errors:
            if not isinstance(error, RemoteError) or not error.retryable:
                raise from_remote(error) if isinstance(error, RemoteError) else error
        made = len(answers) - len(errors)
        if made < majority(len(answers)):
            raise RuntimeError(
                f"{made} of {len(answers)} safekeepers took the timeline; the first error: {errors[0]}"
            )
        return made

    @activity.defn
    async def mark_branch_ready(self, message: BranchReadyInput) -> None:
        async with self._r.database.transaction() as session:
            branch = await session.get(Branch, message.branch_id, with_for_update=True)
            if branch is None or branch.state == BranchState.READY:
                return
            branch.state = BranchState.READY
            branch.state_changed_at = now()
            if message.parent_lsn is not None:
                branch.parent_lsn = message.parent_lsn

    @activity.defn
    async def delete_timeline(self, branch_id: str) -> None:
        """The pageserver first: it refuses while there are children, and then nothing is lost."""
        branch, project = await self._branch(branch_id)
        try:
            async with heartbeats():
                await self._r.pageserver.delete_timeline(project.tenant_id, branch.timeline_id)
                for keeper in self._r.safekeepers:
                    await keeper.delete_timeline(project.tenant_id, branch.timeline_id)
        except RemoteError as error:
            raise from_remote(error) from error

    @activity.defn
    async def delete_tenant(self, project_id: str) -> None:
        """The tenant with every timeline it has."""
        project = await self._project(project_id)
        async with self._r.database.transaction() as session:
            branches = await BranchRepository(session).ever_of_project(project_id)
        try:
            async with heartbeats():
                await self._r.pageserver.delete_tenant(project.tenant_id)
                for keeper in self._r.safekeepers:
                    for branch in branches:
                        await keeper.delete_timeline(project.tenant_id, branch.timeline_id)
        except RemoteError as error:
            raise from_remote(error) from error

    @activity.defn
    async def forget_branch(self, branch_id: str) -> None:
        async with self._r.database.transaction() as session:
            branch = await session.get(Branch, branch_id, with_for_update=True)
            if branch is None or branch.deleted_at is not None:
                return
            branch.deleted_at = now()
            for endpoint in await EndpointRepository(session).of_branch(branch_id):
                endpoint.deleted_at = now()
        # What stays of it in the description until the reconciler comes by does no harm: its timeline is gone.

    @activity.defn
    async def forget_project(self, project_id: str) -> None:
        async with self._r.database.transaction() as session:
            project = await session.get(Project, project_id, with_for_update=True)
            if project is None or project.deleted_at is not None:
                return
            project.deleted_at = now()
            for branch in await BranchRepository(session).of_project(project_id):
                branch.deleted_at = now()
            for endpoint in await EndpointRepository(session).of_project(project_id):
                endpoint.deleted_at = now()
