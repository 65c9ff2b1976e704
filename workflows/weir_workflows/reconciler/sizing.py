"""Which size a compute is to have, by how busy it is. Pure: the moment is given, and what is remembered comes back.

Up goes at once to what the load asks for, as soon as it has been too much for a few seconds. Down goes one size at a
time, each after minutes in which the load would have left more than half of the smaller size unused. Between the two
a load may double without a change, so that noise changes nothing: see `test_sizing.py`.
"""

from dataclasses import dataclass

from weir.endpoints.sizes import Limits

# Of a size's processors: more than this is too much, and less than that of a smaller size is room enough for it.
FULL = 0.8
ROOMY = 0.4
UP_AFTER_SECONDS = 10.0
DOWN_AFTER_SECONDS = 300.0


@dataclass(frozen=True)
class Course:
    """What is remembered of a compute from one look to the next: since when it has been too busy for its size, and
    since when it would have had room in a smaller one."""

    busy_since: float | None = None
    roomy_since: float | None = None


def decide(limits: Limits, size: float, processors: float | None, at: float, course: Course) -> tuple[float, Course]:
    """The size from now on, and what to remember. `size` is the one of now, `processors` what the compute uses (None:
    nobody knows, which changes nothing but what is outside of the limits), `at` seconds of a clock that only goes
    forward. The answer is always a size within the limits."""
    if size not in limits.sizes():
        return limits.nearest(size), Course()
    if processors is None:
        return size, Course()
    asked = _least(limits, processors, FULL)
    if asked > size:
        since = at if course.busy_since is None else course.busy_since
        if at - since >= UP_AFTER_SECONDS:
            return asked, Course()
        return size, Course(busy_since=since)
    if _least(limits, processors, ROOMY) < size:
        since = at if course.roomy_since is None else course.roomy_since
        if at - since >= DOWN_AFTER_SECONDS:
            return max(smaller for smaller in limits.sizes() if smaller < size), Course(roomy_since=at)
        return size, Course(roomy_since=since)
    return size, Course()


def _least(limits: Limits, processors: float, share: float) -> float:
    """The smallest size of which the load takes no more than a share, or else the largest there may be."""
    return next((size for size in limits.sizes() if processors <= share * size), limits.most)
