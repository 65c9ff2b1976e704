"""What is generated and committed is current: OpenAPI, migrations."""

import asyncio
from pathlib import Path

import psycopg
import pytest
from alembic import command
from sqlalchemy import select
from weir_testing.fixtures import own_database

from weir import admin
from weir.config import Settings
from weir.db import Database
from weir.errors import ProjectBusyError
from weir.operations import scopes
from weir.operations.locks import require_free
from weir.operations.models import OPEN, Operation, OperationLock
from weir.operations.service import mark_done

ROOT = Path(__file__).resolve().parents[2]


def test_the_committed_openapi_document_is_current() -> None:
    committed = (ROOT / "openapi" / "weir.json").read_text()
    assert committed == admin.openapi(), (
        "run `weir-admin openapi > openapi/weir.json`, and the console's client after"
    )


async def test_migrations_make_exactly_what_the_models_say(environment: Settings) -> None:
    del environment
    await asyncio.to_thread(command.check, admin.alembic_config())


async def test_what_is_known_of_sick_members_can_be_taken_back_and_made_again(postgres_url: str) -> None:
    async with own_database(postgres_url):
        config = admin.alembic_config()
        await asyncio.to_thread(command.downgrade, config, "0012")
        await asyncio.to_thread(command.upgrade, config, "head")
        await asyncio.to_thread(command.check, config)


# As they were written before operations held anything but their project.
_PROJECTS_OF_BEFORE = """
INSERT INTO projects (
    id, name, account_id, tenant_id, pg_version, region_id, history_retention_seconds, settings,
    default_endpoint_settings
)
SELECT word, word, accounts.id, word, 15, 'local', 0, '{}', '{}'
FROM accounts, unnest(ARRAY['busy', 'idle']) word LIMIT 2;
INSERT INTO operations (
    id, project_id, action, kind, status, origin, payload, failures_count, request_id, trace_context
)
SELECT gen_random_uuid(), project_id, 'create_timeline', 'create_project', status, 'request', '{}', 0, '', '{}'
FROM (VALUES ('busy', 'finished'), ('busy', 'running'), ('busy', 'scheduling'), ('idle', 'finished'))
    AS found (project_id, status)
"""


async def test_operations_that_are_open_when_it_is_upgraded_hold_their_project_to_their_end(
    postgres_url: str,
) -> None:
    async with own_database(postgres_url) as settings:
        config = admin.alembic_config()
        await asyncio.to_thread(command.downgrade, config, "0014")
        plain = settings.database_url.replace("postgresql+psycopg", "postgresql")
        async with await psycopg.AsyncConnection.connect(plain) as connection:
            for statement in _PROJECTS_OF_BEFORE.split(";"):
                await connection.execute(statement.encode())
        await asyncio.to_thread(command.upgrade, config, "head")
        database = Database(settings)
        try:
            async with database.transaction() as session:
                held = list(await session.scalars(select(OperationLock.path)))
                assert held == [scopes.of_project("busy")]
                await require_free(session, [scopes.of_project("idle")])
                with pytest.raises(ProjectBusyError):
                    await require_free(session, [scopes.of_endpoint("busy", "br-1", "ep-1")])
            statement = select(Operation.id).where(Operation.status.in_(OPEN)).order_by(Operation.sequence)
            async with database.transaction() as session:
                first, second = await session.scalars(statement)
            for ident, still_held in ((first, held), (second, [])):
                async with database.transaction() as session:
                    await mark_done(session, ident, None)
                async with database.transaction() as session:
                    assert list(await session.scalars(select(OperationLock.path))) == still_held
        finally:
            await database.close()


async def test_migrating_twice_at_once_is_safe(environment: Settings) -> None:
    key = (environment.secrets_dir / "api_key").read_bytes()
    await asyncio.gather(admin.migrate(), admin.migrate())
    assert (environment.secrets_dir / "api_key").read_bytes() == key
    assert (environment.secrets_dir / "api_key").stat().st_mode & 0o777 == 0o600
