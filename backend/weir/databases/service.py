from urllib.parse import quote, urlencode

from sqlalchemy.ext.asyncio import AsyncSession

from weir.authz.access import ProjectAccess
from weir.branches.models import Branch
from weir.config import get_settings
from weir.databases.dropping import refuse_until_dropped
from weir.databases.models import BranchDatabase, DroppedKind, Role
from weir.databases.repository import DatabaseRepository
from weir.databases.schemas import ConnectionDetails, ConnectionParameters
from weir.endpoints.address import public_address
from weir.endpoints.models import Endpoint
from weir.endpoints.repository import EndpointRepository
from weir.endpoints.service import apply_config
from weir.errors import BadRequestError, ConflictError, NotBuiltError, NotFoundError
from weir.identity import audit
from weir.kit import crypto
from weir.kit.clock import now
from weir.kit.http import bracketed
from weir.operations.models import Operation
from weir.quotas.service import admit_database, admit_role

DEFAULT_ROLE = "app_owner"
DEFAULT_DATABASE = "appdb"
_RESERVED_ROLES = {"postgres", "public", "none", "current_user", "session_user", "current_role"}
_RESERVED_DATABASES = {"postgres", "template0", "template1"}


def check_role_name(name: str) -> None:
    if name.lower() in _RESERVED_ROLES or name.startswith(("pg_", "weir_")):
        raise BadRequestError(f"role name {name!r} is reserved; choose another")


def check_database_name(name: str) -> None:
    if name in _RESERVED_DATABASES:
        raise BadRequestError(f"database name {name!r} is reserved; choose another")


def new_role(branch_id: str, name: str) -> tuple[Role, str]:
    password = crypto.new_password()
    box = crypto.SecretBox.open(get_settings().secrets_dir)
    at = now()
    role = Role(
        branch_id=branch_id,
        name=name,
        password_sealed=box.seal(password),
        scram_verifier=crypto.scram_verifier(password),
        created_at=at,
        updated_at=at,
    )
    return role, password


def password_of(role: Role) -> str:
    if role.password_sealed is None:
        raise NotFoundError(
            f"the password of role {role.name!r} is not known here since the metadata database was recovered; it "
            "still works, and resetting it makes it known again"
        )
    return crypto.SecretBox.open(get_settings().secrets_dir).unseal(role.password_sealed)


async def add_first(
    session: AsyncSession, branch_id: str, role_name: str, database_name: str
) -> tuple[Role, str, BranchDatabase]:
    check_role_name(role_name)
    check_database_name(database_name)
    repository = DatabaseRepository(session)
    role, password = new_role(branch_id, role_name)
    at = now()
    database = BranchDatabase(
        branch_id=branch_id, name=database_name, owner_name=role_name, created_at=at, updated_at=at
    )
    repository.add(role)
    repository.add(database)
    await session.flush()
    return role, password, database


async def create_role(
    access: ProjectAccess, project_id: str, branch_id: str, name: str, no_login: bool
) -> tuple[Role, str, list[Operation]]:
    project, branch = await access.branch_to_write(project_id, branch_id)
    check_role_name(name)
    if no_login:
        raise NotBuiltError("roles without login are not built yet; create them with SQL")
    repository = DatabaseRepository(access.session)
    if await repository.role(branch.id, name) is not None:
        raise ConflictError(f"branch {branch.id} already has a role {name!r}")
    await refuse_until_dropped(access.session, branch, DroppedKind.ROLE, name)
    await admit_role(access.session, project, branch.id)
    role, password = new_role(branch.id, name)
    repository.add(role)
    await access.session.flush()
    operations = await apply_config(access, await EndpointRepository(access.session).of_branch(branch.id))
    audit.record(access.session, access.principal, "role.create", f"branch/{branch.id}", project.id, name=name)
    return role, password, operations


