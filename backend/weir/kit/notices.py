"""Who waits in this process for something of the metadata database to change, by its name.

A notice says when to look again, and nothing else: whoever waits looks at the rows. One may be lost with the
connection that it would have come by, so that each wait has a bound, and a short one while nobody listens.
"""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager


class Notices:
    """To be used from one event loop."""

    def __init__(self) -> None:
        self._listeners = 0
        self._waiting: dict[str, set[asyncio.Event]] = {}

    @property
    def are_heard(self) -> bool:
        """Whether this process listens to Postgres now."""
        return self._listeners > 0

    @contextmanager
    def about(self, name: str) -> Generator[asyncio.Event]:
        """An event that is set at each notice about `name` while the body runs, and when listening begins or ends."""
        event = asyncio.Event()
        self._waiting.setdefault(name, set()).add(event)
        try:
            yield event
        finally:
            events = self._waiting[name]
            events.discard(event)
            if not events:
                del self._waiting[name]

    def arrived(self, name: str) -> None:
        for event in self._waiting.get(name, ()):
            event.set()

    @contextmanager
    def listening(self) -> Generator[None]:
        """For whoever passes Postgres's notices on to `arrived`, from when it hears them until it does no more."""
        self._listeners += 1
        self._all()
        try:
            yield
        finally:
            self._listeners -= 1
            self._all()

    def _all(self) -> None:
        for name in self._waiting:
            self.arrived(name)
