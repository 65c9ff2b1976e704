"""The metadata database: engine, sessions, and the one place where a request commits.

What one request writes is one transaction. Handlers take `Session`; it is committed when the handler returned and
rolled back when it raised, before the answer leaves. A handler that asks other programs ends what it has read by
`release` before it does, and begins another transaction by its next statement (ADR 61).

A handler that says by `reads` that it only reads has a session whose statements are transactions of their own (ADR
88). In the isolation that Weir's transactions have, READ COMMITTED, each statement sees what is committed when it
begins, so that statements in one transaction see no more of one state than statements without; what is saved are
BEGIN and COMMIT. Such a session refuses to write and to lock.
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Annotated, Any, TypeVar

from fastapi import Depends, Request
from sqlalchemy import Select, event
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_sessionmaker
from sqlalchemy.orm import ORMExecuteState
from sqlalchemy.orm import Session as SyncSession

from weir.config import Settings
from weir.kit import transactions
from weir.kit.metadata_store import engine_of
from weir.kit.notices import Notices

F = TypeVar("F", bound=Callable[..., Any])

_WRITTEN = "weir_written"
_READS = "weir_reads"
_BY_ITSELF = "weir_by_itself"
# Execution options of a statement that is whole by itself and may stay though the request fails, such as that of when
# a key was last used: sessions that only read take it.
BY_ITSELF: dict[str, Any] = {_BY_ITSELF: True}
# In `Session.info`: a row that was read along with another one, for the first who asks for it.
READ_ALONG = "weir_read_along"


class _ReadingSession(SyncSession):
    """Of requests that only read: each statement is a transaction of its own."""


def reads(handler: F) -> F:
    """Marks the handler of a GET that writes nothing and locks nothing, whatever it is asked. To be the decorator
    next to the function."""
    setattr(handler, _READS, True)
    return handler


class Database:
    def __init__(self, settings: Settings) -> None:
        self.engine: AsyncEngine = engine_of(settings.database_url, settings.database_pool_size)
        self._sessions = async_sessionmaker(self.engine, expire_on_commit=False)
        self._reading = async_sessionmaker(
            self.engine.execution_options(isolation_level="AUTOCOMMIT"),
            sync_session_class=_ReadingSession,
            expire_on_commit=False,
        )
        # Of this database's changes, for those of this process who wait for one.
        self.notices = Notices()

    @asynccontextmanager
    async def transaction(self, *, asks_others: bool = False) -> AsyncGenerator[AsyncSession]:
        """Commits when the body ends, rolls back when it raises. No HTTP request may be sent in it; `asks_others` is
        for one whose lock has to outlast requests, with a bound on how long they take."""
        async with self._sessions() as session:
            if asks_others:
                async with session.begin():
                    yield session
            else:
                with transactions.watched(session):
                    async with session.begin():
                        yield session

    @asynccontextmanager
    async def request(self, *, only_reads: bool = False) -> AsyncGenerator[AsyncSession]:
        """As `transaction`, but `release` may end what was read so far and begin anew. `only_reads`: what writes or
        locks raises RuntimeError, and nothing of it is done."""
        async with (self._reading if only_reads else self._sessions)() as session:
            with transactions.watched(session):
                yield session
                await session.commit()

    async def close(self) -> None:
        await self.engine.dispose()


async def _session(request: Request) -> AsyncGenerator[AsyncSession]:
    database: Database = request.app.state.database
    async with database.request(only_reads=getattr(request.scope["endpoint"], _READS, False)) as session:
        yield session


@event.listens_for(_ReadingSession, "before_flush")
def _refuse_rows(session: SyncSession, *_: object) -> None:
    changed = [*session.new, *session.dirty, *session.deleted]
    raise RuntimeError(
        f"a request that only reads was to write {', '.join(sorted({type(row).__name__ for row in changed}))}; take "
        "`reads` from its handler"
    )


@event.listens_for(_ReadingSession, "do_orm_execute")
def _refuse_changes(state: ORMExecuteState) -> None:
    statement: Any = state.statement
    # SQLAlchemy has no public word for what locks.
    only_reads = isinstance(statement, Select) and statement._for_update_arg is None  # noqa: SLF001
    if not only_reads and not state.execution_options.get(_BY_ITSELF):
        raise RuntimeError(
            f"a request that only reads was to run a statement that does more ({type(statement).__name__}); take "
            "`reads` from its handler"
        )


@event.listens_for(SyncSession, "after_flush")
def _flushed(session: SyncSession, _context: object) -> None:
    session.info[_WRITTEN] = True


async def release(session: AsyncSession) -> None:
    """Ends the transaction that a request has read in, so that nothing is locked while other programs are asked.

    Locks are gone on return, and rows read so far belong to no session any more: they keep the values they were read
    with, and the next query reads them anew. Whoever then changes something locks and checks again. Raises
    RuntimeError when objects were written before: what a request writes is one transaction."""
    session.info.pop(READ_ALONG, None)
    written = session.info.pop(_WRITTEN, False)
    if written or session.new or session.dirty or session.deleted:
        raise RuntimeError("a request that has written something is to ask no other program before its end")
    await session.commit()
    session.expunge_all()


# `scope="function"` ends the dependency, and so commits, before the response is sent: a client that
# reads its own write right after the answer must find it.
Session = Annotated[AsyncSession, Depends(_session, scope="function")]
