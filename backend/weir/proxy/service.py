"""Where an endpoint's compute runs, who may log in there, and starting it for a client that waits.

The verifiers are those that the compute's spec has: with a proof against one, the proxy logs in at the compute.
"""

import asyncio
from contextlib import suppress
from typing import Literal
from uuid import UUID

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from weir.branches.models import Branch
from weir.databases.repository import DatabaseRepository
from weir.db import Database
from weir.endpoints.models import Endpoint, EndpointState
from weir.endpoints.repository import EndpointRepository
from weir.errors import ProjectBusyError, QuotaExceededError, UnavailableError
from weir.identity import audit
from weir.kit.addresses import plain_range
from weir.kit.clock import now
from weir.operations import scopes
from weir.operations.models import OPEN, OperationKind, OperationStatus
from weir.operations.repository import OperationRepository
from weir.operations.service import enqueue
from weir.projects.locking import lock_idle
from weir.projects.models import Project, allowed_ips
from weir.proxy.schemas import ProxyEndpoint
from weir.quotas.service import admit_compute

ACTOR = "proxy"
# Between two looks at what no notice comes of: the first pause, by how much each is longer, and the longest. Seconds.
_PAUSE = 0.02
_PAUSE_GROWTH = 1.1
_PAUSE_MOST = 0.5
# Between two looks at a start of which a notice comes, unless that is lost.
_PAUSE_WITH_NOTICES = 0.5

State = Literal["running", "suspended", "disabled"]


async def describe(session: AsyncSession, endpoint_id: str) -> ProxyEndpoint | None:
    """None: there is no such endpoint, or none any more."""
    endpoint = await EndpointRepository(session).get(endpoint_id)
    state = await _state(session, endpoint)
    if endpoint is None or state is None:
        return None
    # Without a verifier, after a recovery, Postgres alone knows the password.
    roles = {
        role.name: role.scram_verifier
        for role in await DatabaseRepository(session).roles(endpoint.branch_id)
        if role.scram_verifier is not None
    }
    address = f"{endpoint.host}:{endpoint.port}" if state == "running" else None
    return ProxyEndpoint(state=state, address=address, roles=roles, allowed_ips=await _allowed(session, endpoint))


async def _allowed(session: AsyncSession, endpoint: Endpoint) -> list[str] | None:
    """The ranges that clients may come from; None is any address."""
    statement = (
        select(Project.settings, Branch.protected)
        .join(Branch, Branch.project_id == Project.id)
        .where(Branch.id == endpoint.branch_id)
    )
    settings, protected = (await session.execute(statement)).one()
    ranges = allowed_ips(settings, protected=protected)
    return None if ranges is None else [plain_range(text) for text in ranges]


async def _state(session: AsyncSession, endpoint: Endpoint | None) -> State | None:
    """A compute that is being stopped counts as suspended: whoever wants it waits, and starts it again. One that is
    restarted counts as running: it comes back at its address."""
    if endpoint is None or endpoint.deleted_at is not None or endpoint.delete_requested_at is not None:
        return None
    if endpoint.disabled or await _goes(session, endpoint.project_id):
        return "disabled"
    active = endpoint.desired_state == endpoint.state == EndpointState.ACTIVE
    return "running" if active else "suspended"


async def _goes(session: AsyncSession, project_id: str) -> bool:
    """Whether somebody has asked for the project's deletion."""
    statement = select(Project.delete_requested_at, Project.deleted_at).where(Project.id == project_id)
    requested, deleted = (await session.execute(statement)).one()
    return requested is not None or deleted is not None


async def wake(database: Database, endpoint_id: str, seconds: float, *, actor: str = ACTOR) -> ProxyEndpoint | None:
    """Starts a suspended compute, after what else is being done to it or its branch, and answers when it runs, or at
    once when it must not be started. Raises UnavailableError with the reason when that fails or takes longer than
    `seconds`."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    pause = _PAUSE
    operation: UUID | None = None
    with database.notices.about(endpoint_id) as changed:
        while True:
            changed.clear()
            try:
                async with database.transaction() as session:
                    endpoint = await EndpointRepository(session).get(endpoint_id)
                    if endpoint is None or await _state(session, endpoint) != "suspended":
                        return await describe(session, endpoint_id)
                    operation, waits_for = await _start(session, endpoint, operation, actor)
            except ProjectBusyError as error:
                operation, waits_for = None, error.message
            left = deadline - loop.time()
            if left <= 0:
                raise UnavailableError(
                    f"endpoint {endpoint_id} does not run after {seconds:.0f} s: {waits_for}; try again later"
                )
            # What somebody else does to the branch is not announced for each of its endpoints.
            announced = operation is not None and database.notices.are_heard
            await _noticed(changed, min(_PAUSE_WITH_NOTICES if announced else pause, left))
            pause = min(pause * _PAUSE_GROWTH, _PAUSE_MOST)


async def _noticed(changed: asyncio.Event, seconds: float) -> None:
    """At the next notice, or after so long."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await changed.wait()


async def _start(
    session: AsyncSession, endpoint: Endpoint, operation_id: UUID | None, actor: str
) -> tuple[UUID | None, str]:
    """Queues the start unless it is queued already. Answers with its operation, if there is one, and with what is to
    be waited for. Raises ProjectBusyError while something else is done to the endpoint or its branch."""
    endpoint_id = endpoint.id
    repository = OperationRepository(session)
    operation = None if operation_id is None else await repository.by_id(operation_id)
    if operation is not None:
        if operation.status in OPEN:
            return operation.id, f"operation {operation.id} is {operation.status}"
        if operation.status != OperationStatus.FINISHED:
            raise UnavailableError(f"endpoint {endpoint_id} did not start: {operation.error or operation.status}")
    scope = scopes.of_endpoint(endpoint.project_id, endpoint.branch_id, endpoint_id)
    project = await lock_idle(session, endpoint.project_id, [scope])
    # As it is under the lock: another one may have started it just now.
    found = await EndpointRepository(session).get(endpoint_id)
    if found is None or await _state(session, found) != "suspended":
        return None, "it has changed"
    try:
        await admit_compute(session, project, endpoint)
    except QuotaExceededError as error:
        # The proxy would take a 403 for a refusal of its token.
        raise UnavailableError(f"endpoint {endpoint_id} is suspended and may not start: {error.message}") from error
    endpoint.desired_state = EndpointState.ACTIVE
    endpoint.updated_at = now()
    # As for a request of a person: what fails is undone, and the next client asks again.
    operation = await enqueue(
        session,
        OperationKind.START_COMPUTE,
        endpoint.project_id,
        branch_id=endpoint.branch_id,
        endpoint_id=endpoint.id,
    )
    audit.record_system(session, actor, "endpoint.start", f"endpoint/{endpoint.id}", endpoint.project_id)
    return operation.id, f"operation {operation.id} is {operation.status}"
