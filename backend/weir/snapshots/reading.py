"""A state of the past that can be read by SQL: a snapshot that nobody sees, with a compute, while it is read.

It expires by itself minutes later: where the request that reads it ends without tidying up, the reconciler deletes
it.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

import structlog
from sqlalchemy.exc import SQLAlchemyError

from weir.authz.access import ProjectAccess
from weir.authz.principal import Principal
from weir.branches.models import Branch
from weir.branches.points import Engine
from weir.branches.service import enqueue_deletion
from weir.databases import schema_dump
from weir.databases.service import get_database
from weir.db import Database
from weir.endpoints.schemas import EndpointOptions
from weir.endpoints.service import add_endpoint, inherited_fpw
from weir.errors import ProjectBusyError, UnavailableError
from weir.identity import audit
from weir.kit.clock import now
from weir.operations import scopes
from weir.operations.locks import holder
from weir.operations.models import OPEN, OperationStatus
from weir.operations.repository import OperationRepository
from weir.projects.locking import lock_project
from weir.snapshots.taking import Wanted, find_state, take

log = structlog.get_logger()

ORIGIN = "schema"
# For the branch and the start of its compute.
MAKE_SECONDS = 60.0
LIFETIME = timedelta(minutes=15)
_PAUSE_SECONDS = 0.1


@dataclass(frozen=True)
class Reader:
    """Who reads, and with what: the request's own session is for what it reads before."""

    database: Database
    engine: Engine
    principal: Principal


@dataclass(frozen=True)
class State:
    """A state of a branch's past; of the two one is given, or both are None for the state of now."""

    lsn: str | None = None
    timestamp: datetime | None = None

    @property
    def is_past(self) -> bool:
        return self.lsn is not None or self.timestamp is not None


@asynccontextmanager
async def reading(
    reader: Reader, project_id: str, branch_id: str, state: State, database: str
) -> AsyncGenerator[schema_dump.Source]:
    """The database as it was, for as long as the body runs. Raises what taking a snapshot there raises, NotFoundError
    where the state has no such database, UnavailableError when no compute runs on it in time."""
    held, operations = await _begin(reader, project_id, branch_id, state, database)
    try:
        await _finished(reader, held, operations)
        async with reader.database.transaction() as session:
            source = await schema_dump.source_of(ProjectAccess(session, reader.principal), held, database)
        yield source
    finally:
        await _end(reader, held)


async def _begin(
    reader: Reader, project_id: str, branch_id: str, state: State, database: str
) -> tuple[Branch, list[UUID]]:
    async with reader.database.request() as session:
        access = ProjectAccess(session, reader.principal)
        found = await find_state(access, reader.engine, project_id, branch_id, state.lsn, state.timestamp)
        at = now()
        wanted = Wanted(None, found.moment, at + LIFETIME, manual=False, created_by=reader.principal.name)
        taken = await take(session, found.begins, wanted, request_id=reader.principal.request_id, origin=ORIGIN)
        taken.snapshot.delete_requested_at = at
        await get_database(access, taken.held, database)
        full_page_writes = await inherited_fpw(access, taken.held)
        _, start = await add_endpoint(
            access, found.project, taken.held, EndpointOptions(), taken.operation, full_page_writes=full_page_writes
        )
        audit.record(
            session, reader.principal, "branch.read_past", f"branch/{branch_id}", project_id,
            lsn=found.begins.lsn, database=database,
        )  # fmt: skip
        return taken.held, [taken.operation.id, *([start.id] if start else [])]


async def _finished(reader: Reader, held: Branch, operations: Sequence[UUID]) -> None:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + MAKE_SECONDS
    while True:
        async with reader.database.transaction() as session:
            rows = [await OperationRepository(session).by_id(ident) for ident in operations]
        for row in rows:
            if row is None or row.status not in {*OPEN, OperationStatus.FINISHED}:
                why = "its operation is gone" if row is None else row.error or row.status
                raise UnavailableError(f"no compute runs on that state of the branch: {why}; try again")
        if all(row is not None and row.status == OperationStatus.FINISHED for row in rows):
            return
        if loop.time() > deadline:
            raise UnavailableError(
                f"no compute runs on that state of the branch after {MAKE_SECONDS:.0f} s (branch {held.id}); try "
                "again"
            )
        await asyncio.sleep(_PAUSE_SECONDS)


async def _end(reader: Reader, held: Branch) -> None:
    """What is not deleted here has expired, and the reconciler deletes it."""
    try:
        async with reader.database.transaction() as session:
            await lock_project(session, held.project_id)
            branch = await session.get(Branch, held.id)
            if branch is None or branch.deleted_at is not None:
                return
            branch.expires_at = now()
            if await holder(session, [scopes.of_branch(held.project_id, held.id)]) is None:
                await enqueue_deletion(session, branch, request_id=reader.principal.request_id, origin=ORIGIN)
    except (SQLAlchemyError, ProjectBusyError) as error:
        log.warning("read_state_not_deleted", branch_id=held.id, error=str(error))
