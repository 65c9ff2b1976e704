"""Deleting roles and databases.

The deletion is a row first, in the transaction that takes the name off the branch's lists. A running compute drops
what is named by an operation, a suspended one when it has started next; the row says so then, and what fails is tried
again (`weir_workflows.reconciler`). Nothing is dropped without such a row.
"""

from datetime import timedelta
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from weir.authz.access import ProjectAccess
from weir.branches.models import Branch
from weir.databases.models import BranchDatabase, DroppedKind, DroppedName, Role
from weir.databases.repository import DatabaseRepository
from weir.endpoints.repository import EndpointRepository
from weir.endpoints.service import apply_config
from weir.errors import BadRequestError, ConflictError, PreconditionFailedError
from weir.identity import audit
from weir.kit.clock import now
from weir.operations.models import Operation
from weir.projects.models import SHORTEST_WINDOW_SECONDS, Project

WEIRS_OWN_ROLES = ("weir_", "pg_")
WEIRS_OWN_DATABASES = ("postgres", "template0", "template1")


async def refuse_until_dropped(session: AsyncSession, branch: Branch, kind: DroppedKind, name: str) -> None:
    """Raises ConflictError while one of that name is still to be dropped: the two could not be told apart."""
    for row in await DatabaseRepository(session).to_drop(branch.id):
        if (row.kind, row.name) == (kind, name):
            raise ConflictError(
                f"{kind} {name!r} of branch {branch.id} has been deleted, and no compute has dropped it yet; start "
                "the branch's endpoint, wait for the operation, and repeat the request"
            )


async def delete_role(
    access: ProjectAccess, project_id: str, branch_id: str, name: str
) -> tuple[Role, list[Operation]] | None:
    """The role as it was; None when the branch has none of that name and none to be dropped."""
    project, branch = await access.branch_to_write(project_id, branch_id)
    if name.startswith(WEIRS_OWN_ROLES) or name == "postgres":
        raise BadRequestError(
            f"role {name!r} is Weir's own, and every branch needs it; delete roles that you have made"
        )
    repository = DatabaseRepository(access.session)
    role = await repository.role(branch.id, name)
    if role is None:
        return await _again(access, branch, DroppedKind.ROLE, name)
    owned = [row.name for row in await repository.databases(branch.id) if row.owner_name == name]
    if owned:
        raise PreconditionFailedError(
            f"role {name!r} owns {_databases(owned)} of branch {branch.id}; delete them first, or give them another "
            "owner with PATCH"
        )
    if len(await repository.roles(branch.id)) == 1:
        raise PreconditionFailedError(
            f"role {name!r} is the only one of branch {branch.id}: nobody could log in without it, and what it owns "
            "would have no owner; create another one first"
        )
    repository.add(_dropped(branch, DroppedKind.ROLE, role))
    await access.session.delete(role)
    operations = await _drop(access, project, branch)
    audit.record(access.session, access.principal, "role.delete", f"branch/{branch.id}", project.id, name=name)
    return role, operations


async def delete_database(
    access: ProjectAccess, project_id: str, branch_id: str, name: str
) -> tuple[BranchDatabase, list[Operation]] | None:
    """The database as it was; None when the branch has none of that name and none to be dropped."""
    project, branch = await access.branch_to_write(project_id, branch_id)
    if name in WEIRS_OWN_DATABASES:
        raise BadRequestError(
            f"database {name!r} is Weir's own, and every branch needs it; delete databases that you have made"
        )
    repository = DatabaseRepository(access.session)
    row = await repository.database(branch.id, name)
    if row is None:
        return await _again(access, branch, DroppedKind.DATABASE, name)
    repository.add(_dropped(branch, DroppedKind.DATABASE, row))
    await access.session.delete(row)
    operations = await _drop(access, project, branch)
    audit.record(access.session, access.principal, "database.delete", f"branch/{branch.id}", project.id, name=name)
    return row, operations


def _databases(names: list[str]) -> str:
    listed = ", ".join(repr(name) for name in names)
    return f"database {listed}" if len(names) == 1 else f"databases {listed}"


def _dropped(branch: Branch, kind: DroppedKind, row: Role | BranchDatabase) -> DroppedName:
    return DroppedName(
        branch_id=branch.id,
        kind=kind,
        name=row.name,
        owner_name=row.owner_name if isinstance(row, BranchDatabase) else None,
        made_at=row.created_at,
        requested_at=now(),
    )


async def _drop(access: ProjectAccess, project: Project, branch: Branch) -> list[Operation]:
    await access.session.flush()
    # No branch can begin before this any more.
    kept = timedelta(seconds=max(project.history_retention_seconds, SHORTEST_WINDOW_SECONDS))
    await DatabaseRepository(access.session).forget_dropped(branch.id, now() - kept)
    return await apply_config(access, await EndpointRepository(access.session).of_branch(branch.id))


async def _again(
    access: ProjectAccess, branch: Branch, kind: DroppedKind, name: str
) -> tuple[Any, list[Operation]] | None:
    """A deletion that was asked for before and not carried out is tried at once."""
    for row in await DatabaseRepository(access.session).to_drop(branch.id):
        if (row.kind, row.name) == (kind, name):
            operations = await apply_config(access, await EndpointRepository(access.session).of_branch(branch.id))
            if kind == DroppedKind.ROLE:
                return Role(
                    branch_id=branch.id, name=name, created_at=row.made_at, updated_at=row.requested_at
                ), operations
            return BranchDatabase(
                id=row.id,
                branch_id=branch.id,
                name=name,
                owner_name=row.owner_name,
                created_at=row.made_at,
                updated_at=row.requested_at,
            ), operations
    return None
