"""Tokens of the parts of this machine, as files that the worker keeps good (`weir.tokens.parts`)."""

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

import structlog

from weir.config import Settings
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


@asynccontextmanager
async def kept(settings: Settings) -> AsyncGenerator[None]:
    """Tokens are good while the body runs."""
    task = asyncio.create_task(keep(settings))
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def keep(settings: Settings) -> None:
    """Goes on until it is cancelled; what goes wrong is logged and tried again."""
    while True:
        try:
            written = await asyncio.to_thread(renew, settings)
            if written:
                log.info("tokens_renewed", count=written)
        except (KeyFileError, OSError) as error:
            log.warning("tokens_not_renewed", error=str(error))
        await asyncio.sleep(LOOK_SECONDS)
