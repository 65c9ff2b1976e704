"""How long clients had to wait for a commit though nothing that is allowed to stop commits was going on.

Excused is the time in which a fault that legitimately stops commits lasts: a majority of the voters is away (dead,
stopped, without a working disk, or unreachable from the compute), the compute is dead, stopped or cut off, or the
pageserver is away, whose pages transactions may need. The time that it takes to recover *after* such a fault has
ended is not excused.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from dataclasses import dataclass, field


def longest_wait(begin: float, end: float, commits: list[float], excused: list[tuple[float, float]]) -> float:
    """The longest time within [begin, end] between two successive commits, less what of it is excused. Seconds.

    The begin and the end count as commits. `commits` ascend; windows that are excused do not overlap.
    """
    marks = [begin, *(at for at in commits if begin < at < end), end]
    longest = 0.0
    for one, other in itertools.pairwise(marks):
        if other - one <= longest:
            continue
        within = sum(max(0.0, min(other, to) - max(one, start)) for start, to in excused)
        longest = max(longest, other - one - within)
    return longest


@dataclass
class Away:
    """Who is away at present, and when that excused the lack of commits."""

    voters: set[int]
    windows: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])
    _safekeepers: Counter[int] = field(default_factory=Counter[int])
    _others: Counter[str] = field(default_factory=Counter[str])
    _since: float | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def safekeepers(self, numbers: tuple[int, ...], away: int) -> None:
        """One more reason (1) why they are away, or one less (-1)."""
        with self._lock:
            for number in numbers:
                self._safekeepers[number] += away
            self._look()

    def other(self, who: str, away: int) -> None:
        with self._lock:
            self._others[who] += away
            self._look()

    def voters_are(self, voters: set[int]) -> None:
        with self._lock:
            self.voters = set(voters)
            self._look()

    def close(self) -> None:
        with self._lock:
            self._safekeepers.clear()
            self._others.clear()
            self._look()

    def _look(self) -> None:
        there = sum(1 for voter in self.voters if self._safekeepers[voter] <= 0)
        excused = there <= len(self.voters) // 2 or any(count > 0 for count in self._others.values())
        now = time.monotonic()
        if excused and self._since is None:
            self._since = now
        elif not excused and self._since is not None:
            self.windows.append((self._since, now))
            self._since = None
