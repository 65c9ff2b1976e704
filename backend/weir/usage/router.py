from typing import Annotated

from fastapi import APIRouter, Depends, Query
from pydantic import AwareDatetime

from weir.authz.principal import CurrentPrincipal
from weir.db import Session
from weir.errors import BadRequestError, NotBuiltError, RangeNotKeptError, UnauthorizedError, responses
from weir.kit.clock import now
from weir.kit.pagination import PageRequest
from weir.usage import reading, schemas
from weir.usage.reading import Asked, Granularity
from weir.usage.schemas import (
    MEASURED,
    AccountConsumption,
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


def _listed(texts: list[str] | None) -> list[str] | None:
    """Values that were given one by one, or with commas between them."""
    return None if texts is None else [word for text in texts for word in text.split(",") if word]


async def _projects(
    project_ids: Annotated[
        list[str] | None, Query(max_length=MOST_PROJECTS, description="All unless given; repeated, or with commas")
    ] = None,
) -> list[str] | None:
    found = _listed(project_ids)
    if found is not None and len(found) > MOST_PROJECTS:
        raise BadRequestError(f"{len(found)} project_ids are too many for one request; send {MOST_PROJECTS} at most")
    if any("\0" in ident for ident in found or []):
        raise BadRequestError("project_ids has a character of code 0, which no id has")
    return found


async def _metrics(
    metrics: Annotated[
        list[str], Query(min_length=1, max_length=64, description=f"Repeated, or with commas: {', '.join(MEASURED)}")
    ],
) -> list[Metric]:
    found: list[Metric] = []
    for name in _listed(metrics) or []:
        try:
            metric = Metric(name)
        except ValueError:
            raise BadRequestError(f"{name!r} is no metric; there are {', '.join(MEASURED)}") from None
        if metric not in MEASURED:
            raise NotBuiltError(
                f"metric {metric} is not measured here: nobody counts what clients are sent, and no plan includes a "
                f"number of branches; ask for some of {', '.join(MEASURED)}"
            )
        if metric not in found:
            found.append(metric)
    if not found:
        raise BadRequestError(f"`metrics` names none; ask for some of {', '.join(MEASURED)}")
    return found


Range = Annotated[Asked, Depends(_asked)]
Page = Annotated[PageRequest, Depends(_page)]
Among = Annotated[list[str] | None, Depends(_projects)]
Metrics = Annotated[list[Metric], Depends(_metrics)]


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
