"""A timeline's log is founded on each safekeeper once, and never again.

Before a safekeeper is asked, the wish is stored; when it answers, that it did. A crash between the two leaves a
member of which nobody knows whether it held the log, which counts as one that did: an empty log in place of one that
had acknowledged commits would vote against those who still hold them. One that has certainly not done it stays a
member that was never asked.

The safekeepers check this once more by themselves (docs/consensus.md): a log begins as a voter only on the disks that
it is founded with, and once on each.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import httpx
from sqlalchemy import update
from sqlalchemy.dialects.postgresql import insert

from weir.branches.members import MemberState, TimelineMember
from weir.clients.http import RemoteError
from weir.clients.safekeeper import Disk, Safekeeper
from weir.db import Database
from weir.kit.clock import now


@dataclass(frozen=True)
class LogFacts:
    """What a safekeeper must know to found a log."""

    start_lsn: str
    system_identifier: str
    pg_version: int


async def founders(safekeepers: Sequence[Safekeeper]) -> list[Disk] | None:
    """The disks that a log is to begin on, for all of the safekeepers to write down. None when one of them does not
    say: the log then names no members until a compute is followed by all of them."""
    disks = await asyncio.gather(*(keeper.disk() for keeper in safekeepers), return_exceptions=True)
    known = [disk for disk in disks if isinstance(disk, Disk)]
    return known if len(known) == len(disks) else None


async def found(
    database: Database,
    tenant: str,
    timeline: str,
    facts: LogFacts,
    safekeepers: Sequence[Safekeeper],
    disks: Sequence[Disk] | None = None,
) -> list[BaseException | None]:
    """Asks each of the safekeepers, which must never have been asked with success before, to found the log on these
    disks. Gives, in their order, why one did not."""
    await _asked(database, timeline, safekeepers)
    answers = await asyncio.gather(
        *(
            keeper.create_timeline(
                tenant, timeline, facts.start_lsn, facts.system_identifier, facts.pg_version, disks
            )
            for keeper in safekeepers
        ),
        return_exceptions=True,
    )
    outcomes = list(zip(safekeepers, answers, strict=True))
    founded = [keeper.number for keeper, answer in outcomes if not isinstance(answer, BaseException)]
    untouched = [keeper.number for keeper, answer in outcomes if _did_nothing(answer)]
    async with database.transaction() as session:
        of_timeline = TimelineMember.timeline_id == timeline
        await session.execute(
            update(TimelineMember)
            .where(of_timeline, TimelineMember.safekeeper_id.in_(founded), TimelineMember.founded_at.is_(None))
            .values(founded_at=now())
        )
        await session.execute(
            update(TimelineMember)
            .where(of_timeline, TimelineMember.safekeeper_id.in_(untouched), TimelineMember.founded_at.is_(None))
            .values(asked_at=None)
        )
    return [answer if isinstance(answer, BaseException) else None for answer in answers]


async def _asked(database: Database, timeline: str, safekeepers: Sequence[Safekeeper]) -> None:
    at = now()
    rows = [
        {
            "timeline_id": timeline,
            "safekeeper_id": keeper.number,
            "state": MemberState.MEMBER,
            "since": at,
            "asked_at": at,
        }
        for keeper in safekeepers
    ]
    new = insert(TimelineMember).values(rows)
    key = [TimelineMember.timeline_id, TimelineMember.safekeeper_id]
    async with database.transaction() as session:
        # Whether it was asked before stays as it is.
        await session.execute(
            new.on_conflict_do_update(
                index_elements=key, set_={"asked_at": at}, where=TimelineMember.asked_at.is_(None)
            )
        )


def _did_nothing(answer: BaseException | None) -> bool:
    """Whether the safekeeper has certainly not founded the log: it could not be reached, or refused. One that failed
    or fell silent may have."""
    if not isinstance(answer, RemoteError):
        return False
    if answer.status is None:
        return isinstance(answer.__cause__, httpx.ConnectError)
    return answer.status < 500 or answer.status == 503