async def reset_password(
    access: ProjectAccess, project_id: str, branch_id: str, name: str
) -> tuple[Role, str, list[Operation]]:
    project, branch = await access.branch_to_write(project_id, branch_id)
    role = await get_role(access, branch, name)
    fresh, password = new_role(branch.id, name)
    role.password_sealed = fresh.password_sealed
    role.scram_verifier = fresh.scram_verifier
    role.updated_at = fresh.updated_at
    operations = await apply_config(access, await EndpointRepository(access.session).of_branch(branch.id))
    audit.record(
        access.session, access.principal, "role.reset_password", f"branch/{branch.id}", project.id, name=name
    )
    return role, password, operations


def record_reveal(access: ProjectAccess, branch: Branch, role: Role) -> None:
    """Has the audit log say who was shown the role's password. Of an answer that makes the password, the change says
    it."""
    resource = f"branch/{branch.id}"
    audit.record(
        access.session, access.principal, "role.reveal_password", resource, branch.project_id, name=role.name
    )


async def create_database(
    access: ProjectAccess, project_id: str, branch_id: str, name: str, owner_name: str
) -> tuple[BranchDatabase, list[Operation]]:
    project, branch = await access.branch_to_write(project_id, branch_id)
    check_database_name(name)
    await get_role(access, branch, owner_name)
    repository = DatabaseRepository(access.session)
    if await repository.database(branch.id, name) is not None:
        raise ConflictError(f"branch {branch.id} already has a database {name!r}")
    await refuse_until_dropped(access.session, branch, DroppedKind.DATABASE, name)
    await admit_database(access.session, project, branch.id)
    at = now()
    row = BranchDatabase(branch_id=branch.id, name=name, owner_name=owner_name, created_at=at, updated_at=at)
    repository.add(row)
    await access.session.flush()
    operations = await apply_config(access, await EndpointRepository(access.session).of_branch(branch.id))
    audit.record(access.session, access.principal, "database.create", f"branch/{branch.id}", project.id, name=name)
    return row, operations


async def change_owner(
    access: ProjectAccess, project_id: str, branch_id: str, name: str, owner_name: str | None, new_name: str | None
) -> tuple[BranchDatabase, list[Operation]]:
    project, branch = await access.branch_to_write(project_id, branch_id)
    row = await get_database(access, branch, name)
    if new_name not in {None, name}:
        raise NotBuiltError(
            f"renaming database {name!r} is not built yet; leave `name` out, or make a database {new_name!r} and copy"
        )
    if owner_name in {None, row.owner_name}:
        return row, []
    row.owner_name = (await get_role(access, branch, str(owner_name))).name
    row.updated_at = now()
    operations = await apply_config(access, await EndpointRepository(access.session).of_branch(branch.id))
    audit.record(
        access.session, access.principal, "database.update", f"branch/{branch.id}", project.id,
        name=name, owner_name=owner_name,
    )  # fmt: skip
    return row, operations


async def get_role(access: ProjectAccess, branch: Branch, name: str) -> Role:
    role = await DatabaseRepository(access.session).role(branch.id, name)
    if role is None:
        raise NotFoundError.of(f"branch {branch.id}: role", name)
    return role


async def get_database(access: ProjectAccess, branch: Branch, name: str) -> BranchDatabase:
    row = await DatabaseRepository(access.session).database(branch.id, name)
    if row is None:
        raise NotFoundError.of(f"branch {branch.id}: database", name)
    return row


def connection(
    endpoint: Endpoint, role: str, password: str, database: str, *, pooled: bool = False
) -> ConnectionDetails:
    """How clients connect: a URI that can be given to psql as it is, and its parts."""
    address = public_address(endpoint, get_settings(), pooled=pooled)
    uri = (
        f"postgresql://{quote(role, safe='')}:{quote(password, safe='')}"
        f"@{bracketed(address.host)}:{address.port}/{quote(database, safe='')}"
    )
    if address.parameters:
        uri += f"?{urlencode(address.parameters, quote_via=quote)}"
    return ConnectionDetails(
        connection_uri=uri,
        connection_parameters=ConnectionParameters(
            database=database,
            password=password,
            role=role,
            host=address.host,
            port=address.port,
            pooler_host=public_address(endpoint, get_settings(), pooled=True).host,
        ),
    )
