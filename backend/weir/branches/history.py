"""How far back a branch goes, and which state an LSN or a moment of its past is."""

import asyncio
from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncSession

from weir.branches.history_schemas import BranchHistory, BranchPoint, HistoryPoint
from weir.branches.models import Branch
from weir.branches.points import Engine, point
from weir.branches.repository import BranchRepository
from weir.clients.http import RemoteError
from weir.clients.pageserver import Pageserver
from weir.db import release
from weir.errors import BadRequestError, UnavailableError
from weir.kit.ids import parse_lsn
from weir.projects.models import Project

# Of a branch with more, the newest. Each costs storage a read.
POINTS_SHOWN = 100


async def history(session: AsyncSession, pageserver: Pageserver, project: Project, branch: Branch) -> BranchHistory:
    """Ends the session's transaction. Raises UnavailableError when storage does not answer."""
    children = [
        (row, row.parent_lsn)
        for row in await BranchRepository(session).children(branch.id)
        if row.parent_lsn is not None and not row.is_snapshot
    ]
    children = sorted(children, key=lambda child: child[0].created_at)[-POINTS_SHOWN:]
    await release(session)
    try:
        timeline = await pageserver.timeline(project.tenant_id, branch.timeline_id)
        if timeline is None:
            raise BadRequestError(f"branch {branch.id} is {branch.state}: storage does not have it yet")

        oldest, newest = await asyncio.gather(
            *(
                pageserver.timestamp_of_lsn(project.tenant_id, branch.timeline_id, lsn)
                for lsn in (timeline.oldest_lsn, timeline.last_record_lsn)
            )
        )
        points = await asyncio.gather(*(_point(pageserver, project, row, lsn) for row, lsn in children))
    except RemoteError as error:
        raise UnavailableError(f"the history of branch {branch.id} is not known now: {error}; try again") from error
    return BranchHistory(
        branch_id=branch.id,
        oldest_lsn=timeline.oldest_lsn,
        oldest_timestamp=_moment(oldest),
        newest_lsn=timeline.last_record_lsn,
        newest_timestamp=_moment(newest),
        branch_points=sorted(points, key=lambda found: parse_lsn(found.lsn)),
    )


async def _point(pageserver: Pageserver, project: Project, child: Branch, lsn: str) -> BranchPoint:
    """Asked of the child, which has its branch point however old that is. One that storage does not have, being made
    or half deleted, has a point without a time."""
    try:
        at = await pageserver.timestamp_of_lsn(project.tenant_id, child.timeline_id, lsn)
    except RemoteError as error:
        if error.status not in {400, 404}:
            raise
        at = None
    return BranchPoint(branch_id=child.id, name=child.name, lsn=lsn, timestamp=_moment(at))


async def state_at(
    engine: Engine, project: Project, branch: Branch, lsn: str | None, at: datetime | None
) -> HistoryPoint:
    found = await point(engine, project, branch, lsn, at)
    if found is None:
        raise BadRequestError("give an LSN or a timestamp")
    try:
        committed = await engine.pageserver.timestamp_of_lsn(project.tenant_id, branch.timeline_id, found)
    except RemoteError as error:
        # Committed, and not ingested yet.
        if error.status != 400:
            raise UnavailableError(f"the time of LSN {found} is not known now: {error}; try again") from error
        committed = None
    return HistoryPoint(lsn=found, timestamp=_moment(committed))


def _moment(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
