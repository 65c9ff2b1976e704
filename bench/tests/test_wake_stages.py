"""What a wake's stages are made of."""

import pytest
from weirbench.wake_stages import Counted, NotOneWakeError, between, used


def counted(**stages: tuple[float, float]) -> Counted:
    sums = {stage: seconds for stage, (seconds, _) in stages.items()}
    return Counted(sums, {stage: count for stage, (_, count) in stages.items()})


def test_a_stage_is_what_its_histogram_grew_by() -> None:
    before = counted(queue=(1.0, 10), agent=(2.0, 10), agent_elect=(1.0, 10), wake=(5.0, 9), agent_trial=(0.0, 0))
    after = counted(queue=(1.05, 11), agent=(2.2, 11), agent_elect=(1.03, 11), wake=(5.3, 10), agent_trial=(0.0, 0))
    found = {stage: round(value, 3) for stage, value in between(before, after, 340.0).items()}
    assert found == {
        "queue": 50.0,
        "agent": 200.0,
        "agent_elect": 30.0,
        "wake": 300.0,
        "login": 40.0,
        "api": 50.0,
        "agent_process": 170.0,
    }


def test_two_starts_at_once_are_nobodys() -> None:
    with pytest.raises(NotOneWakeError, match="2 starts were counted in stage queue"):
        between(counted(queue=(1.0, 10)), counted(queue=(1.3, 12)), 300.0)


def test_a_process_that_ended_or_began_meanwhile_takes_nothing_away() -> None:
    assert used({1: 100.0, 2: 50.0}, {1: 130.0, 3: 20.0}) == 50.0
