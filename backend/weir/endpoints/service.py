from typing import Any

from weir.authz.access import ProjectAccess
from weir.branches.models import Branch
from weir.clients.http import HttpClient
from weir.config import get_settings
from weir.db import release
from weir.durability.policy import policy_of
from weir.endpoints import settings as pg_settings
from weir.endpoints.models import Endpoint, EndpointState
from weir.endpoints.policies import starts_without_page_images
from weir.endpoints.repository import EndpointRepository
from weir.endpoints.schemas import EndpointCreate, EndpointOptions, EndpointUpdate
from weir.endpoints.sizes import UNIT, Limits, chosen
from weir.endpoints.unlogged import refuse_to_lose
from weir.errors import BadRequestError, ConflictError, NotBuiltError, UnavailableError
from weir.identity import audit
from weir.kit.clock import now
from weir.kit.ids import endpoint_id
from weir.operations import scopes
from weir.operations.models import Operation, OperationKind
from weir.operations.service import enqueue
from weir.projects.models import Project, UnloggedOnSuspend
from weir.quotas.service import admit_compute, admit_size

READ_ONLY_REFUSED = (
    "read-only endpoints are not built yet: one compute of a branch writes, and no other can follow it; make a "
    "branch, which copies nothing, and read there, or ask for type read_write"
)


def limits_of(options: EndpointOptions, before: Limits) -> Limits:
    """The sizes that an endpoint may have after a request with these options; raises what `sizes.chosen` raises."""
    most = get_settings().compute_max_cu
    return chosen(options.autoscaling_limit_min_cu, options.autoscaling_limit_max_cu, before, most)


def refuse_unbuilt(options: EndpointOptions) -> None:
    """Asked for, known, not built: an error beats a promise nobody keeps. What is so anyway is no error: clients send
    back what they have read."""
    has_proxy = get_settings().has_proxy
    reasons: dict[str, bool] = {
        "connection pooling (pooler_enabled) without a proxy": bool(options.pooler_enabled) and not has_proxy,
        "a pooler_mode other than `transaction`": options.pooler_mode not in {None, "transaction"},
        "passwordless_access": bool(options.passwordless_access),
        "a provisioner other than `local`": options.provisioner not in {None, "local"},
        "pgbouncer_settings": bool(options.settings and options.settings.pgbouncer_settings),
        "preload_libraries": bool(options.settings and options.settings.preload_libraries),
    }
    for what, asked in reasons.items():
        if asked:
            raise NotBuiltError(f"{what}: this version of Weir has no such thing yet; leave the field out")


def pg_settings_of(options: EndpointOptions | None, major: int, units: float = UNIT) -> dict[str, str] | None:
    """`units`: the smallest size that the endpoint may have."""
    if options is None or options.settings is None or options.settings.pg_settings is None:
        return None
    return pg_settings.check(options.settings.pg_settings, major, units)


async def add_endpoint(
    access: ProjectAccess,
    project: Project,
    branch: Branch,
    options: EndpointOptions,
    depends_on: Operation | None,
    *,
    full_page_writes: bool = True,
) -> tuple[Endpoint, Operation | None]:
    """A read-write endpoint of a branch and the operation that starts it."""
    refuse_unbuilt(options)
    limits = limits_of(options, Limits())
    settings = get_settings()
    settings_chosen: dict[str, Any] = pg_settings.check(
        project.default_endpoint_settings.get("pg_settings") or {}, project.pg_version, limits.least
    )
    asked = pg_settings_of(options, project.pg_version, limits.least)
    policy_of(project).refuse_settings(asked)
    settings_chosen |= asked or {}
    repository = EndpointRepository(access.session)
    existing = await repository.writer_of(branch.id)
    if existing is not None:
        raise ConflictError(
            f"branch {branch.id} already has the read-write endpoint {existing.id}; a branch has at most one"
        )
    disabled = bool(options.disabled)
    if not disabled:
        await admit_compute(access.session, project, limits.most)
    port = await repository.free_port(settings.compute_port_range, settings.compute_host)
    if port is None:
        raise UnavailableError(
            f"no port is left in WEIR_COMPUTE_PORTS={settings.compute_ports}; delete an endpoint or widen the range"
        )
    at = now()
    ident = endpoint_id()
    full_page_writes = full_page_writes and not await starts_without_page_images(access.session, project, ident)
    endpoint = Endpoint(
        id=ident,
        project_id=project.id,
        branch_id=branch.id,
        name=options.name,
        type="read_write",
        host=settings.compute_host,
        port=port,
        desired_state=EndpointState.IDLE if disabled else EndpointState.ACTIVE,
        state=EndpointState.INIT,
        pg_settings=settings_chosen,
        full_page_writes=full_page_writes,
        full_page_writes_since=None if full_page_writes else at,
        disabled=disabled,
        suspend_timeout_seconds=_suspend_timeout(project, options),
        prewarm=options.prewarm is not False,
        min_cu=limits.least,
        max_cu=limits.most,
        current_cu=limits.nearest(UNIT),
        created_at=at,
        updated_at=at,
    )
    repository.add(endpoint)
    await access.session.flush()
    if disabled:
        return endpoint, None
    operation = await enqueue(
        access.session,
        OperationKind.START_COMPUTE,
        project.id,
        branch_id=branch.id,
        endpoint_id=endpoint.id,
        depends_on=depends_on,
        request_id=access.principal.request_id,
    )
    return endpoint, operation


