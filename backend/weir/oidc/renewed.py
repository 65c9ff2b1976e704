"""A document of a provider that is kept, and read anew when it is old or when somebody misses something in it."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import structlog

from weir.errors import UnavailableError

T = TypeVar("T")
log = structlog.get_logger()


@dataclass(frozen=True)
class Ages:
    """In seconds. `good`: after so long it is read anew. `most`: for so long an old one counts while no new one is to
    be had. `missed`: reading anew because something is missing waits so long after the last time; `failed`: reading
    at all waits so long after a failure that left nothing to count."""

    good: float
    most: float
    missed: float = 60
    failed: float = 5


class Renewed(Generic[T]):
    """`clock`: seconds, and never back. Of requests at once one reads, and the others wait for it."""

    def __init__(self, fetch: Callable[[], Awaitable[T]], ages: Ages, clock: Callable[[], float]) -> None:
        self._fetch = fetch
        self._ages = ages
        self._clock = clock
        self._lock = asyncio.Lock()
        self._value: T | None = None
        self._read_at = float("-inf")
        self._missed_at = float("-inf")
        self._failed_at = float("-inf")
        self._failure = ""

    async def get(self) -> T:
        """Raises UnavailableError."""
        async with self._lock:
            if self._value is not None and self._age() < self._ages.good:
                return self._value
            return await self._read()

    async def after(self, seen: T) -> T:
        """For whoever misses something in `seen`: a newer one if there is one, or if it may be read anew."""
        async with self._lock:
            if self._value is not None and self._value is not seen:
                return self._value
            if self._clock() - self._missed_at < self._ages.missed:
                return seen
            self._missed_at = self._clock()
            return await self._read()

    def _age(self) -> float:
        return self._clock() - self._read_at

    async def _read(self) -> T:
        counts = self._value is not None and self._age() < self._ages.most
        if self._clock() - self._failed_at < self._ages.failed:
            if counts and self._value is not None:
                return self._value
            raise UnavailableError(self._failure)
        try:
            value = await self._fetch()
        except UnavailableError as error:
            self._failed_at, self._failure = self._clock(), error.message
            if counts and self._value is not None:
                log.warning("provider_document_kept", error=error.message)
                return self._value
            raise
        self._value, self._read_at = value, self._clock()
        return value
