"""Putting a branch back to another state: its own past, or a state of another branch.

The state is first made as a branch like any other. Then the two branches exchange timelines in one transaction: the
branch keeps its id, name, endpoints and addresses, and what it was is the other branch from then on. Until the
exchange nothing of the branch has changed, so that a restore which fails leaves it as it was.

A snapshot is restored in place by the same exchange (`weir.snapshots.restoring`), and there the other branch may be
one that people have worked with: it may have endpoints and branches of its own.
"""

from sqlalchemy import delete, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from weir.authz.access import ProjectAccess
from weir.branches.head import beginning
from weir.branches.models import Branch, BranchState
from weir.branches.points import Engine
from weir.branches.repository import BranchRepository
from weir.branches.schemas import BranchRestoreRequest
from weir.branches.service import kinds, named, new_branch, refuse_leaving
from weir.databases.inheriting import inherit
from weir.databases.models import BranchDatabase, Role
from weir.databases.repository import DatabaseRepository
from weir.errors import BadRequestError, ConflictError, PreconditionFailedError
from weir.identity import audit
from weir.kit.clock import now
from weir.operations import scopes
from weir.operations.models import Operation, OperationKind
from weir.operations.service import enqueue
from weir.projects.models import Project
from weir.quotas.service import admit_branch


def _refuse(branch: Branch, source: Branch, children: list[Branch], body: BranchRestoreRequest) -> None:
    for row in (branch, source):
        if row.state != BranchState.READY:
            raise BadRequestError(f"branch {row.id} is {row.state}; only ready branches can be restored")
        refuse_leaving(row)
    if branch.protected:
        raise PreconditionFailedError(f"branch {branch.id} is protected; clear `protected` with PATCH first")
    own_past = source.id == branch.id
    if own_past and body.source_lsn is None and body.source_timestamp is None:
        raise BadRequestError("give source_lsn or source_timestamp: a branch's own newest state is what it has")
    if body.preserve_under_name is not None:
        return
    if own_past:
        raise BadRequestError(
            "give preserve_under_name: the state restored is part of what the branch is now, which has to stay under "
            "another name"
        )
    if children:
        raise PreconditionFailedError(
            f"branch {branch.id} has {kinds(children)} that need its data: {named(children)}; give "
            "preserve_under_name to keep it under another name"
        )


async def _branches(
    access: ProjectAccess, project: Project, ident: str, body: BranchRestoreRequest
) -> tuple[Branch, Branch]:
    """The branch and the one whose state it is to have. Raises what the restore would be refused with."""
    branch = await access.branch(project, ident)
    source = await access.branch(project, body.source_branch_id)
    repository = BranchRepository(access.session)
    _refuse(branch, source, await repository.children(branch.id), body)
    name = body.preserve_under_name
    if name is not None and await repository.named(project.id, name) is not None:
        raise ConflictError(f"project {project.id} already has a branch named {name!r}; preserve under another name")
    return branch, source


async def restore(
    access: ProjectAccess, engine: Engine, project_id: str, ident: str, body: BranchRestoreRequest
) -> tuple[Branch, list[Operation]]:
    project = await access.locked_project(project_id)
    both = {(await access.branch(project, each)).id for each in (ident, body.source_branch_id)}
    before = await access.standing(project, *(scopes.of_branch(project.id, each) for each in sorted(both)))
    _, source = await _branches(access, project, ident, body)
    begins = await beginning(access.session, engine, project, source, body.source_lsn, body.source_timestamp)
    project = await access.unchanged_project(before)
    branch, source = await _branches(access, project, ident, body)
    await admit_branch(access.session, project)
    name = body.preserve_under_name
    # It holds what the branch was from the exchange on, so it keeps the level that the branch keeps as well.
    made = new_branch(project.id, name, default=False, durability=branch.durability)
    made.parent_id = source.id
    made.parent_lsn = begins.lsn
    made.parent_timestamp = body.source_timestamp
    BranchRepository(access.session).add(made)
    await access.session.flush()
    await inherit(access.session, begins, made)
    request_id = access.principal.request_id
    create = await enqueue(
        access.session,
        OperationKind.CREATE_BRANCH,
        project.id,
        branch_id=made.id,
        also_holds=[scopes.history_of(project.id, source.id)],
        request_id=request_id,
    )
    exchange = await enqueue_exchange(access.session, branch, made, create, request_id=request_id)
    operations = [create, exchange]
    if name is None:
        operations.append(
            await enqueue(
                access.session,
                OperationKind.DELETE_BRANCH,
                project.id,
                branch_id=made.id,
                depends_on=exchange,
                request_id=request_id,
            )
        )
    audit.record(
        access.session, access.principal, "branch.restore", f"branch/{branch.id}", project.id,
        source_branch_id=source.id, source_lsn=made.parent_lsn, preserved_as=made.id if name else None,
    )  # fmt: skip
    return branch, operations


