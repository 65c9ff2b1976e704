"""Passwords of people: Argon2id, off the event loop, and few at a time.

A hash takes MEMORY_KIB of memory and some hundredths of a second of a processor. Whoever floods the API with attempts
waits for the others of the flood; the memory is bounded by _AT_ONCE.
"""

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor

from cryptography.exceptions import InvalidKey
from cryptography.hazmat.primitives.kdf.argon2 import Argon2id

from weir.errors import BadRequestError

# Above OWASP's least for Argon2id (19 MiB, 2 rounds).
MEMORY_KIB, ROUNDS, LANES = 32_768, 2, 1
_SALT_BYTES, _HASH_BYTES = 16, 32
_AT_ONCE = 2
FEWEST, MOST = 12, 200
_FORM = f"$argon2id$v=19$m={MEMORY_KIB},t={ROUNDS},p={LANES}$"
# What a password is compared with where there is none: it takes as long, and nothing is known to fit.
_NOBODYS = f"{_FORM}{'A' * 22}${'A' * 43}"
_pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="argon2")


def check_new(password: str, email: str) -> None:
    """Raises BadRequestError for a password that is no good as a new one."""
    if not FEWEST <= len(password) <= MOST:
        raise BadRequestError(f"a password has {FEWEST} to {MOST} characters; choose another one")
    if password.lower() in email.lower() or email.lower() in password.lower():
        raise BadRequestError("the password says no more than the email does; choose another one")
    if len(set(password)) < 5:
        raise BadRequestError("the password repeats a few characters; choose another one")


async def hashed(password: str) -> str:
    """As `users.password_hash` has it: a PHC string."""
    return await asyncio.get_running_loop().run_in_executor(_pool, hash_now, password)


def hash_now(password: str) -> str:
    kdf = Argon2id(
        salt=os.urandom(_SALT_BYTES), length=_HASH_BYTES, iterations=ROUNDS, lanes=LANES, memory_cost=MEMORY_KIB
    )
    return kdf.derive_phc_encoded(password.encode())


async def fits(password: str, stored: str | None) -> bool:
    """Whether it is the password of a hash; of no hash (None) it never is, and that takes as long to say."""
    return await asyncio.get_running_loop().run_in_executor(_pool, _fits, password, stored)


def _fits(password: str, stored: str | None) -> bool:
    try:
        Argon2id.verify_phc_encoded(password.encode(), stored or _NOBODYS)
    except InvalidKey:
        return False
    return stored is not None


def outdated(stored: str) -> bool:
    """Whether a hash was made at another cost than hashes are now."""
    return not stored.startswith(_FORM)
