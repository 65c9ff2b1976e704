"""Which size a load gets: within the limits, soon up, late down, and not to and fro."""

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weir.endpoints.sizes import Limits, is_size
from weir_workflows.reconciler.sizing import (
    DOWN_AFTER_SECONDS,
    FULL,
    ROOMY,
    UP_AFTER_SECONDS,
    Course,
    decide,
)

LOOK_SECONDS = 5.0
SIZES = [0.25, 0.5, *map(float, range(1, 17))]


def sizes(limits: Limits, size: float, loads: Sequence[float | None], every: float = LOOK_SECONDS) -> list[float]:
    """The sizes after each look."""
    course, found = Course(), list[float]()
    for number, load in enumerate(loads):
        size, course = decide(limits, size, load, number * every, course)
        found.append(size)
    return found


def looks(seconds: float) -> int:
    return int(seconds / LOOK_SECONDS)


limits_ = st.tuples(st.sampled_from(SIZES), st.sampled_from(SIZES)).map(lambda pair: Limits(min(pair), max(pair)))
loads_ = st.lists(st.none() | st.floats(0, 64), max_size=200)


@given(limits_, st.floats(0.1, 40), loads_, st.floats(0, 400))
def test_no_load_makes_a_size_that_is_none_or_beyond_the_limits(
    limits: Limits, size: float, loads: list[float | None], every: float
) -> None:
    for found in sizes(limits, size, loads, every):
        assert limits.least <= found <= limits.most
        assert is_size(found)


@given(limits_, st.floats(0.01, 20), st.data())
def test_a_load_that_no_more_than_doubles_moves_a_size_one_way_only(
    limits: Limits, low: float, data: st.DataObject
) -> None:
    assert FULL >= 2 * ROOMY
    size = data.draw(st.sampled_from(limits.sizes()))
    loads = data.draw(st.lists(st.floats(low, 2 * low), min_size=1, max_size=400))
    found = [size, *sizes(limits, size, loads, 60.0)]
    moves = {after > before for before, after in pairwise(found) if after != before}
    assert len(moves) <= 1, found


@given(limits_, st.floats(0, 20), st.data())
def test_a_load_that_stays_comes_to_rest_in_a_size_that_it_fits(
    limits: Limits, load: float, data: st.DataObject
) -> None:
    size = data.draw(st.sampled_from(limits.sizes()))
    steps = len(limits.sizes()) + 2
    found = sizes(limits, size, [load] * looks(steps * (DOWN_AFTER_SECONDS + LOOK_SECONDS)))
    rest = found[-1]
    assert load <= FULL * rest or rest == limits.most
    smaller = [each for each in limits.sizes() if each < rest]
    assert not smaller or load > ROOMY * smaller[-1]
    assert set(found[-looks(DOWN_AFTER_SECONDS) :]) == {rest}


def test_up_is_soon_and_goes_to_what_the_load_asks_for() -> None:
    found = sizes(Limits(0.25, 8), 0.25, [4.0] * 4)
    assert found == [0.25, 0.25, 5.0, 5.0]
    # A moment is nothing: it has to last.
    assert set(sizes(Limits(0.25, 8), 0.25, [4.0, 0.1] * 50)) == {0.25}
    assert sizes(Limits(1, 2), 1, [9.0] * 4)[-1] == 2


def test_down_is_late_and_one_size_at_a_time() -> None:
    found = sizes(Limits(0.25, 4), 4, [0.0] * looks(6 * DOWN_AFTER_SECONDS))
    changes = [number * LOOK_SECONDS for number, (a, b) in enumerate(pairwise(found), 1) if a != b]
    assert [found[0], *(b for a, b in pairwise(found) if a != b)] == [4, 3, 2, 1, 0.5, 0.25]
    assert all(later - earlier >= DOWN_AFTER_SECONDS for earlier, later in pairwise([0.0, *changes]))
    # One look at a busy moment begins the wait anew.
    busy = [0.0] * looks(DOWN_AFTER_SECONDS - LOOK_SECONDS) + [2.0]
    assert set(sizes(Limits(0.25, 4), 4, busy * 5)) == {4}


def test_what_nobody_knows_changes_nothing_and_is_no_reason() -> None:
    assert set(sizes(Limits(0.25, 8), 1, [None] * 100)) == {1}
    assert set(sizes(Limits(1, 8), 1, [8.0, None] * 50)) == {1}


@pytest.mark.parametrize(("size", "found"), [(0.25, 1.0), (16.0, 3.0), (1.3, 1.0), (2.5, 3.0)])
def test_limits_count_at_once(size: float, found: float) -> None:
    assert decide(Limits(1, 3), size, None, 0.0, Course()) == (found, Course())


def test_up_waits_for_no_more_than_it_says() -> None:
    _, course = decide(Limits(1, 4), 1, 3.0, 100.0, Course())
    assert decide(Limits(1, 4), 1, 3.0, 100.0 + UP_AFTER_SECONDS, course)[0] == 4
