"""Who a log's members are, and which change comes next, from what the safekeepers say."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from weir.branches.log_members import (
    LogMembers,
    Seen,
    SickKind,
    Step,
    StepKind,
    is_lost,
    marked,
    members_of_log,
    next_step,
    refusal,
    sickness,
    waits,
)
from weir.clients.pageserver import SickMark
from weir.clients.safekeeper import Damage, LogStatus, Member


def member(number: int, role: str = "voter", disk: str = "", incarnation: int = 1) -> Member:
    return Member(number, disk or f"disk-{number}", incarnation, role)


def seen(own: Member, members: list[Member], generation: int = 1, term: int = 1) -> Seen:
    log = LogStatus("active", None, term, "0/10", "0/20", "0/20", own, tuple(members), generation, term)
    return Seen(own.node, log)


VOTERS = [member(number) for number in (1, 2, 3)]


def of_three() -> list[Seen]:
    return [seen(own, VOTERS) for own in VOTERS]


def known(answers: list[Seen]) -> LogMembers:
    found = members_of_log(answers, [1, 2, 3])
    assert found is not None
    return found


def walk(answers: list[Seen], wanted: list[int]) -> list[tuple[str, int]]:
    """All changes until there is none left, each as the log would make it."""
    made: list[tuple[str, int]] = []
    generation = 1
    while (step := next_step(known(answers), answers, wanted)) is not None:
        made.append((step.kind, step.safekeeper))
        assert len(made) < 40, made
        generation += 1
        answers = _apply(answers, step, generation)
        assert len([m for m in known(answers).members if m.role == "voter"]) >= 2
    assert sorted(known(answers).voters) == wanted
    return made


def _apply(answers: list[Seen], step: Step, generation: int) -> list[Seen]:
    logs = {one.number: one for one in answers}
    before = list(known(answers).members)
    if step.kind == StepKind.LEARNER:
        own = member(step.safekeeper, "learner", "new", 2)
        logs[step.safekeeper] = seen(own, [own], 0, 0)
        return list(logs.values())
    if step.kind == StepKind.REMOVE:
        after = [one for one in before if one.node != step.safekeeper]
    else:
        role = "learner" if step.kind == StepKind.ADD else "voter"
        log = logs[step.safekeeper].log
        assert log is not None
        assert log.member is not None
        new = member(step.safekeeper, role, log.member.disk, log.member.incarnation)
        after = [one for one in before if one.node != step.safekeeper] + [new]
    for number, one in logs.items():
        if one.log is not None and one.log.member is not None:
            logs[number] = seen(one.log.member, after, generation)
    return list(logs.values())


def test_a_replacement_adds_before_it_removes() -> None:
    answers = [*of_three()[1:], Seen(1, error="away"), Seen(4)]
    assert walk(answers, [2, 3, 4]) == [("learner", 4), ("add", 4), ("promote", 4), ("remove", 1)]


def test_a_log_that_is_lost_and_made_again_on_its_safekeeper_is_removed_first() -> None:
    answers = [of_three()[0], Seen(2), of_three()[2]]
    assert walk(answers, [1, 2, 3]) == [("remove", 2), ("learner", 2), ("add", 2), ("promote", 2)]


def test_another_disk_under_the_same_number_is_a_lost_member() -> None:
    answers = [of_three()[0], seen(member(2, "none", "another"), [], 0, 0), of_three()[2]]
    assert is_lost(known(answers), answers[1])
    assert next_step(known(answers), answers, [1, 2, 3]) == Step(StepKind.REMOVE, 2)


def test_three_become_five_and_those_that_are_no_help_go_first() -> None:
    answers = [*of_three(), Seen(4), Seen(5)]
    grown = walk(answers, [1, 2, 3, 4, 5])
    assert grown == [(kind, number) for number in (4, 5) for kind in ("learner", "add", "promote")]
    five = [member(number) for number in range(1, 6)]
    answers = [seen(own, five) for own in five[:4]] + [Seen(5, error="away")]
    assert walk(answers, [2, 3, 4]) == [("remove", 5), ("remove", 1)]


def test_the_newest_generation_counts_and_not_the_most_named_one() -> None:
    after = [VOTERS[1], VOTERS[2], member(4)]
    answers = [seen(VOTERS[0], VOTERS, 9, 1), *(seen(own, after, 2, 2) for own in after)]
    found = known(answers)
    assert (found.generation_term, found.generation, sorted(found.voters)) == (2, 2, [2, 3, 4])
    # The former member is not among them, whatever it says itself.
    assert next_step(found, answers, [2, 3, 4]) is None


def test_without_a_majority_of_the_voters_nobody_knows() -> None:
    answers = [of_three()[0], Seen(2, error="away"), Seen(3)]
    found = known(answers)
    assert found.doubt is not None
    assert refusal(found, answers, [1, 2, 3]) is not None


def test_a_change_that_one_member_alone_has_stored_is_not_made() -> None:
    changed = [*VOTERS, member(4, "learner")]
    answers = [seen(VOTERS[0], changed, 2), *of_three()[1:], Seen(4)]
    assert not known(answers).settled
    assert known(of_three()).settled


@pytest.mark.parametrize(
    ("wanted", "why"),
    [([1, 2, 4], "safekeeper 4 does not answer"), ([1, 2, 3], None), ([1, 2, 5], None)],
)
def test_what_cannot_be_reached_is_not_made_a_member(wanted: list[int], why: str | None) -> None:
    answers = [*of_three(), Seen(4, error="away"), Seen(5)]
    reason = refusal(known(answers), answers, wanted)
    assert (reason is None) if why is None else (reason is not None and why in reason)


def test_a_log_that_names_nobody_takes_those_that_are_stored() -> None:
    own = [member(number, "none") for number in (1, 2, 3)]
    answers = [seen(one, [], 0, 0) for one in own]
    found = known(answers)
    assert (found.generation, found.voters, found.doubt) == (0, [1, 2, 3], None)
    waits = member(2, "learner", "new", 2)
    answers[1] = seen(waits, [waits], 0, 0)
    reason = refusal(known(answers), answers, [1, 2, 3])
    assert reason is not None
    assert "does not name its members" in reason


AT = datetime(2026, 1, 1, tzinfo=UTC)


def damaged(one: Seen, unrepaired: str | None = None) -> Seen:
    assert one.log is not None
    return replace(one, log=replace(one.log, damage=(Damage("0/16", "0/17", "a wrong checksum", unrepaired),)))


def test_each_kind_of_sickness_is_told_from_the_others_and_the_worst_is_said() -> None:
    answers = of_three()
    members, first = known(answers), answers[0]
    assert first.log is not None

    def kind(one: Seen) -> SickKind | None:
        found = sickness(members, one)
        assert found is None or found.reason
        return None if found is None else found.kind

    assert kind(first) is None
    assert kind(Seen(1, error="it does not answer")) == SickKind.UNREACHABLE
    assert kind(Seen(1)) == SickKind.LOST
    assert kind(seen(member(1, "none", "another"), [], 0, 0)) == SickKind.LOST
    stopped = replace(damaged(first), log=replace(first.log, state="stopped", reason="a full disk"))
    assert kind(stopped) == SickKind.STOPPED
    assert kind(damaged(first)) == SickKind.DAMAGED
    diverged = SickMark("t", "", "diverged", "another history", AT)
    assert kind(replace(damaged(first), mark=diverged)) == SickKind.DIVERGED


def test_damage_mends_until_a_repair_has_failed() -> None:
    answers = of_three()
    found = sickness(known(answers), damaged(answers[0]))
    assert found is not None
    assert found.mends
    found = sickness(known(answers), damaged(answers[0], "nobody has it"))
    assert found is not None
    assert not found.mends
    assert "not repaired: nobody has it" in found.reason


def test_what_the_pageserver_met_is_over_once_the_safekeeper_has_looked_at_all_since() -> None:
    answers = of_three()
    mark = SickMark("t", "", "damaged", "a record that is none", AT)
    (first, *_) = marked(answers, {1: mark})
    found = sickness(known(answers), first)
    assert found is not None
    assert (found.kind, found.mends) == (SickKind.DAMAGED, True)
    assert first.log is not None
    for after, is_sick in ((-timedelta(seconds=1), True), (timedelta(seconds=1), False)):
        looked = replace(first, log=replace(first.log, verified_at=AT + after))
        assert (sickness(known(answers), looked) is not None) == is_sick


def test_a_set_without_a_majority_of_well_members_is_refused() -> None:
    answers = [damaged(of_three()[0]), *of_three()[1:], Seen(4), Seen(5)]
    # Whoever is new gets all of the log.
    assert refusal(known(answers), answers, [1, 2, 4]) is None
    answers[1] = damaged(answers[1])
    reason = refusal(known(answers), answers, [1, 2, 4])
    assert reason is not None
    assert "1 of the wanted safekeepers are well, and 2 have to be" in reason
    assert "damaged" in reason
    assert refusal(known(answers), answers, [2, 3, 4]) is None
    # A lost log that is to be made again will be well.
    answers = [damaged(of_three()[0]), Seen(2), of_three()[2]]
    assert refusal(known(answers), answers, [1, 2, 3]) is None


def test_a_well_voter_is_not_removed_while_no_majority_of_the_others_is_well() -> None:
    five = [member(number) for number in range(1, 6)]
    answers = [seen(own, five) for own in five]
    answers[0], answers[1] = damaged(answers[0]), damaged(answers[1])
    remove = {number: Step(StepKind.REMOVE, number) for number in range(1, 6)}
    # Of the four that stay, two would be well.
    reason = waits(known(answers), answers, remove[5])
    assert reason is not None
    assert "until 3 of the other 4 voters are well; 2 are" in reason
    assert waits(known(answers), answers, remove[1]) is None
    answers[0] = seen(five[0], five)
    assert waits(known(answers), answers, remove[5]) is None
    assert waits(known(answers), answers, Step(StepKind.ADD, 6)) is None
