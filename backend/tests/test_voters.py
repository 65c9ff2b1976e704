"""Who takes the place of a sick member."""

from dataclasses import replace

import pytest

from weir.branches.log_members import Seen
from weir.branches.voters import voters_without
from weir.clients.safekeeper import Damage, LogStatus, Member


def seen(number: int, members: list[tuple[int, str]], role: str = "voter") -> Seen:
    named = tuple(Member(node, f"disk-{node}", 1, of) for node, of in members)
    own = Member(number, f"disk-{number}", 1, role)
    return Seen(number, LogStatus("active", None, 1, "0/10", "0/20", "0/20", own, named, 1, 1))


THREE = [(number, "voter") for number in (1, 2, 3)]
FIVE = [(number, "voter") for number in (1, 2, 3, 4, 5)]


def damaged(one: Seen) -> Seen:
    assert one.log is not None
    return replace(one, log=replace(one.log, damage=(Damage("0/16", "0/17", "a wrong checksum", "nobody has it"),)))


@pytest.mark.parametrize(
    ("spares", "load", "wanted"),
    [
        ([1, 3, 4, 5], {4: 7, 5: 2}, [1, 3, 5]),
        ([1, 3, 4, 5], {4: 7, 5: 7}, [1, 3, 4]),
        ([1, 2, 3, 4], {4: 7, 5: 2}, [1, 3, 4]),
        ([1, 3, 6], {4: 7, 5: 2}, []),
        ([1, 2, 3], {}, []),
    ],
)
def test_the_spare_with_the_fewest_branches_takes_the_place(
    spares: list[int], load: dict[int, int], wanted: list[int]
) -> None:
    answers = [seen(1, THREE), Seen(2), seen(3, THREE), Seen(4), Seen(5), Seen(6, error="away")]
    found, reason = voters_without(answers, [1, 2, 3], 2, spares, load)
    assert (found, reason is None) == (wanted, bool(wanted))


def test_without_a_majority_of_the_others_that_is_well_nothing_is_asked_for() -> None:
    answers = [damaged(seen(1, THREE)), Seen(2), seen(3, THREE), Seen(4)]
    found, reason = voters_without(answers, [1, 2, 3], 2, [1, 3, 4], {})
    assert (found, reason) == ([], "1 of the other 2 voters are well, and 2 have to be")
    answers = [damaged(seen(1, FIVE)), Seen(2), *(seen(number, FIVE) for number in (3, 4, 5)), Seen(6)]
    assert voters_without(answers, [1, 2, 3, 4, 5], 2, [6], {}) == ([1, 3, 4, 5, 6], None)


def test_a_change_that_was_broken_off_is_gone_on_with() -> None:
    learning = [*THREE, (5, "learner")]
    answers = [seen(1, learning), Seen(2), seen(3, learning), Seen(4), seen(5, learning, "learner")]
    assert voters_without(answers, [1, 2, 3, 5], 2, [1, 3, 4, 5], {5: 90}) == ([1, 3, 5], None)
    # The new one votes already, and the sick one is still to go.
    four = [*THREE, (5, "voter")]
    answers = [seen(1, four), Seen(2), seen(3, four), Seen(4), seen(5, four)]
    assert voters_without(answers, [1, 2, 3, 5], 2, [1, 3, 4, 5], {}) == ([1, 3, 5], None)


def test_a_spare_that_holds_a_damaged_log_of_before_is_not_chosen() -> None:
    answers = [seen(1, THREE), Seen(2), seen(3, THREE), damaged(seen(4, THREE, "none")), Seen(5)]
    assert voters_without(answers, [1, 2, 3], 2, [1, 3, 4, 5], {5: 90}) == ([1, 3, 5], None)


def test_who_is_no_voter_has_no_place_to_give() -> None:
    answers = [*(seen(number, THREE) for number in (1, 2, 3)), Seen(4)]
    found, reason = voters_without(answers, [1, 2, 3], 4, [1, 2, 3, 4], {})
    assert (found, reason) == ([], "safekeeper 4 is no voter of the log")
