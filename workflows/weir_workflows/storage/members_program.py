"""`weir-members`: changes the members of a log that has no compute (docs/interfaces.md)."""

import asyncio
import asyncio.subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

# Beyond the patience that the program has itself, which it has with each of three things.
_KILLED_AFTER = 4


class MembersProgramError(Exception):
    """The program has not made the change, or does not know whether it has; the message says why."""

    def __init__(self, code: int | None, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class Log:
    """Whose log, where to ask, and how far the pageserver has ingested it: an election that knows less is given
    up."""

    tenant: str
    timeline: str
    safekeepers: Sequence[str]
    ingested_lsn: str


async def change(
    bin_dir: Path,
    log: Log,
    words: Sequence[str],
    timeout_ms: int,
    descriptors: Sequence[int],
    token: str | None = None,
    tls_file: Path | None = None,
) -> None:
    """Makes the change `words` says, such as `["promote", "4"]`, with these descriptors open in the program. Raises
    MembersProgramError when it has not succeeded. The program has ended on return, however this ends. `token`: what
    the safekeepers are shown; it goes by a pipe, since arguments can be read by others. `tls_file`: by what the
    program proves itself to them."""
    process = await asyncio.create_subprocess_exec(
        str(bin_dir / "weir-members"),
        *("--tenant", log.tenant, "--timeline", log.timeline),
        *("--safekeepers", ",".join(log.safekeepers), "--ingested-lsn", log.ingested_lsn),
        *("--timeout-ms", str(timeout_ms)),
        *(() if token is None else ("--token-on-stdin",)),
        *(() if tls_file is None else ("--tls", str(tls_file))),
        *words,
        stdin=asyncio.subprocess.DEVNULL if token is None else asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        pass_fds=tuple(descriptors),
    )
    try:
        async with asyncio.timeout(_KILLED_AFTER * timeout_ms / 1000):
            _, said = await process.communicate(None if token is None else token.encode())
    except TimeoutError:
        raise MembersProgramError(None, f"weir-members {' '.join(words)} has not ended in time") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode != 0:
        lines = said.decode(errors="replace").strip().splitlines() or [f"it ended with code {process.returncode}"]
        raise MembersProgramError(process.returncode, f"weir-members {' '.join(words)}: {lines[-1]}")
