"""Keys and tokens of an installation whose parts are containers, kept by a process of its own.

The folder has the key that signs (`secrets/token_key`), the public keys (`run/token_keys.json`), and for each part
that is no compute a folder with its token (`tokens/PART/token`). Only this process writes there; each container sees
the folders that it needs and no others, and sees a file that was replaced, which it would not if it were given the
file alone. Computes' tokens are the worker's, who has their folders (docs/adr/0073)."""

import fcntl
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import structlog

from weir.tokens import parts
from weir.tokens.keys import READ_SECONDS, KeyFileError, KeyFiles, PublicKey, read_signing_key

log = structlog.get_logger()

LOOK_SECONDS = 10.0
# The worker looks at the key every ten seconds, and writes the tokens of all its computes then.
COMPUTES_SECONDS = 30.0


@dataclass(frozen=True)
class Keeper:
    folder: Path
    clock: Callable[[], float] = time.time
    pause: Callable[[float], None] = time.sleep

    @property
    def files(self) -> KeyFiles:
        return KeyFiles(self.folder)

    def tend(self) -> int:
        """Makes what is missing, and tokens that are soon not valid; how many. Raises KeyFileError and OSError."""
        with self._alone():
            self.files.prepare(self.clock())
            return self._renew()

    def rotate(self, say: Callable[[str], None], *, at_once: bool) -> None:
        """A new key signs from now on, and each part gets a token of it; `say` is told each step. `at_once`: when
        this returns, tokens of all other keys count no longer. Safe to repeat after it broke off. Raises KeyFileError
        and OSError."""
        with self._alone():
            key = self.files.rotate(self.clock, self.pause)
            say(f"key {key.name} signs from now on")
            say(f"{self._renew()} token(s) of services made anew; the worker makes those of computes")
            if not at_once:
                say("tokens of the key before count until they have expired; --at-once ends that")
                return
            self.pause(COMPUTES_SECONDS + READ_SECONDS)
            gone = self.files.forget_others()
            say(f"{len(gone)} other key(s) count no longer: " + ", ".join(gone))

    def listing(self) -> list[tuple[PublicKey, bool]]:
        """The keys that count, the one that signs first; whether it signs. Raises KeyFileError."""
        signs = read_signing_key(self.files.private).name
        ordered = sorted(self.files.published(), key=lambda key: (key.name != signs, key.retires or 0))
        return [(key, key.name == signs) for key in ordered]

    def _renew(self) -> int:
        return parts.renew(read_signing_key(self.files.private), parts.services_apart(self.folder), self.clock())

    @contextmanager
    def _alone(self) -> Generator[None]:
        """One process at a time changes keys; the others wait."""
        with (self.files.private.parent / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def keep(keeper: Keeper, alive: Path | None, rounds: int | None = None) -> None:
    """Goes on until it is ended, or for so many rounds. What goes wrong is logged and tried again. `alive` is written
    after each round that went well."""
    done = 0
    while rounds is None or done < rounds:
        try:
            written = keeper.tend()
            if written:
                log.info("tokens_renewed", count=written)
            if alive is not None:
                alive.touch()
        except (KeyFileError, OSError) as error:
            log.warning("tokens_not_renewed", error=str(error))
        done += 1
        keeper.pause(LOOK_SECONDS)
