"""What was used, as it is told: by hours, days or months, of an organisation, of its projects and their branches."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any
from uuid import UUID

from sqlalchemy import ARRAY, ColumnElement, Text, and_, any_, bindparam, func, literal, or_, select, tuple_
from sqlalchemy.ext.asyncio import AsyncSession

from weir.branches.models import Branch
from weir.errors import RangeNotKeptError
from weir.kit.pagination import PageRequest, text
from weir.projects.models import Project
from weir.usage.metering import HELD, SUMMED, Amounts, floor
from weir.usage.models import BranchUsagePeriod, Grain, UsagePeriod
from weir.usage.recording import DAYS_KEPT, HOURS_KEPT


class Granularity(StrEnum):
    HOURLY = "hourly"
    DAILY = "daily"
    MONTHLY = "monthly"


# How far back each reaches.
_KEPT = {Granularity.HOURLY: HOURS_KEPT, Granularity.DAILY: DAYS_KEPT, Granularity.MONTHLY: DAYS_KEPT}


@dataclass(frozen=True)
class Asked:
    """From `start` on and before `end`, both at begins of such timeframes, in UTC."""

    start: datetime
    end: datetime
    granularity: Granularity

    @property
    def grain(self) -> Grain:
        return Grain.HOUR if self.granularity is Granularity.HOURLY else Grain.DAY

    @property
    def periods(self) -> int:
        """How many hours or days are read of one project or branch, at most."""
        return -(-(self.end - self.start) // (timedelta(hours=1) if self.grain is Grain.HOUR else timedelta(days=1)))


@dataclass(frozen=True)
class Timeframe:
    start: datetime
    end: datetime
    amounts: Amounts


def month_of(moment: datetime) -> datetime:
    """When its month began, in UTC."""
    return floor(moment, Grain.DAY).replace(day=1)


def month_after(month: datetime) -> datetime:
    return (month + timedelta(days=32)).replace(day=1)


def _begin(moment: datetime, granularity: Granularity) -> datetime:
    if granularity is Granularity.MONTHLY:
        return month_of(moment)
    return floor(moment, Grain.HOUR if granularity is Granularity.HOURLY else Grain.DAY)


def _end(start: datetime, granularity: Granularity) -> datetime:
    if granularity is Granularity.MONTHLY:
        return month_after(start)
    return start + (timedelta(hours=1) if granularity is Granularity.HOURLY else timedelta(days=1))


def asked(start: datetime, end: datetime, granularity: Granularity, at: datetime) -> Asked:
    """Both rounded down to the granularity, as the published API rounds them; one timeframe at least, so that the
    current one can be asked for. Raises RangeNotKeptError for what is no range, or begins before what is kept."""
    earliest = at - _KEPT[granularity]
    if not start < end:
        raise RangeNotKeptError(f"`from` {start.isoformat()} is not before `to` {end.isoformat()}; exchange them")
    # Compared before it is rounded: a date of the year 1 cannot be moved between time zones.
    if start < earliest:
        raise RangeNotKeptError(
            f"{granularity} usage is kept for {_KEPT[granularity].days} days, and `from` {start.isoformat()} is "
            f"before {earliest.isoformat()}; ask for a later one, or another granularity"
        )
    # Nothing was used in the future, and a date of the year 9999 has no month after it.
    latest = at + timedelta(days=32)
    first, end = _begin(min(start, latest), granularity), min(end, latest)
    return Asked(first, max(_begin(end, granularity), _end(first, granularity)), granularity)


_Model = type[UsagePeriod] | type[BranchUsagePeriod]


def _within(account_id: UUID, wanted: Asked, of: _Model = UsagePeriod) -> ColumnElement[bool]:
    return and_(
        of.account_id == account_id,
        of.grain == wanted.grain,
        of.starts_at >= wanted.start,
        of.starts_at < wanted.end,
    )


def _sums() -> list[ColumnElement[Any]]:
    columns = UsagePeriod.__table__.c
    return [func.sum(columns[name]) for name in SUMMED]


def _held() -> list[ColumnElement[Any]]:
    return [func.sum(UsagePeriod.logical_bytes), func.sum(UsagePeriod.history_bytes)]


def _values(of: _Model) -> list[ColumnElement[Any]]:
    """What `_amounts` reads of one row."""
    return [of.__table__.c[name] for name in (*SUMMED, *HELD)]


async def of_account(session: AsyncSession, account_id: UUID, wanted: Asked) -> list[Timeframe]:
    """Of all projects that the organisation has or had, the oldest timeframe first; those in which nothing was
    measured are left out."""
    statement = (
        select(UsagePeriod.starts_at, *_sums(), *_held())
        .where(_within(account_id, wanted))
        .group_by(UsagePeriod.starts_at)
        .order_by(UsagePeriod.starts_at)
    )
    rows: Any = (await session.execute(statement)).all()
    return _timeframes([(row[0], _amounts(row[1:])) for row in rows], wanted)


async def of_projects(
    session: AsyncSession, account_id: UUID, projects: Iterable[str], wanted: Asked
) -> dict[str, list[Timeframe]]:
    """As `of_account`, of each of these projects."""
    statement = (
        select(UsagePeriod.project_id, UsagePeriod.starts_at, *_values(UsagePeriod))
        .where(_within(account_id, wanted), UsagePeriod.project_id.in_(list(projects)))
        .order_by(UsagePeriod.project_id, UsagePeriod.starts_at)
    )
    return _by_ident((await session.execute(statement)).all(), wanted)


async def of_branches(
    session: AsyncSession, account_id: UUID, branches: Sequence[Branch], wanted: Asked
) -> dict[str, list[Timeframe]]:
    """As `of_projects`, of each of these branches."""
    statement = (
        select(BranchUsagePeriod.branch_id, BranchUsagePeriod.starts_at, *_values(BranchUsagePeriod))
        .where(
            _within(account_id, wanted, BranchUsagePeriod),
            BranchUsagePeriod.project_id.in_({branch.project_id for branch in branches}),
            BranchUsagePeriod.branch_id.in_([branch.id for branch in branches]),
        )
        .order_by(BranchUsagePeriod.branch_id, BranchUsagePeriod.starts_at)
    )
    return _by_ident((await session.execute(statement)).all(), wanted)


def _by_ident(rows: Iterable[Any], wanted: Asked) -> dict[str, list[Timeframe]]:
    """Of rows of an id, the begin of a period, and its values, in the order of periods."""
    found: dict[str, list[tuple[datetime, Amounts]]] = {}
    for row in rows:
        found.setdefault(row[0], []).append((row[1], _amounts(row[2:])))
    return {ident: _timeframes(periods, wanted) for ident, periods in found.items()}


async def projects_page(
    session: AsyncSession,
    account_id: UUID,
    wanted: Asked,
    page: PageRequest,
    *,
    among: Sequence[str] | None,
    only: str | None,
) -> list[Project]:
    """The organisation's projects, and those deleted or transferred since that used something in the range; the
    newest first. `among`: of these alone; `only`: the one project that the caller may see."""
    used = select(UsagePeriod.project_id).where(_within(account_id, wanted), UsagePeriod.project_id == Project.id)
    statement = select(Project).where(
        or_(and_(Project.account_id == account_id, Project.deleted_at.is_(None)), used.exists())
    )
    if among is not None:
        statement = statement.where(Project.id.in_(among))
    if only is not None:
        statement = statement.where(Project.id == only)
    table = Project.__table__
    return list((await session.scalars(page.apply(statement, table.c.created_at, table.c.id))).all())


async def branches_page(
    session: AsyncSession,
    account_id: UUID,
    wanted: Asked,
    page: PageRequest,
    *,
    projects: Sequence[str],
    among: Sequence[str] | None,
    only: str | None,
) -> list[Branch]:
    """Branches of these projects of the organisation, by ids of project and branch, and those deleted or transferred
    since that used something in the range; never what holds a snapshot. `among`: of these branches alone; `only`: of
    the one project that the caller may see. One row more than asked for tells whether another page follows."""
    used = select(BranchUsagePeriod.branch_id).where(
        _within(account_id, wanted, BranchUsagePeriod),
        BranchUsagePeriod.project_id == Branch.project_id,
        BranchUsagePeriod.branch_id == Branch.id,
    )
    there = and_(Project.account_id == account_id, Project.deleted_at.is_(None), Branch.deleted_at.is_(None))
    statement = (
        select(Branch)
        .join(Project, Project.id == Branch.project_id)
        .where(Branch.project_id.in_(projects), Branch.is_snapshot.is_(False), or_(there, used.exists()))
    )
    if among is not None:
        statement = statement.where(Branch.id.in_(among))
    if only is not None:
        statement = statement.where(Branch.project_id == only)
    after = page.after(text, text)
    if after is not None:
        statement = statement.where(tuple_(Branch.project_id, Branch.id) > tuple_(*map(literal, after)))
    statement = statement.order_by(Branch.project_id, Branch.id).limit(page.limit + 1)
    return list((await session.scalars(statement)).all())


def _amounts(row: Sequence[Any]) -> Amounts:
    """Of a row of the sums and what was held: Postgres adds whole numbers up to a `numeric`."""
    *sums, logical, history = row
    values: dict[str, Any] = {name: float(value) for name, value in zip(SUMMED, sums, strict=True)}
    values["written_bytes"] = round(values["written_bytes"])
    values["logical_bytes"] = None if logical is None else int(logical)
    values["history_bytes"] = None if history is None else int(history)
    return Amounts(**values)


def _timeframes(periods: Sequence[tuple[datetime, Amounts]], wanted: Asked) -> list[Timeframe]:
    """Hours and days as they are; of months, the days of each together."""
    found: dict[datetime, Amounts] = {}
    for starts_at, amounts in periods:
        start = _begin(starts_at, wanted.granularity)
        found[start] = _together(found[start], amounts) if start in found else amounts
    return [Timeframe(start, _end(start, wanted.granularity), amounts) for start, amounts in found.items()]


def _together(one: Amounts, later: Amounts) -> Amounts:
    values: dict[str, Any] = {name: getattr(one, name) + getattr(later, name) for name in SUMMED}
    held = later if later.logical_bytes is not None else one
    return Amounts(**values, logical_bytes=held.logical_bytes, history_bytes=held.history_bytes)


@dataclass(frozen=True)
class Consumed:
    """What a project used in the current month, and holds."""

    start: datetime
    end: datetime
    amounts: Amounts


# Made once, as those of `weir.identity.repository`; one text for any number of projects.
_THIS_MONTH = (
    select(UsagePeriod.project_id, UsagePeriod.starts_at, *_sums(), *_held())
    .join(Project, and_(Project.id == UsagePeriod.project_id, Project.account_id == UsagePeriod.account_id))
    .where(
        UsagePeriod.grain == Grain.DAY,
        UsagePeriod.starts_at >= bindparam("start"),
        UsagePeriod.project_id == any_(bindparam("projects", type_=ARRAY(Text))),
    )
    .group_by(UsagePeriod.project_id, UsagePeriod.starts_at)
    .order_by(UsagePeriod.starts_at)
)


async def this_month(session: AsyncSession, projects: Sequence[Project], at: datetime) -> dict[str, Consumed]:
    """Of each of the projects; of one that was transferred, since its organisation has had it."""
    start = month_of(at)
    given = {"start": start, "projects": [project.id for project in projects]}
    found: dict[str, Amounts] = {}
    rows: Any = (await session.execute(_THIS_MONTH, given)).all()
    for row in rows:
        amounts = _amounts(row[2:])
        found[row[0]] = _together(found[row[0]], amounts) if row[0] in found else amounts
    end = month_after(start)
    return {project.id: Consumed(start, end, found.get(project.id, Amounts())) for project in projects}


async def branches_this_month(
    session: AsyncSession, project: Project, branches: Sequence[Branch], at: datetime
) -> dict[str, Amounts]:
    """By branch of the project, what each used in the current month, since its organisation has had the project."""
    month = Asked(month_of(at), month_after(month_of(at)), Granularity.MONTHLY)
    frames = await of_branches(session, project.account_id, branches, month)
    return {branch.id: frames[branch.id][0].amounts if branch.id in frames else Amounts() for branch in branches}


def nothing(at: datetime) -> Consumed:
    """Of a project that was made just now."""
    start = month_of(at)
    return Consumed(start, month_after(start), Amounts())
