"""How often somebody may ask: rates, and buckets of tokens by whoever asks.

A bucket holds `burst` tokens at most and gains them evenly, `per_minute`. A request takes one. What is kept of a
bucket is one number, the moment at which it will be full again, in whole nanoseconds of a clock that the caller
passes in: no rounding adds a token. A clock that goes back adds none either.
"""

import re
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

NANOSECONDS = 1_000_000_000
MOST_PER_MINUTE = 1_000_000
_MINUTE = 60 * NANOSECONDS
_WRITTEN = re.compile(r"([1-9][0-9]{0,6})/([1-9][0-9]{0,6})")
OFF = "off"

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True)
class Rate:
    """`per_minute` requests in the long run, `burst` at once."""

    per_minute: int
    burst: int

    @staticmethod
    def parse(written: str) -> "Rate | None":
        """`600/100` is 600 a minute, 100 at once; `off` is no limit, None. Raises ValueError for anything else."""
        if written.strip() == OFF:
            return None
        found = _WRITTEN.fullmatch(written.strip())
        numbers = [int(part) for part in found.groups()] if found else []
        if not numbers or max(numbers) > MOST_PER_MINUTE:
            raise ValueError(
                f"{written!r} is no rate: write requests a minute and requests at once as 600/100, each from 1 to "
                f"{MOST_PER_MINUTE}, or {OFF!r} for no limit"
            )
        return Rate(*numbers)

    @property
    def interval(self) -> int:
        """Nanoseconds until a bucket that is not full gains a token."""
        return _MINUTE // self.per_minute


class Buckets(Generic[Key]):
    """One bucket for each key, of at most `most` keys: beyond that the bucket that was not asked of for longest is
    forgotten, which is the one that has gained most."""

    def __init__(self, rate: Rate, most: int) -> None:
        self.rate = rate
        self._most = most
        # By key, when the bucket is full again; the one that was asked of last is the last.
        self._full_at: OrderedDict[Key, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._full_at)

    def take(self, key: Key, at: int) -> int:
        """Takes a token at the moment `at`, nanoseconds of a clock that does not jump. 0: it was taken. Otherwise
        none was, and the answer is after how many nanoseconds there is one, if nobody else takes it."""
        full_at = max(self._full_at.pop(key, at), at)
        after = full_at + self.rate.interval
        missing = max(0, after - at - self.rate.burst * self.rate.interval)
        self._full_at[key] = full_at if missing else after
        if len(self._full_at) > self._most:
            self._full_at.popitem(last=False)
        return missing

    def give_back(self, key: Key) -> None:
        """Undoes a `take` that did take a token."""
        if key in self._full_at:
            self._full_at[key] -= self.rate.interval
