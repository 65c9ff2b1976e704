"""The metadata database: engine, sessions, and the one place where a request commits.

What one request writes is one transaction. Handlers take `Session`; it is committed when the handler returned and
rolled back when it raised, before the answer leaves. A handler that asks other programs ends what it has read by
`release` before it does, and begins another transaction by its next statement (ADR 61).
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import Depends, Request
from sqlalchemy import event
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_sessionmaker
from sqlalchemy.orm import Session as SyncSession

from weir.config import Settings
from weir.kit import transactions
from weir.kit.metadata_store import engine_of
from weir.kit.notices import Notices

_WRITTEN = "weir_written"


class Database:
    def __init__(self, settings: Settings) -> None:
        self.engine: AsyncEngine = engine_of(settings.database_url, settings.database_pool_size)
        self._sessions = async_sessionmaker(self.engine, expire_on_commit=False)
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
    async def request(self) -> AsyncGenerator[AsyncSession]:
        """As `transaction`, but `release` may end what was read so far and begin anew."""
        async with self._sessions() as session:
            with transactions.watched(session):
                yield session
                await session.commit()

    async def close(self) -> None:
        await self.engine.dispose()


async def _session(request: Request) -> AsyncGenerator[AsyncSession]:
    database: Database = request.app.state.database
    async with database.request() as session:
        yield session


@event.listens_for(SyncSession, "after_flush")
def _flushed(session: SyncSession, _context: object) -> None:
    session.info[_WRITTEN] = True


async def release(session: AsyncSession) -> None:
    """Ends the transaction that a request has read in, so that nothing is locked while other programs are asked.

    Locks are gone on return, and rows read so far belong to no session any more: they keep the values they were read
    with, and the next query reads them anew. Whoever then changes something locks and checks again. Raises
    RuntimeError when objects were written before: what a request writes is one transaction."""
    written = session.sync_session.info.pop(_WRITTEN, False)
    if written or session.new or session.dirty or session.deleted:
        raise RuntimeError("a request that has written something is to ask no other program before its end")
    await session.commit()
    session.expunge_all()


# `scope="function"` ends the dependency, and so commits, before the response is sent: a client that
# reads its own write right after the answer must find it.
Session = Annotated[AsyncSession, Depends(_session, scope="function")]
