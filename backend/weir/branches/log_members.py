"""Who the members of a log are, as its safekeepers say, which of them are well, and which change comes next. Pure,
but for the asking.

The log's own configuration is the truth: of the answers, the one of the highest generation. It is the newest for sure
when a majority of its voters has answered, because each newer one was stored by a majority that meets that one
(docs/consensus.md).
"""

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from weir.clients.http import RemoteError
from weir.clients.pageserver import SickMark
from weir.clients.safekeeper import Damage, LogStatus, Member, Safekeeper
from weir.kit.ids import parse_lsn


class SickKind(StrEnum):
    """What is wrong with a member, the worst first."""

    # The safekeeper does not answer.
    UNREACHABLE = "unreachable"
    # It answers and lacks the log, or has another one than the member that is named: a new disk.
    LOST = "lost"
    # Its log does not go on.
    STOPPED = "stopped"
    # Its log is not the one whose WAL the pageserver has.
    DIVERGED = "diverged"
    # WAL that it stored does not read as it was written.
    DAMAGED = "damaged"


@dataclass(frozen=True)
class Sickness:
    """`mends`: the safekeeper may still repair it by itself."""

    kind: SickKind
    reason: str
    mends: bool = False


@dataclass(frozen=True)
class Seen:
    """What one safekeeper says of a log: its status; None where it answers and has no such log. `error`: why nothing
    is known. `mark`: what the pageserver met when it read that log."""

    number: int
    log: LogStatus | None = None
    error: str | None = None
    mark: SickMark | None = None


@dataclass(frozen=True)
class LogMembers:
    """`generation` 0: the log names nobody yet, and `members` are the safekeepers that are stored. `doubt`: why
    these may not be the newest. `settled`: whether a majority of the voters has stored them; a change that broke
    off before may still turn out not to have been made."""

    generation: int
    generation_term: int
    members: tuple[Member, ...]
    doubt: str | None
    settled: bool = True

    @property
    def voters(self) -> list[int]:
        return [member.node for member in self.members if member.role == "voter"]

    def of(self, number: int) -> Member | None:
        return next((member for member in self.members if member.node == number), None)


class StepKind(StrEnum):
    # An empty log that waits to be a member's.
    LEARNER = "learner"
    # A member that receives the log and counts for nothing.
    ADD = "add"
    # A voter.
    PROMOTE = "promote"
    REMOVE = "remove"


@dataclass(frozen=True)
class Step:
    kind: StepKind
    safekeeper: int


def majority(count: int) -> int:
    return count // 2 + 1


async def probe(safekeepers: Iterable[Safekeeper], tenant: str, timeline: str) -> list[Seen]:
    async def ask(keeper: Safekeeper) -> Seen:
        try:
            return Seen(keeper.number, await keeper.log(tenant, timeline))
        except RemoteError as error:
            return Seen(keeper.number, error=str(error))

    return list(await asyncio.gather(*map(ask, safekeepers)))


def marked(seen: Sequence[Seen], marks: Mapping[int, SickMark]) -> list[Seen]:
    return [replace(one, mark=marks.get(one.number)) for one in seen]


def known_commits(seen: Iterable[Seen]) -> list[str]:
    """Up to where each safekeeper that shows its log knows it to be committed."""
    return [one.log.commit_lsn for one in seen if one.log is not None and one.log.commit_lsn is not None]


def members_of_log(seen: Sequence[Seen], stored: Collection[int]) -> LogMembers | None:
    """None when no safekeeper has the log. `stored`: whom to take for members while the log names nobody."""
    logs = {one.number: one.log for one in seen if one.log is not None}
    if not logs:
        return None
    newest = max(logs.values(), key=lambda log: (log.generation_term, log.generation, len(log.members)))
    if newest.generation == 0:
        return _unlisted(seen, stored)
    members = LogMembers(newest.generation, newest.generation_term, newest.members, None)
    needed = majority(len(members.voters))
    there = [logs[number] for number in members.voters if is_there(members, seen_of(seen, number))]
    if len(there) < needed:
        doubt = (
            f"{len(there)} of the log's {len(members.voters)} voters answer with their logs, and {needed} have to: "
            "who its members are may have changed since"
        )
        return replace(members, doubt=doubt)
    current = [log for log in there if (log.generation_term, log.generation) == _generation(members)]
    return replace(members, settled=len(current) >= needed)


