"""The metadata database: engine, sessions, and the one place where a request commits.

One request is one transaction. Handlers take `Session`; it is committed when the handler returned and
rolled back when it raised, before the answer leaves.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import Depends, Request
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_sessionmaker, create_async_engine

from weir.config import Settings

LOCK_TIMEOUT_MS = 5_000
STATEMENT_TIMEOUT_MS = 15_000


class Database:
    def __init__(self, settings: Settings) -> None:
        self.engine: AsyncEngine = create_async_engine(
            settings.database_url,
            pool_size=settings.database_pool_size,
            pool_pre_ping=True,
            # Errors are logged; parameters hold sealed passwords and hashes of keys.
            hide_parameters=True,
            connect_args={
                "options": f"-c lock_timeout={LOCK_TIMEOUT_MS} -c statement_timeout={STATEMENT_TIMEOUT_MS}",
                "connect_timeout": 5,
                "application_name": "weir",
            },
        )
        self._sessions = async_sessionmaker(self.engine, expire_on_commit=False)

    @asynccontextmanager
    async def transaction(self) -> AsyncGenerator[AsyncSession]:
        async with self._sessions() as session, session.begin():
            yield session

    async def close(self) -> None:
        await self.engine.dispose()


async def _session(request: Request) -> AsyncGenerator[AsyncSession]:
    database: Database = request.app.state.database
    async with database.transaction() as session:
        yield session


# `scope="function"` ends the dependency, and so commits, before the response is sent: a client that
# reads its own write right after the answer must find it.
Session = Annotated[AsyncSession, Depends(_session, scope="function")]