async def enqueue_exchange(
    session: AsyncSession,
    branch: Branch,
    made: Branch,
    depends_on: Operation | None,
    *,
    request_id: str,
    preserve_under: str | None = None,
) -> Operation:
    """The operation that gives `branch` the state of `made`. With `preserve_under` `made` is a branch that people
    have worked with: it stays when the operation fails, and has that name afterwards, or one like it where another
    branch has taken it meanwhile."""
    payload = {"restored": made.id, "replaced_timeline": branch.timeline_id}
    if preserve_under is not None:
        payload |= {"preserve_under": preserve_under}
    return await enqueue(
        session,
        OperationKind.RESTORE_BRANCH,
        branch.project_id,
        branch_id=branch.id,
        depends_on=depends_on,
        also_holds=[scopes.of_branch(branch.project_id, made.id)],
        request_id=request_id,
        payload=payload,
    )


async def free_name(session: AsyncSession, project_id: str, name: str) -> str:
    """The name, or with the first number after it that makes it one which no branch of the project has."""
    repository = BranchRepository(session)
    found, number = name, 1
    while await repository.named(project_id, found) is not None:
        number += 1
        found = f"{name}-{number}"
    return found


async def exchange(session: AsyncSession, operation: Operation) -> bool:
    """The restored state becomes the branch's, in the caller's transaction. False when it was so already."""
    branch = await session.get_one(Branch, operation.branch_id, with_for_update=True)
    made = await session.get_one(Branch, operation.payload["restored"], with_for_update=True)
    replaced, restored = operation.payload["replaced_timeline"], made.timeline_id
    if branch.timeline_id != replaced:
        return False
    # In three steps, since no two branches may have one timeline at any moment.
    made.timeline_id = f"being exchanged by operation {operation.id}"
    await session.flush()
    branch.timeline_id = restored
    await session.flush()
    made.timeline_id = replaced

    await _exchange_ancestry(session, branch, made)
    preserved = operation.payload.get("preserve_under")
    if preserved is not None:
        made.name = await free_name(session, branch.project_id, preserved)
        # That was for what somebody looked at, and not for what is preserved.
        made.expires_at = None
    branch.state_changed_at = branch.updated_at = branch.last_reset_at = made.updated_at = now()
    await session.flush()
    await _exchange_roles(session, branch, made)
    return True


async def _exchange_ancestry(session: AsyncSession, branch: Branch, made: Branch) -> None:
    """Where a state comes from, and the branches made of it, go with the state."""
    other = {branch.id: made.id, made.id: branch.id}
    below = {
        row.id: (
            await session.scalars(select(Branch.id).where(Branch.parent_id == row.id, Branch.id.not_in(list(other))))
        ).all()
        for row in (branch, made)
    }
    for ident, children in below.items():
        if children:
            await session.execute(update(Branch).where(Branch.id.in_(children)).values(parent_id=other[ident]))
    origins = [
        (other.get(row.parent_id or "", row.parent_id), row.parent_lsn, row.parent_timestamp, row.restored_from)
        for row in (made, branch)
    ]
    for row, origin in zip((branch, made), origins, strict=True):
        row.parent_id, row.parent_lsn, row.parent_timestamp, row.restored_from = origin
        # Neither has the state that was to be given to another branch.
        row.restored_as = None


async def _exchange_roles(session: AsyncSession, branch: Branch, made: Branch) -> None:
    """Roles and databases, and what is to be dropped of them, go with the data they are in. A role that both have
    keeps, on the branch, the password that its clients know."""
    repository = DatabaseRepository(session)
    roles = {row.id: await repository.roles(row.id) for row in (branch, made)}
    held = {row.id: await repository.databases(row.id) for row in (branch, made)}
    known = {role.name: (role.password_sealed, role.scram_verifier) for role in roles[branch.id]}
    fresh: list[Role | BranchDatabase] = []
    for old, new in ((branch, made), (made, branch)):
        for role in roles[old.id]:
            sealed, verifier = role.password_sealed, role.scram_verifier
            if new is branch:
                sealed, verifier = known.get(role.name, (sealed, verifier))
            fresh.append(
                Role(
                    branch_id=new.id,
                    name=role.name,
                    password_sealed=sealed,
                    scram_verifier=verifier,
                    created_at=role.created_at,
                    updated_at=role.updated_at,
                )
            )
        fresh += [
            BranchDatabase(
                branch_id=new.id,
                name=row.name,
                owner_name=row.owner_name,
                created_at=row.created_at,
                updated_at=row.updated_at,
            )
            for row in held[old.id]
        ]
    dropped = {row.id: await repository.dropped(row.id) for row in (branch, made)}
    for old, new in ((branch, made), (made, branch)):
        for gone in dropped[old.id]:
            gone.branch_id = new.id
    await session.flush()
    for rows in (*roles.values(), *held.values()):
        for row in rows:
            session.expunge(row)
    for model in (Role, BranchDatabase):
        await session.execute(delete(model).where(model.branch_id.in_([branch.id, made.id])))
    session.add_all(fresh)
    await session.flush()
