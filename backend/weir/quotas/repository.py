"""Quotas as they are stored, and what is used of them as the database counts it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from math import ceil
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, delete, func, or_, select, text, tuple_
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from weir.branches.models import Branch
from weir.databases.models import BranchDatabase, Role
from weir.endpoints.models import Endpoint, EndpointState
from weir.identity.models import ApiKey
from weir.projects.models import Project
from weir.quotas.models import Quota, StorageUse
from weir.quotas.names import QuotaName
from weir.quotas.owners import Owner, owns_keys, owns_projects

# What each compute counts for: none is larger or smaller.


@dataclass(frozen=True)
class Used:
    """How much of something there is. `of`: the branch or project that has it, where it is the fullest of many.
    `measured_at`: of what is measured rather than counted; `amount` None: it was not measured yet."""

    amount: int | None
    of: str | None = None
    measured_at: datetime | None = None


def runs() -> ColumnElement[bool]:
    """True of endpoints whose computes run, or are to: one that is being stopped runs until it has stopped."""
    return and_(
        Endpoint.deleted_at.is_(None),
        or_(Endpoint.desired_state == EndpointState.ACTIVE, Endpoint.state == EndpointState.ACTIVE),
    )


class QuotaRepository:
    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def lock(self, owner: Owner) -> None:
        """Until the transaction ends, nobody else counts what this owner has in order to add to it. What others have
        added before is seen by every later statement."""
        statement = text("SELECT pg_advisory_xact_lock(hashtextextended(:owner, 0))")
        await self._session.execute(statement, {"owner": f"weir quotas of {owner}"})

    async def of(self, owners: Iterable[Owner]) -> Mapping[Owner, Mapping[QuotaName, int | None]]:
        """What is set for each of them."""
        found: dict[Owner, dict[QuotaName, int | None]] = {owner: {} for owner in owners}
        keys = [(owner.kind, owner.id) for owner in found]
        statement = select(Quota).where(tuple_(Quota.owner_kind, Quota.owner_id).in_(keys))
        for row in (await self._session.scalars(statement)).all():
            found[Owner(row.owner_kind, row.owner_id)][row.name] = row.most
        return found

    async def set(self, owner: Owner, name: QuotaName, most: int | None, at: datetime) -> None:
        values = {"owner_kind": owner.kind, "owner_id": owner.id, "name": name, "most": most, "set_at": at}
        statement = insert(Quota).values(values)
        keys = ["owner_kind", "owner_id", "name"]
        await self._session.execute(
            statement.on_conflict_do_update(index_elements=keys, set_={"most": most, "set_at": at})
        )

    async def unset(self, owner: Owner, name: QuotaName) -> None:
        await self._session.execute(
            delete(Quota).where(Quota.owner_kind == owner.kind, Quota.owner_id == owner.id, Quota.name == name)
        )

    async def used(self, owner: Owner, name: QuotaName) -> Used:
        """By the owner as a whole, or, of what is limited by project or branch, by the fullest of them."""
        match name:
            case QuotaName.PROJECTS:
                return await self._count(select(func.count()).select_from(Project).where(*self._live(owner)))
            case QuotaName.API_KEYS:
                live = select(func.count()).select_from(ApiKey).where(owns_keys(owner), ApiKey.revoked_at.is_(None))
                return await self._count(live)
            case QuotaName.BRANCHES:
                return await self._fullest_project(owner)
            case QuotaName.COMPUTES:
                return await self._count(self._running(owner))
            case QuotaName.COMPUTE_UNITS:
                # What each may grow to, so that growing is never refused.
                units = self._running(owner).with_only_columns(func.coalesce(func.sum(Endpoint.max_cu), 0))
                return Used(ceil((await self._session.scalars(units)).one()))
            case QuotaName.STORAGE_BYTES:
                return await self._storage(owner)
            case QuotaName.ROLES:
                return await self._fullest_branch(owner, Role)
            case QuotaName.DATABASES:
                return await self._fullest_branch(owner, BranchDatabase)

    async def of_branch(self, branch_id: str, name: QuotaName) -> int:
        """Roles or databases of one branch."""
        model = Role if name is QuotaName.ROLES else BranchDatabase
        statement = select(func.count()).select_from(model).where(model.branch_id == branch_id)
        return (await self._session.scalars(statement)).one()

    def _live(self, owner: Owner) -> list[ColumnElement[bool]]:
        """Projects that are being deleted count until they are gone: their storage is there."""
        return [owns_projects(owner), Project.deleted_at.is_(None)]

    def _running(self, owner: Owner) -> Select[int]:
        joined = select(func.count()).select_from(Endpoint).join(Project, Project.id == Endpoint.project_id)
        return joined.where(runs(), *self._live(owner))

    async def _count(self, statement: Select[int]) -> Used:
        return Used((await self._session.scalars(statement)).one())

    async def _storage(self, owner: Owner) -> Used:
        statement = (
            select(func.sum(StorageUse.bytes), func.min(StorageUse.measured_at))
            .join(Project, Project.id == StorageUse.project_id)
            .where(*self._live(owner))
        )
        # A sum over no rows is null, which the types of the query do not say.
        found: Any = (await self._session.execute(statement)).one()
        amount, measured_at = found
        return Used(None if amount is None else int(amount), measured_at=measured_at)

    async def _fullest_project(self, owner: Owner) -> Used:
        number = func.count().label("number")
        statement = (
            select(Branch.project_id, number)
            .join(Project, Project.id == Branch.project_id)
            .where(Branch.deleted_at.is_(None), *self._live(owner))
            .group_by(Branch.project_id)
            .order_by(number.desc(), Branch.project_id)
        )
        return await self._first(statement)

    async def _fullest_branch(self, owner: Owner, model: type[Role] | type[BranchDatabase]) -> Used:
        number = func.count().label("number")
        statement = (
            select(model.branch_id, number)
            .join(Branch, Branch.id == model.branch_id)
            .join(Project, Project.id == Branch.project_id)
            .where(Branch.deleted_at.is_(None), *self._live(owner))
            .group_by(model.branch_id)
            .order_by(number.desc(), model.branch_id)
        )
        return await self._first(statement)

    async def _first(self, statement: Select[str, int]) -> Used:
        row = (await self._session.execute(statement.limit(1))).one_or_none()
        return Used(0) if row is None else Used(row[1], of=row[0])
