"""Tokens and certificates of the parts of this machine, as files that the worker keeps good (`weir.tokens.parts`,
`weir.tls.parts`)."""

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

import structlog

from weir.config import Settings
from weir.tls import parts as tls_parts
from weir.tokens import parts
from weir.tokens.bearer import signer_for
from weir.tokens.keys import KeyFileError

log = structlog.get_logger()

# A new key, or a clock that jumped, is noticed so soon.
LOOK_SECONDS = 10.0


def renew(settings: Settings) -> int:
    """Those of services, unless another process keeps them, and of computes that were started with one. How many
    were written. Raises KeyFileError, and OSError."""
    signer = signer_for(settings)
    if signer is None:
        return 0
    services = parts.services(settings.home) if settings.credentials_dir is None else []
    return parts.renew(signer.key(), [*services, *parts.computes(settings.home)], time.time())


def renew_certificates(settings: Settings) -> int:
    """Those of all parts, and the CA, where parts speak TLS. How many files were written. Raises KeyFileError, and
    OSError."""
    if settings.tls_file is None:
        return 0
    numbers = range(1, len(settings.safekeeper_http_urls) + 1)
    services = tls_parts.services(settings.home, numbers)
    return tls_parts.tend(settings.home, [*services, *tls_parts.computes(settings.home)])


@asynccontextmanager
async def kept(settings: Settings) -> AsyncGenerator[None]:
    """Tokens and certificates are good while the body runs."""
    task = asyncio.create_task(keep(settings))
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


# What the log says when it was done, and when it could not be.
_KEPT = (
    ("tokens_renewed", "tokens_not_renewed", renew),
    ("certificates_renewed", "certificates_not_renewed", renew_certificates),
)


async def keep(settings: Settings) -> None:
    """Goes on until it is cancelled; what goes wrong is logged and tried again."""
    while True:
        for done, failed, renewing in _KEPT:
            try:
                written = await asyncio.to_thread(renewing, settings)
                if written:
                    log.info(done, count=written)
            except (KeyFileError, OSError) as error:
                log.warning(failed, error=str(error))
        await asyncio.sleep(LOOK_SECONDS)
