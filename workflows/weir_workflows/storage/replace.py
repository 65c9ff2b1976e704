"""Replacing a log's safekeepers: one change after the other until the log's voters are those wanted.

`change_one` asks the safekeepers whom the log names, decides from that alone which change comes next, and makes it.
So it goes on wherever another one broke off, whoever made the last change, and whatever the database believes: what
is stored there only says where to ask, and follows.

In which order things are stored, and why a crash in between does no harm:
- that a safekeeper is to hold the log, before it is asked to: nobody founds it there any more;
- that a learner is to be asked by computes, before it is made a voter: a compute that starts finds each voter;
- that a former member is not to be asked any more, after the log has removed it.

A member's log is never deleted here. That of a former member stays where it is and counts for nothing.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import structlog
from sqlalchemy import case
from sqlalchemy.dialects.postgresql import insert
from temporalio import activity
from temporalio.exceptions import ApplicationError

from weir.branches.log_members import (
    LogMembers,
    Seen,
    Step,
    StepKind,
    committed,
    is_there,
    marked,
    members_of_log,
    next_step,
    probe,
    seen_of,
    waits,
)
from weir.branches.members import WELL, MemberState, TimelineMember, marks_of, members_of, rows_of
from weir.branches.models import Branch, BranchState
from weir.clients.http import RemoteError
from weir.clients.pageserver import SickMark, TimelineStatus
from weir.clients.safekeeper import Safekeeper
from weir.endpoints.models import Endpoint
from weir.endpoints.repository import EndpointRepository
from weir.kit.clock import now
from weir.operations.models import Operation
from weir.projects.models import Project
from weir.tokens import bearer
from weir_workflows.common.errors import from_remote, missing, refused
from weir_workflows.common.heartbeat import heartbeats
from weir_workflows.common.resources import Resources
from weir_workflows.computes.activities import ComputeActivities
from weir_workflows.storage import members_program

log = structlog.get_logger()

# Branches whose members change at the same time, of this worker.
AT_ONCE = 8
CHANGE_TIMEOUT_MS = 20_000
# A safekeeper fills one log after the other. Whose turn has not come, or takes longer, is left to its peers.
FILL_SECONDS = 1_200.0
_DONE = {
    StepKind.LEARNER: "safekeeper {} has an empty log that waits",
    StepKind.ADD: "safekeeper {} is a learner",
    StepKind.PROMOTE: "safekeeper {} is a voter",
    StepKind.REMOVE: "safekeeper {} is no member any more",
}


@dataclass(frozen=True)
class Replacement:
    """A branch, and which safekeepers are to be its log's voters."""

    branch: Branch
    project: Project
    wanted: tuple[int, ...]
    stored: tuple[int, ...]
    endpoints: tuple[Endpoint, ...]
    marks: dict[int, SickMark]