def _generation(members: LogMembers) -> tuple[int, int]:
    return members.generation_term, members.generation


def _unlisted(seen: Sequence[Seen], stored: Collection[int]) -> LogMembers:
    """Of a log from before there were configurations, or one whose founders did not all say who they are."""
    members = [
        (one.log.member if one.log and one.log.member else None) or Member(one.number, "", 0, "voter")
        for one in seen
        if one.number in stored
    ]
    voters = tuple(Member(m.node, m.disk, m.incarnation, "voter") for m in members)
    answering = sum(1 for one in seen if one.number in stored and one.log is not None and not _waits(one.log))
    needed = majority(len(stored))
    doubt = None if answering >= needed else f"{answering} of {len(stored)} safekeepers answer with this log"
    return LogMembers(0, 0, voters, doubt)


def _waits(log: LogStatus) -> bool:
    """It is empty and waits to be made a learner."""
    return log.generation == 0 and bool(log.members)


def seen_of(seen: Sequence[Seen], number: int) -> Seen:
    return next((one for one in seen if one.number == number), Seen(number, error="no such safekeeper"))


def is_there(members: LogMembers, one: Seen) -> bool:
    """Whether the safekeeper answers with the very log that is named."""
    return one.log is not None and not is_lost(members, one)


def is_lost(members: LogMembers, one: Seen) -> bool:
    """Whether the safekeeper answers, and without the log that is named as the member's."""
    named = members.of(one.number)
    if named is None or one.error is not None:
        return False
    if one.log is None:
        return True
    if members.generation == 0:
        return _waits(one.log)
    # A log that can't be opened does not say whose it is. It is there.
    return one.log.member is not None and one.log.member.identity != named.identity


def committed(members: LogMembers, seen: Sequence[Seen]) -> str | None:
    """Up to where the log is committed for sure: as far as any of its members that shows its log knows."""
    there = [one.log for one in seen if members.of(one.number) is not None and is_there(members, one)]
    known = [log.commit_lsn for log in there if log is not None and log.commit_lsn is not None]
    return max(known, key=parse_lsn, default=None)


def sickness(members: LogMembers | None, one: Seen) -> Sickness | None:
    """What is wrong with the log of a safekeeper that is a member, or is to be one with the log it has; None when it
    is well. `members` None: nobody can say whom the log names."""
    if one.error is not None:
        return Sickness(SickKind.UNREACHABLE, one.error)
    if one.log is None:
        return Sickness(SickKind.LOST, "it answers and lacks this log, which it held: its disk was lost or replaced")
    if members is not None and is_lost(members, one):
        reason = "it has another log than the member that is named: a new disk, or a copy. That one is kept"
        return Sickness(SickKind.LOST, reason)
    if one.log.state != "active":
        return Sickness(SickKind.STOPPED, one.log.reason or "its log does not go on, and it does not say why")
    mark = one.mark
    if mark is not None and mark.kind == "diverged":
        return Sickness(SickKind.DIVERGED, mark.reason)
    if one.log.damage:
        mends = all(damage.unrepaired is None for damage in one.log.damage)
        return Sickness(SickKind.DAMAGED, _damage(one.log.damage), mends)
    if mark is not None and not _has_looked_since(one.log, mark):
        # Whether it is so, the safekeeper finds out by itself: what it was asked for, it looks at.
        return Sickness(SickKind.DAMAGED, mark.reason, mends=True)
    return None


def _has_looked_since(log: LogStatus, mark: SickMark) -> bool:
    """Whether the safekeeper has read the whole log after that, and found nothing that is damaged."""
    return mark.since is not None and log.verified_at is not None and log.verified_at > mark.since


