"""Which time and which bytes are still to be counted, and in which hours. Pure: the moment is given.

A meter says up to when something is counted. What is added begins there and ends no later than now, and meter and
sum are written together, so that whoever measures twice, or again after a crash, adds nothing twice. In doubt less is
counted, never more.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta
from uuid import UUID

from weir.usage.models import Grain

# What nobody measured for longer is not made up: the clock was set forward, or the installation stood still.
LONGEST_GAP = timedelta(hours=6)
# A moment that is further in the future than clocks differ: the clock was set back since.
AHEAD = timedelta(minutes=5)
_LENGTHS = {Grain.HOUR: timedelta(hours=1), Grain.DAY: timedelta(days=1)}


@dataclass(frozen=True)
class Span:
    start: datetime
    end: datetime

    @property
    def seconds(self) -> float:
        return (self.end - self.start).total_seconds()


def uncounted(
    measured_to: datetime | None, began: datetime | None, end: datetime, at: datetime, elapsed: float | None
) -> Span | None:
    """The time that is to be added for what has run, or was held, from `began` on (None: longer than is known) until
    `end`, of which all before `measured_to` is counted. `elapsed`: at most so many seconds, by a clock that nobody
    sets, have passed since this process measured it last; None where it did not."""
    if began is not None and began > at + AHEAD:
        # By a clock that was set back since.
        began = None
    start = max((moment for moment in (measured_to, began) if moment is not None), default=None)
    if start is None:
        return None
    most = LONGEST_GAP if elapsed is None else min(LONGEST_GAP, timedelta(seconds=elapsed))
    start, end = max(start, at - most), min(end, at)
    return Span(start, end) if start < end else None


def moved(measured_to: datetime | None, to: datetime) -> datetime:
    """Up to when is counted, once all before `to` is: a meter goes back only where the clock was set back, since it
    would else count nothing until the clock is there again."""
    if measured_to is None or measured_to <= to or measured_to > to + AHEAD:
        return to
    return measured_to


def floor(moment: datetime, grain: Grain) -> datetime:
    """When the hour or day of the moment began, in UTC."""
    begun = moment.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    return begun if grain is Grain.HOUR else begun.replace(hour=0)


def pieces(span: Span, grain: Grain) -> Iterator[tuple[datetime, float]]:
    """How many seconds of the span lie in each hour or day, by when that began."""
    start = span.start
    while start < span.end:
        begun = floor(start, grain)
        end = min(span.end, begun + _LENGTHS[grain])
        yield begun, (end - start).total_seconds()
        start = end


def written(counted_to: int | None, start: int, now: int, *, since_start: bool) -> tuple[int, int]:
    """Bytes of WAL to be added, and the LSN up to which all is counted then. `counted_to`: None of a timeline that is
    seen for the first time; of a new one (`since_start`) all is counted from its start on, of an older one nothing,
    since nobody knows when it was written. Storage that is behind for a while counts nothing twice."""
    before = counted_to if counted_to is not None else (min(start, now) if since_start else now)
    return max(0, now - before), max(before, now)


@dataclass
class Amounts:
    """What is added to one period; the bytes held replace what was held before."""

    active_seconds: float = 0.0
    unit_seconds: float = 0.0
    processor_seconds: float = 0.0
    written_bytes: int = 0
    root_byte_hours: float = 0.0
    child_byte_hours: float = 0.0
    snapshot_byte_hours: float = 0.0
    history_byte_hours: float = 0.0
    logical_bytes: int | None = None
    history_bytes: int | None = None


HELD = ("logical_bytes", "history_bytes")
SUMMED = tuple(each.name for each in fields(Amounts) if each.name not in HELD)
Owner = tuple[UUID, str]
Period = tuple[UUID, str, Grain, datetime]
BranchPeriod = tuple[UUID, str, str, Grain, datetime]


@dataclass
class Tally:
    """Amounts by organisation, project, grain and begin of the period: those of projects (`found`), and the part of
    each branch (`branches`). `owner`: organisation and project. What has a `branch` is added to that branch alone,
    and has to be added to its project too."""

    found: dict[Period, Amounts] = field(default_factory=dict[Period, Amounts])
    branches: dict[BranchPeriod, Amounts] = field(default_factory=dict[BranchPeriod, Amounts])

    def _of(self, owner: Owner, branch: str | None, grain: Grain, begun: datetime) -> Amounts:
        if branch is None:
            return self.found.setdefault((*owner, grain, begun), Amounts())
        return self.branches.setdefault((*owner, branch, grain, begun), Amounts())

    def _each(self, owner: Owner, branch: str | None, span: Span) -> Iterator[tuple[Amounts, float]]:
        for grain in Grain:
            for begun, seconds in pieces(span, grain):
                yield self._of(owner, branch, grain, begun), seconds

    def ran(self, owner: Owner, branch: str, span: Span, units: float, processors: float | None) -> None:
        """A compute of the branch ran so long, with this size and so many processors busy: the branch's time, and the
        project's."""
        for of in (None, branch):
            for amounts, seconds in self._each(owner, of, span):
                amounts.active_seconds += seconds
                amounts.unit_seconds += seconds * units
                amounts.processor_seconds += seconds * (processors or 0.0)

    def held(self, owner: Owner, span: Span, sizes: "Sizes", branch: str | None = None) -> None:
        """So many bytes were held all along."""
        for amounts, seconds in self._each(owner, branch, span):
            hours = seconds / 3600
            amounts.root_byte_hours += sizes.root * hours
            amounts.child_byte_hours += sizes.child * hours
            amounts.snapshot_byte_hours += sizes.snapshot * hours
            amounts.history_byte_hours += sizes.history * hours

    def saw(self, owner: Owner, at: datetime, written_bytes: int, sizes: "Sizes", branch: str | None = None) -> None:
        """So many bytes of WAL were written since the last look, and so many bytes are held now."""
        for grain in Grain:
            amounts = self._of(owner, branch, grain, floor(at, grain))
            amounts.written_bytes += written_bytes
            amounts.logical_bytes, amounts.history_bytes = sizes.logical, sizes.history


@dataclass(frozen=True)
class Sizes:
    """Bytes that a project or a branch holds: the data of root branches, of other branches and of snapshots, each in
    whole, pages included that it shares with its parent; and the WAL of the history that all of them keep."""

    root: int = 0
    child: int = 0
    snapshot: int = 0
    history: int = 0

    @property
    def logical(self) -> int:
        return self.root + self.child + self.snapshot
