"""What follows on a provider's answers: sessions that begin, and sessions that end."""

import hashlib
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from sqlalchemy import CursorResult, Select, delete, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from weir.db import Database
from weir.errors import BadRequestError, UnauthorizedError, UnavailableError
from weir.identity.cookies import Lifetime
from weir.identity.models import ConsoleSession
from weir.kit.crypto import SecretBox
from weir.oidc import flow, tokens
from weir.oidc.accounts import Proven, person_of
from weir.oidc.flow import Begun
from weir.oidc.models import ProviderSession, UsedOnce
from weir.oidc.provider import Provider
from weir.oidc.tokens import TokenRefusedError
from weir.people.repository import PeopleRepository
from weir.people.sign_in import Coming, note, open_session

_FORGET_AT_ONCE = 100


@dataclass(frozen=True)
class House:
    """What signing in works with."""

    database: Database
    box: SecretBox
    lifetime: Lifetime


async def sign_in(
    house: House, provider: Provider, begun: Begun, code: str, coming: Coming, before: str | None
) -> str:
    """The token of a new session. `before`: the token of a session that the browser had, which ends. The state of
    `begun` is used up, whatever becomes of it.

    Raises BadRequestError where it was used before, UnauthorizedError where the code or the id_token are not good,
    ForbiddenError where the person is not to come in, UnavailableError where the provider does not answer."""
    proven = await answered(house, provider, begun, code, coming.at)
    settings = provider.settings
    async with house.database.transaction() as session:
        user = await person_of(session, settings, proven, coming)
        token, row = await open_session(
            session, user, coming, house.lifetime, before, provider=settings.id, issuer=settings.issuer
        )
        await session.flush()
        session.add(
            ProviderSession(
                session_id=row.id,
                issuer=settings.issuer,
                subject=proven.subject,
                sid=proven.sid,
                id_token=house.box.seal(proven.token),
            )
        )
    return token


async def answered(house: House, provider: Provider, begun: Begun, code: str, at: datetime) -> Proven:
    """What the provider says of the person. The state of `begun` is used up, whatever becomes of it. Raises as
    `sign_in`, but for ForbiddenError."""
    async with house.database.transaction() as session:
        first = await _first(session, f"state {begun.state}", at + flow.LASTS, at)
    if not first:
        raise BadRequestError("this sign-in has been answered before; begin again")
    return await _prove(provider, begun, code, at)


async def _prove(provider: Provider, begun: Begun, code: str, at: datetime) -> Proven:
    settings = provider.settings
    exchanged = await provider.exchange(code, begun.verifier, begun.redirect_uri)
    try:
        signed = await provider.signed(exchanged.id_token)
        said = tokens.id_token(signed, settings.issuer, settings.client_id, begun.nonce, at)
    except TokenRefusedError as error:
        raise UnauthorizedError(f"the id_token of {settings.name} is not taken: {error}; begin again") from None
    email, verified, name = said.email, said.email_verified, said.name
    if email is None and exchanged.access_token is not None:
        told = await provider.userinfo(exchanged.access_token, said.subject)
        email, verified, name = tokens.person_claims(told)
        name = name or said.name
    return Proven(said.subject, said.sid, email, verified, name, exchanged.id_token)


async def end_by_provider(house: House, provider: Provider, token: str, coming: Coming) -> int:
    """Ends the sessions that a logout token names; how many there were. Raises BadRequestError for a token that is
    not good, or that has counted before; UnavailableError."""
    settings = provider.settings
    try:
        signed = await provider.signed(token)
        said = tokens.logout_token(signed, settings.issuer, settings.client_id, coming.at)
    except TokenRefusedError as error:
        raise BadRequestError(f"the logout token is not taken: {error}") from None
    until = coming.at + tokens.LOGOUT_AGE + 2 * tokens.LEEWAY
    async with house.database.transaction() as session:
        if not await _first(session, f"jti {settings.issuer} {said.jti}", until, coming.at):
            raise BadRequestError("the logout token is not taken: it has counted before (`jti`)")
        statement = _sessions(settings.issuer, said.subject, said.sid)
        found = [(row[0], row[1]) for row in (await session.execute(statement)).all()]
        people = PeopleRepository(session)
        for user_id in {whose for _, whose in found if whose is not None}:
            user = await people.user(user_id)
            if user is not None:
                ended = sum(1 for _, whose in found if whose == user_id)
                memberships = await people.memberships_of(user_id)
                note(
                    session, memberships, user.email, coming, "session.revoke",
                    by=f"provider {settings.id}", sessions=ended,
                )  # fmt: skip
        ids = [ident for ident, _ in found]
        await session.execute(
            delete(ConsoleSession).where(ConsoleSession.id.in_(ids)).execution_options(synchronize_session=False)
        )
    return len(found)


def _sessions(issuer: str, subject: str | None, sid: str | None) -> Select[UUID, UUID | None]:
    statement = (
        select(ConsoleSession.id, ConsoleSession.user_id)
        .join(ProviderSession, ProviderSession.session_id == ConsoleSession.id)
        .where(ProviderSession.issuer == issuer)
    )
    if subject is not None:
        statement = statement.where(ProviderSession.subject == subject)
    if sid is not None:
        statement = statement.where(ProviderSession.sid == sid)
    return statement


async def provider_session(session: AsyncSession, session_id: UUID) -> ProviderSession | None:
    """Where a session of the console came from; None for one that no provider opened."""
    return await session.get(ProviderSession, session_id)


async def logout_url(provider: Provider | None, kept: ProviderSession, box: SecretBox, back: str) -> str | None:
    """Where the person ends the session at the provider, which then sends them to `back`; None where the provider has
    no such page, or does not answer."""
    if provider is None:
        return None
    try:
        endpoint = (await provider.endpoints()).end_session
    except UnavailableError:
        return None
    if endpoint is None:
        return None
    asked = {
        "id_token_hint": box.unseal(kept.id_token),
        "client_id": provider.settings.client_id,
        "post_logout_redirect_uri": back,
    }
    return flow.with_query(endpoint, asked)


async def _first(session: AsyncSession, what: str, until: datetime, at: datetime) -> bool:
    """Whether this has not counted before; it has from now on, until `until`."""
    old = select(UsedOnce.mark).where(UsedOnce.until < at - timedelta(minutes=1)).limit(_FORGET_AT_ONCE)
    old = old.with_for_update(skip_locked=True)
    await session.execute(delete(UsedOnce).where(UsedOnce.mark.in_(old)).execution_options(synchronize_session=False))
    mark = hashlib.sha256(what.encode()).digest()
    statement = insert(UsedOnce).values(mark=mark, until=until).on_conflict_do_nothing(index_elements=["mark"])
    result = await session.execute(statement)
    return isinstance(result, CursorResult) and result.rowcount == 1
