"""Probes of one compute and of its storage: whether each is healthy, and whether it has seen a switch.
A probe changes nothing."""

import asyncio
import zlib
from collections.abc import Awaitable, Callable
from typing import TypeVar

from weir.branches.log_members import Seen, majority, members_of_log, probe
from weir.branches.members import members_of
from weir.clients.compute import ComputeStatus, status_of
from weir.clients.http import RemoteError
from weir.clients.safekeeper import LogStatus
from weir.computes.repository import ComputeRow
from weir.kit.ids import parse_lsn
from weir_workflows.common.resources import Resources
from weir_workflows.rollout.limits import CALLS_AT_ONCE, PROBES_AT_ONCE, RESTARTS_AT_ONCE

T = TypeVar("T")

RETRY_SECONDS = 60.0
# A fault counts once it has lasted this long.
FAULT_SECONDS = 10.0
FAULT_POLL_SECONDS = 2.0


async def retrying(call: Callable[[], Awaitable[T]], seconds: float = RETRY_SECONDS) -> T:
    """Repeats a call that may be repeated for as long as the other side is away or overloaded: a program that is
    being restarted is no fault of the compute. Raises the last RemoteError."""
    loop = asyncio.get_running_loop()
    deadline, pause = loop.time() + seconds, 0.2
    while True:
        try:
            return await call()
        except RemoteError as error:
            if not error.retryable or loop.time() + pause > deadline:
                raise
        await asyncio.sleep(pause)
        pause = min(pause * 2, 5.0)


class Probes:
    def __init__(self, resources: Resources) -> None:
        self._r = resources
        self._calls = asyncio.Semaphore(CALLS_AT_ONCE)
        self._restarts = asyncio.Semaphore(RESTARTS_AT_ONCE)
        # Apart from the others: hundreds that are only looked at must not stand before those that are being switched.
        self._probes = asyncio.Semaphore(PROBES_AT_ONCE)

    def slot(self) -> asyncio.Semaphore:
        """Held by every piece of work on one compute, so that many batches do not drown the machine."""
        return self._calls

    def restart_slot(self) -> asyncio.Semaphore:
        """The same for work that disconnects a compute's clients."""
        return self._restarts

    async def faults(self, row: ComputeRow) -> tuple[str | None, ComputeStatus | None]:
        """What is wrong with the compute or its storage."""
        endpoint = row.endpoint
        status = await status_of(endpoint.id, endpoint.host, endpoint.port, self._r.http)
        if isinstance(status, str):
            return status, None
        if status.state != "running":
            return f"the compute is {status.state}: {status.reason}", status
        return await self.storage_fault(row), status

    async def lasting_fault(self, row: ComputeRow) -> tuple[str | None, ComputeStatus | None]:
        """A program that is being restarted, or a machine that is busy for a moment, is no fault of the compute: only
        what lasts counts."""
        loop = asyncio.get_running_loop()
        first: float | None = None
        while True:
            async with self._probes:
                fault, status = await self.faults(row)
            # From the first look that found it: who waits in line for that look is not faulty.
            first = first or loop.time()
            if fault is None or loop.time() >= first + FAULT_SECONDS:
                return fault, status
            await asyncio.sleep(FAULT_POLL_SECONDS)

    async def storage_fault(self, row: ComputeRow) -> str | None:
        """Whether storage is able to make images for this branch, and safekeepers to take its WAL."""
        tenant, branch = row.project.tenant_id, row.branch
        try:
            timeline = await self._r.pageserver.timeline(tenant, branch.timeline_id)
        except RemoteError as error:
            return str(error)
        if timeline is None:
            return f"the pageserver has no timeline of branch {branch.id}"
        if timeline.state != "active":
            return f"the pageserver has branch {branch.id} {timeline.state}: {timeline.reason}"
        healthy, seen = await self._keepers(row, lambda log: log.state == "active")
        if healthy < majority(seen):
            return f"only {healthy} of {seen} safekeepers are active for branch {branch.id}"
        return None

    async def missing_on_majority(self, row: ComputeRow, lsn: str) -> str | None:
        have, seen = await self._keepers(
            row, lambda log: log.flush_lsn is not None and parse_lsn(log.flush_lsn) >= parse_lsn(lsn)
        )
        if have < majority(seen):
            return f"the switch at {lsn} is on {have} of {seen} safekeepers"
        return None

    async def missing_in_storage(self, row: ComputeRow, enabled: bool, lsn: str | None) -> str | None:
        try:
            timeline = await self._r.pageserver.timeline(row.project.tenant_id, row.branch.timeline_id)
        except RemoteError as error:
            return str(error)
        if timeline is None:
            return f"the pageserver has no timeline of branch {row.branch.id}"
        if timeline.full_page_writes != enabled:
            return f"the pageserver has full_page_writes {timeline.full_page_writes} at {timeline.last_record_lsn}"
        if lsn is not None and parse_lsn(timeline.last_record_lsn) < parse_lsn(lsn):
            return f"the pageserver has ingested to {timeline.last_record_lsn}, not yet to {lsn}"
        return None

    async def _keepers(self, row: ComputeRow, good: Callable[[LogStatus], bool]) -> tuple[int, int]:
        """(how many of the log's voters are good, how many there are). A majority is asked, and the others only
        when it does not do; who is asked first differs from branch to branch."""
        timeline = row.branch.timeline_id
        async with self._r.database.transaction() as session:
            stored = await members_of(session, timeline, len(self._r.safekeepers))
        keepers = self._r.numbered(stored)
        start = zlib.crc32(timeline.encode()) % len(keepers)
        keepers = keepers[start:] + keepers[:start]
        enough = majority(len(keepers))
        seen: list[Seen] = []
        found, voters = 0, len(keepers)
        for asked in (keepers[:enough], keepers[enough:]):
            seen += await probe(asked, row.project.tenant_id, timeline)
            members = members_of_log(seen, stored)
            voting = stored if members is None else members.voters
            found = sum(1 for one in seen if one.number in voting and one.log is not None and good(one.log))
            voters = len(voting)
            if found >= majority(voters):
                break
        return found, voters
