from collections.abc import Collection
from typing import Annotated

from fastapi import APIRouter, Depends, Query
from pydantic import AwareDatetime

from weir.authz.principal import CurrentPrincipal
from weir.db import Session
from weir.errors import BadRequestError, NotBuiltError, RangeNotKeptError, UnauthorizedError, responses
from weir.kit.clock import now
from weir.kit.pagination import PageRequest, Pagination, encode_cursor
from weir.usage import reading, schemas
from weir.usage.reading import Asked, Granularity
from weir.usage.schemas import (
    MEASURED,
    MEASURED_OF_BRANCHES,
    AccountConsumption,
    BranchConsumptionV2,
    BranchesConsumptionV2,
    Metric,
    ProjectConsumption,
    ProjectConsumptionV2,
    ProjectsConsumption,
    ProjectsConsumptionV2,
)

router = APIRouter(
    prefix="/consumption_history",
    tags=["consumption"],
    responses=responses(UnauthorizedError, BadRequestError, RangeNotKeptError),
)
MOST_PROJECTS = 100
MOST_BRANCHES = 1000
# Read for one page of branches: 1000 branches by the hours of a month would be 744,000 rows.
MOST_PERIODS = 50_000


async def _asked(
    start: Annotated[AwareDatetime, Query(alias="from", description="Rounded down to the granularity")],
    end: Annotated[AwareDatetime, Query(alias="to", description="Rounded down to the granularity")],
    granularity: Granularity,
    org_id: Annotated[str | None, Query(max_length=60, description="Of an organization of the caller's")] = None,
) -> Asked:
    # Read by `weir.authz.principal`.
    del org_id
    return reading.asked(start, end, granularity, now())


async def _page(
    cursor: Annotated[str | None, Query(max_length=512)] = None,
    limit: Annotated[int, Query(ge=1, le=MOST_PROJECTS)] = 10,
) -> PageRequest:
    return PageRequest(cursor, limit)


async def _branches_page(
    cursor: Annotated[str | None, Query(max_length=512)] = None,
    limit: Annotated[int, Query(ge=1, le=MOST_BRANCHES)] = 100,
) -> PageRequest:
    return PageRequest(cursor, limit)