def _suspend_timeout(project: Project, options: EndpointOptions) -> int:
    """Seconds. What clients send that have nothing to say, 0, means what the project says of its endpoints."""
    return options.suspend_timeout_seconds or project.default_endpoint_settings.get("suspend_timeout_seconds") or 0


async def create(
    access: ProjectAccess, project_id: str, body: EndpointCreate
) -> tuple[Project, Endpoint, list[Operation]]:
    project, branch = await access.branch_to_write(project_id, body.branch_id)
    if body.type == "read_only":
        raise NotBuiltError(READ_ONLY_REFUSED)
    if body.region_id not in {None, project.region_id}:
        raise BadRequestError(f"region {body.region_id} is not the project's; it is {project.region_id}")
    endpoint, operation = await add_endpoint(
        access, project, branch, body, None, full_page_writes=await inherited_fpw(access, branch)
    )
    audit.record(
        access.session, access.principal, "endpoint.create", f"endpoint/{endpoint.id}", project.id,
        branch_id=branch.id,
    )  # fmt: skip
    return project, endpoint, [operation] if operation else []


async def inherited_fpw(access: ProjectAccess, branch: Branch) -> bool:
    """A branch inherits its parent's full_page_writes state, so its compute wants the same."""
    if branch.parent_id is None:
        return True
    parent = await EndpointRepository(access.session).writer_of(branch.parent_id)
    return parent.full_page_writes if parent is not None else True


async def start(access: ProjectAccess, project_id: str, ident: str) -> tuple[Project, Endpoint, list[Operation]]:
    """Starting what runs is no error and no operation."""
    project, endpoint = await access.idle_endpoint(project_id, ident)
    if endpoint.disabled:
        raise BadRequestError(f"endpoint {ident} is disabled; enable it with PATCH before starting it")
    if endpoint.desired_state == EndpointState.ACTIVE and endpoint.state == EndpointState.ACTIVE:
        return project, endpoint, []
    await admit_compute(access.session, project, endpoint)
    endpoint.desired_state = EndpointState.ACTIVE
    return await _enqueue(access, project, endpoint, OperationKind.START_COMPUTE, "endpoint.start")


async def _stoppable(
    access: ProjectAccess, http: HttpClient, project_id: str, ident: str, *, discard_unlogged: bool
) -> tuple[Project, Endpoint]:
    """The project, locked until commit, and its endpoint, whose compute may be stopped as far as rows of unlogged
    tables are concerned. To be called before anything is written. Raises what `refuse_to_lose` raises."""
    project, endpoint = await access.idle_endpoint(project_id, ident)
    if discard_unlogged or project.unlogged_on_suspend is UnloggedOnSuspend.DISCARD:
        return project, endpoint
    before = await access.standing(project, scopes.of_endpoint(project.id, endpoint.branch_id, endpoint.id))
    await release(access.session)
    await refuse_to_lose(endpoint, http)
    project = await access.unchanged_project(before)
    return project, await access.endpoint(project, ident)


async def suspend(
    access: ProjectAccess, http: HttpClient, project_id: str, ident: str, *, discard_unlogged: bool
) -> tuple[Project, Endpoint, list[Operation]]:
    project, endpoint = await _stoppable(access, http, project_id, ident, discard_unlogged=discard_unlogged)
    if endpoint.desired_state == EndpointState.IDLE and endpoint.state == EndpointState.IDLE:
        return project, endpoint, []
    endpoint.desired_state = EndpointState.IDLE
    return await _enqueue(access, project, endpoint, OperationKind.SUSPEND_COMPUTE, "endpoint.suspend")


