"""Where a branch leaves another: checked against what storage has, so that a wrong LSN or time is refused now and not
by an operation later."""

from dataclasses import dataclass
from datetime import UTC, datetime

from weir.branches.log_members import known_commits, probe
from weir.branches.models import Branch
from weir.clients.http import HttpClient, RemoteError
from weir.clients.pageserver import Pageserver, TimelineStatus
from weir.clients.safekeeper import Safekeeper
from weir.errors import BadRequestError, UnavailableError
from weir.kit.clock import now
from weir.kit.ids import parse_lsn
from weir.projects.models import Project


@dataclass(frozen=True)
class Engine:
    """The programs that know how far a branch reaches. `http` reaches the agents of its computes."""

    pageserver: Pageserver
    safekeepers: list[Safekeeper]
    http: HttpClient


async def point(engine: Engine, project: Project, source: Branch, lsn: str | None, at: datetime | None) -> str | None:
    """The LSN asked for, or that of the moment asked for; None when neither is given.

    Raises BadRequestError for one that the source does not have, with the oldest it can go back to."""
    if lsn is None and at is None:
        return None
    if lsn is not None and at is not None:
        raise BadRequestError("give an LSN or a timestamp, not both")
    try:
        timeline = await engine.pageserver.timeline(project.tenant_id, source.timeline_id)
        if timeline is None:
            raise UnavailableError(f"the pageserver has no timeline for branch {source.id}; see the storage health")
        if lsn is not None:
            return await _checked_lsn(engine, project, source, lsn, timeline)
        assert at is not None  # noqa: S101  one of the two is there
        return await _lsn_at(engine.pageserver, project, source, at.astimezone(UTC), timeline)
    except RemoteError as error:
        raise UnavailableError(f"the branch point cannot be checked now: {error}; try again") from error


async def moment(
    engine: Engine, project: Project, source: Branch, lsn: str | None, at: datetime | None
) -> datetime | None:
    """When the state at the LSN or the moment asked for was the newest: the time of its newest commit. None when
    neither is given, and when nothing was committed before the LSN."""
    if at is not None or lsn is None:
        return at
    try:
        told = await engine.pageserver.timestamp_of_lsn(project.tenant_id, source.timeline_id, lsn)
    except RemoteError as error:
        raise UnavailableError(f"the branch point cannot be checked now: {error}; try again") from error
    return None if told is None else datetime.fromisoformat(told)


async def _checked_lsn(engine: Engine, project: Project, source: Branch, lsn: str, timeline: TimelineStatus) -> str:
    """What the pageserver has not ingested yet may be committed all the same; the operation waits for it."""
    if parse_lsn(lsn) < parse_lsn(timeline.oldest_lsn):
        raise await _too_old(engine.pageserver, project, source, f"LSN {lsn}", timeline)
    last = timeline.last_record_lsn
    if parse_lsn(lsn) > parse_lsn(last):
        seen = await probe(engine.safekeepers, project.tenant_id, source.timeline_id)
        last = max([last, *known_commits(seen)], key=parse_lsn)
    if parse_lsn(lsn) > parse_lsn(last):
        raise BadRequestError(f"LSN {lsn} is ahead of branch {source.id}, whose newest LSN is {last}")
    return lsn


async def _lsn_at(
    pageserver: Pageserver, project: Project, source: Branch, at: datetime, timeline: TimelineStatus
) -> str:
    if at > now():
        raise BadRequestError(f"timestamp {at.isoformat()} is in the future")
    lsn, kind = await pageserver.lsn_by_timestamp(project.tenant_id, source.timeline_id, at.isoformat())
    if kind == "past":
        raise await _too_old(pageserver, project, source, f"timestamp {at.isoformat()}", timeline)
    return lsn


async def _too_old(
    pageserver: Pageserver, project: Project, source: Branch, asked: str, timeline: TimelineStatus
) -> BadRequestError:
    oldest = timeline.oldest_lsn
    at = await pageserver.timestamp_of_lsn(project.tenant_id, source.timeline_id, oldest)
    moment = f"the state committed by {at}" if at else "its creation"
    return BadRequestError(
        f"{asked} is before the history of branch {source.id}: the oldest that is kept is LSN {oldest}, {moment}; "
        f"history_retention_seconds of project {project.id} is {project.history_retention_seconds}"
    )