def bounded(page: PageRequest, wanted: Asked) -> PageRequest:
    """The page, with no more branches than there is room for in one answer."""
    return PageRequest(page.cursor, min(page.limit, max(1, MOST_PERIODS // wanted.periods)))


def _listed(texts: list[str]) -> list[str]:
    """Values that were given one by one, or with commas between them."""
    return [word for text in texts for word in text.split(",") if word]


def _idents(name: str, texts: list[str]) -> list[str]:
    """Of the parameter `name`. Raises BadRequestError for more than `MOST_PROJECTS`, and for what no id has."""
    found = _listed(texts)
    if len(found) > MOST_PROJECTS:
        raise BadRequestError(f"{len(found)} {name} are too many for one request; send {MOST_PROJECTS} at most")
    if any("\0" in ident for ident in found):
        raise BadRequestError(f"{name} has a character of code 0, which no id has")
    return found


async def _projects(
    project_ids: Annotated[
        list[str] | None, Query(max_length=MOST_PROJECTS, description="All unless given; repeated, or with commas")
    ] = None,
) -> list[str] | None:
    return None if project_ids is None else _idents("project_ids", project_ids)


async def _named_projects(
    project_ids: Annotated[
        list[str], Query(min_length=1, max_length=MOST_PROJECTS, description="Repeated, or with commas")
    ],
) -> list[str]:
    found = _idents("project_ids", project_ids)
    if not found:
        raise BadRequestError("`project_ids` names none; name the projects whose branches are asked for")
    return found


async def _branches(
    branch_ids: Annotated[
        list[str] | None, Query(max_length=MOST_PROJECTS, description="All unless given; repeated, or with commas")
    ] = None,
) -> list[str] | None:
    return None if branch_ids is None else _idents("branch_ids", branch_ids)


def _metrics_of(texts: list[str], told: Collection[Metric]) -> list[Metric]:
    """Each once. Raises BadRequestError for what is no metric, NotBuiltError for one that is not among `told`."""
    found: list[Metric] = []
    for name in _listed(texts):
        try:
            metric = Metric(name)
        except ValueError:
            raise BadRequestError(f"{name!r} is no metric; there are {', '.join(told)}") from None
        if metric not in MEASURED:
            raise NotBuiltError(
                f"metric {metric} is not measured here: nobody counts what clients are sent, and no plan includes a "
                f"number of branches; ask for some of {', '.join(told)}"
            )
        if metric not in told:
            raise NotBuiltError(
                f"metric {metric} is of projects and not of branches; ask GET /consumption_history/v2/projects for "
                f"it, or for some of {', '.join(told)} here"
            )
        if metric not in found:
            found.append(metric)
    if not found:
        raise BadRequestError(f"`metrics` names none; ask for some of {', '.join(told)}")
    return found


async def _metrics(
    metrics: Annotated[
        list[str], Query(min_length=1, max_length=64, description=f"Repeated, or with commas: {', '.join(MEASURED)}")
    ],
) -> list[Metric]:
    return _metrics_of(metrics, MEASURED)


async def _branch_metrics(
    metrics: Annotated[
        list[str],
        Query(
            min_length=1,
            max_length=64,
            description=f"Repeated, or with commas: {', '.join(MEASURED_OF_BRANCHES)}",
        ),
    ],
) -> list[Metric]:
    return _metrics_of(metrics, MEASURED_OF_BRANCHES)


Range = Annotated[Asked, Depends(_asked)]
Page = Annotated[PageRequest, Depends(_page)]
Among = Annotated[list[str] | None, Depends(_projects)]
Metrics = Annotated[list[Metric], Depends(_metrics)]
BranchesPage = Annotated[PageRequest, Depends(_branches_page)]
Named = Annotated[list[str], Depends(_named_projects)]
AmongBranches = Annotated[list[str] | None, Depends(_branches)]
BranchMetrics = Annotated[list[Metric], Depends(_branch_metrics)]


@router.get("/account")
async def get_consumption_history_per_account(
    principal: CurrentPrincipal, session: Session, wanted: Range
) -> AccountConsumption:
    """Of all projects that the organization has or had. Timeframes in which nothing was measured are left out."""
    frames = await reading.of_account(session, principal.account_id, wanted)
    return AccountConsumption(periods=schemas.periods(principal.account_id, frames, now()))


@router.get("/projects")
async def get_consumption_history_per_project(
    principal: CurrentPrincipal, session: Session, wanted: Range, page: Page, project_ids: Among
) -> ProjectsConsumption:
    """Of each project, the newest first; with those deleted or transferred since that used something in the range.
    Timeframes in which nothing was measured are left out."""
    account = principal.account_id
    found = await reading.projects_page(session, account, wanted, page, among=project_ids, only=principal.project_id)
    rows, pagination = page.split(found)
    frames = await reading.of_projects(session, account, [row.id for row in rows], wanted)
    at = now()
    return ProjectsConsumption(
        projects=[
            ProjectConsumption(
                project_id=row.id,
                # What another organisation calls it now is that one's alone.
                project_name=row.name if row.account_id == account else row.id,
                deleted=row.deleted_at is not None or row.account_id != account,
                periods=schemas.periods(account, frames.get(row.id, []), at),
            )
            for row in rows
        ],
        pagination=pagination,
    )


@router.get("/v2/projects", responses=responses(BadRequestError, NotBuiltError))
async def get_consumption_history_per_project_v2(
    principal: CurrentPrincipal, session: Session, wanted: Range, page: Page, project_ids: Among, metrics: Metrics
) -> ProjectsConsumptionV2:
    """As the list of projects above, by the names of the published API's second version. `..._bytes_month` are
    byte-hours. Of branches other than roots, and of snapshots, the data counts in whole, with the pages that they
    share with their parent."""
    account = principal.account_id
    found = await reading.projects_page(session, account, wanted, page, among=project_ids, only=principal.project_id)
    rows, pagination = page.split(found)
    frames = await reading.of_projects(session, account, [row.id for row in rows], wanted)
    at = now()
    return ProjectsConsumptionV2(
        projects=[
            ProjectConsumptionV2(
                project_id=row.id, periods=schemas.periods_v2(account, frames.get(row.id, []), metrics, at)
            )
            for row in rows
        ],
        pagination=pagination,
    )


@router.get("/v2/branches", responses=responses(BadRequestError, NotBuiltError))
async def get_consumption_history_per_branch_v2(
    principal: CurrentPrincipal,
    session: Session,
    wanted: Range,
    page: BranchesPage,
    project_ids: Named,
    branch_ids: AmongBranches,
    metrics: BranchMetrics,
) -> BranchesConsumptionV2:
    """Of each branch of the projects, by ids of project and branch; with those deleted or transferred since that used
    something in the range. Timeframes in which nothing was measured are left out. The data of a branch other than a
    root counts in whole, with the pages that it shares with its parent. Figures of branches begin when this Weir has
    begun to measure by branch; those of their projects may be older. Of a long range a page has fewer branches than
    `limit`: follow `pagination.cursor` until there is none."""
    account, page = principal.account_id, bounded(page, wanted)
    found = await reading.branches_page(
        session, account, wanted, page, projects=project_ids, among=branch_ids, only=principal.project_id
    )
    shown = found[: page.limit]
    frames = await reading.of_branches(session, account, shown, wanted)
    at = now()
    return BranchesConsumptionV2(
        branches=[
            BranchConsumptionV2(
                project_id=row.project_id,
                branch_id=row.id,
                periods=schemas.periods_v2(account, frames.get(row.id, []), metrics, at),
            )
            for row in shown
        ],
        pagination=Pagination(
            cursor=encode_cursor(shown[-1].project_id, shown[-1].id) if len(found) > page.limit else None
        ),
    )
