from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import ColumnElement, Select, func, select
from sqlalchemy.ext.asyncio import AsyncSession

from weir.branches.models import Branch
from weir.endpoints.models import Endpoint, EndpointState
from weir.kit.pagination import PageRequest
from weir.projects.models import Project


@dataclass(frozen=True)
class ComputeRow:
    endpoint: Endpoint
    branch: Branch
    project: Project


@dataclass(frozen=True)
class ComputeFilter:
    """`text` is part of a compute's id, or of its project's or branch's name; `full_page_writes`: the wanted."""

    project_id: str | None = None
    text: str | None = None
    wanted: EndpointState | None = None
    full_page_writes: bool | None = None

    def conditions(self) -> list[ColumnElement[bool]]:
        found: list[ColumnElement[bool]] = []
        if self.project_id is not None:
            found.append(Endpoint.project_id == self.project_id)
        if self.text:
            found.append(
                Endpoint.id.contains(self.text, autoescape=True)
                | Project.name.icontains(self.text, autoescape=True)
                | Branch.name.icontains(self.text, autoescape=True)
            )
        if self.wanted is not None:
            found.append(Endpoint.desired_state == self.wanted)
        if self.full_page_writes is not None:
            found.append(Endpoint.full_page_writes.is_(self.full_page_writes))
        return found


def _joined(fleet: UUID | None, *, hidden_too: bool = False) -> Select[Endpoint, Branch, Project]:
    """`hidden_too`: with those of snapshots, which run while a state of the past is read."""
    statement = (
        select(Endpoint, Branch, Project)
        .join(Branch, Branch.id == Endpoint.branch_id)
        .join(Project, Project.id == Endpoint.project_id)
        .where(Endpoint.deleted_at.is_(None))
    )
    if not hidden_too:
        statement = statement.where(Branch.is_snapshot.is_(False))
    return statement if fleet is None else statement.where(Project.account_id == fleet)


class ComputeRepository:
    """`fleet`: the account whose computes are meant; None, for operators and the installation's own work, is all."""

    def __init__(self, session: AsyncSession, fleet: UUID | None) -> None:
        self._session = session
        self.fleet = fleet

    async def page(self, wanted: ComputeFilter, page: PageRequest) -> tuple[list[ComputeRow], int]:
        """Newest first, one more than asked for if another page follows; and how many the filter leaves in all."""
        statement = _joined(self.fleet).where(*wanted.conditions())
        total = await self._session.scalar(statement.with_only_columns(func.count(), maintain_column_froms=True))
        table = Endpoint.__table__
        rows = await self._session.execute(page.apply(statement, table.c.created_at, table.c.id))
        return [ComputeRow(*row) for row in rows.all()], total or 0

    async def get(self, endpoint_id: str) -> ComputeRow | None:
        rows = await self._session.execute(_joined(self.fleet).where(Endpoint.id == endpoint_id))
        row = rows.one_or_none()
        return None if row is None else ComputeRow(*row)

    async def ids(self) -> list[str]:
        return list((await self._session.scalars(select(Endpoint.id).where(*self._mine()))).all())

    async def tally(self) -> list[tuple[EndpointState, EndpointState, bool, int]]:
        """How many computes there are by wanted state, stored state and wanted full_page_writes."""
        kinds = (Endpoint.desired_state, Endpoint.state, Endpoint.full_page_writes)
        rows = await self._session.execute(select(*kinds, func.count()).where(*self._mine()).group_by(*kinds))
        return [(wanted, stored, full_page_writes, count) for wanted, stored, full_page_writes, count in rows.all()]

    def _mine(self) -> list[ColumnElement[bool]]:
        of_snapshots = select(Branch.id).where(Branch.is_snapshot, Branch.deleted_at.is_(None))
        living: list[ColumnElement[bool]] = [Endpoint.deleted_at.is_(None), Endpoint.branch_id.not_in(of_snapshots)]
        if self.fleet is not None:
            projects = select(Project.id).where(Project.account_id == self.fleet)
            living.append(Endpoint.project_id.in_(projects))
        return living

    async def beyond(self, endpoint_id: str, limit: int) -> list[ComputeRow]:
        """In the order of ids, for going through all of them in parts."""
        statement = _joined(self.fleet, hidden_too=True).where(Endpoint.id > endpoint_id)
        statement = statement.order_by(Endpoint.id).limit(limit)
        return [ComputeRow(*row) for row in (await self._session.execute(statement)).all()]

    async def unmet(self, limit: int) -> list[ComputeRow]:
        """Computes of which another state is stored than is wanted."""
        statement = _joined(self.fleet, hidden_too=True).where(Endpoint.desired_state != Endpoint.state)
        rows = await self._session.execute(statement.order_by(Endpoint.updated_at.desc()).limit(limit))
        return [ComputeRow(*row) for row in rows.all()]

    async def all(self, project_ids: list[str] | None = None) -> list[ComputeRow]:
        statement = _joined(self.fleet).order_by(Endpoint.created_at, Endpoint.id)
        if project_ids is not None:
            statement = statement.where(Endpoint.project_id.in_(project_ids))
        rows = await self._session.execute(statement)
        return [ComputeRow(*row) for row in rows.all()]
