"""Schedules are drawn from seeds alone and take no more disks than a log survives; waits are counted as they say."""

from __future__ import annotations

from collections import Counter

from weirtorture.availability import Away, longest_wait
from weirtorture.report import added, entry, percentile, summary
from weirtorture.schedule import FOUNDERS, KINDS, SHORT, SHORT_SECONDS, draw
from weirtorture.trial import Result


def test_a_seed_is_a_schedule() -> None:
    assert draw(7, 20) == draw(7, 20)
    assert draw(7, 20) != draw(8, 20)


def test_two_hundred_trials_have_each_fault_often_and_lose_one_disk_at_most() -> None:
    kinds: Counter[str] = Counter()
    for seed in range(1, 201):
        faults = draw(seed, 20).faults
        kinds.update(fault.kind for fault in faults)
        assert sum(fault.loses_a_disk for fault in faults) <= 1
        for fault in faults:
            assert fault.at - float(fault.details.get("copy_age", 0.0)) >= 0.5
            assert fault.at < 20
            assert set(fault.safekeepers) <= set(FOUNDERS)
    assert set(kinds) == set(KINDS)
    assert min(kinds.values()) >= 20


def test_the_seeds_of_make_test_have_every_fault() -> None:
    assert len(SHORT) == 10
    assert {fault.kind for seed in SHORT for fault in draw(seed, SHORT_SECONDS).faults} == set(KINDS)


def test_without_mounting_no_disk_is_full() -> None:
    assert all(
        fault.kind != "safekeeper_disk_full" for seed in range(50) for fault in draw(seed, 20, mounting=False).faults
    )


def test_the_longest_wait_leaves_out_what_is_excused() -> None:
    assert longest_wait(0, 10, [1, 2, 9], []) == 7
    assert longest_wait(0, 10, [1, 2, 9], [(3, 8)]) == 2
    assert longest_wait(0, 10, [], [(0, 4), (5, 6)]) == 5
    assert longest_wait(0, 10, [1, 2, 3, 4], [(0, 0.5)]) == 6


def test_commits_are_excused_while_a_majority_of_the_voters_is_away() -> None:
    away = Away({1, 2, 3})
    away.safekeepers((1,), 1)
    assert away.windows == []
    away.safekeepers((1, 4), 1)
    away.safekeepers((2,), 1)
    away.safekeepers((1,), -1)
    assert away.windows == [], "two faults have the first one, and one is over"
    away.voters_are({1, 2, 3, 5, 6})
    assert len(away.windows) == 1
    away.other("compute", 1)
    away.close()
    assert len(away.windows) == 2


def test_percentiles_are_values_that_occurred() -> None:
    assert percentile([3, 1, 2], 0.5) == 2
    assert percentile([float(value) for value in range(1, 201)], 0.99) == 198
    assert percentile([], 0.99) == 0


FACTS = {"code": "abc", "load_seconds": 20.0}


def trial(seed: int, *stuck: str) -> Result:
    done = {"fault": {"kind": "takeover", "safekeepers": [], "details": {}}, "began": 1.0, "ended": 2.0}
    result = Result(seed, "15.20", {"faults": []}, [{**done, "outcome": "done"}], ["takeover"], stuck=list(stuck))
    result.acknowledged, result.unavailable_seconds = 100, float(seed)
    return result


def test_results_of_the_same_code_are_added_to_each_other() -> None:
    before = summary([entry(trial(1)), entry(trial(2, "gone"))], FACTS)
    again = [entry(trial(2)), entry(trial(3))]
    both = summary(added(before, again, FACTS), FACTS)
    assert (both["trials"], both["clean"], both["acknowledged"], both["stuck"]) == (4, 3, 400, 1)
    assert both["seeds"] == [1, 2, 2, 3]
    assert both["by_fault"]["takeover"] == {"injected": 4, "trials": 4, "left_out": 0}
    assert both["unavailable_seconds_p99"] == 3
    assert "2" in both["not_clean"], "a clean trial takes back none that was not"


def test_results_of_other_code_or_of_files_that_are_not_committed_are_replaced() -> None:
    before, new = summary([entry(trial(1))], FACTS), [entry(trial(2))]
    for other in ({"code": "abd"}, {"code": None}, {"load_seconds": 5.0}):
        assert added(before, new, FACTS | other) == new
    assert added(None, new, FACTS) == new
    assert added(summary([entry(trial(1))], FACTS | {"code": None}), new, FACTS | {"code": None}) == new
