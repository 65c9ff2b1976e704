"""Slows guessing: each failed attempt to sign in counts against the email it was for and the address it came from.

The first few cost nothing; then each next one has to wait, twice as long as the one before, up to a bound. An attempt
is counted before its password is looked at, in a transaction of its own: any number of attempts at once are counted
one after the other. One that comes too early is refused unlooked at and not counted, so that waiting ends for who
waits. Emails that nobody has are counted as all others are.

A stranger can so delay, by the bound, the next sign-in of a person whose email is known. API keys and sessions that
there are go on.
"""

import hashlib
import ipaddress
import math
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Update, delete, func, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from weir.db import Database
from weir.errors import TooManyAttemptsError
from weir.people.models import SignInAttempts

# After so long without an attempt nothing is known any more.
FORGET = timedelta(hours=1)
_FORGET_AT_ONCE = 100


@dataclass(frozen=True)
class Measure:
    """`free`: failures that cost nothing. `most`: the longest wait, in seconds."""

    kind: str
    free: int
    most: int

    def pause(self, failures: int) -> timedelta:
        """Between the last of so many failures and the next attempt."""
        if failures < self.free:
            return timedelta(0)
        return timedelta(seconds=min(self.most, 2 ** min(failures - self.free, 20)))

    def subject(self, name: str) -> bytes:
        return hashlib.sha256(f"{self.kind}:{name}".encode()).digest()


BY_EMAIL = Measure("email", free=5, most=300)
# Many people may share an address.
BY_ADDRESS = Measure("address", free=30, most=900)


def network_of(address: str) -> str:
    """What one client has: an IPv4 address, or 64 bits of IPv6. Text that is no address stands for itself."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv6Address):
        if parsed.ipv4_mapped is not None:
            return str(parsed.ipv4_mapped)
        return str(ipaddress.ip_network((parsed, 64), strict=False))
    return str(parsed)


def _subjects(email: str, address: str) -> list[tuple[bytes, Measure]]:
    """In one order for everybody, in which they are locked."""
    found = [(BY_EMAIL.subject(email), BY_EMAIL), (BY_ADDRESS.subject(network_of(address)), BY_ADDRESS)]
    return sorted(found, key=lambda pair: pair[0])


async def enter(database: Database, email: str, address: str, at: datetime) -> None:
    """Counts an attempt as failed, until `succeeded` or `undecided` says otherwise. Raises TooManyAttemptsError when
    it comes too early."""
    # On its own: what is locked below is locked in one order.
    async with database.transaction() as session:
        await _forget(session, at)
    async with database.transaction() as session:
        wait = timedelta(0)
        counts: list[tuple[bytes, int, datetime]] = []
        for subject, measure in _subjects(email, address):
            failures, last_at = await _locked(session, subject, at)
            if last_at < at - FORGET:
                failures = 0
            pause = measure.pause(failures)
            # Without a pause nothing waits, not even for the clock of another process.
            if pause:
                wait = max(wait, last_at + pause - at)
            counts.append((subject, failures + 1, max(at, last_at)))
        if wait > timedelta(0):
            seconds = math.ceil(wait.total_seconds())
            raise TooManyAttemptsError(f"too many attempts to sign in have failed; try again in {seconds} s", seconds)
        for subject, failures, last_at in counts:
            await session.execute(_of(subject).values(failures=failures, last_at=last_at))


async def _locked(session: AsyncSession, subject: bytes, at: datetime) -> tuple[int, datetime]:
    statement = insert(SignInAttempts).values(subject=subject, failures=0, last_at=at)
    # Changes nothing of a row that is there, but locks it.
    statement = statement.on_conflict_do_update(
        index_elements=["subject"], set_={"subject": statement.excluded.subject}
    ).returning(SignInAttempts.failures, SignInAttempts.last_at)
    row = (await session.execute(statement)).one()
    return row[0], row[1]


def _of(subject: bytes) -> Update:
    statement = update(SignInAttempts).where(SignInAttempts.subject == subject)
    return statement.execution_options(synchronize_session=False)


async def succeeded(session: AsyncSession, email: str, address: str) -> None:
    """The attempt was the person's. Failures of the address stay: else whoever has one account would guess at others
    for free."""
    await clear(session, email)
    await _less(session, BY_ADDRESS.subject(network_of(address)))


async def undecided(database: Database, email: str, address: str) -> None:
    """The attempt was no guess: its password was right, and its code is still to come."""
    async with database.transaction() as session:
        for subject, _ in _subjects(email, address):
            await _less(session, subject)


async def clear(session: AsyncSession, email: str) -> None:
    subject = BY_EMAIL.subject(email)
    statement = delete(SignInAttempts).where(SignInAttempts.subject == subject)
    await session.execute(statement.execution_options(synchronize_session=False))


async def _less(session: AsyncSession, subject: bytes) -> None:
    await session.execute(_of(subject).values(failures=func.greatest(SignInAttempts.failures - 1, 0)))


async def _forget(session: AsyncSession, at: datetime) -> None:
    old = (
        select(SignInAttempts.subject)
        .where(SignInAttempts.last_at < at - FORGET)
        .limit(_FORGET_AT_ONCE)
        .with_for_update(skip_locked=True)
    )
    statement = delete(SignInAttempts).where(SignInAttempts.subject.in_(old))
    await session.execute(statement.execution_options(synchronize_session=False))
