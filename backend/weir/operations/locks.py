"""Who holds what: rows of `operation_locks`, which the database keeps from overlapping.

A chain, all operations of one request, holds the cover of what its open operations hold. So one operation of a chain
never waits for another of it, and what an operation held is free in the transaction that ends it, unless a later one
of its chain needs it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import ARRAY, Text, any_, bindparam, delete, insert, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession

from weir.errors import ProjectBusyError
from weir.operations import scopes
from weir.operations.models import OPEN, Operation, OperationAction, OperationLock, OperationStatus

_EXCLUSION_VIOLATION = "23P01"


@dataclass(frozen=True)
class Holder:
    """The oldest open operation of the chain that holds `path`."""

    path: str
    operation_id: UUID
    action: OperationAction
    status: OperationStatus


_HELD = (
    select(OperationLock.path, Operation.id, Operation.action, Operation.status)
    .join(Operation, Operation.chain == OperationLock.chain)
    .where(OperationLock.project_id == any_(bindparam("projects", type_=ARRAY(Text))), Operation.status.in_(OPEN))
    .order_by(Operation.sequence)
)


async def holders(session: AsyncSession, asked: Mapping[str, str], *, but: UUID | None = None) -> dict[str, Holder]:
    """Of the scopes asked about, each under a name of the caller's, those that overlap with something held. `but`:
    a chain that does not count."""
    given: dict[str, Any] = {"projects": sorted({scopes.project_of(path) for path in asked.values()})}
    statement = _HELD
    if but is not None:
        statement = statement.where(OperationLock.chain != but)
    held: dict[str, dict[str, Holder]] = {}
    for path, ident, action, status in (await session.execute(statement, given)).all():
        of_project = held.setdefault(scopes.project_of(path), {})
        of_project.setdefault(path, Holder(path, ident, action, status))
    found: dict[str, Holder] = {}
    for name, path in asked.items():
        for holder in held.get(scopes.project_of(path), {}).values():
            if scopes.overlap(holder.path, path):
                found[name] = holder
                break
    return found


async def holder(session: AsyncSession, asked: Sequence[str], *, but: UUID | None = None) -> Holder | None:
    """One whose scope overlaps with one of those asked about."""
    found = await holders(session, {path: path for path in asked}, but=but)
    return next((found[path] for path in asked if path in found), None)


def busy(asked: Sequence[str], held: Holder) -> ProjectBusyError:
    what = next((path for path in asked if scopes.overlap(path, held.path)), asked[0])
    return ProjectBusyError(
        f"{scopes.named(what)} is busy: operation {held.operation_id} ({held.action}) is {held.status}; "
        "repeat the request when it has finished"
    )


async def require_free(session: AsyncSession, asked: Sequence[str]) -> None:
    """Call with the project's row locked: between the check and the commit nobody else can take what is free. Raises
    ProjectBusyError."""
    found = await holder(session, asked)
    if found is not None:
        raise busy(asked, found)


async def renew(session: AsyncSession, chain: UUID) -> None:
    """Makes what the chain holds the cover of what its open operations hold, in the caller's transaction: takes what
    an operation that was added holds, and frees what those held that have ended.

    Raises ProjectBusyError when another chain has some of it: the transaction, with the operation that was added, has
    to be rolled back then.
    """
    # Two operations of one chain that end at once: the second has to see that the first has ended.
    await session.execute(select(Operation.id).where(Operation.id == chain).with_for_update())
    open_of_chain = select(Operation.holds).where(Operation.chain == chain, Operation.status.in_(OPEN))
    needed = scopes.cover(path for holds in await session.scalars(open_of_chain) for path in holds)
    held = set((await session.scalars(select(OperationLock.path).where(OperationLock.chain == chain))).all())
    new = [path for path in needed if path not in held]
    found = await holder(session, new, but=chain) if new else None
    if found is not None:
        raise busy(new, found)
    # Whoever takes something has the project locked, so that nobody comes between. Where one has not, the database
    # refuses.
    gone = held.difference(needed)
    if gone:
        statement = delete(OperationLock).where(OperationLock.chain == chain, OperationLock.path.in_(gone))
        await session.execute(statement)
    if not new:
        return
    values = [{"path": path, "chain": chain, "project_id": scopes.project_of(path)} for path in new]
    try:
        await session.execute(insert(OperationLock).values(values))
    except IntegrityError as error:
        if getattr(error.orig, "sqlstate", None) != _EXCLUSION_VIOLATION:
            raise
        raise ProjectBusyError(
            f"{scopes.named(new[0])} is busy: another request has just begun something; repeat the request"
        ) from None
