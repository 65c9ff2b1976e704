from typing import Any

from weir.authz.access import ProjectAccess
from weir.branches.models import Branch
from weir.branches.service import delete_endpoints, new_branch
from weir.config import get_settings
from weir.databases import service as databases
from weir.databases.models import BranchDatabase, Role
from weir.durability.levels import Durability
from weir.durability.policy import policy_of
from weir.endpoints import settings as pg_settings
from weir.endpoints.models import Endpoint
from weir.endpoints.repository import EndpointRepository
from weir.endpoints.schemas import EndpointOptions
from weir.endpoints.service import add_endpoint, apply_config, refuse_unbuilt
from weir.endpoints.sizes import refuse_for_all
from weir.errors import BadRequestError, NotBuiltError
from weir.identity import audit
from weir.kit.clock import now
from weir.kit.ids import project_id, storage_id
from weir.operations.models import Operation, OperationKind
from weir.operations.service import enqueue
from weir.projects.models import Project
from weir.projects.repository import ProjectRepository
from weir.projects.schemas import DefaultEndpointSettings, ProjectFields, ProjectSettings, ProjectUpdate
from weir.quotas import owners
from weir.quotas import service as quotas

PG_VERSIONS = (15,)
DEFAULT_BRANCH = "main"
DEFAULT_RETENTION_SECONDS = 7 * 86400


class CreatedProject:
    def __init__(self, project: Project, branch: Branch, role: Role, password: str, database: BranchDatabase):
        self.project = project
        self.branch = branch
        self.role = role
        self.password = password
        self.database = database
        self.endpoints: list[Endpoint] = []
        self.operations: list[Operation] = []


# Quotas of a project that are kept to.
BUILT_QUOTAS = {"logical_size_bytes", "wal_bytes_per_second"}


def _refuse_unbuilt_settings(settings: ProjectSettings | None) -> None:
    if settings is None:
        return
    if settings.enable_logical_replication:
        raise NotBuiltError("logical replication is refused until replication slots survive a restart; leave it out")
    built = {
        "allowed_ips", "durability", "enable_logical_replication", "maintenance_window", "quota",
        "unlogged_on_suspend",
    }  # fmt: skip
    named = settings.model_dump(exclude_none=True, exclude=built)
    quotas = settings.quota.model_dump(exclude_none=True, exclude=BUILT_QUOTAS) if settings.quota else {}
    asked = sorted(name for name, value in (named | {f"quota.{n}": v for n, v in quotas.items()}).items() if value)
    if asked:
        raise NotBuiltError(f"project settings {', '.join(asked)} are not built yet; leave them out")
    if settings.allowed_ips is not None and settings.allowed_ips.ips and not get_settings().has_proxy:
        raise NotBuiltError("allowed_ips are kept to by the proxy, which this installation has not; leave them out")


def _settings(settings: ProjectSettings | None, before: dict[str, Any]) -> dict[str, Any]:
    """What is kept of a project's settings: those that are built."""
    kept = dict(before)
    if settings is not None and settings.maintenance_window is not None:
        kept["maintenance_window"] = settings.maintenance_window.model_dump(mode="json", exclude_none=True)
    if settings is not None and settings.quota is not None:
        given = settings.quota.model_dump(exclude_none=True, include=BUILT_QUOTAS)
        if given:
            kept["quota"] = {**kept.get("quota", {}), **given}
    if settings is not None and settings.allowed_ips is not None:
        usual = {"ips": [], "protected_branches_only": False}
        given = settings.allowed_ips.model_dump(exclude_none=True)
        kept["allowed_ips"] = {**usual, **kept.get("allowed_ips", {}), **given}
    if settings is not None and settings.durability is not None:
        kept["durability"] = {"forbid": sorted({level.value for level in settings.durability.forbid})}
    if settings is not None and settings.unlogged_on_suspend is not None:
        kept["unlogged_on_suspend"] = settings.unlogged_on_suspend.value
    return kept


def _limits(project: Project) -> tuple[int | None, int | None]:
    """What its computes have to be told when it changes."""
    return project.logical_size_limit, project.wal_rate_limit


def _default_settings(settings: DefaultEndpointSettings | None, major: int) -> dict[str, object]:
    if settings is None:
        return {}
    most = get_settings().compute_max_cu
    refuse_for_all(settings.autoscaling_limit_min_cu, settings.autoscaling_limit_max_cu, most)
    refuse_unbuilt(EndpointOptions(settings=settings))
    chosen: dict[str, object] = {"pg_settings": pg_settings.check(settings.pg_settings or {}, major)}
    if settings.suspend_timeout_seconds is not None:
        chosen["suspend_timeout_seconds"] = settings.suspend_timeout_seconds
    return chosen


