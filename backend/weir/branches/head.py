"""The newest state of a branch, as somebody who has just committed to it means it.

Storage is behind for a moment, or longer: the pageserver takes WAL in after its commit was acknowledged. So how far a
branch reaches is asked of those that acknowledge.
"""

import asyncio
from collections.abc import Sequence
from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncSession

from weir.branches.log_members import known_commits, members_of_log, probe
from weir.branches.members import members_of
from weir.branches.models import Branch
from weir.branches.points import Engine, point
from weir.clients.compute import ComputeStatus, status_of
from weir.endpoints.models import Endpoint, EndpointState
from weir.endpoints.repository import EndpointRepository
from weir.errors import UnavailableError
from weir.kit.ids import parse_lsn
from weir.projects.models import Project


async def beginning(
    session: AsyncSession, engine: Engine, project: Project, source: Branch, lsn: str | None, at: datetime | None
) -> str | None:
    """Where a branch of `source` begins: at the LSN or the moment asked for, or else at the head. Raises what `point`
    and `head` raise."""
    return await point(engine, project, source, lsn, at) or await head(session, engine, project, source)


async def head(session: AsyncSession, engine: Engine, project: Project, source: Branch) -> str | None:
    """The LSN up to which the branch is committed: everything acknowledged before this was asked is below it. None of
    a branch to which nothing was ever committed.

    The agent of a running compute knows it exactly. Without one it is the furthest that a majority of the log's
    members knows of: a compute that ends has told them, and one that is killed may have acknowledged what they learn
    of at the next start. Raises UnavailableError where neither answers.
    """
    endpoints = await EndpointRepository(session).of_branch(source.id)
    stored = await members_of(session, source.timeline_id, len(engine.safekeepers))
    seen, told = await asyncio.gather(
        probe(engine.safekeepers, project.tenant_id, source.timeline_id), _told_by_agents(engine, endpoints)
    )
    members = members_of_log(seen, stored)
    if not told and (members is None or members.doubt is not None):
        why = "no safekeeper shows its log" if members is None else members.doubt
        raise UnavailableError(f"the newest state of branch {source.id} is not known now: {why}; try again")
    newest = max([*told, *known_commits(seen)], key=parse_lsn, default="0/0")
    return newest if parse_lsn(newest) > 0 else None


async def _told_by_agents(engine: Engine, endpoints: Sequence[Endpoint]) -> list[str]:
    running = [endpoint for endpoint in endpoints if endpoint.state == EndpointState.ACTIVE]
    answers = await asyncio.gather(*(status_of(each.id, each.host, each.port, engine.http) for each in running))
    return [answer.commit_lsn for answer in answers if isinstance(answer, ComputeStatus) and answer.commit_lsn]
