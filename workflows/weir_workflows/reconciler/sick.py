"""What is wrong with which members of logs, as the safekeepers and the pageserver say, and since when.

Another kind does not make a sickness younger: a disk that is lost first does not answer. Only a member that is seen
well loses its time.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

import structlog
from prometheus_client import Gauge
from sqlalchemy import tuple_, update
from sqlalchemy.ext.asyncio import AsyncSession

from weir.branches.log_members import SickKind, Sickness
from weir.branches.members import WELL, TimelineMember
from weir.clients.http import RemoteError
from weir.clients.pageserver import SickMark
from weir.kit.clock import now
from weir_workflows.common.resources import Resources

log = structlog.get_logger()

SICK = Gauge(
    "weir_safekeeper_sick_members", "Logs whose member on a safekeeper is not well", ["safekeeper_id", "kind"]
)
# Members in one statement.
CHUNK = 5_000
_MEMBER = tuple_(TimelineMember.timeline_id, TimelineMember.safekeeper_id)

# A timeline and the number of a safekeeper.
Member = tuple[str, int]
# By timeline and safekeeper.
Marks = dict[str, dict[int, SickMark]]


@dataclass(frozen=True)
class StoredSickness:
    kind: SickKind
    reason: str


async def marks_of_pageserver(resources: Resources) -> Marks | None:
    """None when it does not say: what it said last holds."""
    try:
        said = await resources.pageserver.sick_safekeepers()
    except RemoteError as error:
        log.warning("sick_safekeepers_not_asked", error=str(error))
        return None
    numbers = {address: number for number, address in enumerate(resources.settings.safekeeper_wal_addresses, 1)}
    marks: Marks = defaultdict(dict)
    for mark in said:
        number = numbers.get(mark.safekeeper)
        if number is not None:
            reason = f"the pageserver does not read its WAL: {mark.reason}"
            marks[mark.timeline_id][number] = replace(mark, reason=reason)
    return dict(marks)


async def record_sick(
    session: AsyncSession, stored: Mapping[Member, StoredSickness], found: Mapping[Member, Sickness]
) -> None:
    """Where something has changed. `stored`: of all that were looked at."""
    await set_of(session, stored.keys() - found.keys(), WELL)
    begun: dict[StoredSickness, list[Member]] = defaultdict(list)
    changed: dict[StoredSickness, list[Member]] = defaultdict(list)
    for member, sickness in found.items():
        fresh, known = StoredSickness(sickness.kind, sickness.reason), stored.get(member)
        if fresh != known:
            (begun if known is None else changed)[fresh].append(member)
    at = now()
    for fresh, members in begun.items():
        values = {"sick_kind": fresh.kind, "sick_reason": fresh.reason, "sick_since": at}
        await set_of(session, members, values)
    for fresh, members in changed.items():
        await set_of(session, members, {"sick_kind": fresh.kind, "sick_reason": fresh.reason})
    for sickness in (begun, changed):
        _say(sickness)


def _say(found: Mapping[StoredSickness, Collection[Member]]) -> None:
    """One line for all members of a safekeeper that are sick in the same way: one that is away has thousands."""
    for fresh, members in found.items():
        for number, count in Counter(number for _, number in members).items():
            example = next(timeline for timeline, of in members if of == number)
            log.warning(
                "safekeeper_sick",
                safekeeper_id=number,
                kind=fresh.kind.value,
                reason=fresh.reason,
                timelines=count,
                timeline_id=example,
            )


def show_sick(numbers: Iterable[int], counts: Mapping[tuple[int, SickKind], int]) -> None:
    for number in numbers:
        for kind in SickKind:
            SICK.labels(str(number), kind.value).set(counts.get((number, kind), 0))


async def set_of(session: AsyncSession, members: Iterable[Member], values: Mapping[str, object]) -> None:
    chosen = list(members)
    for begin in range(0, len(chosen), CHUNK):
        await session.execute(
            update(TimelineMember).where(_MEMBER.in_(chosen[begin : begin + CHUNK])).values(**values)
        )
