"""The second factor: codes of TOTP (RFC 6238: SHA-1, 6 digits, 30 s), and codes that stand in for them once."""

import base64
import hmac
import secrets
from datetime import datetime
from uuid import UUID

from cryptography.hazmat.primitives.hashes import SHA1
from cryptography.hazmat.primitives.twofactor.totp import TOTP
from sqlalchemy import Update, delete, or_, update
from sqlalchemy.engine import CursorResult
from sqlalchemy.ext.asyncio import AsyncSession

from weir.kit.crypto import hash_token
from weir.people.models import RecoveryCode, User

STEP_SECONDS = 30
DIGITS = 6
# Steps to either side whose code is taken, for clocks that differ.
DRIFT = 1
RECOVERY_CODES = 10
_SECRET_BYTES = 20
# 80 random bits: as nothing can be guessed, a plain hash is enough.
_RECOVERY_BYTES = 10


def new_secret() -> bytes:
    return secrets.token_bytes(_SECRET_BYTES)


def as_text(secret: bytes) -> str:
    """As people type it into an authenticator."""
    return base64.b32encode(secret).decode()


def uri(secret: bytes, email: str) -> str:
    """What authenticators read from a QR code."""
    return _totp(secret).get_provisioning_uri(email, "Weir")


def _totp(secret: bytes) -> TOTP:
    return TOTP(secret, DIGITS, SHA1(), STEP_SECONDS)  # noqa: S303  what authenticators speak


def code_at(secret: bytes, at: datetime) -> str:
    return _totp(secret).generate(int(at.timestamp())).decode()


def matching_step(secret: bytes, code: str, at: datetime) -> int | None:
    """The newest step near this moment that has the code."""
    here = int(at.timestamp()) // STEP_SECONDS
    found: int | None = None
    for step in range(here - DRIFT, here + DRIFT + 1):
        expected = _totp(secret).generate(step * STEP_SECONDS)
        if hmac.compare_digest(expected, code.encode()):
            found = step
    return found


async def use_step(session: AsyncSession, user_id: UUID, step: int) -> bool:
    """Whether the step's code had not been used, nor a later one; it has been from now on."""
    unused = or_(User.totp_last_step.is_(None), User.totp_last_step < step)
    statement = update(User).where(User.id == user_id, unused).values(totp_last_step=step)
    return await _changed_one(session, statement)


def new_recovery_codes() -> list[str]:
    """To be shown once."""
    return [_grouped(base64.b32encode(secrets.token_bytes(_RECOVERY_BYTES)).decode()) for _ in range(RECOVERY_CODES)]


def _grouped(code: str) -> str:
    return "-".join(code[at : at + 4] for at in range(0, len(code), 4)).lower()


def recovery_hash(code: str) -> bytes:
    """The same however the code is typed: dashes, spaces and capitals say nothing."""
    return hash_token("".join(code.split()).replace("-", "").lower())


async def replace_recovery_codes(session: AsyncSession, user_id: UUID, codes: list[str]) -> None:
    await session.execute(delete(RecoveryCode).where(RecoveryCode.user_id == user_id))
    session.add_all([RecoveryCode(code_hash=recovery_hash(code), user_id=user_id) for code in codes])
    await session.flush()


async def use_recovery_code(session: AsyncSession, user_id: UUID, code: str, at: datetime) -> bool:
    """Whether it was one of the person's that had not been used; it has been from now on."""
    statement = (
        update(RecoveryCode)
        .where(
            RecoveryCode.code_hash == recovery_hash(code),
            RecoveryCode.user_id == user_id,
            RecoveryCode.used_at.is_(None),
        )
        .values(used_at=at)
    )
    return await _changed_one(session, statement)


async def _changed_one(session: AsyncSession, statement: Update) -> bool:
    result = await session.execute(statement.execution_options(synchronize_session=False))
    return isinstance(result, CursorResult) and result.rowcount == 1
