"""People for tests: rows that are made directly, and clients that carry their cookie."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID, uuid4

import httpx
from sqlalchemy import insert, select

from weir.authz.principal import SESSION_COOKIE
from weir.db import Database
from weir.identity.models import Account, ConsoleSession
from weir.kit.clock import now
from weir.kit.crypto import hash_token, new_api_key
from weir.people.models import Membership, User
from weir.people.passwords import hash_now
from weir.people.roles import Role
from weir.projects.models import Project
from weir_testing.fixtures import own_database, running_api

PASSWORD = "correct horse battery staple"


@dataclass(frozen=True)
class Person:
    id: UUID
    email: str
    members: dict[UUID, UUID]
    """Ids of memberships, by organisation."""


@dataclass(frozen=True)
class Alone:
    """An API with a database of its own; what it is asked to do stays undone, since Temporal is away. `home`: an
    organisation with an owner; `runs`: one of operators; `elsewhere`: another one."""

    url: str
    database: Database
    home: UUID
    runs: UUID
    elsewhere: UUID


@asynccontextmanager
async def alone(postgres_url: str) -> AsyncGenerator[Alone]:
    async with own_database(postgres_url, WEIR_TEMPORAL_ADDRESS="127.0.0.1:9") as settings:
        database = Database(settings)
        try:
            home, runs = await organization(database), await organization(database, operator=True)
            elsewhere = await organization(database)
            # They stay, so that nobody else is the last owner.
            await person(database, {home: Role.OWNER, runs: Role.OWNER, elsewhere: Role.OWNER})
            async with running_api(settings) as client:
                yield Alone(str(client.base_url).rstrip("/"), database, home, runs, elsewhere)
        finally:
            await database.close()


async def project(database: Database, owner: UUID) -> str:
    """A row, of which storage has nothing."""
    ident = f"p-{uuid4().hex[:20]}"
    values = {
        "id": ident,
        "name": ident,
        "account_id": owner,
        "tenant_id": uuid4().hex,
        "pg_version": 15,
        "region_id": "local",
        "history_retention_seconds": 0,
        "settings": {},
        "default_endpoint_settings": {},
    }
    async with database.transaction() as session:
        await session.execute(insert(Project).values(**values))
    return ident


async def organization(database: Database, name: str = "", *, operator: bool = False) -> UUID:
    async with database.transaction() as session:
        row = Account(name=name or f"org-{uuid4().hex[:12]}", email="org@localhost", operator=operator)
        session.add(row)
        await session.flush()
        return row.id


async def organization_named(database: Database, name: str) -> UUID:
    async with database.transaction() as session:
        return (await session.scalars(select(Account.id).where(Account.name == name))).one()


async def person(database: Database, roles: dict[UUID, Role], *, password: str | None = None) -> Person:
    """A person with these roles in organisations."""
    email = f"p-{uuid4().hex[:12]}@example.org"
    async with database.transaction() as session:
        user = User(email=email, name=email, password_hash=hash_now(password) if password else None)
        session.add(user)
        await session.flush()
        rows = [
            Membership(id=uuid4(), account_id=account, user_id=user.id, role=role) for account, role in roles.items()
        ]
        session.add_all(rows)
        return Person(user.id, email, {row.account_id: row.id for row in rows})


async def session_of(database: Database, who: Person, account_id: UUID | None = None) -> str:
    """The token of a session that the person has open."""
    token = new_api_key()
    async with database.transaction() as session:
        session.add(
            ConsoleSession(
                user_id=who.id,
                account_id=account_id,
                token_hash=hash_token(token),
                expires_at=now() + timedelta(hours=1),
            )
        )
    return token


@asynccontextmanager
async def browser(url: str, token: str | None = None) -> AsyncGenerator[httpx.AsyncClient]:
    cookies = {SESSION_COOKIE: token} if token else {}
    async with httpx.AsyncClient(base_url=f"{url}/api/v2", cookies=cookies, timeout=20) as client:
        yield client


def keyed(url: str, key: str) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=f"{url}/api/v2", headers={"Authorization": f"Bearer {key}"}, timeout=20)
