"""What is made and removed again leaves nothing behind: the short form of `make soak-churn`."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from churning import (
    FIGURES,
    LINE_CYCLES,
    MIB,
    SOAK_FIGURES,
    Churn,
    Figure,
    churning,
    grown,
    lines,
    rising,
    settled,
)

SECONDS = 75
#: Cycles, with which thirds say something.
FEWEST = 12
#: Of a run of half an hour.
MANY = 735


def _samples(value: Callable[[int], float], count: int = 30) -> list[dict[str, float]]:
    return [{figure.name: value(number) for figure in SOAK_FIGURES} for number in range(count)]


def test_a_figure_that_grows_with_each_cycle_is_found_and_noise_is_not() -> None:
    figure = Figure("objects", "objects", slack=10, rise=None)
    assert grown(_samples(lambda number: 100 + 3 * number), [figure]) == ["objects grew from 144 to 174 objects"]
    assert grown(_samples(lambda number: 100 + 15 * (number % 2)), [figure]) == []
    # Caches that fill in the first third, and one outlier at the end.
    assert grown(_samples(lambda number: min(100, 12 * number)), [figure]) == []
    assert grown(_samples(lambda number: 100 if number < 29 else 10_000), [figure]) == []
    with pytest.raises(ValueError, match="too few"):
        grown(_samples(float, 8), [figure])


@pytest.mark.parametrize("figure", SOAK_FIGURES, ids=lambda figure: figure.name)
def test_every_figure_is_looked_at(figure: Figure) -> None:
    steep = figure.slack + 1.0
    [found] = grown(_samples(lambda number: steep * number), [figure])
    assert found.startswith(f"{figure.name} grew")


def _memory(risen: Callable[[int], float], count: int = MANY) -> list[dict[str, float]]:
    """Memory in use as it was in a run: some looks find megabytes more, and all find a little more or less."""
    chance = random.Random(17)  # noqa: S311
    sample = lambda number: (  # noqa: E731
        50 * MIB + risen(number) + chance.choice([0, 0, 0.4, 3, 3.5, 7]) * MIB + chance.gauss(0, 0.1) * MIB
    )
    values = [sample(number) for number in range(count)]
    return [{"pageserver_allocated": value} for value in values]


def _rising(samples: list[dict[str, float]]) -> list[str]:
    figures = [figure for figure in FIGURES if figure.name == "pageserver_allocated"]
    return rising(lines(samples, figures), figures)


def test_a_leak_of_some_kilobytes_with_each_cycle_is_found_where_thirds_hide_it() -> None:
    """From a run that passed: 11 KB more with each of 735 cycles, found by its chart only."""
    leaking = _memory(lambda number: 11_000 * number)
    assert grown(leaking, [figure for figure in FIGURES if figure.name in leaking[0]]) == []
    [found] = _rising(leaking)
    assert found.startswith("pageserver_allocated rises by ")
    [found] = _rising(_memory(lambda number: 11_000 * number, 2 * LINE_CYCLES))
    assert found.startswith("pageserver_allocated rises by ")


@pytest.mark.parametrize(
    "risen",
    [
        lambda number: 0,
        # A cache that is full before the second half.
        lambda number: min(8 * MIB, number * 30_000),
        # A table that doubles: in each part of the second half, and at its begin.
        *(lambda number, at=at: 3 * MIB * (number >= at) for at in (369, 460, 551, 700)),
        # What is given back.
        lambda number: -9_000 * number,
    ],
)
def test_noise_and_steps_are_no_line(risen: Callable[[int], float]) -> None:
    assert _rising(_memory(risen)) == []


def test_a_short_run_has_no_lines() -> None:
    with pytest.raises(ValueError, match="too few"):
        lines(_samples(float, 2 * LINE_CYCLES - 1))


@pytest.mark.parametrize("figure", SOAK_FIGURES, ids=lambda figure: figure.name)
def test_the_line_of_every_figure_is_looked_at(figure: Figure) -> None:
    steep = 1.5 * (figure.rise or 0)
    found = rising(lines(_samples(lambda number: steep * number, 2 * LINE_CYCLES)))
    # What an allocator keeps has no line of its own: what is in use has.
    expected = [other.name for other in SOAK_FIGURES if other.rise is not None and steep > other.rise]
    assert [line.split()[0] for line in found] == expected
    assert figure.rise is None or figure.name in expected
    assert figure.rise is not None or figure.name.endswith("_rss")


def test_memory_that_an_allocator_keeps_is_a_figure_of_the_long_run_only() -> None:
    """From a run that failed: 28 MB more in three programs within a minute, of which nothing was in use."""
    samples = _samples(lambda number: 55_709_696.0 if number < 20 else 83_759_104.0)
    for sample in samples:
        sample.update({figure.name: 0.0 for figure in FIGURES})
    assert grown(samples) == []
    assert "safekeepers_rss grew from 55,709,696 to 83,759,104 bytes" in grown(samples, SOAK_FIGURES)


def test_what_is_removed_leaves_nothing_behind(say: Callable[[str], None]) -> None:
    root = Path(tempfile.mkdtemp(prefix="weir-system-"))
    with churning(root) as running:
        churn = Churn(running, say)
        churn.run(SECONDS, FEWEST)
        settled(churn)
        say(f"{churn.cycles} cycles of creating and removing in {churn.samples[-1]['at']:.0f} s")
        assert grown(churn.samples) == []
