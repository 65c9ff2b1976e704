"""What is generated and committed is current: OpenAPI, migrations."""

import asyncio
from pathlib import Path

from alembic import command
from weir_testing.fixtures import own_database

from weir import admin
from weir.config import Settings

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


async def test_migrating_twice_at_once_is_safe(environment: Settings) -> None:
    key = (environment.secrets_dir / "api_key").read_bytes()
    await asyncio.gather(admin.migrate(), admin.migrate())
    assert (environment.secrets_dir / "api_key").read_bytes() == key
    assert (environment.secrets_dir / "api_key").stat().st_mode & 0o777 == 0o600
