from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Select, and_, bindparam, delete, or_, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import InstrumentedAttribute

from weir.db import BY_ITSELF
from weir.errors import NotFoundError
from weir.identity import owned
from weir.identity.models import Account, ApiKey, AuditEntry, ConsoleSession
from weir.kit.pagination import PageRequest, big, moment
from weir.people.models import User
from weir.projects.models import Project

TOUCH_EVERY = timedelta(minutes=1)


@dataclass(frozen=True)
class AuditFilter:
    """Which entries of the audit log; None leaves a thing open. An `action` that ends in a dot means all that begin
    with it. From `since` on, and before `until`."""

    resource: str | None = None
    project_id: str | None = None
    actor: str | None = None
    action: str | None = None
    since: datetime | None = None
    until: datetime | None = None

    def narrow(self, statement: "Select[AuditEntry]") -> "Select[AuditEntry]":
        exact = (
            (AuditEntry.resource, self.resource),
            (AuditEntry.project_id, self.project_id),
            (AuditEntry.actor, self.actor),
        )
        for column, value in exact:
            if value is not None:
                statement = statement.where(column == value)
        if self.action is not None:
            has = AuditEntry.action.startswith(self.action, autoescape=True)
            statement = statement.where(has if self.action.endswith(".") else AuditEntry.action == self.action)
        if self.since is not None:
            statement = statement.where(AuditEntry.at >= self.since)
        if self.until is not None:
            statement = statement.where(AuditEntry.at < self.until)
        return statement


def _alive(at: datetime, idle: timedelta) -> tuple[ColumnElement[bool], ...]:
    return (ConsoleSession.expires_at > at, ConsoleSession.last_seen_at > at - idle)


def _whose(user_id: UUID | None, key_id: int | None) -> ColumnElement[bool]:
    if key_id is not None:
        return ConsoleSession.api_key_id == key_id
    return ConsoleSession.user_id == user_id


def _named(name: str) -> Select[Account]:
    return select(Account).where(Account.name == name, Account.deleted_at.is_(None))


def _free(column: InstrumentedAttribute[Any], ident: object) -> Select[Any]:
    """The row, where no other transaction has it locked."""
    return select(column).where(column == ident).with_for_update(skip_locked=True)


# Made once and not at each request; so SQLAlchemy finds out once, too, under which key it keeps them compiled.
_OF_KEY = (
    select(ApiKey, Account)
    .join(Account, Account.id == ApiKey.account_id)
    .where(
        ApiKey.key_hash == bindparam("key_hash"),
        ApiKey.revoked_at.is_(None),
        Account.deleted_at.is_(None),
    )
)
_OF_KEY_FOR_PROJECT = _OF_KEY.add_columns(Project).outerjoin(
    Project, and_(Project.id == bindparam("project_id"), Project.account_id == Account.id)
)


