"""What a new branch has of its parent's roles and databases.

They are in the data, so a branch of a past state holds what was deleted since, and is told to drop nothing that was
there at the time: getting back a database that was deleted by mistake is what branches of the past are for.
"""

from sqlalchemy.ext.asyncio import AsyncSession

from weir.branches.head import Beginning
from weir.branches.models import Branch
from weir.databases.models import BranchDatabase, DroppedKind, DroppedName, Role
from weir.databases.repository import DatabaseRepository
from weir.errors import ProjectBusyError
from weir.kit.clock import now


async def inherit(session: AsyncSession, begins: Beginning, child: Branch) -> tuple[list[Role], list[BranchDatabase]]:
    """Gives `child` the roles, with their passwords, and databases that the branch which it begins in has today, and
    those that this parent had in the state the child begins with and has not any more.

    Of a role that was deleted since, Postgres alone knows the password. What the parent has been asked to drop, and
    has not dropped in the state that the child begins with, the child is to drop as well. Raises ProjectBusyError
    where the parent's first deletion came after the beginning was asked for."""
    parent = begins.source
    repository = DatabaseRepository(session)
    deletions = await repository.dropped(parent.id)
    if deletions and not begins.knows_moment:
        raise ProjectBusyError(f"a role or a database of branch {parent.id} was deleted just now; repeat the request")
    begins_at = begins.moment
    at = now()
    roles = [
        Role(
            branch_id=child.id,
            name=role.name,
            password_sealed=role.password_sealed,
            scram_verifier=role.scram_verifier,
            created_at=at,
            updated_at=at,
        )
        for role in await repository.roles(parent.id)
    ]
    databases = [
        BranchDatabase(branch_id=child.id, name=row.name, owner_name=row.owner_name, created_at=at, updated_at=at)
        for row in await repository.databases(parent.id)
    ]
    dropped: list[DroppedName] = []
    held = {(DroppedKind.ROLE, role.name) for role in roles}
    held |= {(DroppedKind.DATABASE, database.name) for database in databases}
    for row in deletions:
        if (row.kind, row.name) in held:
            continue
        if begins_at is not None and row.made_at <= begins_at < row.requested_at:
            held.add((row.kind, row.name))
            if row.kind == DroppedKind.ROLE:
                roles.append(Role(branch_id=child.id, name=row.name, created_at=at, updated_at=at))
            else:
                owner = row.owner_name or ""
                databases.append(
                    BranchDatabase(branch_id=child.id, name=row.name, owner_name=owner, created_at=at, updated_at=at)
                )
        elif row.dropped_at is None or (begins_at is not None and row.requested_at <= begins_at < row.dropped_at):
            held.add((row.kind, row.name))
            dropped.append(
                DroppedName(
                    branch_id=child.id,
                    kind=row.kind,
                    name=row.name,
                    owner_name=row.owner_name,
                    made_at=row.made_at,
                    requested_at=row.requested_at,
                )
            )
    # The owner may have been deleted as well, and before: what it owned went to another one then.
    known = [role.name for role in roles]
    for database in databases:
        if database.owner_name not in known:
            database.owner_name = known[0]
    session.add_all([*roles, *databases, *dropped])
    await session.flush()
    return roles, databases
