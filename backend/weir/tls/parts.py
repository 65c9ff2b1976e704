"""The files by which parts prove themselves, made before a part starts and made anew by the worker.

A file has a part's private key and certificate, and behind them the CAs that it trusts, so that what belongs together
is replaced together. They are in `secrets/parts`, those of computes too: a compute's own folder may be its database's
own user's, who would put other CAs there. `ca.pem` beside them has the CAs alone, for Prometheus."""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509

from weir.kit.certificates import BOTH, certificate_text, is_of, issue, key_text, parse_pair
from weir.tls import authority
from weir.tls.authority import LEEWAY_SECONDS, PART_SECONDS, Authority, moment, tls_dir
from weir.tokens import parts as tokens
from weir.tokens.files import read_own, write_private
from weir.tokens.keys import KeyFileError

# In the certificate of each part that has ports: Prometheus can be told one name for all it asks, and no more.
ANY_PORT = "part"
_END = "-----END CERTIFICATE-----\n"


@dataclass(frozen=True)
class Part:
    """A file, and the names in its certificate; the first is the part's own."""

    file: Path
    names: tuple[str, ...]


def control_file(home: Path) -> Path:
    """That of the control plane itself: API, worker and the `weir` command."""
    return tls_dir(home) / "control.pem"


def authorities_file(home: Path) -> Path:
    return tls_dir(home) / "ca.pem"


def service_file(home: Path, name: str) -> Path:
    """That of `pageserver`, `safekeeper-N` or `prometheus`."""
    return tls_dir(home) / f"{name}.pem"


def compute_file(home: Path, compute_id: str) -> Path:
    return tls_dir(home) / "computes" / f"{compute_id}.pem"


def compute_name(compute_id: str) -> str:
    """An ID can have 60 characters, and a label of a name 63."""
    return f"{compute_id}.compute"


def services(home: Path, safekeepers: Iterable[int]) -> list[Part]:
    """Of what runs whether or not there are computes; `safekeepers` by their numbers."""
    return [
        Part(control_file(home), ("control",)),
        Part(service_file(home, "prometheus"), ("prometheus",)),
        Part(service_file(home, "pageserver"), ("pageserver", ANY_PORT)),
        *(
            Part(service_file(home, f"safekeeper-{n}"), (f"safekeeper-{n}", "safekeeper", ANY_PORT))
            for n in safekeepers
        ),
    ]


def compute(home: Path, compute_id: str) -> Part:
    return Part(compute_file(home, compute_id), (compute_name(compute_id), "compute", ANY_PORT))


def computes(home: Path) -> list[Part]:
    """Of all computes that were started here and have a folder. Raises KeyFileError."""
    return [compute(home, part.grant.subject) for part in tokens.computes(home)]


def forget(home: Path, compute_id: str) -> None:
    compute_file(home, compute_id).unlink(missing_ok=True)


def renew(it: Authority, home: Path, parts: Iterable[Part], now: float) -> int:
    """Writes the file of each part whose certificate is missing, soon not valid, or not as it would be made now; and
    where other CAs count than it says. How many were written."""
    trusted = "".join(certificate_text(one) for one in it.trusted)
    written = _replaced(authorities_file(home), trusted)
    for part in parts:
        part.file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        own = _own(part)
        if own is None or not _is_good(own, part, it, now):
            begins, ends = moment(now - LEEWAY_SECONDS), moment(now + PART_SECONDS)
            certificate, key = issue(it.signs, part.names, begins, ends, BOTH)
            own = key_text(key) + certificate_text(certificate)
        written += _replaced(part.file, own + trusted)
    return written


def _own(part: Part) -> str | None:
    """Key and certificate, without the CAs."""
    try:
        before, end, _ = read_own(part.file).partition(_END)
    except (OSError, ValueError):
        return None
    return before + end


def _is_good(own: str, part: Part, it: Authority, now: float) -> bool:
    pair = parse_pair(own.encode(), own.encode())
    if pair is None or not is_of(pair[0], it.signs[0], part.names):
        return False
    return _in_time(pair[0], now)


def _in_time(certificate: x509.Certificate, now: float) -> bool:
    """A clock that was set back makes the certificate one of later."""
    begins = certificate.not_valid_before_utc.timestamp()
    left = certificate.not_valid_after_utc.timestamp() - now
    return begins <= now and PART_SECONDS / 2 < left <= PART_SECONDS


def _replaced(path: Path, text: str) -> int:
    try:
        if read_own(path) == text:
            return 0
    except (OSError, ValueError):
        pass
    write_private(path, text, durable=False, keeps_owner=True)
    return 1


def tend(home: Path, parts: Iterable[Part], now: float | None = None) -> int:
    """Makes what is missing, and what is soon not valid, the CA among it; how many files were written. A CA that
    comes next signs by a later call, when parts know of it. Raises KeyFileError and OSError."""
    at = time.time() if now is None else now
    with authority.changing(home):
        before = authority.read(home)
        it = authority.promoted(authority.due(before or authority.first(at), at), at)
        if it is not before:
            authority.write(home, it)
        written = renew(it, home, parts, at)
        spread = authority.known(it, at)
        if spread is not it:
            authority.write(home, spread)
        return written


def make(home: Path, part: Part) -> None:
    """The part's file is there and good when this returns. Raises KeyFileError and OSError."""
    with authority.changing(home):
        it = authority.read(home)
        if it is None:
            raise KeyFileError(f"{tls_dir(home)} has no CA for parts; `weir up` makes it.")
        renew(it, home, [part], time.time())


def rotate(home: Path, parts: list[Part], *, at_once: bool) -> Authority:
    """A new CA signs for all these parts, and all of them know it, after some ten seconds. Raises KeyFileError and
    OSError."""
    with authority.changing(home):
        return authority.rotate(
            home, lambda it: renew(it, home, parts, time.time()), time.time, time.sleep, at_once=at_once
        )