class IdentityRepository:
    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def account_of_key(self, key_hash: bytes) -> tuple[ApiKey, Account] | None:
        row = (await self._session.execute(_OF_KEY, {"key_hash": key_hash})).first()
        return None if row is None else (row[0], row[1])

    async def account_of_key_for(
        self, key_hash: bytes, project_id: str
    ) -> tuple[ApiKey, Account, Project | None] | None:
        """With the project of that id, deleted or not, where it is that organisation's: a request about a project
        asks for it in the same statement."""
        given = {"key_hash": key_hash, "project_id": project_id}
        row = (await self._session.execute(_OF_KEY_FOR_PROJECT, given)).first()
        return None if row is None else (row[0], row[1], row[2])

    async def account_of_key_id(self, key_id: int | None) -> tuple[ApiKey, Account] | None:
        row = (
            await self._session.execute(
                select(ApiKey, Account)
                .join(Account, Account.id == ApiKey.account_id)
                .where(ApiKey.id == key_id, ApiKey.revoked_at.is_(None), Account.deleted_at.is_(None))
            )
        ).first()
        return None if row is None else (row[0], row[1])

    async def console_session(self, token_hash: bytes, at: datetime, idle: timedelta) -> ConsoleSession | None:
        """One that has neither ended nor been idle for too long. What opened it may have ended meanwhile."""
        statement = select(ConsoleSession).where(ConsoleSession.token_hash == token_hash, *_alive(at, idle))
        return (await self._session.scalars(statement)).one_or_none()

    async def console_sessions(
        self, user_id: UUID | None, key_id: int | None, at: datetime, idle: timedelta
    ) -> list[ConsoleSession]:
        """Those of a person, or else those that a key has opened; the newest first."""
        statement = select(ConsoleSession).where(_whose(user_id, key_id), *_alive(at, idle))
        return list((await self._session.scalars(statement.order_by(ConsoleSession.created_at.desc()))).all())

    async def touch_session(self, opened: ConsoleSession, at: datetime) -> None:
        """As `touch_key`."""
        if opened.last_seen_at >= at - TOUCH_EVERY:
            return
        due = _free(ConsoleSession.id, opened.id).where(ConsoleSession.last_seen_at < at - TOUCH_EVERY)
        await self._session.execute(
            update(ConsoleSession)
            .where(ConsoleSession.id.in_(due))
            .values(last_seen_at=at)
            .execution_options(synchronize_session=False, **BY_ITSELF)
        )

    async def touch_key(self, key: ApiKey, address: str, at: datetime) -> None:
        """Last use, to the minute: a write for every read would make this the busiest row there is. `key` is as it
        was just read, so that most requests end here without a statement; of those that find it due together, one
        writes and none waits for its transaction."""
        if key.last_used_at is not None and key.last_used_at >= at - TOUCH_EVERY:
            return
        old = or_(ApiKey.last_used_at.is_(None), ApiKey.last_used_at < at - TOUCH_EVERY)
        await self._session.execute(
            update(ApiKey)
            .where(ApiKey.id.in_(_free(ApiKey.id, key.id).where(old)))
            .values(last_used_at=at, last_used_from_addr=address)
            .execution_options(synchronize_session=False, **BY_ITSELF)
        )

    async def choose_organization(self, session_id: UUID, account_id: UUID) -> None:
        await self._session.execute(
            update(ConsoleSession)
            .where(ConsoleSession.id == session_id)
            .values(account_id=account_id)
            .execution_options(synchronize_session=False)
        )

    async def keys(self, account_id: UUID, made_by: UUID | None = None) -> list[tuple[ApiKey, User | None]]:
        """Of the organisation, or those that one person made there, each with the person who made it."""
        statement = (
            select(ApiKey, User)
            .outerjoin(User, User.id == ApiKey.user_id)
            .where(ApiKey.account_id == account_id, ApiKey.revoked_at.is_(None))
            .order_by(ApiKey.id)
        )
        if made_by is not None:
            statement = statement.where(ApiKey.user_id == made_by)
        return [(row[0], row[1]) for row in (await self._session.execute(statement)).all()]

    async def key(self, account_id: UUID, key_id: int) -> ApiKey | None:
        statement = select(ApiKey).where(
            ApiKey.account_id == account_id, ApiKey.id == key_id, ApiKey.revoked_at.is_(None)
        )
        return (await self._session.scalars(statement)).one_or_none()

    async def revoke_keys_of(self, account_id: UUID, user_id: UUID, at: datetime) -> None:
        """Those that a person made in an organisation."""
        await self._session.execute(
            update(ApiKey)
            .where(ApiKey.account_id == account_id, ApiKey.user_id == user_id, ApiKey.revoked_at.is_(None))
            .values(revoked_at=at)
            .execution_options(synchronize_session=False)
        )

    async def ensure_account(self, name: str, email: str, *, operator: bool = False) -> Account:
        """`email` and `operator` are those of an account that is made now; one that exists stays as it is."""
        await self._session.execute(
            insert(Account)
            .values(name=name, email=email, operator=operator)
            .on_conflict_do_nothing(index_elements=["name"], index_where=Account.deleted_at.is_(None))
        )
        return (await self._session.scalars(_named(name))).one()

    async def account_named(self, name: str) -> Account | None:
        return (await self._session.scalars(_named(name))).one_or_none()

    async def hold_account(self, account_id: UUID) -> None:
        """Before something is made that is to be an organisation's: until commit the organisation does not end.
        Raises NotFoundError for one that has ended."""
        statement = (
            select(Account.deleted_at).where(Account.id == account_id).with_for_update(read=True, key_share=True)
        )
        if (await self._session.scalars(statement)).one() is not None:
            raise NotFoundError.of("organization", account_id)

    async def ensure_key(self, account_id: UUID, name: str, key_hash: bytes) -> None:
        await self._session.execute(
            insert(ApiKey)
            .values(account_id=account_id, name=name, key_hash=key_hash)
            .on_conflict_do_nothing(index_elements=["key_hash"])
        )

    def add(self, row: ApiKey | ConsoleSession | AuditEntry) -> None:
        self._session.add(row)

    async def flush(self) -> None:
        await self._session.flush()

    async def end_session(self, token_hash: bytes) -> None:
        await self._session.execute(delete(ConsoleSession).where(ConsoleSession.token_hash == token_hash))

    async def end_sessions_of(self, user_id: UUID, but: UUID | None = None) -> None:
        """All of a person's but one."""
        statement = delete(ConsoleSession).where(ConsoleSession.user_id == user_id)
        if but is not None:
            statement = statement.where(ConsoleSession.id != but)
        await self._session.execute(statement.execution_options(synchronize_session=False))

    async def drop_expired_sessions(self, at: datetime, idle: timedelta) -> None:
        ended = or_(ConsoleSession.expires_at <= at, ConsoleSession.last_seen_at <= at - idle)
        await self._session.execute(delete(ConsoleSession).where(ended).execution_options(synchronize_session=False))

    async def audit_of(self, resource: str, page: PageRequest) -> list[AuditEntry]:
        """Of one resource, whoever did it: for those who may see the resource."""
        return await self._audit(select(AuditEntry).where(AuditEntry.resource == resource), page)

    async def audit_page(
        self,
        account_id: UUID,
        fleet: UUID | None,
        wanted: AuditFilter,
        page: PageRequest,
    ) -> list[AuditEntry]:
        """What the account did, and what anybody did to its projects and its other resources (`owned`). An operator
        (`fleet` None) sees what the installation does by itself, and what anybody did to such other resources."""
        others: list[ColumnElement[bool]]
        if fleet is None:
            others = [AuditEntry.account_id.is_(None)]
            others += [AuditEntry.resource.startswith(f"{kind}/") for kind in owned.kinds()]
        else:
            # Of one that was another organisation's before, what has happened since: who did what there is not for
            # this one to know.
            since = or_(Project.transferred_at.is_(None), Project.transferred_at <= AuditEntry.at)
            theirs = select(Project.id).where(Project.id == AuditEntry.project_id, Project.account_id == fleet, since)
            others = [theirs.exists()]
            others += [AuditEntry.resource.in_(names) for names in owned.names_of(fleet)]
        statement = select(AuditEntry).where(or_(AuditEntry.account_id == account_id, *others))
        return await self._audit(wanted.narrow(statement), page)

    async def _audit(self, statement: Select[AuditEntry], page: PageRequest) -> list[AuditEntry]:
        key = page.after(moment, big)
        if key is not None:
            statement = statement.where(AuditEntry.id < key[1])
        statement = statement.order_by(AuditEntry.id.desc()).limit(page.limit + 1)
        return list((await self._session.scalars(statement)).all())