def _damage(damage: Sequence[Damage]) -> str:
    worst = next((one for one in damage if one.unrepaired is not None), damage[0])
    text = f"its WAL from {worst.from_lsn} to {worst.to_lsn} is damaged: {worst.reason}"
    if worst.unrepaired is not None:
        text += f"; it is not repaired: {worst.unrepaired}"
    return text if len(damage) == 1 else f"{text} (and {len(damage) - 1} more)"


def is_well(members: LogMembers, one: Seen) -> bool:
    return sickness(members, one) is None


def next_step(members: LogMembers, seen: Sequence[Seen], wanted: Collection[int]) -> Step | None:
    """Which change brings the log nearer to having exactly these voters; None when it has. Lost members that are to
    hold the log again go first, since a safekeeper is no member twice; then comes who is new; who is to go goes last,
    those that are no help first."""
    for number in sorted(wanted):
        if is_lost(members, seen_of(seen, number)) and members.generation > 0:
            return Step(StepKind.REMOVE, number)
    for number in sorted(wanted):
        named, one = members.of(number), seen_of(seen, number)
        if named is None:
            return Step(StepKind.LEARNER if one.error is None and one.log is None else StepKind.ADD, number)
        if named.role == "learner":
            return Step(StepKind.PROMOTE, number)
    leaving = [member for member in members.members if member.node not in wanted]
    if not leaving:
        return None
    leaving.sort(key=lambda member: (is_there(members, seen_of(seen, member.node)), member.node))
    return Step(StepKind.REMOVE, leaving[0].node)


def refusal(members: LogMembers, seen: Sequence[Seen], wanted: Collection[int]) -> str | None:
    """Why a change to these voters can't be made as things are; None when it can."""
    if members.doubt is not None:
        return f"{members.doubt}. Start those safekeepers, with the disks they had"
    for number in sorted(wanted):
        one, named = seen_of(seen, number), members.of(number)
        if named is None and one.error is not None:
            return f"safekeeper {number} does not answer, so it can't be made a member: {one.error}"
        if members.generation == 0 and named is not None and is_lost(members, one):
            return (
                f"safekeeper {number} lacks the log, and the log does not name its members yet, so nobody can say "
                "that it is a new one; bring the disk of the safekeeper back"
            )
    if members.generation == 0 and any(not is_there(members, seen_of(seen, number)) for number in members.voters):
        return "the log does not name its members yet, which takes all of its safekeepers; bring them back once"
    answering = sum(1 for number in wanted if seen_of(seen, number).error is None)
    needed = majority(len(wanted))
    if answering < needed:
        return f"{answering} of the wanted safekeepers answer; {needed} have to, or commits would wait"
    sick = [number for number in sorted(wanted) if not _will_be_well(members, seen_of(seen, number))]
    if len(wanted) - len(sick) < needed:
        found = sickness(members, seen_of(seen, sick[0]))
        return (
            f"{len(wanted) - len(sick)} of the wanted safekeepers are well, and {needed} have to be. Of safekeeper "
            f"{sick[0]}: {'' if found is None else found.reason}"
        )
    return None


def _will_be_well(members: LogMembers, one: Seen) -> bool:
    """As a member: one that has no log, or lost its log, is given all of it."""
    if one.error is None and (one.log is None or is_lost(members, one)):
        return True
    return is_well(members, one)


def waits(members: LogMembers, seen: Sequence[Seen], step: Step) -> str | None:
    """Why a change that was begun has to wait: a well voter is not removed while of those that stay no majority is
    well. To remove a sick one takes nothing from anybody."""
    named = members.of(step.safekeeper)
    if step.kind != StepKind.REMOVE or named is None or named.role != "voter":
        return None
    if not is_well(members, seen_of(seen, step.safekeeper)):
        return None
    left = [number for number in members.voters if number != step.safekeeper]
    well = [number for number in left if is_well(members, seen_of(seen, number))]
    if len(well) >= majority(len(left)):
        return None
    return (
        f"safekeeper {step.safekeeper} stays a member until {majority(len(left))} of the other {len(left)} voters "
        f"are well; {len(well)} are"
    )
