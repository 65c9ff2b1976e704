"""A chain of hashes over the audit log, by which a change made behind Weir's back is found.

Each seal's hash covers the seal before it and everything an entry says: SHA-256 over the previous hash (32 zero
bytes for the first) and the entry as JSON with sorted keys. Seals are made a moment after their entries, in the order
of the entries' numbers as far as they are there: an entry of a transaction that commits late comes at a later
position.

What the chain shows, and what it does not. Who can write to the metadata database can make a whole new chain, which
fits: `weir-admin audit verify --known POSITION:HASH` compares with a head that was noted elsewhere before. An entry
that is removed before it is sealed leaves a gap that nobody sees; it had a few seconds for that.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import delete, func, select, text
from sqlalchemy.ext.asyncio import AsyncSession

from weir.identity.models import AuditEntry, AuditPending, AuditSeal

FIRST = bytes(32)
# Entries sealed in one transaction.
BATCH = 500
# Of Postgres's advisory locks: processes that seal at once would make the same position twice.
_LOCK = 0x77656972_05


@dataclass(frozen=True)
class Head:
    """The end of the chain: its number of seals, and the last one's hash."""

    position: int
    hash: bytes

    def __str__(self) -> str:
        return f"{self.position}:{self.hash.hex()}"

    @staticmethod
    def parse(written: str) -> "Head":
        """Raises ValueError unless it is POSITION:HASH as `str` writes it."""
        position, _, digest = written.partition(":")
        head = Head(int(position), bytes.fromhex(digest))
        if head.position < 0 or len(head.hash) != len(FIRST):
            raise ValueError(written)
        return head


@dataclass(frozen=True)
class Verified:
    """What a check of the whole chain found. `faults`: what does not fit, in words; none when every entry is as it
    was sealed. The check ends at the first link that does not fit."""

    head: Head
    pending: int
    faults: tuple[str, ...]


def sealed_hash(previous: bytes, entry: Mapping[str, Any]) -> bytes:
    """The hash of the seal that follows `previous` and covers `entry`, a JSON object."""
    written = json.dumps(entry, sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(previous + written.encode()).digest()


def content(entry: AuditEntry) -> dict[str, Any]:
    """All that an entry says, as read from the database: what is sealed."""
    return {
        "id": entry.id,
        "at": entry.at.astimezone(UTC).isoformat(timespec="microseconds"),
        "account_id": str(entry.account_id) if entry.account_id else None,
        "actor": entry.actor,
        "address": entry.address,
        "api_key_id": entry.api_key_id,
        "request_id": entry.request_id,
        "action": entry.action,
        "resource": entry.resource,
        "project_id": entry.project_id,
        "detail": entry.detail,
    }


async def head(session: AsyncSession) -> Head:
    last = (await session.scalars(select(AuditSeal).order_by(AuditSeal.position.desc()).limit(1))).one_or_none()
    return Head(0, FIRST) if last is None else Head(last.position, last.hash)


async def seal(session: AsyncSession, at: datetime) -> int:
    """Seals entries that wait for it, at most BATCH; how many. Another process that seals now is left alone."""
    mine = await session.scalar(text("SELECT pg_try_advisory_xact_lock(:key)").bindparams(key=_LOCK))
    if not mine:
        return 0
    waiting = select(AuditEntry).join(AuditPending, AuditPending.entry_id == AuditEntry.id)
    entries = (await session.scalars(waiting.order_by(AuditEntry.id).limit(BATCH))).all()
    if not entries:
        return 0
    last = await head(session)
    for entry in entries:
        last = Head(last.position + 1, sealed_hash(last.hash, content(entry)))
        session.add(AuditSeal(position=last.position, entry_id=entry.id, sealed_at=at, hash=last.hash))
    done = [entry.id for entry in entries]
    await session.execute(delete(AuditPending).where(AuditPending.entry_id.in_(done)))
    return len(done)


async def verify(session: AsyncSession, known: Head | None = None) -> Verified:
    """Goes through the whole chain. `known`: a head that was noted before, which has to lie on it."""
    faults: list[str] = []
    last = Head(0, FIRST)
    if known is not None and known.position == 0 and known != last:
        faults.append("the noted head is at position 0, where no chain has a hash")
    found_known = known is None or known.position == 0
    while True:
        rows = await _links(session, last.position)
        if not rows:
            break
        for link, entry in rows:
            fault = _fault(last, link, entry)
            if fault is not None:
                return Verified(last, await _pending(session), (*faults, fault))
            last = Head(link.position, link.hash)
            if known is not None and known.position == last.position:
                found_known = True
                if known.hash != last.hash:
                    faults.append(f"the chain has another hash at position {known.position} than was noted")
        session.expunge_all()
    if not found_known and known is not None:
        faults.append(f"the chain ends at position {last.position}, before the noted head {known.position}")
    lost = await _unsealed(session)
    if lost is not None:
        faults.append(f"entry {lost} has no seal and does not wait for one")
    return Verified(last, await _pending(session), tuple(faults))


async def _links(session: AsyncSession, after: int) -> list[tuple[AuditSeal, AuditEntry | None]]:
    statement = (
        select(AuditSeal, AuditEntry)
        .outerjoin(AuditEntry, AuditEntry.id == AuditSeal.entry_id)
        .where(AuditSeal.position > after)
        .order_by(AuditSeal.position)
        .limit(BATCH)
    )
    return [(row[0], row[1]) for row in (await session.execute(statement)).all()]


def _fault(last: Head, link: AuditSeal, entry: AuditEntry | None) -> str | None:
    """What is wrong with a link that follows `last`."""
    if link.position != last.position + 1:
        return f"the seals {last.position + 1} to {link.position - 1} are gone"
    if entry is None:
        return f"entry {link.entry_id}, sealed at position {link.position} on {link.sealed_at:%Y-%m-%d}, is gone"
    if sealed_hash(last.hash, content(entry)) != link.hash:
        return f"entry {entry.id}, or its seal at position {link.position}, was changed after it was sealed"
    return None


async def _pending(session: AsyncSession) -> int:
    return await session.scalar(select(func.count()).select_from(AuditPending)) or 0


async def _unsealed(session: AsyncSession) -> int | None:
    """An entry that is neither sealed nor pending, as one is that was written past the trigger."""
    statement = (
        select(func.min(AuditEntry.id))
        .outerjoin(AuditSeal, AuditSeal.entry_id == AuditEntry.id)
        .outerjoin(AuditPending, AuditPending.entry_id == AuditEntry.id)
        .where(AuditSeal.entry_id.is_(None), AuditPending.entry_id.is_(None))
    )
    return await session.scalar(statement)
