"""The engine of the metadata database, as requests and activities use it.

The driver is asyncpg: it reads and writes Postgres's protocol in compiled code, where psycopg waits for the socket
and looks at each answer in Python, a third of what a request to the API costs. Migrations, `weir-admin` and commands
go by psycopg. The URL that is configured is in libpq's terms (`sslmode`, `sslrootcert`), which both understand.

Errors keep the classes that psycopg gives them (PEP 249): what a repetition may get over is an
`sqlalchemy.exc.OperationalError`.
"""

import os
import time
from collections.abc import Callable, Coroutine
from typing import Any

import asyncpg
from sqlalchemy import event, exc
from sqlalchemy.engine import URL, ExceptionContext, make_url
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import ConnectionPoolEntry

LOCK_TIMEOUT_MS = 5_000
STATEMENT_TIMEOUT_MS = 15_000
CONNECT_TIMEOUT_SECONDS = 5
PING_AFTER_IDLE_SECONDS = 1.0
_IDLE_SINCE = "weir_idle_since"
# Classes of SQLSTATE (Postgres's appendix A): a broken connection, a rollback by the server (deadlock), no resources,
# a state in the way (a lock's timeout), an intervention (cancelled, shut down, starting), an error of the system.
_OPERATIONAL = {"08", "40", "53", "55", "57", "58"}


def engine_of(database_url: str, pool_size: int) -> AsyncEngine:
    url = make_url(database_url)
    engine = create_async_engine(
        url.set(drivername="postgresql+asyncpg", query={}),
        async_creator=_connecting(url),
        pool_size=pool_size,
        # Errors are logged; parameters hold sealed passwords and hashes of keys.
        hide_parameters=True,
    )
    _ping_idle_connections(engine)
    _name_errors(engine)
    return engine


def _connecting(url: URL) -> Callable[[], Coroutine[Any, Any, asyncpg.Connection]]:
    dsn = url.set(drivername="postgresql").render_as_string(hide_password=False)
    settings = {
        "lock_timeout": str(LOCK_TIMEOUT_MS),
        "statement_timeout": str(STATEMENT_TIMEOUT_MS),
        "application_name": "weir",
    }

    async def connect() -> asyncpg.Connection:
        try:
            return await asyncpg.connect(dsn, timeout=CONNECT_TIMEOUT_SECONDS, server_settings=settings)
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            why = ConnectionError(f"no connection to {url.host}:{url.port or 5432}: {_reason(error)}")
            raise exc.OperationalError("connecting", None, why) from error

    return connect


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {CONNECT_TIMEOUT_SECONDS} s"
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno)
    return str(error) or type(error).__name__


def _ping_idle_connections(engine: AsyncEngine) -> None:
    """As SQLAlchemy's `pool_pre_ping`, for connections that have been idle for `PING_AFTER_IDLE_SECONDS`: the
    metadata server may have been started again meanwhile. Under load a ping for each request would be a fifth of its
    statements; a request whose connection broke within that time gets a 503, as one that was under way would."""
    dialect, pool = engine.dialect, engine.sync_engine.pool

    @event.listens_for(pool, "checkin")
    def _returned(connection: object, record: ConnectionPoolEntry) -> None:
        del connection
        record.info[_IDLE_SINCE] = time.monotonic()

    @event.listens_for(pool, "checkout")
    def _taken(connection: DBAPIConnection, record: ConnectionPoolEntry, proxied: object) -> None:
        del proxied
        idle_since = record.info.pop(_IDLE_SINCE, None)
        if idle_since is None or time.monotonic() - idle_since < PING_AFTER_IDLE_SECONDS:
            return
        try:
            alive = dialect.do_ping(connection)
        except dialect.loaded_dbapi.Error:
            alive = False
        if not alive:
            # The others are as old: each is made anew when it is asked for.
            raise exc.InvalidatePoolError


def _name_errors(engine: AsyncEngine) -> None:
    @event.listens_for(engine.sync_engine, "handle_error")
    def _failed(context: ExceptionContext) -> None:
        found = context.sqlalchemy_exception
        if not isinstance(found, exc.DBAPIError) or isinstance(found, exc.OperationalError) or found.orig is None:
            return
        state = getattr(found.orig, "sqlstate", None) or ""
        if state[:2] in _OPERATIONAL or context.is_disconnect:
            context.chained_exception = exc.OperationalError(
                found.statement,
                found.params,
                found.orig,
                hide_parameters=True,
                connection_invalidated=context.is_disconnect,
            )
