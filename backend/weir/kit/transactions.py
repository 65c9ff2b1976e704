"""No request to another program while a transaction of the metadata database is open.

A program may take seconds not to answer. A transaction that waits for it keeps a connection, its locks and the rows
that vacuum may not remove for as long. `Database` says here which sessions a task has; every HTTP client asks
`refuse_requests` before it sends.

A task that is started inside a transaction counts as inside it until that transaction ends, and so does a thread.
"""

import traceback
import weakref
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol

import structlog
from prometheus_client import Counter

log = structlog.get_logger()

FOUND = Counter("weir_requests_in_transactions_total", "HTTP requests sent while a transaction was open", ["service"])
# Of the place that asks, in the log: the innermost frames.
_FRAMES = 12


class Session(Protocol):
    """What SQLAlchemy's sessions are here."""

    def in_transaction(self) -> bool: ...


class RequestInTransactionError(RuntimeError):
    """A mistake in this program: HTTP was asked for inside a transaction."""


# Referred to weakly: a task that outlives the transaction it was started in keeps a copy of this.
_sessions: ContextVar[tuple["weakref.ref[Session]", ...]] = ContextVar("weir_database_sessions", default=())


class _Refusal:
    """Whether such a request is refused, rather than counted and sent, and those that were."""

    def __init__(self) -> None:
        self.on = False
        self.refused: list[str] = []


_refusal = _Refusal()


@contextmanager
def watched(session: Session) -> Generator[None]:
    """While the body runs, this task's requests are looked at whenever the session is in a transaction.

    Entered and left in different contexts, as by a test's fixture, it stays harmless: a session that is closed is in
    no transaction."""
    _sessions.set((*_alive(), weakref.ref(session)))
    try:
        yield
    finally:
        _sessions.set(tuple(held for held in _alive() if held() is not session))


def _alive() -> list["weakref.ref[Session]"]:
    return [held for held in _sessions.get() if held() is not None]


def is_open() -> bool:
    """Whether this task is inside a transaction of the metadata database."""
    return any(session.in_transaction() for held in _sessions.get() if (session := held()) is not None)


def refuse_requests(service: str, what: str) -> None:
    """To be called before `what` is sent to `service`. In a transaction the request is counted and logged with the
    place it comes from, and under `refusing` it raises RequestInTransactionError instead."""
    if not is_open():
        return
    place = "".join(traceback.format_stack(limit=_FRAMES)[:-1])
    if _refusal.on:
        _refusal.refused.append(f"{what} to {service}, asked for in\n{place}")
        raise RequestInTransactionError(
            f"{what} to {service} was to be sent while a transaction of the metadata database is open; read what is "
            "needed, end the transaction (`weir.db.release`), ask, and look again at what was read in a new one"
        )
    FOUND.labels(service).inc()
    log.error("request_in_transaction", service=service, request=what, place=place)


@contextmanager
def refusing() -> Generator[list[str]]:
    """For tests: in the whole process requests inside transactions raise. Yields those that did, to which later ones
    are added: whoever swallows the error does not hide it."""
    before = _refusal.on, _refusal.refused
    _refusal.on, _refusal.refused = True, []
    try:
        yield _refusal.refused
    finally:
        _refusal.on, _refusal.refused = before