class ReplaceActivities:
    def __init__(self, resources: Resources) -> None:
        self._r = resources
        self._turns = asyncio.Semaphore(AT_ONCE)

    @activity.defn
    async def change_one(self, operation_id: str) -> str | None:
        """Makes the next change, and says which; None when the members are as wanted, and everybody knows it."""
        async with heartbeats(), self._turns:
            what = await self._replacement(operation_id)
            seen = await probe(self._r.safekeepers, what.project.tenant_id, what.branch.timeline_id)
            seen = marked(seen, what.marks)
            members = members_of_log(seen, what.stored)
            if members is None:
                raise RuntimeError(f"no safekeeper shows the log of branch {what.branch.id}")
            if members.doubt is not None:
                raise RuntimeError(f"the members of branch {what.branch.id} cannot be changed: {members.doubt}")
            if not members.settled:
                await self._settle(what, members, seen)
                return "the change before is settled"
            step = next_step(members, seen, what.wanted)
            if step is None:
                await self._follow(what, members)
                return None
            if (reason := waits(members, seen, step)) is not None:
                raise RuntimeError(reason)
            await self._take(what, members, step, seen)
        done = _DONE[step.kind].format(step.safekeeper)
        log.info("members_changed", branch_id=what.branch.id, generation=members.generation, change=done)
        return done

    async def _replacement(self, operation_id: str) -> Replacement:
        async with self._r.database.transaction() as session:
            operation = await session.get(Operation, UUID(operation_id))
            if operation is None or operation.branch_id is None:
                raise missing("operation", operation_id)
            branch = await session.get_one(Branch, operation.branch_id)
            project = await session.get_one(Project, branch.project_id)
            stored = await members_of(session, branch.timeline_id, len(self._r.safekeepers))
            marks = marks_of(await rows_of(session, branch.timeline_id))
            endpoints = await EndpointRepository(session).of_branch(branch.id)
        if (
            branch.deleted_at is not None
            or branch.delete_requested_at is not None
            or branch.state != BranchState.READY
        ):
            raise refused(f"branch {branch.id} is being deleted, or was never made; its members stay as they are")
        if self._r.settings.compute_runtime == "simulated":
            raise refused("this installation's storage is a model; its logs have no members")
        wanted = tuple(sorted(operation.payload["safekeepers"]))
        return Replacement(branch, project, wanted, tuple(stored), tuple(endpoints), marks)

    async def _take(self, what: Replacement, members: LogMembers, step: Step, seen: Sequence[Seen]) -> None:
        number = step.safekeeper
        if members.generation == 0:
            # Asking for a member that is one makes the log name all of them, and waits until it does.
            await self._change(what, members, "add", what.stored[0])
        match step.kind:
            case StepKind.LEARNER:
                await self._make_learner(what, number, committed(members, seen))
            case StepKind.ADD:
                await self._change(what, members, "add", number)
                await self._store(what, number, MemberState.MEMBER)
            case StepKind.PROMOTE:
                # Again, for a compute that has started since and does not know where it is.
                await self._change(what, members, "add", number)
                await self._store(what, number, MemberState.MEMBER)
                await self._tell_computes(what)
                await self._tell_pageserver(what)
                await self._change(what, members, "promote", number)
            case StepKind.REMOVE:
                # Before, since it would read there what nobody adds to any more.
                await self._tell_pageserver(what, without=number)
                await self._change(what, members, "remove", number)
                await self._store(what, number, MemberState.REMOVED)

    async def _settle(self, what: Replacement, members: LogMembers, seen: Sequence[Seen]) -> None:
        """A change broke off before a majority had stored it. Whoever holds a term now brings the members that it
        found to a majority; what they are then, the next look shows."""
        there = [number for number in members.voters if is_there(members, seen_of(seen, number))]
        await self._change(what, members, "add", there[0])

    async def _follow(self, what: Replacement, members: LogMembers) -> None:
        """What is stored becomes what the log says, and computes and the pageserver hear of it."""
        named = {member.node for member in members.members}
        if members.generation > 0:
            for number in named - set(what.stored):
                await self._store(what, number, MemberState.MEMBER)
            for number in set(what.stored) - named:
                await self._store(what, number, MemberState.REMOVED)
        await self._tell_computes(what)
        await self._tell_pageserver(what)

    async def _make_learner(self, what: Replacement, number: int, up_to: str | None) -> None:
        facts = await self._timeline(what)
        (keeper,) = self._r.numbered([number])
        await self._store(what, number, MemberState.JOINING, asked_at=now(), founded_at=None)
        tenant, timeline = what.project.tenant_id, what.branch.timeline_id
        try:
            await keeper.create_learner(tenant, timeline, facts.start_lsn, facts.system_identifier, facts.pg_version)
        except RemoteError as error:
            raise from_remote(error) from error
        await self._store(what, number, MemberState.JOINING, founded_at=now())
        if up_to is not None and facts.remote_consistent_lsn is not None:
            await self._fill(what, keeper, up_to, facts.remote_consistent_lsn)

    async def _fill(self, what: Replacement, keeper: Safekeeper, up_to: str, begin_by: str) -> None:
        """From the object store, as far as that goes. What it lacks, and all of it where it has none or cannot be
        reached, the peers bring when the log is made a learner."""
        tenant, timeline = what.project.tenant_id, what.branch.timeline_id
        try:
            to = await keeper.fill(tenant, timeline, up_to=up_to, begin_by=begin_by, timeout=FILL_SECONDS)
        except RemoteError as error:
            log.warning("learner_not_filled", branch_id=what.branch.id, safekeeper_id=keeper.number, error=str(error))
        else:
            log.info("learner_filled", branch_id=what.branch.id, safekeeper_id=keeper.number, to=to, up_to=up_to)

    async def _timeline(self, what: Replacement) -> TimelineStatus:
        timeline = await self._r.pageserver.timeline(what.project.tenant_id, what.branch.timeline_id)
        if timeline is None:
            raise RuntimeError(f"the pageserver has no timeline of branch {what.branch.id}")
        return timeline

    async def _change(self, what: Replacement, members: LogMembers, kind: str, number: int) -> None:
        """Asks the compute that runs; without one, a program wins a term for it, and no compute starts meanwhile."""
        (address,) = self._r.wal_addresses([number]) if kind == "add" else ("",)
        change: dict[str, str | int] = {kind: address or number}
        idents = [endpoint.id for endpoint in what.endpoints]
        running = await self._r.computes.running(idents)
        for endpoint in what.endpoints:
            if endpoint.id in running:
                return await self._ask_compute(what, endpoint, change)
        async with self._r.computes.at_rest(idents) as held:
            if held is None:
                raise RuntimeError(f"a compute of branch {what.branch.id} has started; it is asked in the next try")
            asked = sorted({*what.stored, *(member.node for member in members.members)})
            await members_program.change(
                self._r.settings.bin_dir,
                members_program.Log(
                    what.project.tenant_id,
                    what.branch.timeline_id,
                    self._r.wal_addresses(asked),
                    (await self._timeline(what)).last_record_lsn,
                ),
                [kind, str(address or number)],
                CHANGE_TIMEOUT_MS,
                held,
                bearer.for_members(self._r.settings, what.project.tenant_id, what.branch.timeline_id),
                self._r.settings.tls_file,
            )
        return None

    async def _ask_compute(self, what: Replacement, endpoint: Endpoint, change: dict[str, str | int]) -> None:
        """What it refuses may go in a while: it starts, a learner catches up, a safekeeper comes back."""
        agent = self._r.agent(endpoint)
        try:
            status = await agent.status()
            if status.compute_id != endpoint.id:
                raise RuntimeError(f"port {endpoint.port} of compute {endpoint.id} answers for {status.compute_id}")
            await agent.change_members(what.branch.timeline_id, change, CHANGE_TIMEOUT_MS)
        except RemoteError as error:
            raise RuntimeError(str(error)) from error

    async def _store(self, what: Replacement, number: int, state: MemberState, **values: datetime | None) -> None:
        at = now()
        # Whoever became a member or ceased to be one lacks nothing that it should have.
        fixed = {"state": state} | values | {"lost_at": None} | WELL
        new = insert(TimelineMember).values(
            timeline_id=what.branch.timeline_id, safekeeper_id=number, since=at, asked_at=at
        )
        key = [TimelineMember.timeline_id, TimelineMember.safekeeper_id]
        since = case((TimelineMember.state == state, TimelineMember.since), else_=at)
        statement = new.values(fixed).on_conflict_do_update(index_elements=key, set_=fixed | {"since": since})
        async with self._r.database.transaction() as session:
            await session.execute(statement)

    async def _tell_computes(self, what: Replacement) -> None:
        """Whom to ask at the next election, which a compute may hold without being started by us."""
        for endpoint in what.endpoints:
            try:
                await ComputeActivities(self._r).configure_compute(endpoint.id)
            except ApplicationError as error:
                # It may be on its way up or down.
                raise RuntimeError(f"compute {endpoint.id} has not taken its safekeepers: {error}") from error

    async def _tell_pageserver(self, what: Replacement, without: int | None = None) -> None:
        timeline = what.branch.timeline_id
        async with self._r.database.transaction() as session:
            stored = await members_of(session, timeline, len(self._r.safekeepers))
        addresses = self._r.wal_addresses(number for number in stored if number != without)
        if not addresses:
            return
        try:
            await self._r.pageserver.set_safekeepers(what.project.tenant_id, timeline, addresses)
        except RemoteError as error:
            raise RuntimeError(f"the pageserver does not take the safekeepers of {timeline}: {error}") from error
