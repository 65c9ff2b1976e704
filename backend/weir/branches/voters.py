"""Which safekeepers may be a log's voters, and whether they can become it as things are. Pure."""

from collections.abc import Collection, Mapping, Sequence

from weir.branches.log_members import (
    LogMembers,
    Seen,
    is_lost,
    is_well,
    majority,
    members_of_log,
    next_step,
    refusal,
    seen_of,
)
from weir.errors import BadRequestError

SIZES = (3, 5)


def check_set(wanted: Sequence[int], count: int) -> list[int]:
    """The set in order. Raises BadRequestError for one that no log of an installation with `count` safekeepers can
    have."""
    unknown = sorted(number for number in wanted if not 1 <= number <= count)
    if unknown:
        raise BadRequestError(f"there is no safekeeper {unknown[0]}; the installation has 1 to {count}")
    if len(set(wanted)) != len(wanted):
        raise BadRequestError("a safekeeper is named twice; a log has one member on each")
    sizes = (1,) if count == 1 else SIZES
    if len(wanted) not in sizes:
        raise BadRequestError(
            f"a log has {' or '.join(map(str, sizes))} voters, not {len(wanted)}: with an even number one more "
            "has to "
            "answer and none more may fail, and with two or one nothing may fail at all"
        )
    return sorted(wanted)


def why_not(members: LogMembers | None, seen: Sequence[Seen], wanted: Collection[int]) -> str | None:
    """Why the voters can't be changed to these now; None when they can."""
    if members is None:
        errors = [one.error for one in seen if one.error is not None]
        return f"no safekeeper shows the log: {errors[0] if errors else 'none of them has it'}"
    return refusal(members, seen, wanted)


def is_so(members: LogMembers, seen: Sequence[Seen], wanted: Collection[int], stored: Collection[int]) -> bool:
    """Whether there is nothing to do for these voters."""
    return members.settled and next_step(members, seen, wanted) is None and {*stored} == {*wanted}


def voters_with(seen: Sequence[Seen], stored: Sequence[int], number: int, by: int) -> tuple[list[int], str | None]:
    """The voters once `by` has the place of `number`, or why that can't be."""
    members = members_of_log(seen, stored)
    if members is None:
        return [], why_not(members, seen, [])
    if members.of(number) is None:
        return [], members.doubt or f"safekeeper {number} is no member of the log"
    if by == number and not is_lost(members, seen_of(seen, number)):
        return [], f"safekeeper {number} has its log, or does not answer; nothing is made again on it"
    if by != number and by in members.voters:
        return [], f"safekeeper {by} is a member already; choose another one"
    wanted = sorted({voter for voter in members.voters if voter != number} | {by})
    if is_so(members, seen, wanted, stored):
        return [], "there is nothing to do"
    return wanted, why_not(members, seen, wanted)


def voters_without(
    seen: Sequence[Seen], stored: Sequence[int], number: int, spares: Collection[int], load: Mapping[int, int]
) -> tuple[list[int], str | None]:
    """The voters once somebody else has the place of a sick one, or why that can't be. `spares`: safekeepers that are
    well, members or not; `load`: branches with each of them as a member."""
    members = members_of_log(seen, stored)
    if members is None:
        return [], why_not(members, seen, [])
    if number not in members.voters:
        return [], members.doubt or f"safekeeper {number} is no voter of the log"
    others = [voter for voter in members.voters if voter != number]
    well = [voter for voter in others if is_well(members, seen_of(seen, voter))]
    if len(well) < majority(len(others)):
        return [], f"{len(well)} of the other {len(others)} voters are well, and {majority(len(others))} have to be"
    if len(others) in SIZES:
        # A change before has added the other one, and did not get to its end.
        return others, why_not(members, seen, others)
    may = [by for by in spares if by != number and by not in others and _can_begin(members, seen_of(seen, by))]
    if not may:
        return [], "there is no spare safekeeper that is well: raise `count` of [safekeepers], or mend one"
    # One that has begun to learn the log goes on.
    by = min(may, key=lambda it: (members.of(it) is None, load.get(it, 0), it))
    return voters_with(seen, stored, number, by)


def _can_begin(members: LogMembers, one: Seen) -> bool:
    return one.error is None and (one.log is None or is_well(members, one))
