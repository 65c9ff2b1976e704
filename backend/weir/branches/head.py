"""The newest state of a branch, as somebody who has just committed to it means it.

Storage is behind for a moment, or longer: the pageserver takes WAL in after its commit was acknowledged. So how far a
branch reaches is asked of those that acknowledge.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncSession

from weir.branches.log_members import known_commits, members_of_log, probe
from weir.branches.members import members_of
from weir.branches.models import Branch
from weir.branches.points import Engine, moment, point
from weir.clients.compute import ComputeStatus, status_of
from weir.databases.repository import DatabaseRepository
from weir.db import release
from weir.endpoints.models import Endpoint, EndpointState
from weir.endpoints.repository import EndpointRepository
from weir.errors import UnavailableError
from weir.kit.ids import parse_lsn
from weir.projects.models import Project


@dataclass(frozen=True)
class Beginning:
    """Where a branch of `source` begins; `lsn` is None where nothing was ever committed. `moment`: when that state
    was the newest, None where it still is or nobody knows. The moment is asked for only where `source` has deleted
    roles or databases (`knows_moment`), since it tells which of them the state has."""

    source: Branch
    lsn: str | None
    moment: datetime | None
    knows_moment: bool


async def beginning(
    session: AsyncSession, engine: Engine, project: Project, source: Branch, lsn: str | None, at: datetime | None
) -> Beginning:
    """At the LSN or the moment asked for, or else at the head. Ends the session's transaction: whoever makes the
    branch locks the project again (`ProjectAccess.unchanged_project`). Raises what `point` and `moment` raise, and
    UnavailableError where nobody says how far `source` reaches."""
    endpoints = await EndpointRepository(session).of_branch(source.id)
    stored = await members_of(session, source.timeline_id, len(engine.safekeepers))
    has_deleted = bool(await DatabaseRepository(session).dropped(source.id))
    await release(session)
    begins = await point(engine, project, source, lsn, at) or await _head(engine, project, source, endpoints, stored)
    begins_at = await moment(engine, project, source, lsn, at) if has_deleted else None
    return Beginning(source, begins, begins_at, has_deleted)


async def _head(
    engine: Engine, project: Project, source: Branch, endpoints: Sequence[Endpoint], stored: Sequence[int]
) -> str | None:
    """The LSN up to which the branch is committed: everything acknowledged before this was asked is below it. None of
    a branch to which nothing was ever committed.

    The agent of a running compute knows it exactly. Without one it is the furthest that a majority of the log's
    members knows of: a compute that ends has told them, and one that is killed may have acknowledged what they learn
    of at the next start. Raises UnavailableError where neither answers.
    """
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