def _check(fields: ProjectFields, region_id: str) -> None:
    if fields.pg_version not in {None, *PG_VERSIONS}:
        raise NotBuiltError(f"Postgres {fields.pg_version} is not supported yet; this version of Weir runs 15")
    if fields.region_id not in {None, region_id}:
        raise BadRequestError(f"region {fields.region_id} does not exist here; there is {region_id}")
    if fields.store_passwords is False:
        raise NotBuiltError("projects without stored passwords are not built yet; leave `store_passwords` out")
    _refuse_unbuilt_settings(fields.settings)
    most = get_settings().compute_max_cu
    refuse_for_all(fields.autoscaling_limit_min_cu, fields.autoscaling_limit_max_cu, most)
    refuse_unbuilt(EndpointOptions(provisioner=fields.provisioner))


async def create(access: ProjectAccess, fields: ProjectFields) -> CreatedProject:
    """Project, main branch, role, database, endpoint and their operations: one transaction, one intent."""
    region = get_settings().region_id
    _check(fields, region)
    if fields.org_id not in {None, str(access.principal.account_id)}:
        raise BadRequestError(
            f"the request acts in another organization than {fields.org_id}; name it in the query, too: "
            "`POST /projects?org_id=...`"
        )
    at = now()
    ident = project_id()
    kept = fields.history_retention_seconds
    project = Project(
        id=ident,
        name=fields.name or ident,
        account_id=access.principal.account_id,
        tenant_id=storage_id(),
        pg_version=fields.pg_version or PG_VERSIONS[0],
        region_id=region,
        history_retention_seconds=DEFAULT_RETENTION_SECONDS if kept is None else kept,
        cell=fields.cell or f"{region}-1",
        tags=dict(fields.tags or {}),
        settings=_settings(fields.settings, {}),
        default_endpoint_settings=_default_settings(
            fields.default_endpoint_settings, fields.pg_version or PG_VERSIONS[0]
        ),
        created_at=at,
        updated_at=at,
    )
    session = access.session
    first = fields.branch
    durability = (first and first.durability) or Durability.FLUSH
    policy_of(project).refuse(durability, "branch.durability")
    policy_of(project).refuse_settings(project.default_endpoint_settings.get("pg_settings"))
    await quotas.admit_project(session, owners.owner_of(project))
    ProjectRepository(session).add(project)
    await session.flush()
    await quotas.admit_branch(session, project)
    branch = new_branch(project.id, (first and first.name) or DEFAULT_BRANCH, default=True, durability=durability)
    session.add(branch)
    await session.flush()
    role, password, database = await databases.add_first(
        session,
        branch.id,
        (first and first.role_name) or databases.DEFAULT_ROLE,
        (first and first.database_name) or databases.DEFAULT_DATABASE,
    )
    created = CreatedProject(project, branch, role, password, database)
    operation = await enqueue(
        session,
        OperationKind.CREATE_PROJECT,
        project.id,
        branch_id=branch.id,
        request_id=access.principal.request_id,
    )
    endpoint, start = await add_endpoint(access, project, branch, EndpointOptions(), operation)
    created.endpoints.append(endpoint)
    created.operations = [operation, *([start] if start else [])]
    audit.record(session, access.principal, "project.create", f"project/{project.id}", project.id, name=project.name)
    return created


async def update(access: ProjectAccess, ident: str, body: ProjectUpdate) -> tuple[Project, list[Operation]]:
    project = await access.locked_project(ident)
    _refuse_unbuilt_settings(body.settings)
    limits_before, policy_before = _limits(project), policy_of(project)
    project.settings = _settings(body.settings, project.settings)
    if body.name is not None:
        project.name = body.name
    if body.tags is not None:
        project.tags = dict(body.tags)
    if body.default_endpoint_settings is not None:
        project.default_endpoint_settings = _default_settings(body.default_endpoint_settings, project.pg_version)
        policy_of(project).refuse_settings(project.default_endpoint_settings.get("pg_settings"))
    before = project.storage_config()
    if body.history_retention_seconds is not None:
        project.history_retention_seconds = body.history_retention_seconds
    operations: list[Operation] = []
    if project.storage_config() != before:
        kind = OperationKind.APPLY_STORAGE_CONFIG
        operations.append(await enqueue(access.session, kind, project.id, request_id=access.principal.request_id))
    # What computes are given follows from a branch's level and the policy together.
    if _limits(project) != limits_before or policy_of(project) != policy_before:
        endpoints = await EndpointRepository(access.session).of_project(project.id)
        operations += await apply_config(access, endpoints, operations[-1] if operations else None)
    project.updated_at = now()
    audit.record(
        access.session, access.principal, "project.update", f"project/{project.id}", project.id,
        **body.model_dump(exclude_none=True, mode="json"),
    )  # fmt: skip
    return project, operations


async def delete(access: ProjectAccess, ident: str) -> tuple[Project, list[Operation]]:
    project = await access.project_to_delete(ident)
    project.delete_requested_at = now()
    operations = await delete_endpoints(
        access.session,
        await EndpointRepository(access.session).of_project(project.id),
        request_id=access.principal.request_id,
    )
    operations.append(
        await enqueue(
            access.session,
            OperationKind.DELETE_PROJECT,
            project.id,
            depends_on=operations[-1] if operations else None,
            request_id=access.principal.request_id,
        )
    )
    audit.record(access.session, access.principal, "project.delete", f"project/{project.id}", project.id)
    return project, operations
