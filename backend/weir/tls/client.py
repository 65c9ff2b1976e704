"""The control plane's end of connections to parts."""

import os
import ssl
from functools import lru_cache
from pathlib import Path

_END = "-----END CERTIFICATE-----"


class UnprovenError(OSError):
    """The file by which the control plane proves itself can't be used; the message names it."""


class Caller:
    """TLS with the file of one part, which is read again when it changes."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._stamp: tuple[int, int, int] | None = None
        self._context: ssl.SSLContext | None = None

    def context(self) -> ssl.SSLContext:
        """For connections by TLS 1.3 to whoever proves to have the name that is asked for, by one of the CAs in the
        file. The same one until the file changes: connections are kept by it. Raises UnprovenError."""
        known = self._context
        try:
            found = os.stat(self._file)  # noqa: PTH116  asked for before each request; Path.stat costs thrice as much
            stamp = (found.st_ino, found.st_mtime_ns, found.st_size)
            if known is None or stamp != self._stamp:
                known = _made(self._file)
                self._context, self._stamp = known, stamp
        except (OSError, ValueError) as error:
            # What was read before goes on to count, as it does for parts.
            if known is None:
                raise UnprovenError(
                    f"{self._file} can't be used for TLS ({error}); `weir up` makes it again"
                ) from error
        return known


def _made(file: Path) -> ssl.SSLContext:
    _, _, authorities = file.read_text().partition(_END)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_cert_chain(file)
    context.load_verify_locations(cadata=authorities.strip())
    return context


@lru_cache(maxsize=8)
def caller(file: Path) -> Caller:
    return Caller(file)
