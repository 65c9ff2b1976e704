"""The CA that signs the certificates of parts, and its replacement without a gap.

All is in one file, `secrets/parts/authority.json`, which is replaced as a whole: the CA that signs, the one that
comes next, and those that signed before. A next CA signs nothing until each part has had time to read that it counts;
one that was replaced counts until no certificate of it can be valid any more. A crash between any two steps leaves a
file from which the next look goes on."""

import datetime as dt
import fcntl
import json
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from cryptography import x509

from weir.kit.certificates import Pair, authority, certificate_text, key_text, parse_pair
from weir.tokens.files import read_own, write_private
from weir.tokens.keys import KeyFileError

CA_SECONDS = 60 * 86_400
# A part's certificate. It is made anew at half: without a control plane everything goes on for twelve hours at least.
PART_SECONDS = 24 * 3600
# Clocks of parts may differ by so much; and a certificate counts from so long before it was made.
LEEWAY_SECONDS = 3600
# Parts look at their files twice a second, and Prometheus when it connects.
READ_SECONDS = 5.0


@dataclass(frozen=True)
class Next:
    """`known_since`: when each part's file said that it counts, seconds since the Unix epoch; None before."""

    pair: Pair
    known_since: float | None = None


@dataclass(frozen=True)
class Replaced:
    """Counts `until` then, seconds since the Unix epoch."""

    certificate: x509.Certificate
    until: float


@dataclass(frozen=True)
class Authority:
    signs: Pair
    next: Next | None = None
    replaced: tuple[Replaced, ...] = field(default=())

    @property
    def trusted(self) -> list[x509.Certificate]:
        """Whose certificates count now, the one that signs first."""
        coming = [self.next.pair[0]] if self.next is not None else []
        return [self.signs[0], *coming, *(old.certificate for old in self.replaced)]


def tls_dir(home: Path) -> Path:
    return home / "secrets" / "parts"


def _file(home: Path) -> Path:
    return tls_dir(home) / "authority.json"


@contextmanager
def changing(home: Path) -> Generator[None]:
    """One process at a time changes the CA or certificates; the others wait."""
    tls_dir(home).mkdir(mode=0o700, parents=True, exist_ok=True)
    path = tls_dir(home) / ".lock"
    # Services pass through the folder: one that could open the file could hold the lock, and certificates would end.
    path.touch(mode=0o600)
    path.chmod(0o600)
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _new(now: float) -> Pair:
    return authority(moment(now - LEEWAY_SECONDS), moment(now + CA_SECONDS), "Weir parts CA")


def moment(seconds: float) -> dt.datetime:
    return dt.datetime.fromtimestamp(int(seconds), dt.UTC)


def read(home: Path) -> Authority | None:
    """None: there is none yet. Raises KeyFileError for a file that is none, or that others can read."""
    path = _file(home)
    try:
        mode = path.lstat().st_mode
        text = read_own(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise KeyFileError(f"{path} cannot be read: {error.strerror}.") from None
    if mode & 0o077:
        raise KeyFileError(
            f"{path} can be read by others: chmod 600 {path}, then `weir certificates rotate --at-once`."
        )
    try:
        return _parsed(json.loads(text))
    except (ValueError, LookupError, TypeError) as error:
        raise KeyFileError(
            f"{path} is no CA of Weir's ({type(error).__name__}). Remove it and run `weir down` and `weir up`: a new "
            "CA signs for all parts then."
        ) from None


def _parsed(words: dict[str, Any]) -> Authority:
    coming = words["next"]
    return Authority(
        signs=_pair(words["signs"]),
        next=None if coming is None else Next(_pair(coming), coming["known_since"]),
        replaced=tuple(
            Replaced(x509.load_pem_x509_certificate(old["certificate"].encode()), float(old["until"]))
            for old in words["replaced"]
        ),
    )


def _pair(words: dict[str, str]) -> Pair:
    found = parse_pair(words["certificate"].encode(), words["key"].encode())
    if found is None:
        raise ValueError("a certificate without its key")
    return found


def write(home: Path, it: Authority) -> None:
    """Durable on return. Call within `changing`."""
    words = {
        "signs": _written(it.signs),
        "next": None if it.next is None else {**_written(it.next.pair), "known_since": it.next.known_since},
        "replaced": [{"certificate": certificate_text(old.certificate), "until": old.until} for old in it.replaced],
    }
    write_private(_file(home), json.dumps(words, indent=2) + "\n", durable=True)


def _written(pair: Pair) -> dict[str, str]:
    return {"certificate": certificate_text(pair[0]), "key": key_text(pair[1])}


def first(now: float) -> Authority:
    return Authority(_new(now))


def prepared(it: Authority, now: float) -> Authority:
    """With a next CA, which was not known to anybody yet. One that is under way stays."""
    return it if it.next is not None else replace(it, next=Next(_new(now)))


def known(it: Authority, now: float) -> Authority:
    """Each part's file says from now on that the next CA counts."""
    if it.next is None or it.next.known_since is not None:
        return it
    return replace(it, next=replace(it.next, known_since=now))


def promoted(it: Authority, now: float) -> Authority:
    """The next CA signs, once parts have had time to read of it; before that nothing changes."""
    coming = it.next
    # A clock that was set back since makes nobody wait for longer.
    if coming is None or coming.known_since is None or 0 <= now - coming.known_since < READ_SECONDS:
        return it
    until = now + PART_SECONDS + LEEWAY_SECONDS
    return Authority(coming.pair, None, (*it.replaced, Replaced(it.signs[0], until)))


def due(it: Authority, now: float) -> Authority:
    """What the time alone has changed: a CA past its half gets a next one, and those that were replaced go. A clock
    that was set back before the CA's beginning makes another one, too."""
    begins = it.signs[0].not_valid_before_utc.timestamp()
    left = it.signs[0].not_valid_after_utc.timestamp() - now
    kept = tuple(old for old in it.replaced if old.until > now)
    it = it if kept == it.replaced else replace(it, replaced=kept)
    return prepared(it, now) if left < CA_SECONDS / 2 or begins > now else it


def alone(it: Authority) -> Authority:
    """Certificates of no other CA count."""
    return Authority(it.signs)


def rotate(
    home: Path,
    renew: Callable[[Authority], object],
    clock: Callable[[], float],
    pause: Callable[[float], None],
    *,
    at_once: bool = False,
) -> Authority:
    """A new CA signs when this returns, and `renew` has given each part a certificate of it. `at_once`: those of all
    others count no longer. Safe to repeat after it broke off. Call within `changing`."""
    it = read(home) or first(clock())
    it = prepared(it, clock())
    write(home, it)
    renew(it)
    it = known(it, clock())
    write(home, it)
    pause(READ_SECONDS)
    since = 0.0 if it.next is None or it.next.known_since is None else it.next.known_since
    it = promoted(it, max(clock(), since + READ_SECONDS))
    write(home, it)
    renew(it)
    if at_once:
        pause(READ_SECONDS)
        it = alone(it)
        write(home, it)
        renew(it)
    return it


def listed(it: Authority) -> Sequence[tuple[str, str, dt.datetime]]:
    """For people: each CA's serial number in short, what it does, and until when it counts."""
    rows = [(it.signs[0], "signs", it.signs[0].not_valid_after_utc)]
    if it.next is not None:
        rows.append((it.next.pair[0], "comes next", it.next.pair[0].not_valid_after_utc))
    rows += [(old.certificate, "signed before", moment(old.until)) for old in it.replaced]
    return [(f"{found.serial_number:x}"[:16], what, until) for found, what, until in rows]
