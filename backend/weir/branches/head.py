"""The newest state of a branch, as somebody who has just committed to it means it.

Storage is behind for a moment, or longer: the pageserver takes WAL in after its commit was acknowledged. So how far a
branch reaches is asked of those that acknowledge.
"""

import asyncio
from collections.abc import Sequence

from sqlalchemy.ext.asyncio import AsyncSession

from weir.branches.log_members import look, members_of_log
from weir.branches.members import members_of
from weir.branches.models import Branch
from weir.branches.points import Engine
from weir.clients.compute import agent_of
from weir.clients.http import RemoteError
from weir.endpoints.models import Endpoint, EndpointState
from weir.endpoints.repository import EndpointRepository
from weir.errors import UnavailableError
from weir.kit.ids import parse_lsn
from weir.projects.models import Project

_AGENT_SECONDS = 2.0


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
        look(engine.safekeepers, project.tenant_id, source.timeline_id), _told_by_agents(engine, endpoints)
    )
    members = members_of_log(seen, stored)
    if not told and (members is None or members.doubt is not None):
        why = "no safekeeper shows its log" if members is None else members.doubt
        raise UnavailableError(f"the newest state of branch {source.id} is not known now: {why}; try again")
    known = [one.log.commit_lsn for one in seen if one.log is not None and one.log.commit_lsn is not None]
    newest = max([*told, *known], key=parse_lsn, default="0/0")
    return newest if parse_lsn(newest) > 0 else None


async def _told_by_agents(engine: Engine, endpoints: Sequence[Endpoint]) -> list[str]:
    async def one(endpoint: Endpoint) -> str | None:
        try:
            status = await agent_of(endpoint.id, endpoint.host, endpoint.port, engine.http).status(_AGENT_SECONDS)
        except RemoteError:
            return None
        return status.commit_lsn if status.compute_id == endpoint.id else None

    running = [endpoint for endpoint in endpoints if endpoint.state == EndpointState.ACTIVE]
    return [lsn for lsn in await asyncio.gather(*map(one, running)) if lsn is not None]