async def restart(
    access: ProjectAccess, http: HttpClient, project_id: str, ident: str, *, discard_unlogged: bool
) -> tuple[Project, Endpoint, list[Operation]]:
    project, endpoint = await _stoppable(access, http, project_id, ident, discard_unlogged=discard_unlogged)
    if endpoint.disabled:
        raise BadRequestError(f"endpoint {ident} is disabled; enable it with PATCH before restarting it")
    await admit_compute(access.session, project, endpoint)
    endpoint.desired_state = EndpointState.ACTIVE
    return await _enqueue(access, project, endpoint, OperationKind.RESTART_COMPUTE, "endpoint.restart")


async def delete(access: ProjectAccess, project_id: str, ident: str) -> tuple[Project, Endpoint, list[Operation]]:
    project, endpoint = await access.idle_endpoint(project_id, ident)
    endpoint.desired_state = EndpointState.IDLE
    endpoint.delete_requested_at = now()
    return await _enqueue(access, project, endpoint, OperationKind.DELETE_COMPUTE, "endpoint.delete")


async def update(
    access: ProjectAccess, http: HttpClient, project_id: str, ident: str, body: EndpointUpdate
) -> tuple[Project, Endpoint, list[Operation]]:
    # Whoever wants to lose rows of unlogged tables suspends the compute first.
    project, endpoint = await _stoppable(access, http, project_id, ident, discard_unlogged=not body.disabled)
    refuse_unbuilt(body)
    if body.branch_id not in {None, endpoint.branch_id}:
        raise NotBuiltError("moving an endpoint to another branch is not built yet; create one on that branch")
    if body.name is not None:
        endpoint.name = body.name
    if body.suspend_timeout_seconds is not None:
        endpoint.suspend_timeout_seconds = body.suspend_timeout_seconds
    if body.prewarm is not None:
        endpoint.prewarm = body.prewarm
    operations: list[Operation] = []
    limits = limits_of(body, endpoint.limits)
    settings = pg_settings_of(body, project.pg_version, limits.least)
    if limits.least < endpoint.min_cu:
        # What it has must fit into the smaller size, too.
        pg_settings.check(endpoint.pg_settings if settings is None else settings, project.pg_version, limits.least)
    await admit_size(access.session, project, endpoint, limits.most)
    changes = endpoint.limit_to(limits)
    if settings is not None and settings != endpoint.pg_settings:
        policy_of(project).refuse_settings(settings)
        endpoint.pg_settings = settings
        changes = True
    if changes and endpoint.desired_state == EndpointState.ACTIVE:
        operations.append(await _operation(access, endpoint, OperationKind.APPLY_CONFIG))
    if body.disabled is not None and body.disabled != endpoint.disabled:
        endpoint.disabled = body.disabled
        if body.disabled and endpoint.desired_state == EndpointState.ACTIVE:
            endpoint.desired_state = EndpointState.IDLE
            operations = [await _operation(access, endpoint, OperationKind.SUSPEND_COMPUTE)]
    endpoint.updated_at = now()
    audit.record(
        access.session, access.principal, "endpoint.update", f"endpoint/{endpoint.id}", project.id,
        **body.model_dump(exclude_none=True, mode="json"),
    )  # fmt: skip
    return project, endpoint, operations


async def apply_config(
    access: ProjectAccess, endpoints: list[Endpoint], depends_on: Operation | None = None
) -> list[Operation]:
    """Running computes take a change at once, one after the other; idle ones at their next start."""
    operations: list[Operation] = []
    for endpoint in endpoints:
        if endpoint.desired_state == EndpointState.ACTIVE:
            after = operations[-1] if operations else depends_on
            operations.append(await _operation(access, endpoint, OperationKind.APPLY_CONFIG, after))
    return operations


async def _operation(
    access: ProjectAccess, endpoint: Endpoint, kind: OperationKind, depends_on: Operation | None = None
) -> Operation:
    return await enqueue(
        access.session,
        kind,
        endpoint.project_id,
        branch_id=endpoint.branch_id,
        endpoint_id=endpoint.id,
        depends_on=depends_on,
        request_id=access.principal.request_id,
    )


async def _enqueue(
    access: ProjectAccess, project: Project, endpoint: Endpoint, kind: OperationKind, action: str
) -> tuple[Project, Endpoint, list[Operation]]:
    endpoint.updated_at = now()
    operation = await _operation(access, endpoint, kind)
    audit.record(access.session, access.principal, action, f"endpoint/{endpoint.id}", project.id)
    return project, endpoint, [operation]
